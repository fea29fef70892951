"""The parts of the study: published rows, judges of known self-preference, and language models."""

from typing import Any, NamedTuple

import ml_collections
import numpy as np

from experiments.self_preference import analysis, calibration, cells, charts, digits, golden, lm
from experiments.self_preference import records as user_records
from lib.io import models, vote_records
from lib.stats import intervals, tables
from lib.train import app, console, figures, report, signals

PARTS = ('golden', 'digits', 'calibration', 'lm', 'records')
RECOMMENDED = """The recommended analysis: keep the harmful pairs in which the proxy made the same
error as the judge, average an item's excesses over proxies, test the averages by flipping their
signs, and give the mean with a bootstrap interval over items. Two reasons. A judge that believes
its own mistake votes for it whoever wrote it, and a proxy with a *different* mistake is believed
less: the excess over such proxies is not self-preference, as the identity-blind judges show. And
pairs of one item share a vote, so that a t test on concatenated pairs is too sure, as the
calibration shows.

A cell is significant at the level of the config. `raw` asks whether the judge votes for its own
wrong answer rather than for the right one; `paper` is the published decision, t and
Kolmogorov–Smirnov both; `t` is the one-sided t test of concatenated pairs, `sign flip` the same
excess by item, both of all harmful pairs; `same error t` is t on pairs with the same error.
Intervals of shares are Wilson's over cells, which share items and are not independent; those of
means are bootstraps over items."""


class Prepared(NamedTuple):
  """What was loaded before the run: None where a part does not need it."""

  model: models.Model | None
  records: user_records.Loaded | None


def prepare(config: ml_collections.ConfigDict) -> Prepared:
  """Checks the config, then loads the model or the records that its parts need."""
  check(config)
  model = lm.load(config.lm) if 'lm' in config.parts else None
  return Prepared(model, user_records.load(config) if 'records' in config.parts else None)


def check(config: ml_collections.ConfigDict) -> None:
  """Raises a ValueError that names the first bad field."""
  if not config.parts or not set(config.parts) <= set(PARTS):
    raise ValueError(f'config.parts must be some of {", ".join(PARTS)}, got {config.parts}.')
  if not 0 < config.alpha < 1:
    raise ValueError(f'config.alpha must lie in (0, 1), got {config.alpha}.')
  for name in ('num_draws', 'stability_draws'):
    if not config[name] > 0:
      raise ValueError(f'config.{name} must be positive, got {config[name]}.')
  for name in ('seed', 'min_ilsp', 'min_lsp'):
    if not config[name] >= 0:
      raise ValueError(f'config.{name} must not be negative, got {config[name]}.')
  checks = {'digits': digits.check, 'calibration': calibration.check, 'lm': lm.check}
  for name, of in checks.items():
    if name in config.parts:
      of(config[name])


def run(this: app.Run, prepared: Prepared) -> None:
  """Runs the parts; what a model says is kept in the workdir, and not asked again."""
  config = this.config
  rows: list[tables.Row] = []
  sections = [RECOMMENDED]
  for part in config.parts:
    console.say(part)
    if part == 'golden':
      more, text = published(config)
    elif part == 'digits':
      more, text = on_digits(this)
    elif part == 'calibration':
      more, text = calibrated(this)
    elif part == 'lm':
      assert prepared.model is not None
      more, text = of_language_models(this, prepared.model)
    else:
      assert prepared.records is not None
      games, names = prepared.records
      facts = (
        f'{len(games.example)} pairs of {config.path}; {games.num_dropped} lack a game, '
        f'{games.num_unused} games are in no pair.'
      )
      more, text = of_games(this, games, names, 'records', [facts])
    rows += more
    sections += text
    signals.check()
  report.write_results(this, rows)
  report.write_report(this, 'Sanity checks of self-preference', sections)


