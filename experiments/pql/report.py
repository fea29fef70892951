"""What a run shows: the table, the claims, and the pictures."""

import numpy as np

from experiments.pql import evaluate, figures
from experiments.pql.data import Data
from lib.stats import intervals, tables
from lib.train import app, metrics, report
from lib.train import figures as plots

BETTER = {  # of the scores, and their order in the table
  'success': 'higher',
  'reward': 'higher',
  'episode_length': 'lower',
  'flow_loss': 'lower',
  **{f'energy_distance_euler_{steps}': 'lower' for steps in evaluate.EULER_STEPS},
  'energy_distance_one_step': 'lower',
  'distillation_error': 'lower',
  'jacobian_sq': 'lower',
  'spectral_norm_max': 'lower',
}
PER_EPISODE = ('success', 'episode_length')
Scores = dict[str, dict[int, np.ndarray]]  # by metric and step, one number a seed (S,)


def scores(run: app.Run, name: str, kind: str = 'eval') -> Scores:
  """Reads the records of one method; of a step that was scored twice, the later one."""
  path = run.workdir / name / 'metrics.jsonl'
  records = metrics.read(path) if path.is_file() else []
  found: Scores = {}
  for record in records:
    if record['kind'] == kind:
      for metric in record.keys() - {'step', 'kind'}:
        found.setdefault(metric, {})[record['step']] = np.asarray(record[metric])
  return found


def is_finished(run: app.Run, name: str) -> bool:
  """Whether a method was trained to the end, and scored there."""
  return any(run.config.steps in by_step for by_step in scores(run, name).values())


def write(run: app.Run, dataset: Data, trained: figures.Trained) -> None:
  """Writes results.json, report.md and the figures from what the methods left in the workdir."""
  all_scores = {name: scores(run, name) for name in run.config.methods}
  losses = {name: scores(run, name, 'train') for name in run.config.methods}
  rows = _final_rows(run, all_scores, losses)
  claims = _claim_rows(run, all_scores)
  report.write_results(run, rows + claims)
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
    plots.save(plots.learning_curves(curves), run.workdir / 'figures' / file)
  captions |= figures.draw(run, dataset, trained)
  report.write_report(
    run, f'PQL on {run.config.data.env}', _sections(run, dataset, rows, claims, captions)
  )


def _final_rows(
  run: app.Run, all_scores: dict[str, Scores], losses: dict[str, Scores]
) -> list[tables.Row]:
  """A row a method and metric, at the last score, and one for its speed."""
  config, rows = run.config, []
  for name, by_metric in all_scores.items():
    for metric in [metric for metric in BETTER if metric in by_metric]:
      by_step = by_metric[metric]
      last = max(by_step)
      seeds = len(by_step[last])
      n = seeds * int(by_metric['episodes'][last][0]) if metric in PER_EPISODE else seeds
      estimate = intervals.mean_interval(by_step[last])
      keys = {'task': config.data.env, 'updates': last}
      rows.append(
        tables.row(name, metric, estimate, n=n, seeds=seeds, better=BETTER[metric], **keys)
      )
    speeds = list(losses[name]['steps_per_second'].values())
    median = intervals.Interval(float(np.median(speeds)), np.nan, np.nan, 'median of chunks')
    count = len(speeds)
    rows.append(
      tables.row(name, 'updates_per_s', median, n=count, seeds=seeds, better='higher', **keys)
    )
  return rows


def _claim_rows(run: app.Run, all_scores: dict[str, Scores]) -> list[tables.Row]:
  """A row a claim of the config: the paired gain over the baseline, and whether it holds."""
  rows = []
  for name, baseline, metric, least in run.config.claims:
    if not (metric in all_scores.get(name, {}) and metric in all_scores.get(baseline, {})):
      continue
    mine, theirs = (s[metric][max(s[metric])] for s in (all_scores[name], all_scores[baseline]))
    a, b = (mine, theirs) if BETTER[metric] == 'higher' else (theirs, mine)
    gain = intervals.paired_interval(a, b)
    passed = bool(gain.low > 0 and gain.mean >= least)
    row = tables.row(
      f'{name} against {baseline}', f'gain in {metric}', gain, n=len(a), seeds=len(a),
      better='higher', task=run.config.data.env, least=least, passed=passed,
    )  # fmt: skip
    rows.append(row)
  return rows


def _sections(run, dataset: Data, rows, claims, captions: dict[str, str]) -> list[str]:
  config = run.config
  budget = (
    f'{config.steps:,} updates of {config.batch_size} transitions, {config.num_seeds} seed(s). '
    'Means with 95 % intervals over seeds.'
  )
  for row in [row for row in rows if row['metric'] == 'success'][:1]:
    budget += f' Success is of {row["n"] // row["seeds"]} episodes a seed, after the last update.'
  sections = [f'Data: {dataset.summary}.', budget, tables.table(rows)]
  if config.claims:
    lines = [
      f'- {"PASS" if claim["passed"] else "FAIL"}: {claim["method"]}, {claim["metric"]}: '
      f'{tables.estimate(claim)}'
      for claim in claims
    ]
    tested = {(claim['method'], claim['metric']) for claim in claims}
    for name, baseline, metric, _ in config.claims:
      if (f'{name} against {baseline}', f'gain in {metric}') not in tested:
        lines.append(f'- not tested: {name} against {baseline}, gain in {metric}')
    rule = 'Gains are paired by seed, positive where better. A pass has its interval above 0'
    least = {claim['least'] for claim in claims}
    rule += f', and a mean of at least {max(least):g} where asked.' if any(least) else '.'
    sections += ['## Claims', rule, '\n'.join(lines)]
  sections += ['## Figures']
  sections += [f'{caption}\n\n![]({"figures/" + name})' for name, caption in captions.items()]
  return sections
