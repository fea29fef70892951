"""What a run shows: the table, the claims, and the pictures."""

import numpy as np

from experiments.hsd import charts, data, methods
from lib.stats import bounds, claims, intervals, tables
from lib.stats import charts as curves
from lib.train import app, figures, metrics, report

BETTER = {  # of the scores, and their order in the table
  'error': 'lower',
  'finer_error': 'lower',
  'finer_growth': 'lower',
  'exact_error': 'lower',
  'coexact_error': 'lower',
  'harmonic_error': 'lower',
  'divergence_residual': 'lower',
  'closed_residual': 'lower',
  'periods_residual': 'lower',
  'mass_residual': 'lower',
  'beta0': 'higher',
  'iou': 'higher',
  'mse': 'lower',
  'valid_error': 'lower',
  'log_error': 'lower',  # for claims of ratios; not in the table
}
HIDDEN = ('log_error', 'iou', 'mse', 'valid_error', 'finer_error')


def is_finished(run: app.Run, name: str) -> bool:
  """Whether a method was trained to the end and scored there."""
  found = metrics.series(run.workdir / name / 'metrics.jsonl', 'eval')
  return methods.steps(run.config, name) in found.get('error', {})


def values(run: app.Run, name: str) -> dict[str, np.ndarray]:
  """A method's scores at the end, one number a seed (S,)."""
  path = run.workdir / name / 'metrics.jsonl'
  scored = metrics.series(path, 'eval')
  steps = methods.steps(run.config, name)
  found = {metric: by_step[steps] for metric, by_step in scored.items() if steps in by_step}
  found['log_error'] = np.log(found['error'])
  if pace := metrics.series(path, 'train').get('steps_per_second'):
    seconds = 1 / np.median(list(pace.values()))
    found['ms_per_step'] = np.array([1000 * seconds / run.config.num_seeds])
  return found


def write(run: app.Run, loaded: data.Data) -> None:
  """Writes results.json, report.md and the figures from what the methods left in the workdir."""
  config = run.config
  by_method = {name: values(run, name) for name in config.methods if is_finished(run, name)}
  samples = dict.fromkeys(BETTER, config.data.test)
  samples |= dict.fromkeys(('finer_error', 'finer_growth'), config.data.finer)
  samples['valid_error'] = config.data.valid
  rows = []
  for name, found in by_method.items():
    for metric in [m for m in (*BETTER, 'parameters', 'ms_per_step') if m in found]:
      seeds = len(found[metric])
      estimate = intervals.mean_interval(found[metric])
      count = seeds * samples.get(metric, 1)
      better = BETTER.get(metric)
      rows.append(tables.row(name, metric, estimate, n=count, seeds=seeds, better=better))
  # What has no seeds is the same for all of them.
  spread = {
    name: {metric: np.resize(x, config.num_seeds) for metric, x in found.items()}
    for name, found in by_method.items()
  }
  tested = claims.test(config.claims, spread, BETTER)
  reached = bounds.test(config.bounds, spread, BETTER)
  report.write_results(run, rows + tested + reached)
  sections = [
    f'Data: {loaded.summary}.',
    f'{config.steps:,} updates of {config.batch_size} samples, {config.num_seeds} seed(s) of '
    'initial parameters and batches on the same samples; methods in closed form have no seed. '
    'Means over test samples, with 95 % intervals over seeds. `error` is |found - true|/|true| in '
    'the ⋆ norm of each sample; its exact, coexact and harmonic parts are over |true| as well. '
    '`finer_growth` is the error of the same problems on a finer mesh over that on the mesh of '
    'training. Residuals are of what holds exactly of the truth.',
    tables.table([row for row in rows if row['metric'] not in HIDDEN]),
    *claims.section(config.claims, tested),
    *bounds.section(config.bounds, reached),
    '## Figures',
  ]
  trained = {
    name: metrics.series(run.workdir / name / 'metrics.jsonl', 'valid').get('error')
    for name in by_method
  }
  pictures = charts.draw(run, loaded, by_method)
  if trained := {name: by_step for name, by_step in trained.items() if by_step}:
    pictures['training.png'] = (
      curves.learning_curves({'validation error': trained}),
      'While training; thin lines are seeds.',
    )
  for file, (drawing, caption) in pictures.items():
    figures.save(drawing, run.workdir / 'figures' / file)
    sections.append(f'{caption}\n\n![](figures/{file})')
  report.write_report(run, f'Operators on meshes: {config.task.name}', sections)
