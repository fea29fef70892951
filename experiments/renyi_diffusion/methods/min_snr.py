"""Min-SNR: errors weighted by time alone. Hang et al. (2023), arXiv:2303.09556."""

import jax.numpy as jnp

from experiments.renyi_diffusion.methods import learner
from lib.diffusion import losses


def make(problem: learner.Problem) -> learner.Method:
  """The mean of the errors at uniform times, weighted by min(SNR, γ)/SNR."""

  def loss(params, state, x, key):
    draws, errors = learner.denoise(problem, params, x, key, 'uniform')
    weights = losses.min_snr_weights(problem.process, draws.t, problem.objective.gamma)
    return jnp.mean(weights * errors), ({}, state.extra)

  return learner.learner(problem, loss)
