"""Traced. Flow matching."""

import chex
import jax.numpy as jnp


def flow_matching_loss(
  prediction: chex.Array, velocity: chex.Array, weights: chex.Array | None = None
) -> chex.Array:
  """Conditional flow matching, E w (1/A) ‖u(x_t, t) - (x_1 - x_0)‖².

  Lipman et al. (2023), arXiv:2210.02747.

  Args:
    prediction: u(x_t, t) (B, A).
    velocity: the conditional path's velocities (B, A).
    weights: w (B,), such as `timesteps.importance_weights`; 1 by default.

  Returns:
    Scalar loss, the mean over batch and dimensions.
  """
  chex.assert_equal_shape([prediction, velocity])
  errors = jnp.mean((prediction - velocity) ** 2, axis=-1)
  if weights is None:
    return jnp.mean(errors)
  chex.assert_equal_shape([errors, weights])
  return jnp.mean(weights * errors)
