"""The simple loss of DDPM: E ‖ε̂ - ε‖² at uniform times. Ho et al. (2020), arXiv:2006.11239."""

import jax
import jax.numpy as jnp

from experiments.renyi_diffusion.methods import learner


def make(problem: learner.Problem) -> learner.Method:
  """The mean of the errors."""

  def loss(params, state, x, key):
    draw_key, dropout_key = jax.random.split(key)
    draws = learner.draw(problem, x, draw_key, 'uniform')
    return jnp.mean(learner.errors(problem, params, x, draws, dropout_key)), ({}, state.extra)

  return learner.learner(problem, loss)
