"""Traced. Value targets of self-play, where the next value is the opponent's.

A trajectory of one game slot: rewards r (T,) of the player who moved, values V (T,) of the states
from the same player's view, and whether the move ended its game, after which a new one starts.
Batches go through `vmap`.
"""

import chex
import jax
import jax.numpy as jnp


def negamax_lambda_returns(
  rewards: chex.Array,
  values: chex.Array,
  terminated: chex.Array,
  lambda_: chex.Numeric,
  last_value: chex.Array | None = None,
) -> tuple[chex.Array, chex.Array]:
  """λ-returns with a discount of -1: G_t = r_t - [(1 - λ) V_{t+1} + λ G_{t+1}], r_t at an end.

  λ = 0 is one step, λ = 1 the game's result with alternating sign. Ota et al. (2026),
  arXiv:2602.10894, with λ = exp(-1/τ).

  Args:
    rewards: r (T,).
    values: V (T,).
    terminated: whether the move ended the game (T,), bool.
    lambda_: λ in [0, 1].
    last_value: V_T () of the state after the last move, from the view of its mover. Without it
      the moves of the last, unfinished game have no target.

  Returns:
    Targets G (T,), zero where there is none, and whether there is one (T,), bool.
  """
  chex.assert_rank([rewards, values, terminated], 1)
  chex.assert_equal_shape([rewards, values, terminated])
  known = last_value is not None
  after = jnp.asarray(last_value if known else 0.0, values.dtype)

  def back(carry, now):
    target, value, valid = carry
    reward, own, ended = now
    following = (1.0 - lambda_) * value + lambda_ * target
    valid = valid | ended
    target = jnp.where(valid, reward - jnp.where(ended, 0.0, following), 0.0)
    return (target, own, valid), (target, valid)

  start = (after, after, jnp.asarray(known))
  _, found = jax.lax.scan(back, start, (rewards, values, terminated), reverse=True)
  return found


def advantages(
  rewards: chex.Array,
  values: chex.Array,
  terminated: chex.Array,
  lambda_: chex.Numeric,
  last_value: chex.Array,
) -> chex.Array:
  """Generalised advantages G_t - V_t (T,) with a discount of -1, of `negamax_lambda_returns`.

  A_t = δ_t - λ A_{t+1}, δ_t = r_t - V_{t+1} - V_t. Schulman et al. (2016), arXiv:1506.02438.
  """
  return negamax_lambda_returns(rewards, values, terminated, lambda_, last_value)[0] - values
