"""The simple loss of DDPM: E ‖ε̂ - ε‖² at uniform times. Ho et al. (2020), arXiv:2006.11239."""

import jax.numpy as jnp

from experiments.renyi_diffusion.methods import learner


def make(problem: learner.Problem) -> learner.Method:
  """The mean of the errors."""

  def loss(params, state, x, key):
    _, errors = learner.denoise(problem, params, x, key, 'uniform')
    return jnp.mean(errors), ({}, state.extra)

  return learner.learner(problem, loss)
