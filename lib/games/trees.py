"""Host. Games without cycles as arrays: random trees, and small games of simulators, enumerated."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lib.games.finite_length import Game


def random_tree(seed: int, depth: int, branching: int) -> Game:
  """A full tree whose leaves pay the player who moved last uniformly in [-1, 1].

  Args:
    seed: of the payoffs.
    depth: moves of a game, >= 1.
    branching: actions of each state, >= 1.

  Returns:
    A game of (branching^depth - 1)/(branching - 1) states; the root is the first, layers follow.

  Raises:
    ValueError: if depth or branching is not positive.
  """
  if depth < 1 or branching < 1:
    raise ValueError(f'A tree needs a move and an action, got {depth=}, {branching=}.')
  sizes = [branching**level for level in range(depth)]
  height = np.repeat(depth - np.arange(depth), sizes)
  num_states = len(height)
  child = 1 + np.arange(num_states * branching).reshape(num_states, branching)
  ends = child >= num_states
  payoffs = np.random.default_rng(seed).uniform(-1.0, 1.0, child.shape)
  return Game(
    child=np.where(ends, -1, child).astype(np.int32),
    reward=np.where(ends, payoffs, 0.0).astype(np.float32),
    legal=np.ones(child.shape, bool),
    height=height.astype(np.int32),
  )


def enumerate_game(
  env: Any, key: Any, max_states: int, block: int = 512
) -> tuple[Game, np.ndarray]:
  """Lists all positions of a small game between players who move in turn.

  Positions are told apart by what the mover observes, which must be all that matters for the rest
  of the game, as in tic-tac-toe.

  Args:
    env: has `init(key)` and `step(state, action)` as in pgx, pure and without chance; a state has
      `observation`, `legal_action_mask`, `current_player`, `rewards` and `terminated`.
    key: typed PRNG key, of the first state.
    max_states: how many positions there may be.
    block: positions that are stepped at once.

  Returns:
    The game, and the observations (S, ...) of its states.

  Raises:
    ValueError: if there are more than `max_states` positions, the same player moves twice, or a
      game can go on for ever.
  """
  root = jax.jit(env.init)(key)
  num_actions = root.legal_action_mask.shape[-1]

  @jax.jit
  def expand(states):
    over_actions = jax.vmap(env.step, (None, 0))
    return jax.vmap(lambda state: over_actions(state, jnp.arange(num_actions)))(states)

  numbers: dict[bytes, int] = {np.asarray(root.observation).tobytes(): 0}
  kept, children, rewards = [], [], []
  fresh = [jax.tree.map(np.asarray, root)]
  while fresh:
    frontier = jax.tree.map(lambda *xs: np.stack(xs), *fresh)
    kept.append(frontier)
    fresh = []
    for first in range(0, len(frontier.observation), block):
      states = jax.tree.map(lambda x, first=first: x[first : first + block], frontier)
      size = len(states.observation)
      padded = jax.tree.map(
        lambda x, size=size: np.concatenate([x, np.repeat(x[-1:], block - size, 0)]), states
      )
      after = jax.tree.map(lambda x, size=size: np.asarray(x)[:size], expand(padded))
      legal, mover = states.legal_action_mask, states.current_player
      goes_on = legal & ~after.terminated
      if (after.current_player == mover[:, None])[goes_on].any():
        raise ValueError('the same player moves twice in a row')
      found = np.full(legal.shape, -1, np.int32)
      for row, action in np.argwhere(goes_on):
        name = after.observation[row, action].tobytes()
        if name not in numbers:
          if len(numbers) >= max_states:
            raise ValueError(f'the game has more than {max_states} positions')
          numbers[name] = len(numbers)
          fresh.append(jax.tree.map(lambda x, at=(row, action): x[at], after))
        found[row, action] = numbers[name]
      own = np.take_along_axis(after.rewards, mover[:, None, None].astype(int), axis=-1)[..., 0]
      children.append(found)
      rewards.append(np.where(legal, own, 0.0))
  child = np.concatenate(children)
  game = Game(
    child=child,
    reward=np.concatenate(rewards).astype(np.float32),
    legal=np.concatenate([states.legal_action_mask for states in kept]),
    height=_heights(child),
  )
  return game, np.concatenate([states.observation for states in kept])


def _heights(child: np.ndarray) -> np.ndarray:
  height = np.ones(len(child), np.int32)
  for _ in range(len(child) + 1):
    above = 1 + np.where(child >= 0, height[child], 0).max(axis=1)
    if (above == height).all():
      return height
    height = above.astype(np.int32)
  raise ValueError('a game can go on for ever')
