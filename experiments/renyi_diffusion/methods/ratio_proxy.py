"""Rényi training, objective B with the proxy B3: ratios of densities from denoising errors.

log p_t/q_t at a point is taken for the excess of the network's error there over a frozen
reference's. Reconstructed.
"""

import jax
import jax.numpy as jnp

from experiments.renyi_diffusion.methods import learner
from lib.diffusion.renyi import objectives


def make(problem: learner.Problem) -> learner.Method:
  """α Z/2 times the mean of the errors, weighted by ratios of densities."""
  config = problem.objective

  def loss(params, state, x, key):
    draw_key, dropout_key = jax.random.split(key)
    draws = learner.draw(problem, x, draw_key, 'importance')
    errors = learner.errors(problem, params, x, draws, dropout_key)
    known = learner.reference_errors(problem, state.extra, x, draws)
    z = learner.normalizer(problem)
    log_ratios = objectives.proxy_log_ratios(errors, known, 0.5 * z)
    weights = objectives.ratio_weights(log_ratios, config.alpha, config.max_weight)
    metrics = {'effective_fraction': jnp.mean(jax.vmap(objectives.effective_fraction)(weights.T))}
    return objectives.ratio_loss(errors, weights, z, config.alpha), (metrics, state.extra)

  return learner.learner(problem, loss, lambda key, reference: reference)
