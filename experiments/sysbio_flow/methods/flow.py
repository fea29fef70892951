"""Regime-aware flow matching: from correlated noise of regimes, through learnt quantiles.

A network reads the context once, and says quantiles of each point of the future, and a code. The
quantiles carry points y of the future to normal scores z = Φ⁻¹(F(y)) and back; they are fitted by
themselves, to the quantile loss. Flows are between normal scores: from noise that is correlated as
that of the context's regimes, to the scores of the truth. Where forecasts are calibrated point by
point, source and end have the same margins, and the flow learns what remains, how points depend on
each other and on the code; it starts from the velocity (2u - 1) x / ((1 - u)² + u²) between two
laws N(0, I), to which a second network adds.

This learns the mean and the width of the source; with the means of closed form, `cfm.py`.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.sysbio_flow import networks
from experiments.sysbio_flow.methods import learner, quantiles, sources
from lib.flow import integrate, losses, paths
from lib.stats import forecasts


class Encoder(nn.Module):
  """What a context (B, L_c) and features (B, F) say: a code (B, width), numbers (B, H, Q)."""

  width: int
  layers: int
  horizon: int

  @nn.compact
  def __call__(self, context, features):
    sizes = self.horizon, len(quantiles.LEVELS)
    residual = networks.Residual(self.width, self.layers, self.width + sizes[0] * sizes[1])
    found = residual(networks.differences(context), features)
    return found[:, : self.width], found[:, self.width :].reshape(-1, *sizes)


def make(problem: learner.Problem, options: Any) -> learner.Network:
  """Of config.flow.

  Fields: `feature`, whether the network sees what the regimes foretell; `space` of
  `networks.SPACES`, in which quantiles lie; `flow_weight` of flow matching beside the quantile
  loss; `regimes`, `held_out`, `regime_std` and `limit` of `sources.mixture`; `width`, `layers` of
  what reads the context and `head_layers` of the rest; `draws` of source and time for each series
  of a batch; Euler `steps`, 0 for samples of the source.
  """
  encoder = Encoder(options.width, options.layers, problem.horizon)
  correction = networks.Field(options.width, options.head_layers, problem.horizon)
  mixture = sources.mixture(problem, options)
  head = quantiles.Head(options.space)
  levels = jnp.asarray(quantiles.LEVELS)

  def features(mixed):
    return mixed.features if options.feature else mixed.features[:, :0]

  def init(key):
    keys = jax.random.split(key)
    context, code = jnp.zeros((1, problem.context)), jnp.zeros((1, options.width))
    x, time = jnp.zeros((1, problem.horizon)), jnp.zeros((1, 1))
    return {
      'encoder': encoder.init(keys[0], context, features(mixture(context))),
      'correction': correction.init(keys[1], x, time, code),
    }

  def source(mixed, key):
    unit = jnp.ones((len(mixed.weights), problem.horizon))
    drawn = mixed.draw(key, unit)
    return drawn.x0 - drawn.mean

  def field(params, code):
    """The velocity `(z (..., B, H), time (..., B, 1)) -> (..., B, H)`."""

    def velocity(z, time):
      between = paths.gaussian_rate(time, 1.0) * z
      return between + correction.apply(params['correction'], z, time, code)

    return velocity

  def loss(params, batch, key):
    key_time, key_draw = jax.random.split(key)
    mixed = mixture(batch['context'])
    code, raw = encoder.apply(params['encoder'], batch['context'], features(mixed))
    found = head.quantiles(raw, batch['context'])
    z1 = jax.lax.stop_gradient(head.scores(found, batch['future']))
    z0 = jax.vmap(lambda key: source(mixed, key))(jax.random.split(key_draw, options.draws))
    time = jax.random.uniform(key_time, (*z0.shape[:-1], 1))
    z, truth = paths.linear_path(z0, jnp.broadcast_to(z1, z0.shape), time)
    flow = losses.flow_matching_loss(field(params, code)(z, time), truth)
    margins = jnp.mean(forecasts.crps_quantiles(head.back(found), batch['future'], levels))
    return margins + options.flow_weight * flow

  def forecast(params, context, key, num_samples):
    mixed = mixture(context)
    code, raw = encoder.apply(params['encoder'], context, features(mixed))
    found = head.quantiles(raw, context)

    def flow(key):
      z = source(mixed, key)
      if options.steps:
        z = integrate.euler(field(params, code), z, options.steps)
      return head.values(found, z)

    return jax.lax.map(flow, jax.random.split(key, num_samples))

  return learner.Network(init, loss, forecast)
