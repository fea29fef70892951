"""Every policy on every source, at every budget, on the same answers."""

import functools
import json
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from experiments.blend_asc import charts, rules, sources
from lib.io import files
from lib.stats import intervals, tables
from lib.train import app, console, figures, report, signals
from lib.voting import confidence, paths, scaling
from lib.voting import sources as laws

POSITIVE = ('num_seeds', 'seeds_at_once', 'max_samples', 'init', 'dirichlet_draws')


def prepare(config: ml_collections.ConfigDict) -> dict[str, sources.Source]:
  """Checks the config, and finds the files of the sources."""
  for name in POSITIVE:
    if not config[name] > 0:
      raise ValueError(f'config.{name} must be positive, got {config[name]}.')
  for name in ('sc', *config.policies):
    if name not in rules.POLICIES:
      known = ', '.join(rules.POLICIES)
      raise ValueError(f'config.policies: {name!r} is none of {known}.')
  if config.default not in config.policies or 'sc' not in config.policies:
    raise ValueError('config.policies must have sc, which all are compared to, and the default.')
  if not 0 <= config.batch_fraction <= 1:
    raise ValueError(f'config.batch_fraction must be in [0, 1], got {config.batch_fraction}.')
  if len(config.budgets) < 3 or list(config.budgets) != sorted(set(config.budgets)):
    raise ValueError(f'config.budgets must be three or more, in ascending order: {config.budgets}.')
  if not config.init <= config.budgets[0] or not config.budgets[-1] <= config.max_samples:
    raise ValueError(
      f'config.budgets must lie in [init, max_samples] = [{config.init}, {config.max_samples}], '
      f'got {config.budgets}.'
    )
  for cap in config.caps:
    if not 1 <= cap <= config.max_samples:
      raise ValueError(f'config.caps must lie in [1, {config.max_samples}], got {cap}.')
  for name in ('thresholds', 'deltas', 'dirichlet_thresholds'):
    for value in config[name]:
      if not 0 < value < 1:
        raise ValueError(f'config.{name} must lie in (0, 1), got {value}.')
  for size in config.windows:
    if not 1 <= size <= config.max_samples:
      raise ValueError(f'config.windows must lie in [1, {config.max_samples}], got {size}.')
  if not config.sources:
    raise ValueError('config.sources is empty.')
  return sources.prepare(config)


def run(this: app.Run, made: dict[str, sources.Source]) -> None:
  """Simulates source by source; one that is finished is kept in the workdir, and not run again."""
  config = this.config
  kept = this.workdir / 'curves'
  kept.mkdir(exist_ok=True)
  rows: list[tables.Row] = []
  sections = []
  for name, source in made.items():
    path = kept / f'{name}.json'
    try:
      curves = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):  # not run yet, or damaged
      curves = simulate(config, name, source)
      files.write_json(path, curves)
    curves = _arrays(curves)
    more = summarise(config, name, curves)
    rows += [row for group in more.values() for row in group]
    drawing = charts.errors(config.budgets, curves['errors']['mode'], curves['sc'], config.default)
    figures.save(drawing, this.workdir / 'figures' / f'{name}.png')
    sections += [f'## {name}', curves['facts'], f'![](figures/{name}.png)']
    for title, group in more.items():
      if group:
        sections += [f'### {title}', tables.table(group, omit=('source',))]
    sections += ['### Claims', *claims(config, curves)]
  report.write_results(this, rows)
  intro = (
    f'{config.num_seeds} seeds; answers are drawn with replacement, the same for all policies. '
    f'Budgets are mean samples a question, {config.init} of them handed out first, then rounds of '
    f'{config.batch_fraction:g} of the questions. Errors are disagreement with the limiting '
    'answer, with 95 % intervals over seeds. The ratio is the samples that plain self-consistency '
    'needs for the same error, over the budget; its interval carries that of the error through '
    'the curve.'
  )
  report.write_report(this, 'Samples for self-consistency', [intro, *sections])


def simulate(config: Any, name: str, source: sources.Source) -> dict[str, Any]:
  """Errors on a source: plain lists, by kind, policy or stopping rule, and seed."""
  blocks: list[dict[str, Any]] = []
  seeds = range(config.num_seeds)
  for first in range(0, config.num_seeds, config.seeds_at_once):
    batch = [source(seed) for seed in seeds[first : first + config.seeds_at_once]]
    facts = batch[0].facts
    blocks.append(_simulate(config, batch, first))
    console.say(f'{name}: {first + len(batch)} of {config.num_seeds} seeds')
    signals.check()
  joined = jax.tree.map(lambda *x: np.concatenate(x).tolist(), *blocks)
  return {'facts': facts, **joined}


