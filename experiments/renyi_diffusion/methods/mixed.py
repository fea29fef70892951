"""Likelihood on one half of the batch, and a little of DDPM's simple loss on the other.

The mixed objective of Soft Truncation's authors (Kim et al., 2022, arXiv:2106.05527).
"""

import jax
import jax.numpy as jnp

from experiments.renyi_diffusion.methods import learner


def make(problem: learner.Problem) -> learner.Method:
  """The mean bound of the first half plus `simple_weight` times the second half's errors."""
  config = problem.objective

  def loss(params, state, x, key):
    keys = jax.random.split(key, 4)
    half = len(x) // 2
    first = learner.draw(problem, x[:half], keys[0], 'importance')
    second = learner.draw(problem, x[half:], keys[1], 'uniform')
    errors = learner.errors(problem, params, x[:half], first, keys[2])
    bounds = learner.datum_losses(problem, first, errors, 'importance')
    simple = learner.errors(problem, params, x[half:], second, keys[3])
    return jnp.mean(bounds) + config.simple_weight * jnp.mean(simple), ({}, state.extra)

  return learner.learner(problem, loss)
