"""Networks that forecast quantiles of each point: what they minimise, and how they are sampled."""

from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from experiments.sysbio_flow import networks
from experiments.sysbio_flow.methods import learner
from lib.stats import forecasts

LEVELS = np.array([0.01, *np.arange(1, 20) / 20, 0.99], np.float32)


class Head:
  """Quantiles (Q, B, H) at LEVELS in a space of `networks.SPACES`, and normal scores by them."""

  def __init__(self, space: str):
    self.forward, self.back = networks.SPACES[space]

  def quantiles(self, raw: chex.Array, context: chex.Array) -> chex.Array:
    """Of a network's numbers (B, H, Q) and contexts (B, L_c).

    The median comes first, relative to the last observation, then what lies between neighbouring
    levels, by softplus, so that quantiles never cross.
    """
    middle = len(LEVELS) // 2
    raw = jnp.moveaxis(raw, -1, 0)
    gaps = jax.nn.softplus(raw - 2.0)
    above = jnp.cumsum(gaps[middle + 1 :], axis=0)
    below = jnp.cumsum(gaps[middle - 1 :: -1], axis=0)[::-1]
    median = self.forward(context[:, -1:]) + raw[middle]
    return median + jnp.concatenate([-below, jnp.zeros_like(raw[:1]), above])

  def scores(self, quantiles: chex.Array, y: chex.Array) -> chex.Array:
    """Normal scores (B, H) of what came true (B, H)."""
    return forecasts.normal_scores(self.forward(y), quantiles, jnp.asarray(LEVELS))

  def values(self, quantiles: chex.Array, scores: chex.Array) -> chex.Array:
    """What has the given normal scores (B, H)."""
    return self.back(forecasts.from_normal_scores(scores, quantiles, jnp.asarray(LEVELS)))


def make(problem: learner.Problem, module: nn.Module, space: str = 'linear') -> learner.Network:
  """A module that maps contexts (B, L_c) to numbers (B, H, Q) of a `Head`.

  Quantiles lie in a `space` of `networks.SPACES`. The loss is twice the pinball loss, which
  estimates the CRPS. Samples take one level for all points of a series, and are flat beyond the
  outermost.
  """
  head = Head(space)

  def loss(params, batch, key):
    found = head.back(head.quantiles(module.apply(params, batch['context']), batch['context']))
    return jnp.mean(forecasts.crps_quantiles(found, batch['future'], jnp.asarray(LEVELS)))

  def forecast(params: Any, context, key, num_samples):
    found = head.quantiles(module.apply(params, context), context)
    scores = jax.random.normal(key, (num_samples, len(context), 1))
    values = lambda z: head.values(found, jnp.broadcast_to(z, found.shape[1:]))
    return jax.lax.map(values, scores)

  example = jnp.zeros((1, problem.context))
  return learner.Network(lambda key: module.init(key, example), loss, forecast)
