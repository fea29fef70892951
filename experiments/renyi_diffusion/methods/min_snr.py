"""Min-SNR: errors weighted by time alone. Hang et al. (2023), arXiv:2303.09556."""

import jax
import jax.numpy as jnp

from experiments.renyi_diffusion.methods import learner
from lib.diffusion import losses


def make(problem: learner.Problem) -> learner.Method:
  """The mean of the errors at uniform times, weighted by min(SNR, γ)/SNR."""

  def loss(params, state, x, key):
    draw_key, dropout_key = jax.random.split(key)
    draws = learner.draw(problem, x, draw_key, 'uniform')
    errors = learner.errors(problem, params, x, draws, dropout_key)
    weights = losses.min_snr_weights(problem.process, draws.t, problem.objective.gamma)
    return jnp.mean(weights * errors), ({}, state.extra)

  return learner.learner(problem, loss)
