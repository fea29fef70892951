"""Forecasts without training, in the units of the context."""

from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from experiments.sysbio_flow.methods import learner, sources
from lib.flow import regimes

_DAMPED = tuple(
  (a, b, p) for a in (0.3, 0.6, 0.9) for b in (0.1, 0.5, 0.9) for p in (0.8, 0.95, 1.0)
)


def persistence(problem: learner.Problem, options: Any) -> learner.Forecaster:
  """The last observation goes on."""
  del options
  return _point(lambda context: jnp.broadcast_to(context[:, -1:], (len(context), problem.horizon)))


def drift(problem: learner.Problem, options: Any) -> learner.Forecaster:
  """The slope of the last `points` steps goes on, to at most ±`limit`; of config.drift."""

  def forecast(context):
    slope = (context[:, -1:] - context[:, -1 - options.points, None]) / options.points
    found = context[:, -1:] + slope * jnp.arange(1, problem.horizon + 1)
    return jnp.clip(found, -options.limit, options.limit)

  return _point(forecast)


def holt(problem: learner.Problem, options: Any) -> learner.Forecaster:
  """Holt's linear method with a damped trend (Gardner & McKenzie, 1985).

  Of a grid of smoothing constants each series takes those with the least squares one step ahead.
  """
  del options

  def fit(context, constants):  # (L_c,), (3,)
    a, b, p = constants

    def step(state, x):
      level, trend, error = state
      ahead = level + p * trend
      now = a * x + (1 - a) * ahead
      trend = b * (now - level) + (1 - b) * p * trend
      return (now, trend, error + (x - ahead) ** 2), None

    begin = context[0], context[1] - context[0], jnp.zeros(())
    (level, trend, error), _ = jax.lax.scan(step, begin, context[1:])
    ahead = jnp.cumsum(p ** jnp.arange(1, problem.horizon + 1))
    return error, level + trend * ahead

  def forecast(context):
    over_grid = jax.vmap(fit, in_axes=(None, 0))
    errors, found = jax.vmap(over_grid, in_axes=(0, None))(context, jnp.asarray(_DAMPED))
    best = jnp.argmin(errors, axis=1)
    return jnp.take_along_axis(found, best[:, None, None], axis=1)[:, 0]

  return _point(forecast)


def harmonic(problem: learner.Problem, options: Any) -> learner.Forecaster:
  """The best fit of two harmonics, damped or not: the regime of rhythms for all series."""
  del options
  families = regimes.bases(problem.context, problem.horizon)
  steady, rhythm = (regimes.REGIMES.index(name) for name in ('steady', 'rhythm'))

  def forecast(context):
    fits = regimes.fit(context, families)
    known = jnp.isfinite(fits.errors[:, rhythm, None])
    return jnp.where(known, fits.means[:, rhythm], fits.means[:, steady])

  return _point(forecast)


def prior(problem: learner.Problem, options: Any) -> learner.Forecaster:
  """Samples of the structured source alone; of config.prior, as config.flow."""
  mixture = sources.mixture(problem, options)

  def forecast(context, key, num_samples):
    mixed, scale = mixture(context), sources.lead_scale(problem, options, context)
    return jax.lax.map(lambda k: mixed.draw(k, scale).x0, jax.random.split(key, num_samples))

  return learner.Forecaster(forecast)


def parroting(problem: learner.Problem, options: Any) -> learner.Forecaster:
  """What followed the stretch of the context that is most like its last `points`, again and again.

  Zhang & Gilpin (2025), arXiv:2505.11349. Of config.parroting.
  """
  length = options.points

  def one(context):
    ends = jnp.arange(length - 1, problem.context - 1)  # of the stretches, the last one left out
    windows = context[ends[:, None] - jnp.arange(length)[::-1]]
    distances = jnp.sum((windows - context[-length:]) ** 2, axis=-1)
    best = ends[jnp.argmin(distances)]
    ahead = jnp.arange(problem.horizon) % (problem.context - 1 - best)
    return context[best + 1 + ahead]

  return _point(jax.vmap(one))


def analogue(problem: learner.Problem, options: Any) -> learner.Forecaster:
  """The futures of the `neighbors` nearest contexts of other systems, equally likely.

  Each system of training gives its nearest context alone. Of config.analogue.
  """
  train = problem.train
  systems = np.repeat(np.arange(len(train.count)), train.count)

  def forecast(context, key, num_samples):
    squares = jnp.sum(train.context**2, axis=1)
    squares = squares - 2 * context @ train.context.T + jnp.sum(context**2, axis=1)[:, None]
    best = jax.vmap(lambda x: jax.ops.segment_min(x, systems, len(train.count)))(squares)
    _, near = jax.lax.top_k(-best, options.neighbors)  # systems
    same = squares <= jnp.take_along_axis(best, jnp.asarray(systems)[None], axis=1)
    places = jnp.where(same, jnp.arange(len(systems)), len(systems))
    rows = jax.vmap(lambda x: jax.ops.segment_min(x, systems, len(train.count)))(places)
    rows = jnp.take_along_axis(rows, near, axis=1)  # (B, neighbors)
    which = jax.random.randint(key, (num_samples, len(context)), 0, options.neighbors)
    return jnp.asarray(train.future)[jnp.take_along_axis(rows, which.T, axis=1).T]

  return learner.Forecaster(forecast)


def _point(forecast: Callable[[chex.Array], chex.Array]) -> learner.Forecaster:
  return learner.Forecaster(lambda context, key, num_samples: forecast(context)[None])
