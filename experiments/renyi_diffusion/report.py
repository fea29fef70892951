"""What a run shows: the table, the claims, and the pictures."""

import numpy as np

from experiments.renyi_diffusion import charts, fit
from experiments.renyi_diffusion.data import Data
from lib.stats import charts as curves
from lib.stats import claims, intervals, tables
from lib.train import app, figures, metrics, report

BETTER = {  # of the scores, and their order in the table
  'nll': 'lower',
  'bpd': 'lower',
  'bound_bpd': 'lower',
  'rare_nll': 'lower',
  'rare_bpd': 'lower',
  'rare_bound_bpd': 'lower',
  'q99_nll': 'lower',
  'precision': 'higher',
  'recall': 'higher',
  'density': 'higher',
  'coverage': 'higher',
  'fd_cnn': 'lower',
  'class_kl': 'lower',
  'near': 'higher',
  'rare_mass': 'higher',
}
TRAINED = ('effective_fraction', 'effective_alpha')  # means over training, for the table


def is_finished(run: app.Run, name: str) -> bool:
  """Whether a method was trained to the end and scored there."""
  found = metrics.series(run.workdir / name / 'metrics.jsonl', 'eval')
  return any(run.config.steps in by_step for by_step in found.values())


def values(run: app.Run, name: str) -> dict[str, np.ndarray]:
  """A method's scores at the end, and means over training, one number a seed (S,)."""
  scored = metrics.series(run.workdir / name / 'metrics.jsonl', 'eval')
  trained = metrics.series(run.workdir / name / 'metrics.jsonl', 'train')
  found = {metric: by_step[run.config.steps] for metric, by_step in scored.items()}
  for metric in TRAINED:
    if metric in trained:
      found[metric] = np.mean(list(trained[metric].values()), axis=0)
  found['steps_per_second'] = np.median(list(trained['steps_per_second'].values()))[None]
  return found


def _finite(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
  """The scores that are finite for all seeds: an unstable flow may have no likelihood."""
  return {metric: x for metric, x in found.items() if np.isfinite(x).all()}


def write(run: app.Run, dataset: Data) -> None:
  """Writes results.json, report.md and the figures from what the methods left in the workdir."""
  config = run.config
  scored = {name: values(run, name) for name in config.methods if is_finished(run, name)}
  by_method = {name: _finite(found) for name, found in scored.items()}
  lost = [
    f'{name}: {metric} in {int((~np.isfinite(x)).sum())} of {len(x)} seeds'
    for name, found in scored.items()
    for metric, x in found.items()
    if metric not in by_method[name]
  ]
  rows = []
  for name, found in by_method.items():
    classes = [metric for metric in found if metric.startswith('bpd_class_')]
    for metric in [*BETTER, *TRAINED, 'steps_per_second', *classes]:
      if metric in found:
        seeds = len(found[metric])
        better = BETTER.get(metric, 'lower' if metric in classes else None)
        estimate = intervals.mean_interval(found[metric])
        rows.append(tables.row(name, metric, estimate, n=seeds, seeds=seeds, better=better))
  tested = claims.test(config.claims, by_method, BETTER)
  report.write_results(run, rows + tested)
  shown = [row for row in rows if not row['metric'].startswith('bpd_class_')]
  sections = [
    f'Data: {dataset.summary}.',
    f'{config.steps:,} updates of {config.batch_size} data, {config.num_seeds} seed(s). Means with '
    '95 % intervals over seeds. Likelihoods are of the probability-flow ODE from '
    f't = {config.start:g}, without a correction for the truncation'
    + (
      f'; {"exact" if not config.eval.probes else "estimated"} divergence.'
      if not dataset.levels
      else f', with uniform dequantisation of {dataset.levels} levels; classes are weighted as the '
      'training data are; `bound_bpd` is the bound that training lowers. The rest compares samples '
      'with training images by features of a classifier trained here, so that `fd_cnn` is no FID.'
    ),
    tables.table(shown),
    *([f'Not finite, and left out: {"; ".join(lost)}.'] if lost else []),
    *claims.section(config.claims, tested),
    '## Figures',
  ]
  pictures = charts.draw(run, dataset, by_method)
  records = {
    name: metrics.series(run.workdir / name / 'metrics.jsonl', 'train') for name in by_method
  }
  # The order is a constant where the tilt is in nats.
  names = ('bound', 'effective_fraction', 'effective_alpha')[
    : 3 if config.objective.scale == 'fraction' else 2
  ]
  training = {
    metric: {name: found[metric] for name, found in records.items() if metric in found}
    for metric in names
  }
  training = {metric: by_name for metric, by_name in training.items() if by_name}
  if training:
    pictures['training.png'] = (
      curves.learning_curves(training),
      'While training, means over each chunk of updates; thin lines are seeds.',
    )
  if config.gaussian_fit:
    pictures['gaussian_fit.png'] = (
      fit.figure_of_fits(),
      'The single Gaussian of least divergence from two modes, found by gradient descent on '
      'quadrature: from one mode to both as α grows.',
    )
  for file, (drawing, caption) in pictures.items():
    figures.save(drawing, run.workdir / 'figures' / file)
    sections.append(f'{caption}\n\n![](figures/{file})')
  report.write_report(run, f'Rényi diffusion on {config.data.source}', sections)
