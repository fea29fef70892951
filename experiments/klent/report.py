"""What a run shows: the table, the claims, the curves, and a game."""

import ml_collections
import numpy as np

from experiments.klent import charts, example, games, records, tournament
from lib.stats import bounds, claims, intervals, tables
from lib.train import app, figures, report


def better(config: ml_collections.ConfigDict) -> dict[str, str]:
  """What can be claimed, by metric."""
  names = [f'score_{opponent}' for opponent in config.eval.opponents]
  return dict.fromkeys([*names, 'elo', 'entropy'], 'higher')


def write(run: app.Run, game: games.Game, table: tournament.Table | None) -> None:
  """Writes results.json, report.md and the figures from what the methods left in the workdir."""
  config = run.config
  names = [name for name in config.methods if records.is_finished(run, game, name)]
  last = {name: records.examined(run, name) for name in names}
  values = {name: dict(by_step[max(by_step)]) for name, by_step in last.items()}
  if table:
    for name, elo in tournament.elo(table, config.tournament.known[0]).items():
      values.setdefault(name, {})['elo'] = elo
  for name in names:
    trained = records.training(run, name)
    for metric in ('entropy', 'kept'):
      if metric in trained:
        values[name][metric] = trained[metric][max(trained[metric])]
    pace = config.num_seeds * max(last[name]) / records.seconds(run, name)[max(last[name])]
    values[name]['evaluations_per_second'] = np.array([pace * records.evaluations(run, game, name)])
  rows = []
  for name, found in values.items():
    for metric, numbers in found.items():
      opponent = metric.removeprefix('score_')
      count = config.num_seeds * config.eval.opponents.get(opponent, 1)
      direction = 'higher' if metric.startswith('score_') or metric == 'elo' else None
      estimate = intervals.mean_interval(numbers)
      rows.append(tables.row(name, metric, estimate, n=count, seeds=len(numbers), better=direction))
  tested = claims.test(config.claims, values, better(config))
  reached = bounds.test(config.at_least, values, better(config))
  report.write_results(run, rows + tested + reached)
  sections = [
    f'{config.game}: {config.evaluations:,} simulator steps a seed, those of searches included, '
    f'{config.num_seeds} seed(s). Agents play the best move by their preferences'
    + (f', after {config.eval.simulations} simulations' if config.eval.simulations else '')
    + '; scores count a draw half. Means with 95 % intervals over seeds.',
    tables.table(rows),
    *claims.section(config.claims, tested),
    *bounds.section(config.at_least, reached),
  ]
  if table:
    sections += ['## Tournament', *_tournament_section(run, table)]
  sections.append('## Figures')
  for file, (drawing, caption) in charts.draw(run, game, names, table).items():
    figures.save(drawing, run.workdir / 'figures' / file)
    sections.append(f'{caption}\n\n![](figures/{file})')
  if names:
    hardest = min(config.eval.opponents, key=lambda o: values[names[0]][f'score_{o}'].mean())
    caption = example.record(run, game, names[0], hardest)
    sections.append(f'{caption}\n\n![](figures/{example.FILE})')
  report.write_report(run, f'KLENT on {config.game}', sections)


def _tournament_section(run: app.Run, table: tournament.Table) -> list[str]:
  """The scores of all pairs, and Elo from all games with intervals from the fit's curvature."""
  total = table.counts.sum(axis=0)
  played = total.sum(axis=-1)
  with np.errstate(invalid='ignore'):
    scores = (total[..., 0] + 0.5 * total[..., 1]) / played
  fit = tournament.pooled(table, run.config.tournament.known[0])
  order = np.argsort(-fit.elo)
  half = 1.96 * np.sqrt(np.diag(fit.covariance))
  lines = [
    ['player', 'Elo', *(table.names[j] for j in order)],
    ['---'] * (len(order) + 2),
    *(
      [table.names[i], f'{fit.elo[i]:.0f} ± {half[i]:.0f}']
      + ['' if i == j else f'{scores[i, j]:.2f}' for j in order]
      for i in order
    ),
  ]
  setting = run.config.tournament
  return [
    f'{setting.games} games of each pair and seed, the first {setting.opening_moves} moves of each '
    'at random. Scores of the row against the column; Elo above '
    f'{setting.known[0]} by a Bradley-Terry fit with ties to the games of all seeds, ± 1.96 '
    'standard errors of games. The table above has intervals over seeds.',
    '\n'.join('| ' + ' | '.join(line) + ' |' for line in lines),
  ]
