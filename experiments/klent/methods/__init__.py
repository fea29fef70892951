"""The ways to learn from self-play, a file each, with one signature (`learner.Method`)."""

import ml_collections

from experiments.klent import games
from experiments.klent.methods import (
  alphazero,
  dqn,
  gumbel_alphazero,
  klent,
  learner,
  ppo,
  regularized_alphazero,
)
from lib.io import fields

METHODS = {
  'klent': klent.make,
  'gumbel_alphazero': gumbel_alphazero.make,
  'alphazero': alphazero.make,
  'regularized_alphazero': regularized_alphazero.make,
  'ppo': ppo.make,
  'dqn': dqn.make,
}


def problem(config: ml_collections.ConfigDict, name: str, game: games.Game) -> learner.Problem:
  """What one of `config.methods` is made of, for a game."""
  changed = fields.varied(config, name)
  return learner.Problem(
    env=game.env,
    shape=game.shape,
    observe=game.observe,
    num_actions=game.num_actions,
    evaluations=config.evaluations,
    play=changed.play,
    network=changed.network,
    optimizer=changed.optimizer,
    agent=changed.agent,
  )


def make(config: ml_collections.ConfigDict, name: str, game: games.Game) -> learner.Method:
  """Builds one of `config.methods` for a game."""
  return METHODS[fields.kind(config, name)](problem(config, name, game))


def iterations(config: ml_collections.ConfigDict, method: learner.Method) -> int:
  """Iterations of a method that the budget of simulator steps pays for, at least one."""
  return max(1, round(config.evaluations / method.evaluations))
