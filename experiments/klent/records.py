"""What the methods of a run have left in its workdir."""

import numpy as np

from experiments.klent import evaluate, games, methods
from lib.train import app, metrics

Values = dict[str, np.ndarray]  # by metric, one number a seed (S,)


def against(run: app.Run, name: str) -> dict[int, Values]:
  """Wins, draws and losses (S, 3) by iteration and opponent, where all opponents were met."""
  counts = metrics.series(run.workdir / name / 'metrics.jsonl', 'eval')
  opponents = run.config.eval.opponents
  met = [set(counts.get(f'{evaluate.RESULTS[0]}_{o}', ())) for o in opponents]
  return {
    step: {
      o: np.stack([counts[f'{kind}_{o}'][step] for kind in evaluate.RESULTS], axis=-1)
      for o in opponents
    }
    for step in sorted(set.intersection(*met))
  }


def examined(run: app.Run, name: str) -> dict[int, Values]:
  """Mean scores against each opponent by iteration: a win is 1, a draw ½."""
  worth = np.array([1.0, 0.5, 0.0])
  return {
    step: {f'score_{o}': x @ worth / x.sum(axis=-1) for o, x in found.items()}
    for step, found in against(run, name).items()
  }


def is_finished(run: app.Run, game: games.Game, name: str) -> bool:
  """Whether a method was trained to the end and examined there."""
  return methods.iterations(run.config, methods.make(run.config, name, game)) in examined(run, name)


def evaluations(run: app.Run, game: games.Game, name: str) -> int:
  """Simulator steps of one iteration of a method."""
  return methods.make(run.config, name, game).evaluations


def seconds(run: app.Run, name: str) -> dict[int, float]:
  """Seconds of play and learning of all seeds until each iteration, without compiling."""
  rates = training(run, name)['steps_per_second']
  total, before, found = 0.0, 0, {0: 0.0}
  for step in sorted(rates):
    total += (step - before) / float(rates[step])
    before, found[step] = step, total
  return found


def training(run: app.Run, name: str) -> dict[str, dict[int, np.ndarray]]:
  """What was logged while training, by metric and iteration."""
  return metrics.series(run.workdir / name / 'metrics.jsonl', 'train')