def published(config: Any) -> tuple[list[tables.Row], list[str]]:
  """The published rows: what their means and deviations imply, beside what was printed."""
  t, p = golden.t_tests(golden.ROWS)
  exact = lambda value: intervals.Interval(float(value), np.nan, np.nan, 'exact')
  keys = {'n': 1, 'seeds': 0, 'source': 'published'}
  head = '| set | judge | n | raw | excess | t | p recomputed | p printed |\n' + '| --- ' * 8 + '|'
  lines, rows = [], []
  for row, t_value, p_value in zip(golden.ROWS, t, p, strict=True):
    lines.append(
      f'| {row.dataset} | {row.judge} | {row.n} | {row.judge_mean:.4f} | {row.excess:+.4f} '
      f'| {t_value:.3f} | {p_value:.3g} | {row.p_greater:.3g} |'
    )
    name = f'{row.dataset} {row.judge}'
    rows += [tables.row(name, 't', exact(t_value), **keys)]
    rows += [tables.row(name, 'p_greater', exact(p_value), **keys)]
  totals = []
  for name in (*golden.DATASETS, 'all'):
    some = golden.ROWS if name == 'all' else golden.of_dataset(name)
    found = intervals.proportion_interval(
      round(golden.share_significant(some, config.alpha) * len(some)), len(some)
    )
    keys['n'] = len(some)
    totals += [
      tables.row(name, 'share_significant', found, **keys),
      tables.row(name, 'reduction', exact(golden.reduction(some)), **keys),
      tables.row(name, 'reduction_by_pairs', exact(golden.reduction(some, True)), **keys),
    ]
  many = sum(golden.t_tests(golden.ROWS)[1] <= config.alpha)
  text = (
    f'{many} of {len(golden.ROWS)} judges stay significant by the one-sided t test. The paper says '
    '51 % of its findings; its unit is not public. Shares have Wilson intervals over judges.'
  )
  return rows + totals, [
    '## Published rows, recomputed',
    text,
    _table(totals),
    '\n'.join([head, *lines]),
  ]


