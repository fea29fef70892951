"""What a run shows: the table, the claims, and the pictures."""

import numpy as np

from experiments.pql import evaluate, figures, methods, online
from experiments.pql.data import Data
from lib.stats import charts, claims, intervals, tables
from lib.train import app, metrics, report
from lib.train import figures as plots

BETTER = {  # of the scores, and their order in the table
  'success': 'higher',
  'reward': 'higher',
  'success_std': 'lower',
  'episode_length': 'lower',
  'action_error': 'lower',
  'flow_loss': 'lower',
  **{f'energy_distance_euler_{steps}': 'lower' for steps in evaluate.EULER_STEPS},
  'energy_distance_one_step': 'lower',
  'distillation_error': 'lower',
  'jacobian_sq': 'lower',
  'spectral_norm_max': 'lower',
  'lipschitz_integral': 'lower',
  'w2_coupled': 'lower',
  'w2_bound': 'lower',
  'w2_exponent': 'lower',
}
PER_EPISODE = ('success', 'episode_length')
STABILITY_SCORES = 5  # the last ones, over which success may vary
Scores = dict[str, dict[int, np.ndarray]]  # by metric and step, one number a seed (S,)


def scores(run: app.Run, name: str, kind: str = 'eval') -> Scores:
  """Reads the records of one method; of a step that was scored twice, the later one.

  The steps of fine-tuning ('NAME_online') count from the start of training.
  """
  before = run.config.steps if name.endswith(online.SUFFIX) else 0
  found = metrics.series(run.workdir / name / 'metrics.jsonl', kind)
  return {metric: {before + step: x for step, x in xs.items()} for metric, xs in found.items()}


def is_finished(run: app.Run, name: str) -> bool:
  """Whether a method was trained to the end, and fine-tuned where asked, and scored there."""
  last = run.config.steps + run.config.online.steps
  if run.config.online.steps:
    name = online.phase(name)
  return any(last in by_step for by_step in scores(run, name).values())


def phases(run: app.Run) -> list[str]:
  """The methods, each followed by its fine-tuning where there was one."""
  names = list(run.config.methods)
  if run.config.online.steps:
    names = [phase for name in names for phase in (name, online.phase(name))]
  return [name for name in names if scores(run, name)]


def final(run: app.Run, by_metric: Scores) -> dict[str, np.ndarray]:
  """What a method is judged by: for each metric one number a seed (S,).

  Success and length are means over the last `score_last` scores, never the best one; `success_std`
  is the standard deviation over the last five, where there are as many; the rest is the last score.
  """
  values = {metric: by_step[max(by_step)] for metric, by_step in by_metric.items()}
  for metric in PER_EPISODE:
    if metric in by_metric:
      values[metric] = _last(by_metric[metric], run.config.score_last).mean(axis=0)
  if len(by_metric.get('success', ())) >= STABILITY_SCORES:
    values['success_std'] = _last(by_metric['success'], STABILITY_SCORES).std(axis=0, ddof=1)
  return values


def _last(by_step: dict[int, np.ndarray], count: int) -> np.ndarray:
  return np.stack([by_step[step] for step in sorted(by_step)[-count:]])


def write(run: app.Run, dataset: Data, trained: figures.Trained) -> None:
  """Writes results.json, report.md and the figures from what the methods left in the workdir."""
  names = phases(run)
  all_scores = {name: scores(run, name) for name in names}
  losses = {name: scores(run, name, 'train') for name in names}
  rows = _final_rows(run, all_scores, losses)
  values = {name: final(run, by_metric) for name, by_metric in all_scores.items()}
  tested = claims.test(run.config.claims, values, BETTER, task=run.config.data.env)
  report.write_results(run, rows + tested)
  captions = {
    'learning_curves.png': 'Scores while training; thin lines are seeds.',
    'losses.png': 'Losses while training, means over each chunk of updates; thin lines are seeds.',
  }
  for file, records, order in (
    ('learning_curves.png', all_scores, list(BETTER)),
    (
      'losses.png',
      losses,
      sorted({metric for by_metric in losses.values() for metric in by_metric}),
    ),
  ):
    curves = {
      metric: {name: s[metric] for name, s in records.items() if metric in s} for metric in order
    }
    curves = {metric: by_method for metric, by_method in curves.items() if by_method}
    plots.save(charts.learning_curves(curves), run.workdir / 'figures' / file)
  cells = {n: place for n in run.config.methods if (place := methods.cell(run.config, n))}
  if len({law for law, _ in cells.values()}) > 1 and len({w for _, w in cells.values()}) > 1:
    file = 'sensitivity.png'
    plots.save(
      figures.sensitivity({name: values[name] for name in cells}, cells),
      run.workdir / 'figures' / file,
    )
    captions[file] = 'Final scores over the weight of the penalty and the law of the times.'
  captions |= figures.draw(run, dataset, trained)
  report.write_report(
    run, f'PQL on {run.config.data.env}', _sections(run, dataset, rows, tested, captions)
  )


def _final_rows(
  run: app.Run, all_scores: dict[str, Scores], losses: dict[str, Scores]
) -> list[tables.Row]:
  """A row a method and metric, and what belongs to the method beside: single scores, its speed."""
  config, rows = run.config, []
  for name, by_metric in all_scores.items():
    values = final(run, by_metric)
    last = max(step for by_step in by_metric.values() for step in by_step)
    keys: dict = {'task': config.data.env, 'updates': last}
    for metric in [metric for metric in BETTER if metric in values]:
      estimate = intervals.mean_interval(values[metric])
      n = seeds = len(values[metric])
      if metric in PER_EPISODE:
        counted = _last(by_metric['episodes'], config.score_last)
        n = int(counted.sum())
      rows.append(
        tables.row(name, metric, estimate, n=n, seeds=seeds, better=BETTER[metric], **keys)
      )
    if 'success' in values:
      if seeds > 1:
        spread = intervals.std_interval(values['success'])
        kind = 'success_std_of_seeds'
        rows.append(tables.row(name, kind, spread, n=seeds, seeds=seeds, better='lower', **keys))
      for step in sorted(by_metric['success'])[-config.score_last :]:
        estimate = intervals.mean_interval(by_metric['success'][step])
        n = int(by_metric['episodes'][step].sum())
        metric = f'success_after_{step}'
        rows.append(tables.row(name, metric, estimate, n=n, seeds=seeds, better='higher', **keys))
    speeds = list(losses[name]['steps_per_second'].values())
    median = intervals.Interval(float(np.median(speeds)), np.nan, np.nan, 'median of chunks')
    count = len(speeds)
    rows.append(
      tables.row(name, 'updates_per_s', median, n=count, seeds=seeds, better='higher', **keys)
    )
  return rows


def _sections(run, dataset: Data, rows, tested, captions: dict[str, str]) -> list[str]:
  config = run.config
  budget = (
    f'{config.steps:,} updates of {config.batch_size} transitions, {config.num_seeds} seed(s). '
    'Means with 95 % intervals over seeds.'
  )
  for row in [row for row in rows if row['metric'] == 'success'][:1]:
    budget += (
      f' Success and length are of {row["n"] // row["seeds"]} episodes a seed, over the last '
      f'{config.score_last} score(s).'
    )
  sections = [f'Data: {dataset.summary}.', budget, tables.table(rows)]
  sections += claims.section(config.claims, tested)
  sections += ['## Figures']
  sections += [f'{caption}\n\n![]({"figures/" + name})' for name, caption in captions.items()]
  return sections
