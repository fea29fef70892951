"""Conditional flow matching from a source of one's choice to the future of a series.

A network learns the velocity y - x_0 of the paths (1 - u) x_0 + u y, given the context and, where
wanted, the mean μ_r of the source as a feature. Samples start from the source. With x_0 ~ N(0, I)
it is ordinary flow matching (Lipman et al., 2023); with a mixture over regimes, the method; with
the posterior of a Gaussian process, TSFlow (Kollovieh et al., 2025, arXiv:2410.03024).
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from experiments.sysbio_flow import networks
from experiments.sysbio_flow.methods import learner
from lib.flow import integrate, losses, paths, priors, regimes
from lib.nn import embeddings

SOURCES = ('gaussian', 'structured', 'gp')
REGIMES = ('posterior', 'chosen', 'none', 'wrong')
SPACES = ('linear', 'asinh')
_LEAST = 0.02  # time that a path is taken to have left, where it has less


class Start(NamedTuple):
  """Where flows begin: points x_0 (B, H), and what is known of them, features (B, F)."""

  x0: chex.Array
  features: chex.Array


class Endpoint(nn.Module):
  """Where paths end (B, H), seen from points (B, H) at times (B, 1), less the last observation."""

  width: int
  layers: int
  horizon: int

  @nn.compact
  def __call__(self, x, time, context, features):
    inputs = [x, networks.squash(context), features, embeddings.fourier(time[:, 0], 4)]
    residual = networks.Residual(self.width, self.layers, self.horizon)
    return residual(jnp.concatenate(inputs, axis=-1))


def make(problem: learner.Problem, options: Any) -> learner.Network:
  """Of config.flow.

  Fields: `source` of SOURCES; `feature`, whether the network sees the source's mean, or of the
  structured one where the source has none; `regimes` of REGIMES, how a regime is drawn; `space` of
  SPACES, in which flows are; `s0` and `s1` of `priors.lead_scale`; `regime_std` of
  `regimes.posterior`; `scaled`, whether the source is as wide as the fit is bad; `width` and
  `layers` of the network; Euler `steps`.
  """
  module = Endpoint(options.width, options.layers, problem.horizon)
  start = source(problem, options)
  forward, back = (jnp.arcsinh, jnp.sinh) if options.space == 'asinh' else (lambda x: x,) * 2

  def init(key):
    context = jnp.zeros((1, problem.context))
    begin = start(key, context)
    return module.init(key, begin.x0, jnp.zeros((1, 1)), context, begin.features)

  def velocity(params, x, time, context, features):
    end = forward(context[:, -1:]) + module.apply(params, x, time, context, features)
    return (end - x) / jnp.maximum(1.0 - time, _LEAST)

  def loss(params, batch, key):
    key_time, key_start = jax.random.split(key)
    time = jax.random.uniform(key_time, (len(batch['context']), 1))
    begin = start(key_start, batch['context'])
    x, truth = paths.linear_path(begin.x0, forward(batch['future']), time)
    found = velocity(params, x, time, batch['context'], begin.features)
    weights = jnp.maximum(1.0 - time[:, 0], _LEAST) ** 2  # of an error of the end
    return losses.flow_matching_loss(found, truth, weights)

  def forecast(params, context, key, num_samples):
    def one(key):
      begin = start(key, context)
      field = lambda x, time: velocity(params, x, time, context, begin.features)
      return back(integrate.euler(field, begin.x0, options.steps))

    return jax.lax.map(one, jax.random.split(key, num_samples))

  return learner.Network(init, loss, forecast)


def source(
  problem: learner.Problem, options: Any
) -> Callable[[chex.PRNGKey, chex.Array], Start]:
  """`(key, contexts (B, L_c)) -> Start`, in the space of the flow."""
  forward = jnp.arcsinh if options.space == 'asinh' else lambda x: x
  structured = prior(problem, options)
  if options.source == 'gp':
    gaussian = gp(problem, options)

  def start(key, context):
    if options.source == 'structured':
      draw, scale = structured(key, context)
      mean = forward(draw.mean)
      x0 = mean + (draw.x0 - draw.mean)  # noise is of the same size in either space
      known = [mean, jax.nn.one_hot(draw.regime, len(regimes.REGIMES)), jnp.log(scale[:, :1])]
    elif options.source == 'gp':
      mean, root = gaussian(context)
      x0 = priors.gaussian_source(key, forward(mean), 1.0, root)
      known = [forward(mean)]
    else:
      x0 = jax.random.normal(key, (len(context), problem.horizon))
      known = []
      if options.feature:
        draw, scale = structured(key, context)
        one_hot = jax.nn.one_hot(draw.regime, len(regimes.REGIMES))
        known = [forward(draw.mean), one_hot, jnp.log(scale[:, :1])]
    if not options.feature or not known:
      known = [jnp.zeros((len(context), 0))]
    return Start(x0, jnp.concatenate(known, axis=-1))

  return start


def prior(
  problem: learner.Problem, options: Any
) -> Callable[[chex.PRNGKey, chex.Array], tuple[priors.Draw, chex.Array]]:
  """`(key, contexts (B, L_c)) -> (draw, scale (B, H))` of the mixture over regimes."""
  families = regimes.bases(problem.context, problem.horizon)
  scale = jnp.asarray(priors.lead_scale(problem.context, problem.horizon, options.s0, options.s1))

  def draw(key, context):
    key_regime, key_draw = jax.random.split(key)
    fits = regimes.fit(context, families)
    weights = _weights(key_regime, fits.errors, problem.context, options)
    own = scale.astype(context.dtype)
    if options.scaled:
      missed = jnp.sqrt(jnp.sum(weights * jnp.where(weights > 0, fits.errors, 0.0), axis=-1))
      own = own * (0.5 + jnp.minimum(missed / options.regime_std, 3.0))[:, None]
    own = jnp.broadcast_to(own, (len(context), problem.horizon))
    return priors.structured_source(key_draw, fits, weights, own, families), own

  return draw


def gp(
  problem: learner.Problem, options: Any
) -> Callable[[chex.Array], tuple[chex.Array, chex.Array]]:
  """`contexts (B, L_c) -> means (B, H), root (H, H)` with a kernel exp(-γ |s - t|), as TSFlow."""
  kernel = functools.partial(priors.ornstein_uhlenbeck, rate=1.0)
  times = jnp.arange(problem.context + problem.horizon) / problem.context * jnp.pi
  inside, beyond = times[: problem.context], times[problem.context :]
  return lambda context: priors.gp_posterior(context, kernel, inside, beyond, noise=1e-2)


def _weights(key: chex.PRNGKey, errors: chex.Array, length: int, options: Any) -> chex.Array:
  """Probabilities (B, R) of the regimes."""
  count = errors.shape[-1]
  chosen = regimes.choose(errors, np.array(regimes.PENALTIES))
  if options.regimes == 'none':
    return jnp.broadcast_to(jax.nn.one_hot(0, count), errors.shape)
  if options.regimes == 'chosen':
    return jax.nn.one_hot(chosen, count)
  if options.regimes == 'wrong':
    other = (chosen + jax.random.randint(key, chosen.shape, 1, count)) % count
    admissible = jnp.take_along_axis(errors, other[:, None], axis=-1)[:, 0] < jnp.inf
    return jax.nn.one_hot(jnp.where(admissible, other, jnp.where(chosen == 0, 1, 0)), count)
  return regimes.posterior(errors, np.array(regimes.NUM_PARAMETERS), length, options.regime_std)
