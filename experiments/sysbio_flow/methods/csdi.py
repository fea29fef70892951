"""Denoising diffusion of the future given the context, as CSDI.

Tashiro et al. (2021), arXiv:2107.03502, for series of one variable. A network reads the context
once and says a code and a guess of the future; a second one says, at a perturbed future x_t, what
x_0 was, less the guess, which is a prediction of the noise, ε̂ = (x_t - m x̂_0)/σ. They are
perceptrons, as those of `flow`, and errors of ε̂ have min-SNR's weights. Futures are diffused less
the last observation, in units of arsinh.
"""

from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.sysbio_flow import networks
from experiments.sysbio_flow.methods import learner
from lib.diffusion import losses, samplers, times
from lib.diffusion import sde as sdes
from lib.nn import embeddings

_START = 1e-3  # the earliest time


def quadratic(beta_min: float = 5e-3, beta_max: float = 25.0) -> sdes.SDE:
  """The variance-preserving SDE on [0, 1] whose √β is linear in time, CSDI's chain in the limit.

  Its 50 steps have β from 10⁻⁴ to 0.5.
  """
  low, slope = beta_min**0.5, beta_max**0.5 - beta_min**0.5
  beta = lambda t: (low + slope * t) ** 2
  integral = lambda t: t * (low**2 + low * slope * t + slope**2 * t**2 / 3.0)
  inverse = lambda b: (jnp.cbrt(low**3 + 3.0 * slope * b) - low) / slope
  return sdes.SDE(
    mean=lambda t: jnp.exp(-0.5 * integral(t)),
    std=lambda t: jnp.sqrt(-jnp.expm1(-integral(t))),
    rate=lambda t: -0.5 * beta(t),
    diffusion_sq=beta,
    log_snr=lambda t: -integral(t) - jnp.log(-jnp.expm1(-integral(t))),
    time=lambda log_snr: inverse(jax.nn.softplus(-log_snr)),
    horizon=1.0,
    prior_std=1.0,
  )


SCHEDULES = {'quadratic': quadratic, 'cosine': sdes.cosine}
SAMPLERS = ('ancestral', 'dpm')


class Denoiser(nn.Module):
  """What points (B, H) at times (B, 1) were, less a guess, given codes (B, width)."""

  width: int
  layers: int
  horizon: int

  @nn.compact
  def __call__(self, x: chex.Array, time: chex.Array, code: chex.Array) -> chex.Array:
    inputs = x, embeddings.fourier(time[:, 0], 6), code
    return networks.Residual(self.width, self.layers, self.horizon)(*inputs)


def make(problem: learner.Problem, options: Any) -> learner.Network:
  """Of config.csdi.

  Fields: `schedule` of SCHEDULES; `width`, `layers` of what reads the context and `head_layers` of
  the rest; `draws` of noise and time for each series of a batch; `gamma` of min-SNR; `sampler` of
  SAMPLERS, DDPM's or DDIM's of second order, and its `steps`; `limit` ±that samples are kept in.
  """
  sde = SCHEDULES[options.schedule]()
  encoder = networks.Residual(options.width, options.layers, options.width + problem.horizon)
  denoiser = Denoiser(options.width, options.head_layers, problem.horizon)

  def init(key):
    keys = jax.random.split(key)
    inputs = networks.differences(jnp.zeros((1, problem.context)))
    x, time, code = (jnp.zeros((1, d)) for d in (problem.horizon, 1, options.width))
    return {
      'encoder': encoder.init(keys[0], inputs),
      'denoiser': denoiser.init(keys[1], x, time, code),
    }

  def predictor(params, context, repeats):
    """The noise ε̂ in `repeats` rows for each context."""
    found = encoder.apply(params['encoder'], networks.differences(context))
    code, guess = jnp.split(jnp.repeat(found, repeats, axis=0), [options.width], axis=1)

    def noise(x, time):
      x0 = guess + denoiser.apply(params['denoiser'], x, time, code)
      return (x - sde.mean(time) * x0) / sde.std(time)

    return noise

  def loss(params, batch, key):
    key_time, key_noise = jax.random.split(key)
    context, future = batch['context'], batch['future']
    x0 = jnp.arcsinh(future) - jnp.arcsinh(context[:, -1:])
    shape = len(context), options.draws
    t = times.uniform_times(sde, times.stratified(key_time, shape), _START)
    eps = jax.random.normal(key_noise, (*shape, problem.horizon))
    noise = predictor(params, context, options.draws)
    weights = losses.min_snr_weights(sde, t, options.gamma)
    errors = losses.denoising_errors(noise, sde, x0, eps, t)
    return jnp.mean(weights * errors) / problem.horizon

  def forecast(params, context, key, num_samples):
    noise = predictor(params, context, 1)
    grid = samplers.log_snr_grid(sde, _START, options.steps)

    def sample(key):
      key_begin, key_steps = jax.random.split(key)
      x = samplers.prior(sde, key_begin, (len(context), problem.horizon))
      if options.sampler == 'dpm':
        x = samplers.dpm_solver(noise, sde, x, grid)
      else:
        x = samplers.ancestral(noise, sde, x, key_steps, grid)
      found = jnp.sinh(x + jnp.arcsinh(context[:, -1:]))
      return jnp.clip(found, -options.limit, options.limit)

    return jax.lax.map(sample, jax.random.split(key, num_samples))

  return learner.Network(init, loss, forecast)
