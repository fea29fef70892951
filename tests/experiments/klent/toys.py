"""A game of a few positions, as pgx has them: it compiles fast, and its values are known."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from experiments.klent import games

PILES = 9
VALUES = np.where(np.arange(1, PILES + 1) % 3, 1.0, -1.0)  # of the mover, by the pile
BEST = {1: 0, 2: 1, 4: 0, 5: 1, 7: 0, 8: 1}  # the only action that wins, by the pile


@chex.dataclass(frozen=True)
class State:
  """A pile of stones; who takes the last one wins."""

  pile: chex.Array
  observation: chex.Array
  legal_action_mask: chex.Array
  current_player: chex.Array
  rewards: chex.Array
  terminated: chex.Array
  truncated: chex.Array


def state(pile, player=0, rewards=(0.0, 0.0)) -> State:
  """The position in which a player is to take stones from a pile, or the end at 0."""
  pile = jnp.asarray(pile, jnp.int32)
  return State(
    pile=pile,
    observation=jax.nn.one_hot(pile - 1, PILES),
    legal_action_mask=pile >= jnp.array([1, 2]),
    current_player=jnp.asarray(player, jnp.int32),
    rewards=jnp.asarray(rewards),
    terminated=pile == 0,
    truncated=jnp.zeros((), bool),
  )


def states(piles, player=0) -> State:
  """Positions (B,) of piles (B,), in which the same player is to move."""
  return jax.vmap(lambda pile: state(pile, player))(jnp.asarray(piles))


class Nim:
  """One takes one stone or two, by actions 0 and 1."""

  def __init__(self, start: int | None = None):
    """Games start from a pile, or from any of 1 to PILES; either player begins."""
    self._start = start

  def init(self, key: chex.PRNGKey) -> State:
    pile_key, player_key = jax.random.split(key)
    pile = self._start or jax.random.randint(pile_key, (), 1, PILES + 1)
    return state(pile, jax.random.randint(player_key, (), 0, 2))

  def step(self, before: State, action: chex.Array) -> State:
    pile = jnp.maximum(before.pile - action - 1, 0)
    mine = jnp.where(jnp.arange(2) == before.current_player, 1.0, -1.0)
    won = (pile == 0) & ~before.terminated
    return state(pile, 1 - before.current_player, jnp.where(won, mine, 0.0))


def game(start: int | None = None) -> games.Game:
  """Nim as the experiment has its games."""
  return games.Game(Nim(start), (PILES,), lambda x: x, 2, PILES)
