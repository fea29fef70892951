"""Maximum likelihood: λ(t) = g(t)² at importance-sampled times, which is α = 1.

Song et al. (2021), arXiv:2101.09258.
"""

import jax.numpy as jnp

from experiments.renyi_diffusion.methods import learner


def make(problem: learner.Problem) -> learner.Method:
  """The mean of the data's bounds."""

  def loss(params, state, x, key):
    draws, errors = learner.denoise(problem, params, x, key, problem.objective.times)
    bounds = learner.datum_losses(problem, draws, errors, problem.objective.times)
    mean = jnp.mean(bounds)
    return mean, ({'bound': mean}, state.extra)

  return learner.learner(problem, loss)
