"""Rényi training, objective A: the data's bounds under a tilted mean.

  J_α = 1/(α - 1) log (1/n) Σ_i exp((α - 1) ℓ(x_i)),  ∇J = Σ_i w_i ∇ℓ_i,  w = softmax((α - 1) ℓ)

Its optimum over all densities is p^{1/α}, not p: a temperature, by which α > 1 covers and α < 1
sharpens (`lib.diffusion.renyi.objectives`). The estimator is reconstructed.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from experiments.renyi_diffusion.methods import learner
from lib.diffusion.renyi import objectives


class Normalizer(NamedTuple):
  """Moving averages over batches: the losses' mean, and log E exp(c (ℓ - mean))."""

  centre: chex.Array
  log_z: chex.Array


def make(problem: learner.Problem) -> learner.Method:
  """The weighted mean of the data's bounds, or of their simple losses."""
  config = problem.objective

  def loss(params, state, x, key):
    draws, errors = learner.denoise(problem, params, x, key, config.times)
    bounds = learner.datum_losses(problem, draws, errors, config.times)
    tilt = learner.tilt(problem, bounds, x.shape[-1], state.count)
    extra = state.extra
    if config.normalizer_decay:
      weights, extra = _normalized(config, state, bounds, tilt)
    else:
      weights = objectives.tilt_weights(bounds, tilt, config.max_weight, config.mix)
    base = bounds if config.base == 'likelihood' else jnp.mean(errors, axis=-1)
    value, metrics = learner.tilted(bounds, base, weights, tilt)
    return value, (metrics, extra)

  def init_extra(key, reference):
    return Normalizer(jnp.float32(0.0), jnp.float32(-jnp.inf))

  return learner.learner(problem, loss, init_extra if config.normalizer_decay else None)


def _normalized(config, state, bounds, tilt):
  """Weights by the moving normaliser of the batches before this one, and the next normaliser."""
  before, decay = state.extra, config.normalizer_decay
  mean = jnp.mean(jax.lax.stop_gradient(bounds))
  centre = jnp.where(state.count == 0, mean, before.centre)
  centred = bounds - centre
  log_z = objectives.update_log_normalizer(before.log_z, centred, tilt, decay)
  used = jnp.where(state.count == 0, log_z, before.log_z)
  weights = objectives.normalized_weights(centred, tilt, used, config.max_weight, config.mix)
  # The normaliser is of losses less the centre, and moves with it.
  moved = (1.0 - decay) * (mean - centre)
  return weights, Normalizer(centre + moved, log_z - tilt * moved)
