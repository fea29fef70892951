"""Traced. Games of simulators played in parallel: windows of self-play, and matches.

A simulator `env` is as in pgx: `init(key) -> state`, `step(state, action) -> state`, of one game,
pure. A state has `observation`, `legal_action_mask` (A,), `current_player`, `rewards` (2,) of the
last move, `terminated`, `truncated`. Arguments here carry a leading axis of B games.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

State = Any


class Window(NamedTuple):
  """Moves of B games in T steps; where a game ends, the next one starts.

  Attributes:
    observation: before the move, from the view of the player who moves (T, B, ...).
    legal: actions (T, B, A).
    action: the move (T, B).
    reward: of the player who moved (T, B).
    ended: whether the move ended its game (T, B), bool.
    info: what the policy said of the state, with leading axes (T, B).
  """

  observation: chex.Array
  legal: chex.Array
  action: chex.Array
  reward: chex.Array
  ended: chex.Array
  info: Any


def first_states(env: Any, key: chex.PRNGKey, num_games: int) -> State:
  """States (B,) of new games."""
  return jax.vmap(env.init)(jax.random.split(key, num_games))


def collect(
  env: Any,
  policy: Callable[[chex.PRNGKey, State], tuple[chex.Array, Any]],
  states: State,
  key: chex.PRNGKey,
  num_steps: int,
) -> tuple[State, Window]:
  """Plays T moves of each of B games.

  Args:
    env: the simulator.
    policy: `policy(key, states) -> (actions (B,), info)`.
    states: where the games stand (B,), none of them ended.
    key: typed PRNG key.
    num_steps: T.

  Returns:
    Where the games stand then, none of them ended, and the window.
  """

  def move(states, key):
    policy_key, reset_key = jax.random.split(key)
    actions, info = policy(policy_key, states)
    after = jax.vmap(env.step)(states, actions)
    ended = over(after)
    window = Window(
      observation=states.observation,
      legal=states.legal_action_mask,
      action=actions,
      reward=of_player(after.rewards, states.current_player),
      ended=ended,
      info=info,
    )
    return where(ended, first_states(env, reset_key, len(actions)), after), window

  return jax.lax.scan(move, states, jax.random.split(key, num_steps))


class Results(NamedTuple):
  """How many games the first player won, drew and lost, and the mean number of moves."""

  wins: chex.Array
  draws: chex.Array
  losses: chex.Array
  moves: chex.Array


def match(
  env: Any,
  first: Callable[[chex.PRNGKey, State], chex.Array],
  second: Callable[[chex.PRNGKey, State], chex.Array],
  key: chex.PRNGKey,
  num_games: int,
  max_moves: int,
  opening_moves: int = 0,
) -> Results:
  """Plays games of two policies to their end; each begins one half of them.

  Two policies without chance play the same game again and again: random openings tell more.

  Args:
    env: the simulator.
    first: `first(key, states) -> actions (B,)`.
    second: the other player.
    key: typed PRNG key.
    num_games: B, even.
    max_moves: after which a game counts as a draw.
    opening_moves: first moves of each game that are drawn uniformly.

  Returns:
    Counts that sum to B.

  Raises:
    ValueError: if the number of games is odd or not positive.
  """
  if num_games <= 0 or num_games % 2:
    raise ValueError(f'Half of the games each begins, which must be even, got {num_games=}.')
  init_key, play_key = jax.random.split(key)
  states = first_states(env, init_key, num_games)
  seats = states.current_player ^ (jnp.arange(num_games) % 2)  # of the first policy

  def going(carry):
    _, states, _, moves, _ = carry
    return (moves < max_moves) & ~jnp.all(over(states))

  def move(carry):
    key, states, total, moves, lengths = carry
    key, first_key, second_key, open_key = jax.random.split(key, 4)
    mine = states.current_player == seats
    actions = jnp.where(mine, first(first_key, states), second(second_key, states))
    if opening_moves:
      anything = random_actions(open_key, states)
      actions = jnp.where(moves < opening_moves, anything, actions)
    ended = over(states)  # and gives no more rewards
    after = jax.vmap(env.step)(states, actions)
    total += jnp.where(ended, 0.0, of_player(after.rewards, seats))
    return key, after, total, moves + 1, lengths + ~ended

  zeros = jnp.zeros(num_games)
  carry = play_key, states, zeros, jnp.int32(0), jnp.zeros(num_games, jnp.int32)
  _, _, total, _, lengths = jax.lax.while_loop(going, move, carry)
  return Results(
    jnp.sum(total > 0), jnp.sum(total == 0), jnp.sum(total < 0), jnp.mean(lengths * 1.0)
  )


def random_actions(key: chex.PRNGKey, states: State) -> chex.Array:
  """Uniform legal actions (B,)."""
  logits = jnp.where(states.legal_action_mask, 0.0, -jnp.inf)
  return jax.random.categorical(key, logits)


def over(states: State) -> chex.Array:
  """Which games have ended (B,), bool."""
  return states.terminated | states.truncated


def of_player(rewards: chex.Array, player: chex.Array) -> chex.Array:
  """Rewards (B, 2) of one player (B,) each: (B,)."""
  return jnp.take_along_axis(rewards, player[:, None].astype(jnp.int32), axis=1)[:, 0]


def where(condition: chex.Array, x: Any, y: Any) -> Any:
  """Rows of x where the condition (B,) holds, else of y, for trees of arrays (B, ...)."""

  def pick(a, b):
    return jnp.where(condition.reshape((-1,) + (1,) * (a.ndim - 1)), a, b)

  return jax.tree.map(pick, x, y)
