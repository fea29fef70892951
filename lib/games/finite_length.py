"""Traced. Games of perfect information that end: action values, updates of all states, equilibria.

Two players move in turn. Values and rewards are those of the player to move, so that what follows
counts with the other sign. States and actions are numbered; the root is state 0.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from lib.games import regularized


class Game(NamedTuple):
  """A game without cycles.

  Attributes:
    child: the state that an action leads to (S, A), int32; -1 where the game ends or the action is
      illegal.
    reward: of the player who moves (S, A); where the game goes on it is usually zero.
    legal: (S, A), at least one action of each state.
    height: the longest way to an end in moves (S,), int32, >= 1.
  """

  child: chex.Array
  reward: chex.Array
  legal: chex.Array
  height: chex.Array


def backed_up(game: Game, values: chex.Array) -> chex.Array:
  """Q(s, a) = r(s, a) - V(s') (S, A), of values (S,) of the players to move."""
  following = jnp.where(game.child >= 0, values[game.child], 0.0)
  return game.reward - following


def state_values(game: Game, log_policy: chex.Array, num_sweeps: int) -> chex.Array:
  """V(s) = Σ_a π(a|s) Q(s, a) (S,), of log π (S, A); exact for as many sweeps as the root's height.

  The entropy does not count: it steers improvement and is no part of the return.
  """
  policy = jnp.exp(log_policy)
  sweep = lambda _, values: jnp.sum(policy * backed_up(game, values), axis=-1)
  return jax.lax.fori_loop(0, num_sweeps, sweep, jnp.zeros(policy.shape[:1], policy.dtype))


def update_all_states(
  game: Game, logits: chex.Array, alpha: chex.Numeric, beta: chex.Numeric, num_sweeps: int
) -> chex.Array:
  """Improves the policy at all states at once, each against its exact action values.

  The states of height h come to rest h - 1 layers after the lowest, at a rate of β/(α+β) per step
  times a polynomial of degree h - 1, for all α > 0 and β >= 0: only one player moves at a state,
  so that nothing circles. With β = 0 they are exact after h steps. Derived.

  Args:
    game: the game.
    logits: of the policy (S, A).
    alpha: weight of the entropy.
    beta: weight of the divergence.
    num_sweeps: the root's height, for exact values.

  Returns:
    log π (S, A), -inf at illegal actions.
  """
  log_policy = regularized.log_softmax(logits, game.legal)
  q = backed_up(game, state_values(game, log_policy, num_sweeps))
  return regularized.improved_policy(log_policy, q, alpha, beta, game.legal)


def equilibrium(
  game: Game, alpha: chex.Numeric, num_sweeps: int, entropy_in_value: bool = False
) -> chex.Array:
  """The agent quantal response equilibrium, π(·|s) = softmax(Q(s, ·)/α), by backward induction.

  McKelvey and Palfrey (1998). It is where `update_all_states` comes to rest, for any β.

  Args:
    game: the game.
    alpha: weight of the entropy, > 0; minimax play for α → 0 where it is unique.
    num_sweeps: the root's height.
    entropy_in_value: whether α times the entropy counts as a reward, V = α log Σ exp(Q/α), as in
      maximum-entropy reinforcement learning.

  Returns:
    log π (S, A), -inf at illegal actions.
  """

  def sweep(_, values):
    q = backed_up(game, values)
    log_policy = regularized.log_softmax(q / alpha, game.legal)
    weight = alpha if entropy_in_value else 0.0
    return regularized.objective(log_policy, q, log_policy, weight, 0.0)

  start = jnp.zeros(game.height.shape, game.reward.dtype)
  values = jax.lax.fori_loop(0, num_sweeps, sweep, start)
  return regularized.log_softmax(backed_up(game, values) / alpha, game.legal)


def best_responses(
  game: Game, log_policy: chex.Array, num_sweeps: int
) -> tuple[chex.Array, chex.Array]:
  """Values (S,) of the player to move if one of the two stops playing π and plays its best.

  Args:
    game: the game.
    log_policy: log π (S, A), of both players.
    num_sweeps: the root's height.

  Returns:
    Where the player to move responds, B(s) = max_a r - O(s'), and where the other one does,
    O(s) = Σ_a π(a|s) (r - B(s')). B >= V >= O.
  """
  policy = jnp.exp(log_policy)

  def sweep(_, values):
    mover, other = values
    best = jnp.max(backed_up(game, other), axis=-1, where=game.legal, initial=-jnp.inf)
    return best, jnp.sum(policy * backed_up(game, mover), axis=-1)

  zeros = jnp.zeros(policy.shape[:1], policy.dtype)
  return jax.lax.fori_loop(0, num_sweeps, sweep, (zeros, zeros))


def exploitability(game: Game, log_policy: chex.Array, num_sweeps: int) -> chex.Array:
  """The sum of what both players would gain at the root by a best response, B - O >= 0."""
  mover, other = best_responses(game, log_policy, num_sweeps)
  return mover[0] - other[0]