def on_digits(this: app.Run) -> tuple[list[tables.Row], list[str]]:
  """Judges that cannot know whose answer they see, and with a planted bonus."""
  config = this.config
  spec = config.digits
  blind, accuracy = [], []
  shape = (spec.num_seeds, len(spec.bonuses))
  tests = {
    'raw': 'raw_p',
    'paper': 'paper_p',
    'same-error t': 'filtered_p',
    'recommended': 'best_p',
  }
  means = {'raw': 's', 'paper': 'd', 'recommended': 'same'}
  shares = {x: {name: np.zeros(shape) for name in tests} for x in spec.noises}
  excesses = {x: {name: np.zeros(shape) for name in means} for x in spec.noises}
  first = None
  for seed in range(spec.num_seeds):
    trained = digits.train(spec, config.seed + seed)
    accuracy.append((trained.labels == trained.gold).mean())
    for noise in spec.noises:
      for i, bonus in enumerate(spec.bonuses):
        pairs = digits.pairs(trained, bonus, noise, config.seed + seed)
        chosen = cells.harmful(pairs, config.min_ilsp, config.min_lsp)
        _, groups = cells.split(chosen, cells.LEVELS['(J, R)'])
        of = cells.evaluate(chosen, groups, config.num_draws, config.seed + seed)
        for name, p in tests.items():
          shares[noise][name][seed, i] = (of[p] <= config.alpha).mean()
        d, same = chosen.s_judge - chosen.s_proxy, chosen.same == 1
        excesses[noise]['raw'][seed, i] = chosen.s_judge.mean()
        excesses[noise]['paper'][seed, i] = d.mean()
        excesses[noise]['recommended'][seed, i] = d[same].mean()
        if bonus == 0 and noise == 0:
          blind.append(_blind(config, chosen, config.seed + seed))
          if first is None:
            first = pairs
        signals.check()
    console.say(f'digits: {seed + 1} of {spec.num_seeds} seeds')
  title = 'Identity-blind judges: classifiers of digits'
  sizes = {'n': spec.num_seeds, 'seeds': spec.num_seeds, 'source': 'digits'}
  headline = [
    tables.row('no bonus, no noise', name, intervals.mean_interval([b[name] for b in blind]),
               **sizes)
    for name in blind[0]
  ]  # fmt: skip
  planted = [
    tables.row(f'bonus {bonus:g}, noise {noise:g}', f'{kind}_{name}'.replace(' ', '_'),
               intervals.mean_interval(values[name][:, i]), **sizes)
    for noise in spec.noises
    for kind, values in (('share', shares[noise]), ('mean', excesses[noise]))
    for name in values
    for i, bonus in enumerate(spec.bonuses)
  ]  # fmt: skip
  drawing = charts.power(spec.bonuses, shares, excesses)
  figures.save(drawing, this.workdir / 'figures' / 'power.png')
  text = (
    f'{spec.models} logistic regressions of {spec.train} digits and {spec.pixels} pixels each, '
    f'accuracy {np.mean(accuracy):.3f}; {spec.num_seeds} seeds of new splits and pixels, intervals '
    'over seeds. A judge votes for a label by its own log-probabilities, whoever gave it: it '
    'cannot prefer itself. Yet it votes for its own mistakes, and more than for a proxy\'s, '
    'because it made them: its own label is the one it believes most, and the proxy\'s another. '
    'The unfiltered baseline takes that for self-preference. Where both made the same mistake '
    'the votes are the same number. A bonus in the logit of its own answer is self-preference of '
    'a known size; noise of wording gives the same label by different authors different votes.'
  )  # fmt: skip
  assert first is not None
  names = [f'model {i}' for i in range(spec.models)]
  found = analysis.of_pairs(config, first, names, 'digits')
  more, tables_of = _show(this, found, 'digits')
  rows = headline + planted + more
  planted_text = ['### With a planted bonus', _table(planted)]
  return rows, [
    f'## {title}', text, _table(headline), '![](figures/power.png)', *planted_text,
    '### The first seed, without bonus, in all tables', *tables_of,
  ]  # fmt: skip


def _blind(config: Any, chosen: cells.Pairs, seed: int) -> dict[str, float]:
  """Numbers of judges without a bonus, over triplets."""
  _, groups = cells.split(chosen, cells.LEVELS['triplet (J, K, R)'])
  of = cells.evaluate(chosen, groups, config.num_draws, seed)
  return {
    'triplets': len(groups),
    'raw': of['raw'].mean(),
    'excess': of['excess'].mean(),
    'rejected_by_paper': (of['paper_p'] <= config.alpha).mean(),
    'same_error_share': float((chosen.same == 1).mean()),
    'largest_same_error_excess': float(
      np.abs(chosen.s_judge - chosen.s_proxy)[chosen.same == 1].max(initial=0.0)
    ),
    'rejected_by_recommended': (of['best_p'] <= config.alpha).mean(),
  }


def calibrated(this: app.Run) -> tuple[list[tables.Row], list[str]]:
  """Rejection rates on simulated votes, with and without self-preference."""
  config = this.config
  spec = config.calibration
  rates, rows = {}, []
  for proxies in spec.proxies:
    for bonus in spec.bonuses:
      found = calibration.p_values(spec, proxies, bonus, config.seed)
      rates[proxies, bonus] = {name: cells.share(p, config.alpha) for name, p in found.items()}
      rows += [
        tables.row(name, f'rejected_at_bonus_{bonus:g}', interval, n=spec.datasets, seeds=1,
                   proxies=proxies, source='simulated')
        for name, interval in rates[proxies, bonus].items()
      ]  # fmt: skip
      signals.check()
  drawing = charts.calibration(rates, config.alpha)
  figures.save(drawing, this.workdir / 'figures' / 'calibration.png')
  text = (
    f'{spec.datasets} simulated sets of {spec.num_items} items, in which an item has a difficulty '
    "for all its answers; Wilson's intervals. The paper's decision asks for t and the "
    'Kolmogorov–Smirnov test both: the latter ignores that pairs are pairs, which costs power; t '
    "on several proxies' pairs takes one vote for many."
  )
  return rows, [
    '## Calibration, simulated', text, '![](figures/calibration.png)', _table(rows),
  ]  # fmt: skip


