"""Pictures of a run: scores and Elo over simulator steps and seconds, training, a game."""

from matplotlib import figure

from experiments.klent import games, records, tournament
from lib.stats import charts, intervals
from lib.train import app

Pictures = dict[str, tuple[figure.Figure, str]]
TRAINED = ('entropy', 'kl', 'gain', 'policy_loss', 'value_loss', 'kept')


def draw(
  run: app.Run, game: games.Game, names: list[str], table: tournament.Table | None
) -> Pictures:
  """Returns the figures with a caption each, by file name."""
  if not names:
    return {}
  pictures: Pictures = {}
  evaluations = {name: records.evaluations(run, game, name) for name in names}
  scores: dict[str, dict] = {}
  for name in names:
    for step, found in records.examined(run, name).items():
      for metric, values in found.items():
        by_step = scores.setdefault(metric, {}).setdefault(name, {})
        by_step[step * evaluations[name] / 1e6] = values
  drawing = charts.learning_curves(scores, x_label='million simulator steps')
  pictures['scores.png'] = (drawing, 'Scores while learning; thin lines are seeds.')
  if table:
    pictures['elo.png'] = (
      elo_curves(run, names, table, evaluations),
      'Elo while learning, by games against the known players that begin without random moves, '
      'over simulator steps and over '
      'seconds of play and learning of all seeds together; bands are 95 % intervals over seeds.',
    )
  logged = {name: records.training(run, name) for name in names}
  training = {
    metric: {
      name: {step * evaluations[name] / 1e6: x for step, x in found[metric].items()}
      for name, found in logged.items()
      if metric in found
    }
    for metric in TRAINED
  }
  training = {metric: by_name for metric, by_name in training.items() if by_name}
  if all((x == 1).all() for found in training.get('kept', {}).values() for x in found.values()):
    training.pop('kept', None)
  if training:  # DQN alone has none of it
    pictures['training.png'] = (
      charts.learning_curves(training, x_label='million simulator steps'),
      'While training, means over each chunk of iterations: entropy of the policies that play, '
      'divergence and gain in value of an improvement, losses, and the share of moves with a '
      'target where some have none.',
    )
  return pictures


def elo_curves(run, names, table, evaluations) -> figure.Figure:
  """Draws Elo over simulator steps and over seconds."""
  drawing, axes = charts.panels(2, 4.5, 3.4, columns=2)
  anchor = run.config.tournament.known[0]
  for number, name in enumerate(names):
    seconds, games_of = records.seconds(run, name), records.against(run, name)
    steps = [step for step in games_of if step in seconds]
    met = [{o: x for o, x in games_of[step].items() if o in table.names} for step in steps]
    found = [intervals.mean_interval(tournament.elo_of(table, x, anchor)) for x in met]
    xs = [step * evaluations[name] / 1e6 for step in steps], [seconds[step] for step in steps]
    for x, axis in zip(xs, axes, strict=True):
      low, high = [i.low for i in found], [i.high for i in found]
      axis.fill_between(x, low, high, color=f'C{number}', alpha=0.2, linewidth=0)
      axis.plot(x, [i.mean for i in found], '.-', color=f'C{number}', label=name.replace('_', ' '))
  known = tournament.pooled(table, anchor).elo
  for axis, label in zip(axes, ('million simulator steps', 'seconds'), strict=True):
    for name in run.config.tournament.known:
      height = known[table.names.index(name)]
      axis.axhline(height, color='0.7', linewidth=0.8, zorder=0)
      axis.annotate(name.replace('_', '-'), (1, height), xycoords=('axes fraction', 'data'),
                    ha='right', va='bottom', color='0.5', fontsize='small')  # fmt: skip
    axis.set(xlabel=label, ylabel=f'Elo above {anchor.replace("_", "-")}')
  handles = axes[0].get_legend_handles_labels()
  drawing.legend(*handles, loc='outside lower center', ncols=min(4, len(names)), frameon=False)
  return drawing
