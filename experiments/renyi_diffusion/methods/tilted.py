"""Tilted empirical risk of the simple loss, which has no reading as a bound.

Li et al. (2021), arXiv:2007.01162, applied to DDPM's loss of each datum.
"""

import jax.numpy as jnp

from experiments.renyi_diffusion.methods import learner
from lib.diffusion.renyi import objectives


def make(problem: learner.Problem) -> learner.Method:
  """The mean of the data's simple losses, weighted by their own softmax."""
  config = problem.objective

  def loss(params, state, x, key):
    _, errors = learner.denoise(problem, params, x, key, 'uniform')
    simple = jnp.mean(errors, axis=-1)
    tilt = learner.tilt(problem, simple, x.shape[-1], state.count)
    weights = objectives.tilt_weights(simple, tilt, config.max_weight, config.mix)
    metrics = {'effective_fraction': objectives.effective_fraction(weights)}
    return jnp.mean(weights * simple), (metrics, state.extra)

  return learner.learner(problem, loss)
