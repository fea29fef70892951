"""Rényi training, objective B with potentials, B1: both networks are gradients of energies.

log p_t/q_t is the difference of the potentials of a frozen reference and of the network, up to a
number for each time, which self-normalised weights do not see. Reconstructed.
"""

import jax
import jax.numpy as jnp

from experiments.renyi_diffusion.methods import learner
from lib.diffusion import sde
from lib.diffusion.renyi import objectives


def make(problem: learner.Problem) -> learner.Method:
  """α Z/2 times the mean of the errors, weighted by ratios of densities."""
  config, network, reference = problem.objective, problem.network, problem.reference
  if network.potential is None or (reference and reference.potential is None):
    raise ValueError('config.network.kind must be energy for ratio_potential and its reference.')

  def loss(params, state, x, key):
    draw_key, dropout_key = jax.random.split(key)
    draws = learner.draw(problem, x, draw_key, 'importance')
    errors = learner.errors(problem, params, x, draws, dropout_key)
    t, eps = draws.t.reshape(-1, 1), draws.eps.reshape(-1, x.shape[-1])
    points = sde.perturb(problem.process, jnp.repeat(x, draws.t.shape[1], axis=0), eps, t)
    gap = reference.potential(state.extra, points, t) - network.potential(params, points, t)
    weights = objectives.ratio_weights(gap.reshape(draws.t.shape), config.alpha, config.max_weight)
    metrics = {'effective_fraction': jnp.mean(jax.vmap(objectives.effective_fraction)(weights.T))}
    z = learner.normalizer(problem)
    return objectives.ratio_loss(errors, weights, z, config.alpha), (metrics, state.extra)

  return learner.learner(problem, loss, lambda key, reference: reference)
