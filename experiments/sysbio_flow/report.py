"""What a run shows: the table, the claims, what differs by regime and organism, the pictures."""

from typing import Any

import numpy as np

from experiments.sysbio_flow import benchmark, charts, data, evaluate, methods
from lib.flow import regimes
from lib.io import npz
from lib.stats import charts as curves
from lib.stats import claims, intervals, tables
from lib.train import app, figures, metrics, report

BETTER = {  # of the scores, and their order in the table
  'mae': 'lower',
  'mae_median': 'lower',
  'crps': 'lower',
  'crps_median': 'lower',
  'energy': 'lower',
  'coverage_90': None,
  'calibration_error': 'lower',
  'width_90': None,
  'log_mae': 'lower',  # for claims of ratios; not in the table
  'log_crps': 'lower',
  'log_energy': 'lower',
}
SHOWN = tuple(name for name in BETTER if not name.startswith('log_'))
PLAIN = ('spread', 'parameters', 'seconds', 'ms_per_step')
FLOOR = 1e-3  # of a system's score, in the context's unit: a system at rest is forecast exactly


def is_finished(run: app.Run, name: str) -> bool:
  """Whether a method was trained to the end and scored there."""
  found = metrics.series(run.workdir / name / 'metrics.jsonl', 'eval')
  whole = (run.workdir / name / 'scores.npz').is_file()
  return whole and methods.steps(run.config, name) in found.get('mae', {})


def values(run: app.Run, name: str) -> dict[str, np.ndarray]:
  """A method's scores at the end, one number a seed (S,)."""
  path, steps = run.workdir / name / 'metrics.jsonl', methods.steps(run.config, name)
  scored = metrics.series(path, 'eval')
  found = {metric: by_step[steps] for metric, by_step in scored.items() if steps in by_step}
  for metric in ('mae', 'crps', 'energy'):
    found[f'log_{metric}'] = np.log(found[metric])
  if pace := metrics.series(path, 'train').get('steps_per_second'):
    found['ms_per_step'] = np.array([1000 / np.median(list(pace.values())) / run.config.num_seeds])
  return found


def write(run: app.Run, loaded: data.Data) -> None:
  """Writes results.json, report.md and the figures from what the methods left in the workdir."""
  config = run.config
  split = loaded.test if config.eval.split == 'test' else loaded.valid
  finished = [name for name in config.methods if is_finished(run, name)]
  by_method = {name: values(run, name) for name in finished}
  scores = {name: npz.load_npz(run.workdir / name / 'scores.npz') for name in finished}
  rows = []
  for name, found in by_method.items():
    for metric in [m for m in (*SHOWN, *PLAIN) if m in found]:
      seeds = len(found[metric])
      count = seeds * (1 if metric in PLAIN else len(split.count))
      estimate = intervals.mean_interval(found[metric])
      better = BETTER.get(metric)
      rows.append(tables.row(name, metric, estimate, n=count, seeds=seeds, better=better))
  spread = {
    name: {metric: np.resize(x, config.num_seeds) for metric, x in found.items()}
    for name, found in by_method.items()
  }
  tested = claims.test(config.claims, spread, {k: v for k, v in BETTER.items() if v})
  strata = strata_rows(loaded, split, scores)
  differences = system_rows(split, scores)
  report.write_results(run, rows + tested + differences + strata)
  sections = [
    f'Data: {loaded.summary}.',
    f'{config.steps:,} updates of {config.batch_size} series, {config.num_seeds} seed(s) of '
    f'parameters and batches; the {config.eval.split} systems are in no group of the others. '
    'Errors are in the unit of the context (its deviation + 5 % of its mean size), means over '
    'systems of means over their series, and medians over systems. `crps` is fair, of '
    f'{config.eval.samples} samples; a forecast of one number has that of its error. `energy` '
    'scores whole futures, with root mean squares as norms. `width 90` is '
    'the median over systems. `spread` is the factor by which samples are drawn apart, chosen on '
    'the validation systems for each method and seed; `seconds` are those of forecasts for all.',
    tables.table(rows),
    *claims.section(config.claims, tested),
    '## Over systems',
    f"{config.methods[0]} against each other: the gain in the logarithm of a system's score, "
    'averaged over seeds; bootstrap over systems.',
    tables.table(differences),
    '## Where',
    'Means over the series of a kind, averaged over systems first.',
    tables.table(strata, omit=('part',)),
    '## Models without series',
    '\n'.join(
      f'- {count}: {reason}' for reason, count in benchmark.count_reasons(loaded.failures).items()
    )
    or 'None.',
    '## Figures',
  ]
  pictures = charts.draw(run, split, scores)
  trained = {
    name: metrics.series(run.workdir / name / 'metrics.jsonl', 'valid').get('loss')
    for name in finished
  }
  if trained := {name: by_step for name, by_step in trained.items() if by_step}:
    pictures['training.png'] = (
      curves.learning_curves(
        {f'{name}: loss on validation systems': {name: x} for name, x in trained.items()}
      ),
      'While training; each method has a loss of its own. Thin lines are seeds.',
    )
  for file, (drawing, caption) in pictures.items():
    figures.save(drawing, run.workdir / 'figures' / file)
    sections.append(f'{caption}\n\n![](figures/{file})')
  report.write_report(run, 'Forecasts of biological systems that were never seen', sections)


