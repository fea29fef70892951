"""Objective C: a Rényi variational bound of each datum over K paths of a coarse grid.

Here α tightens the bound within a datum, and does not weigh data against each other. Li & Turner
(2016), arXiv:1602.02311.
"""

import jax.numpy as jnp

from experiments.renyi_diffusion.methods import learner
from lib.diffusion import samplers
from lib.diffusion.renyi import bounds


def make(problem: learner.Problem) -> learner.Method:
  """The mean of the negative bounds."""
  config = problem.objective
  grid = samplers.log_snr_grid(problem.process, problem.start, config.path_steps)[::-1]

  def loss(params, state, x, key):
    noise = lambda points, t: problem.network.noise(params, points, t)
    weights = bounds.denoising_log_weights(noise, problem.process, x, key, grid, config.num_paths)
    return -jnp.mean(bounds.variational_renyi_bound(weights, config.alpha)), ({}, state.extra)

  return learner.learner(problem, loss)