def _simulate(config: Any, batch: Sequence[sources.Questions], first: int) -> dict[str, Any]:
  """Some seeds at once, an axis of seeds first."""
  p = np.stack([questions.p for questions in batch])
  num_questions, num_answers = p.shape[1:]
  keys = jax.vmap(lambda n: jax.random.fold_in(jax.random.key(config.seed + 1), n))(
    jnp.arange(first, first + len(batch))
  )
  limiting = p == p.max(-1, keepdims=True)
  right = {'mode': limiting}
  if batch[0].gold is not None:
    right['gold'] = np.stack([questions.gold for questions in batch])
  answers, votes, errors, rates = _draw(keys, p, right, config.max_samples)
  if 'gold' in right:
    # Of the aligned questions alone: others count nothing.
    aligned = (limiting & right['gold']).any(-1)
    weight = aligned / aligned.mean(-1, keepdims=True)
    errors['aligned'] = errors['mode'] * weight[..., None]
  budgets = tuple(int(x * num_questions) for x in config.budgets)
  size = max(1, int(config.batch_fraction * num_questions))
  out: dict[str, Any] = {
    'sc': np.asarray(errors['mode'].mean(1)),
    'errors': {kind: {} for kind in errors},
    'stopping': {},
  }
  for policy in config.policies:
    samples = rules.allocate(policy, votes, rates, budgets, config.init, size)
    for kind, path in errors.items():
      out['errors'][kind][policy] = np.asarray(rules.pick(path, samples))
  scores, limit = rules.blend(votes), config.max_samples * num_questions
  for label, samples in _stopped(config, answers, votes, num_answers):
    spent = jnp.maximum(samples.sum(-1), config.init * num_questions)
    alike = rules.match(scores, spent, config.init, size, limit)
    out['stopping'][label] = {
      'samples': np.asarray(samples.mean(-1)),
      'error': np.asarray(rules.pick(errors['mode'], samples)),
      'blend_error': np.asarray(rules.pick(errors['mode'], alike)),
    }
  return out


@functools.partial(jax.jit, static_argnames='max_samples')
def _draw(keys, p, right, max_samples: int):
  """Answers of some seeds, and all that follows from them before any policy."""
  answers = jax.vmap(lambda key, p: laws.draw_answers(key, p, max_samples))(keys, p)
  votes = paths.vote_paths(answers, p.shape[-1])
  errors = {kind: paths.error_paths(answers, which) for kind, which in right.items()}
  return answers, votes, errors, confidence.rate(p)


def _stopped(config: Any, answers, votes: paths.Votes, num_answers: int):
  """Names of stopping rules with their samples (S, Q)."""
  levels = tuple(config.thresholds), tuple(config.deltas), tuple(config.windows)
  samples = rules.stopped(answers, votes, tuple(config.caps), *levels)
  for cap, row in zip(config.caps, samples, strict=True):
    for label, found in zip(rules.stopping_rules(*levels), row, strict=True):
      yield f'{label}, cap {cap}', found
    for level in config.dirichlet_thresholds if cap == min(config.caps) else ():
      stops = rules.dirichlet_stops(
        answers, num_answers, cap, level, config.dirichlet_draws, config.seed
      )
      yield f'dirichlet {level:g}, cap {cap}', rules.stop(stops, cap)


def summarise(config: Any, name: str, curves: dict[str, Any]) -> dict[str, list[tables.Row]]:
  """Rows of the report's tables, by title."""
  sizes = {'n': config.num_seeds, 'seeds': config.num_seeds}
  groups: dict[str, list[tables.Row]] = {}
  sc = curves['sc'].mean(0)
  titles = {'mode': 'Error', 'aligned': 'Error on aligned questions', 'gold': 'Wrong answers'}
  for kind, title in titles.items():
    groups[title] = [
      tables.row(
        policy, f'{kind}_error_at_{x}', intervals.mean_interval(errors[:, i]),
        **sizes, better='lower', source=name,
      )
      for policy, errors in curves['errors'].get(kind, {}).items()
      for i, x in enumerate(config.budgets)
    ]  # fmt: skip
  groups['Samples of self-consistency for the same error, over the budget'] = [
    tables.row(policy, f'ratio_at_{x}', _ratio(sc, errors[:, i], x), **sizes, better='higher',
               source=name)
    for policy, errors in curves['errors']['mode'].items()
    for i, x in enumerate(config.budgets)
  ]  # fmt: skip
  means = [
    tables.row(policy, 'mean_ratio', _mean_ratio(config.budgets, sc, errors), **sizes,
               better='higher', source=name)
    for policy, errors in curves['errors']['mode'].items()
  ]  # fmt: skip
  groups['Mean of these ratios over the budgets'] = means
  groups['Rules that stop'] = []
  for label, got in curves['stopping'].items():
    x = float(got['samples'].mean())
    gain = intervals.paired_interval(got['error'], got['blend_error'])
    for metric, interval, better in (
      ('samples', intervals.mean_interval(got['samples']), None),
      ('error', intervals.mean_interval(got['error']), 'lower'),
      ('ratio', _ratio(sc, got['error'], x), 'higher'),
      ('gain_of_the_blend_at_the_same_samples', gain, 'higher'),
    ):
      groups['Rules that stop'].append(
        tables.row(label, metric, interval, **sizes, better=better, source=name)
      )
  groups['Scaling exponents'] = []
  for policy, errors in curves['errors']['mode'].items():
    if (law := _exponent(config.budgets, errors)) is not None:
      groups['Scaling exponents'].append(
        tables.row(policy, 'exponent', law, **sizes, better='lower', source=name)
      )
  # Where self-consistency's curve does not reach the error there is no ratio.
  return {title: [r for r in group if np.isfinite(r['mean'])] for title, group in groups.items()}


