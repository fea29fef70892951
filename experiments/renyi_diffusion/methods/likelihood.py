"""Maximum likelihood: λ(t) = g(t)² at importance-sampled times, which is α = 1.

Song et al. (2021), arXiv:2101.09258.
"""

import jax
import jax.numpy as jnp

from experiments.renyi_diffusion.methods import learner


def make(problem: learner.Problem) -> learner.Method:
  """The mean of the data's bounds."""

  def loss(params, state, x, key):
    draw_key, dropout_key = jax.random.split(key)
    draws = learner.draw(problem, x, draw_key, problem.objective.times)
    errors = learner.errors(problem, params, x, draws, dropout_key)
    return jnp.mean(learner.datum_losses(problem, draws, errors, problem.objective.times)), (
      {},
      state.extra,
    )

  return learner.learner(problem, loss)
