"""All against all: the trained agents and players of known strength, and what Elo they have."""

from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.klent import evaluate, games, players, records
from lib.games import ratings
from lib.io import npz
from lib.train import app, checkpoint, console, signals


class Table(NamedTuple):
  """Results of a round robin.

  Attributes:
    names: of the players (P,), the known ones first.
    counts: wins, draws and losses of the row's player (S, P, P, 3); known players met once, and
      their games stand with every seed.
    num_known: how many players are known ones.
  """

  names: list[str]
  counts: np.ndarray
  num_known: int


def play(run: app.Run, game: games.Game) -> Table:
  """Plays what has not been played, in WORKDIR/tournament.npz; seeds meet their own number."""
  config = run.config
  setting = config.tournament
  trained = [name for name in config.methods if records.is_finished(run, game, name)]
  names = [*setting.known, *trained]
  path = run.workdir / 'tournament.npz'
  done = npz.load_npz(path) if path.is_file() else {}
  learnt = {name: variables(run, name) for name in trained}
  acting = {name: players.known(game, name) for name in setting.known}
  acting |= {name: evaluate.agents(config, game, name) for name in trained}
  key = jax.random.fold_in(jax.random.key(config.eval.seed), 1)
  counts = np.zeros((config.num_seeds, len(names), len(names), 3))
  for i, first in enumerate(names):
    for j, second in enumerate(names[:i]):
      pair = f'{first} {second}'
      if pair not in done:
        console.say(f'tournament: {first} against {second}')
        both = first in learnt or second in learnt
        meet = evaluate.matches(
          config, game, acting[first], acting[second], setting.games, setting.opening_moves
        )
        seeds = range(config.num_seeds if both else 1)
        own = jax.random.fold_in(key, i * len(names) + j)
        found = []
        for seed in seeds:
          sides = [
            of_seed(learnt[name], seed) if name in learnt else players.variables(game, name)
            for name in (first, second)
          ]
          found.append(np.asarray(meet(*sides, jax.random.fold_in(own, seed))))
          signals.check()
        done[pair] = np.stack(found).astype(np.float64)
        npz.save_npz(path, done)
      counts[:, i, j] = done[pair]
      counts[:, j, i] = done[pair][:, ::-1]
  return Table(names, counts, len(setting.known))


def elo(table: Table, anchor: str) -> dict[str, np.ndarray]:
  """Elo of every player above the anchor, (S,): a fit for each seed, of its games alone."""
  found = [_fit(counts, table.names.index(anchor)).elo for counts in table.counts]
  return dict(zip(table.names, np.stack(found, -1), strict=True))


def pooled(table: Table, anchor: str) -> ratings.Ratings:
  """One fit of the games of all seeds; those of known players among themselves count once."""
  total, known = table.counts.sum(axis=0), slice(table.num_known)
  total[known, known] = table.counts[0, known, known]
  return _fit(total, table.names.index(anchor))


def _fit(counts: np.ndarray, anchor: int) -> ratings.Ratings:
  return ratings.bradley_terry(counts[..., 0], counts[..., 1], anchor)


def variables(run: app.Run, name: str) -> Any:
  """The variables of all seeds that a method has learnt."""
  return checkpoint.restore(run.workdir / name)[1]['variables']


def of_seed(variables: Any, seed: int) -> Any:
  """One seed's."""
  return jax.tree.map(lambda x: x[seed], variables)


def elo_of(table: Table, against: dict[str, np.ndarray], anchor: str) -> np.ndarray:
  """Elo (S,) of one more player, from its games against players of a table.

  Args:
    table: of a round robin; those of its games count that the named players played.
    against: wins, draws and losses (S, 3) by the name of the opponent, and `anchor` if it met it.
    anchor: whose Elo is zero, which the named players have met.
  """
  names = list(dict.fromkeys([anchor, *against]))
  places = [table.names.index(name) for name in names]
  found = []
  for seed, counts in enumerate(table.counts):
    one = np.zeros((len(names) + 1, len(names) + 1, 3))
    one[:-1, :-1] = counts[np.ix_(places, places)]
    for name, numbers in against.items():
      place = names.index(name)
      one[-1, place], one[place, -1] = numbers[seed], numbers[seed][::-1]
    found.append(_fit(one, 0).elo[-1])
  return np.array(found)
