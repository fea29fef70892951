"""Rényi training, objective B with potentials, B1: both networks are gradients of energies.

log p_t/q_t is the difference of the potentials of a frozen reference and of the network, up to a
number for each time. All data have the same K times, so that it cancels in the weights of each.
Reconstructed.
"""

import jax.numpy as jnp

from experiments.renyi_diffusion.methods import learner
from lib.diffusion import sde


def make(problem: learner.Problem) -> learner.Method:
  """α Z/2 times the mean of the errors, weighted by ratios of densities."""
  network, reference = problem.network, problem.reference
  if network.potential is None or (reference and reference.potential is None):
    raise ValueError('config.network.kind must be energy for ratio_potential and its reference.')

  def loss(params, state, x, key):
    draws, errors = learner.denoise(problem, params, x, key, 'shared')
    t, eps = draws.t.reshape(-1, 1), draws.eps.reshape(-1, x.shape[-1])
    points = sde.perturb(problem.process, jnp.repeat(x, draws.t.shape[1], axis=0), eps, t)
    gap = reference.potential(state.extra, points, t) - network.potential(params, points, t)
    value, metrics = learner.ratio_weighted(problem, errors, gap.reshape(draws.t.shape))
    return value, (metrics, state.extra)

  return learner.learner(problem, loss, lambda key, reference: reference)
