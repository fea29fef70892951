"""Traced. Losses of policy gradients, of each row: the caller weighs and averages them."""

import math

import chex
import jax
import jax.numpy as jnp


def clipped_surrogate(
  log_prob: chex.Array, old_log_prob: chex.Array, advantage: chex.Array, clip: float
) -> chex.Array:
  """PPO's loss -min(ρ A, clip(ρ, 1 - ε, 1 + ε) A) of each row, with ρ = π(a)/π_old(a).

  Schulman et al. (2017), arXiv:1707.06347, equation 7. The ratio is clipped before the exponential:
  the gradient is zero, not NaN, where ρ overflows and A >= 0. Where A < 0 nothing bounds the loss.

  Args:
    log_prob: log π(a) (B,), differentiated.
    old_log_prob: log π_old(a) (B,), a constant, finite.
    advantage: A (B,), a constant.
    clip: ε > 0.

  Returns:
    Losses (B,).

  Raises:
    ValueError: if the clip is not positive.
  """
  if not clip > 0:
    raise ValueError(f'The clip must be positive, got {clip=}.')
  chex.assert_equal_shape([log_prob, old_log_prob, advantage])
  advantage = jax.lax.stop_gradient(advantage)
  log_ratio = log_prob - jax.lax.stop_gradient(old_log_prob)
  lowest = math.log1p(-clip) if clip < 1 else -math.inf
  log_ratio = jnp.where(
    advantage >= 0,
    jnp.minimum(log_ratio, math.log1p(clip)),
    jnp.maximum(log_ratio, lowest),
  )
  return -jnp.exp(log_ratio) * advantage
