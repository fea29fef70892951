"""The four experiments on a language model's personas, and the gallery of the theorems."""

import jax
import ml_collections
import numpy as np

from experiments.agency import beliefs, census, emergence, gallery, sequences, suppression
from lib.io import models
from lib.stats import tables
from lib.train import app, console, figures, report, signals

POSITIVE = ('batch_size', 'grid', 'event_outcomes', 'shifts', 'shift_outcomes', 'answers')
POSITIVE += ('answer_tokens',)


def prepare(config: ml_collections.ConfigDict) -> models.Model:
  """Checks the config, then loads the model."""
  check(config)
  return models.load(config.model, models.dtype(config.dtype))


def check(config: ml_collections.ConfigDict) -> None:
  """Raises a ValueError that names the first bad field."""
  models.dtype(config.dtype)
  for name in POSITIVE:
    if not config[name] > 0:
      raise ValueError(f'config.{name} must be positive, got {config[name]}.')
  if len(config.personas) < 2:
    raise ValueError('config.personas: a pool needs two members.')
  for name in ('luigi', 'waluigi', *config.base):
    if (role := config.get(name, name)) not in config.personas:
      raise ValueError(f'config: {role!r} is none of config.personas.')
  if config.waluigi in config.base or config.waluigi == config.luigi:
    raise ValueError('config.waluigi must be neither config.luigi nor in config.base.')
  for size in config.outcomes:
    if size < 0 or size == 1:
      raise ValueError(f'config.outcomes: a set has two outcomes or more, or 0 for all: {size}.')
  for delta in config.deltas:
    if not 0 < delta <= 1 - 1 / len(config.personas):
      raise ValueError(f'config.deltas: {delta} is more than the others have.')
  for kappa in config.kappas:
    if not kappa > 0:
      raise ValueError(f'config.kappas must be positive, got {kappa}.')
  for event in config.events:
    if len(event) != 2 or not event[1]:
      raise ValueError(f'config.events: not (question, bad answers): {event}.')


def run(this: app.Run, model: models.Model) -> None:
  """Runs the experiments; what the model says is kept in the workdir, and not asked again."""
  config, workdir = this.config, this.workdir / 'beliefs'
  workdir.mkdir(exist_ok=True)
  names = list(config.personas)
  named = (config.luigi, config.waluigi)
  results: dict[str, list[tables.Row]] = {}
  console.say(f'{len(names)} personas, {len(config.questions) * len(config.prefixes)} contexts')
  contexts = beliefs.of_contexts(config, model, workdir)
  signals.check()
  events = suppression.cases(config, model, workdir)
  signals.check()
  answers = sequences.of_questions(config, model, workdir)
  with jax.enable_x64(True):
    console.say('census')
    results['Unanimity census'] = census.rows(contexts, names, named, config.outcomes, config.grid)
    signals.check()
    console.say('manifest, then suppress')
    base, extra = [names.index(name) for name in config.base], names.index(config.waluigi)
    rng = np.random.default_rng(config.seed)
    measured = [suppression.measure(c, base, extra, config.kappas, rng) for c in events]
    results['Manifest, then suppress'] = suppression.rows(measured)
    signals.check()
    console.say('emergence')
    results['Waluigi emergence'] = emergence.rows(
      census.restrict(contexts, config.shift_outcomes), names.index(config.luigi), extra,
      config.deltas, config.shifts, config.seed,
    )  # fmt: skip
    signals.check()
    results['Whole answers as outcomes'] = [
      row | {'outcomes': 'answers'} for row in _sequence_rows(answers, names, named, config.grid)
    ]
    captions = {}
    for file, (draw, caption) in gallery.PICTURES.items():
      figures.save(draw(), this.workdir / 'figures' / file)
      captions[file] = caption
  report.write_results(this, [row for rows in results.values() for row in rows])
  sections = []
  for title, rows in results.items():
    sections += [f'## {title}', tables.table(rows)]
  sections += ['## By question', _by_question(events, measured), '## Theorems']
  sections += [f'{caption}\n\n![](figures/{file})' for file, caption in captions.items()]
  report.write_report(this, f'Pools of the personas of {config.model}', sections)


def _sequence_rows(answers, names, named, grid: int) -> list[tables.Row]:
  """The census over answers; questions with fewer of them are filled up with impossible ones."""
  most = max(logp.shape[-1] for logp in answers)
  pad = lambda logp: np.pad(logp, ((0, 0), (0, most - logp.shape[-1])), constant_values=-np.inf)
  return census.rows(np.stack([pad(logp) for logp in answers]), names, named, (0,), grid)


def _by_question(events, measured) -> str:
  columns = ('bad_probability', 'first_order_ratio', 'random_ratio', 'random_logits_ratio')
  head = '| question | ' + ' | '.join(name.replace('_', ' ') for name in columns) + ' |\n'
  head += '| --- ' * (1 + len(columns)) + '|'
  lines = [
    f'| {case.question} | ' + ' | '.join(f'{one[name]:.4f}' for name in columns) + ' |'
    for case, one in zip(events, measured, strict=True)
  ]
  return '\n'.join([head, *lines])
