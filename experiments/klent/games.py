"""The games by name, on pgx: Koyamada et al. (2023), arXiv:2303.17503."""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from experiments.klent import pgx_models

# Longest game in moves that an evaluation waits for: a little beyond pgx's own limits.
MAX_MOVES = {
  'tic_tac_toe': 9,
  'connect_four': 42,
  'othello': 130,
  'hex': 122,
  'animal_shogi': 260,
  'gardner_chess': 260,
  'go_9x9': 170,
}


class Game(NamedTuple):
  """A game.

  Attributes:
    env: pgx's.
    shape: of an observation.
    observe: `observe(observation (B, *shape)) -> (B, *shape)`, as the network sees it.
    num_actions: A.
    max_moves: after which an evaluation counts a draw.
    model: pgx's own network of the game, which may be an opponent; None where none is given.
  """

  env: Any
  shape: tuple[int, ...]
  observe: Callable[[chex.Array], chex.Array]
  num_actions: int
  max_moves: int
  model: pgx_models.Model | None = None


def make(name: str, binary: bool = False) -> Game:
  """Builds a game of MAX_MOVES.

  Args:
    name: of the game.
    binary: whether counters become one where they are not zero, as in the authors' packing.
  """
  import pgx  # here, for its import starts the devices, whose number a run still sets

  env = pgx.make(name)  # type: ignore[arg-type]
  dtype = jax.eval_shape(env.init, jax.random.key(0)).observation.dtype
  observe = (lambda x: x != 0) if binary and not jnp.issubdtype(dtype, jnp.bool_) else (lambda x: x)
  return Game(env, env.observation_shape, observe, env.num_actions, MAX_MOVES[name])