def of_language_models(this: app.Run, model: models.Model) -> tuple[list[tables.Row], list[str]]:
  """A language model as authors and judges."""
  config = this.config
  collected = lm.collect(config.lm, model, this.workdir)
  games, names = lm.pairs(collected)
  console.say(f'{len(games.example)} pairs of {len(names) - 1} authors')
  rows = []
  for name, given in collected.answers.items():
    right = sum(a == item.gold for a, item in zip(given, collected.items, strict=True))
    interval = intervals.proportion_interval(right, len(given))
    rows.append(tables.row(name, 'accuracy', interval, n=len(given), seeds=1, source='lm'))
    mass = list(collected.mass[name].values())
    of_gold = [
      (probs[0] + collected.probs[name][lm.Game(game.item, game.b, game.a)][1]) / 2
      for game, probs in collected.probs[name].items()
      if game.a == collected.items[game.item].gold
    ]
    for metric, values in (('mass_of_labels', mass), ('vote_for_the_right_answer', of_gold)):
      interval = intervals.mean_interval(values)
      rows.append(tables.row(name, metric, interval, n=len(values), seeds=1, source='lm'))
  facts = [
    f'{config.lm.model} answers {len(collected.items)} questions and judges the answers, '
    f'{collected.asked} prompts in all: the same answer of several authors is one prompt, which '
    'is asked once, so that pairs with the same error have excess 0 by construction. Right '
    'answers too are one text, so that references differ in the items that they solved alone.',
    '### Authors, who are the judges too',
    _table(rows),
  ]
  more, text = of_games(this, games, names, 'lm', facts)
  return rows + more, text


def of_games(
  this: app.Run,
  games: vote_records.GamePairs,
  names: Any,
  source: str,
  facts: list[str],
) -> tuple[list[tables.Row], list[str]]:
  """All tables of votes in two orders."""
  config = this.config
  position = analysis.positions(config, games, names, source)
  found = analysis.of_pairs(config, cells.from_games(games), names, source)
  found.groups['Policies of ties'] = analysis.ties(config, games, source)
  of = lambda metric: [row for row in position if row['metric'] == metric]
  judges = [row['method'] for row in of('p_A')]
  drawing = charts.positions(
    judges, *(np.array([row['mean'] for row in of(m)]) for m in ('p_A', 'swap_consistent'))
  )
  figures.save(drawing, this.workdir / 'figures' / f'positions-{source}.png')
  more, text = _show(this, found, source)
  return position + more, [
    f'## Votes: {source}', *facts, '### Positions', f'![](figures/positions-{source}.png)',
    _table(position), *text,
  ]  # fmt: skip


def _show(this: app.Run, found: analysis.Analysis, source: str):
  """Tables and figures of an analysis."""
  rows, text = [], []
  folder = this.workdir / 'figures'
  figures.save(charts.cells(found.judges, found.by_judge), folder / f'judges-{source}.png')
  if len(found.gaps) > 2:
    figures.save(charts.entropy(found.gaps), folder / f'entropy-{source}.png')
  for title, group in found.groups.items():
    if group:
      rows += [row | {'table': title} for row in group]
      text += [f'### {title}', _table(group)]
    if title == 'By judge':
      text.append(f'![](figures/judges-{source}.png)')
    if title == 'Entropy of votes' and len(found.gaps) > 2:
      text.append(f'![](figures/entropy-{source}.png)')
  return rows, text


def _table(rows: list[tables.Row]) -> str:
  return tables.table(rows, omit=('source',))