def claims(config: Any, curves: dict[str, Any]) -> list[str]:
  """Whether the default is worse than another policy or rule, beyond the 95 % interval."""
  errors = curves['errors']['mode']
  mine, lines, worse, compared = errors[config.default], [], 0, 0
  for policy, theirs in errors.items():
    if policy == config.default:
      continue
    marks = []
    for i, x in enumerate(config.budgets):
      interval = intervals.paired_interval(theirs[:, i], mine[:, i])
      compared += 1
      if interval.high < 0:
        worse += 1
        marks.append(
          f'WORSE at {x} by {-interval.mean:.4f} [{-interval.high:.4f}, {-interval.low:.4f}]'
        )
    some = theirs.any(0)  # where it errs at all
    gain = (1 - mine.mean(0)[some] / theirs.mean(0)[some]).sum() / max(some.sum(), 1)
    verdict = '; '.join(marks) or 'never worse'
    lines.append(f'- {config.default} against {policy}: {verdict}; mean gain {gain:.1%}')
  for label, got in curves['stopping'].items():
    interval = intervals.paired_interval(got['error'], got['blend_error'])
    compared += 1
    if interval.high < 0:
      worse += 1
      lines.append(f'- blend WORSE than {label} at its samples by {-interval.mean:.4f}')
  verdict = 'PASS' if not worse else 'FAIL'
  head = f'{verdict}: {config.default} is worse than another policy in {worse} of {compared} pairs.'
  return [head, '\n'.join(lines)]


def _ratio(sc: np.ndarray, errors: np.ndarray, x: float) -> intervals.Interval:
  """The efficiency at a mean error, and at the ends of its interval; NaN beyond the curve of SC."""
  found = intervals.mean_interval(errors)
  at = lambda error: scaling.efficiency_ratio(x, error, np.arange(1, len(sc)), sc[1:])
  return intervals.Interval(at(found.mean), at(found.high), at(found.low), 'through the SC curve')


def _mean_ratio(budgets: Sequence[int], sc: np.ndarray, errors: np.ndarray) -> intervals.Interval:
  """The efficiency averaged over budgets, from the mean errors; NaN where one of them is."""
  ratios = [_ratio(sc, errors[:, i], x).mean for i, x in enumerate(budgets)]
  return intervals.Interval(float(np.mean(ratios)), np.nan, np.nan, 'through the SC curve')


def _exponent(budgets: Sequence[int], errors: np.ndarray) -> intervals.Interval | None:
  """The exponent of the mean curve, with an interval over the seeds' own by the jackknife."""
  mean = errors.mean(0)
  if not (mean > 0).all():
    return None
  full = scaling.power_law_fit(budgets, mean).exponent
  rest = (errors.sum(0) - errors) / (len(errors) - 1) if len(errors) > 1 else errors
  if not (rest > 0).all() or len(errors) < 2:
    return intervals.Interval(full, np.nan, np.nan, 'jackknife')
  values = [scaling.power_law_fit(budgets, row).exponent for row in rest]
  pseudo = len(errors) * full - (len(errors) - 1) * np.array(values)
  return intervals.t_interval(pseudo)._replace(mean=full, method='jackknife')


def _arrays(value: Any) -> Any:
  if isinstance(value, dict):
    return {key: _arrays(item) for key, item in value.items()}
  return value if isinstance(value, str) else np.asarray(value)