def system_rows(split: data.Split, scores: dict[str, Any]) -> list[tables.Row]:
  """Gains of the first method over each other one, with intervals over systems."""
  first, *others = scores
  rows = []
  for metric in ('mae', 'crps'):
    of = lambda name, metric=metric: np.log(
      FLOOR
      + np.mean([evaluate.by_system(split, x).mean(axis=1) for x in scores[name][metric]], axis=0)
    )
    for name in others:
      gain = intervals.paired_interval(of(name), of(first))
      label = f'{first} against {name}'
      rows.append(
        tables.row(
          label, f'gain in log {metric}', gain, n=len(split.count),
          seeds=len(scores[first][metric]), better='higher',
        )
      )  # fmt: skip
  return rows


def strata_rows(loaded: data.Data, split: data.Split, scores: dict[str, Any]) -> list[tables.Row]:
  """CRPS by the class of the trajectory, the organism, the process, and the lead time."""
  systems = np.array(sorted(set(split.system.tolist())))
  of_system = lambda key: np.array([loaded.systems[i][key] for i in systems])
  kinds = {
    'class': (split.label, dict(enumerate(regimes.CLASSES))),
    'organism': (np.repeat(of_system('organism'), split.count), None),
    'process': (np.repeat(of_system('process'), split.count), None),
  }
  rows = []
  for name, own in scores.items():
    seeds, crps = len(own['crps']), own['crps']
    for part, (labels, names) in kinds.items():
      for label in np.unique(labels):
        there = labels == label
        means = [_mean(split, x.mean(axis=1), there) for x in crps]
        rows.append(
          tables.row(
            name, f'{names[label] if names else label}', intervals.mean_interval(means),
            n=int(there.sum()) * seeds, seeds=seeds, better='lower', part=part,
          )
        )  # fmt: skip
    for third in range(evaluate.BUCKETS):
      means = [float(evaluate.by_system(split, x[:, third]).mean()) for x in crps]
      rows.append(
        tables.row(
          name, f'third {third + 1} of the horizon', intervals.mean_interval(means),
          n=len(split.count) * seeds, seeds=seeds, better='lower', part='horizon',
        )
      )  # fmt: skip
  return rows


def _mean(split: data.Split, values: np.ndarray, there: np.ndarray) -> float:
  """The mean over systems of means over those of their series (N,) that are there."""
  sums = np.add.reduceat(np.where(there, values, 0.0), split.first)
  counts = np.add.reduceat(there.astype(float), split.first)
  return float((sums[counts > 0] / counts[counts > 0]).mean())
