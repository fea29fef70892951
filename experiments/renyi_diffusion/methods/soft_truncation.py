"""Soft Truncation: the likelihood's objective on [τ, T] with one random τ a batch.

Kim et al. (2022), arXiv:2106.05527.
"""

import jax
import jax.numpy as jnp

from experiments.renyi_diffusion.methods import learner
from lib.diffusion import losses, times


def make(problem: learner.Problem) -> learner.Method:
  """The mean of the truncated bounds."""
  config, process = problem.objective, problem.process

  def loss(params, state, x, key):
    cut_key, time_key, noise_key, dropout_key = jax.random.split(key, 4)
    cut = times.soft_truncation(
      process, jax.random.uniform(cut_key), problem.start, config.truncation_exponent
    )
    u = times.stratified(time_key, (len(x), config.num_times))
    t = times.importance_times(process, u, cut)
    draws = learner.Draws(t, jax.random.normal(noise_key, (*u.shape, x.shape[-1])))
    errors = learner.errors(problem, params, x, draws, dropout_key)
    bounds = losses.likelihood_losses(errors, times.importance_normalizer(process, cut))
    return jnp.mean(bounds), ({}, state.extra)

  return learner.learner(problem, loss)
