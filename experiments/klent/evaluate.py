"""Matches: of agents while they learn, and of all against all when they have.

Variables carry a leading axis of S seeds. A score is a win's 1 and a draw's ½, for games of which
each side begins half.
"""

import functools
import hashlib
from collections.abc import Callable
from typing import Any

import jax
import ml_collections
import numpy as np

from experiments.klent import games, methods, players
from lib.games import selfplay
from lib.train import signals

Scores = dict[str, np.ndarray]
RESULTS = ('wins', 'draws', 'losses')
_PROGRAMS: dict[bytes, Callable] = {}  # compiled matches by their text: most methods play alike


def agents(config: ml_collections.ConfigDict, game: games.Game, name: str) -> players.Player:
  """The player that one of `config.methods` has become, with the search of `config.eval`."""
  return players.agent(game, methods.make(config, name, game), config.eval.simulations)


def matches(
  config: ml_collections.ConfigDict,
  game: games.Game,
  first: players.Player,
  second: players.Player,
  num_games: int,
  opening_moves: int,
) -> Callable[..., np.ndarray]:
  """Returns `play(variables, other variables, key) -> (3,)`: wins, draws, losses of the first."""

  @jax.jit
  def play(mine, theirs, key):
    found = selfplay.match(
      game.env,
      functools.partial(first, mine),
      functools.partial(second, theirs),
      key,
      num_games,
      game.max_moves,
      opening_moves,
    )
    return jax.numpy.stack([found.wins, found.draws, found.losses])

  program: list[Callable] = []

  def play_compiled(*args):
    if not program:
      program.append(_compiled(play.lower(*args)))
    return program[0](*args)

  return play_compiled


def _compiled(lowered: Any) -> Callable:
  text = hashlib.sha256(lowered.as_text().encode()).digest()
  if text not in _PROGRAMS:
    _PROGRAMS[text] = lowered.compile()
  return _PROGRAMS[text]


class Examiner:
  """Plays the agents of one method, while they learn, against `config.eval.opponents`."""

  def __init__(self, config: ml_collections.ConfigDict, game: games.Game, name: str):
    self._config, self._game = config, game
    own = agents(config, game, name)
    self._matches = {
      opponent: matches(config, game, own, players.known(game, opponent), count, 0)
      for opponent, count in config.eval.opponents.items()
    }

  def __call__(self, variables: Any, step: int) -> Scores:
    """Returns wins, draws and losses of each seed against each opponent, (S,) each."""
    key = jax.random.fold_in(jax.random.key(self._config.eval.seed), step)
    found = {}
    for number, (opponent, play) in enumerate(self._matches.items()):
      theirs = players.variables(self._game, opponent)
      counts = []
      for seed in range(self._config.num_seeds):
        own = jax.tree.map(lambda x, seed=seed: x[seed], variables)
        draw = jax.random.fold_in(jax.random.fold_in(key, number), seed)
        counts.append(np.asarray(play(own, theirs, draw)))
        signals.check()
      for kind, numbers in zip(RESULTS, np.stack(counts, -1), strict=True):
        found[f'{kind}_{opponent}'] = numbers.astype(float)
    return found
