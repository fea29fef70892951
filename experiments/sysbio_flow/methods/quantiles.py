"""Networks that forecast quantiles of each point: what they minimise, and how they are sampled."""

from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from experiments.sysbio_flow.methods import learner
from lib.stats import forecasts

LEVELS = np.array([0.01, *np.arange(1, 20) / 20, 0.99], np.float32)


def make(problem: learner.Problem, module: nn.Module) -> learner.Network:
  """A module that maps contexts (B, L_c) to (B, H, Q), relative to the last observation.

  The median comes first, then what lies between neighbouring levels, by softplus, so that quantiles
  never cross. The loss is twice the pinball loss, which estimates the CRPS. Samples take one level
  for all points of a series, and are flat beyond the outermost.
  """
  middle = len(LEVELS) // 2

  def quantiles(params: Any, context: chex.Array) -> chex.Array:
    raw = module.apply(params, context)
    gaps = jax.nn.softplus(raw - 2.0)
    above = jnp.cumsum(gaps[..., middle + 1 :], axis=-1)
    below = jnp.cumsum(gaps[..., middle - 1 :: -1], axis=-1)[..., ::-1]
    zero = jnp.zeros_like(above[..., :1])
    median = context[:, -1:, None] + raw[..., middle : middle + 1]
    return median + jnp.concatenate([-below, zero, above], axis=-1)

  def loss(params, batch, key):
    found = jnp.moveaxis(quantiles(params, batch['context']), -1, 0)
    return jnp.mean(forecasts.crps_quantiles(found, batch['future'], jnp.asarray(LEVELS)))

  def forecast(params, context, key, num_samples):
    found = quantiles(params, context)
    levels = jax.random.uniform(key, (num_samples, len(context)))
    at = jax.vmap(jnp.interp, in_axes=(None, None, 0))  # over points
    return jax.vmap(jax.vmap(at, in_axes=(0, None, 0)), in_axes=(0, None, None))(
      levels, jnp.asarray(LEVELS), found
    )

  example = jnp.zeros((1, problem.context))
  return learner.Network(lambda key: module.init(key, example), loss, forecast)
