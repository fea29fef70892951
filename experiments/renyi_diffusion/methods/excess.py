"""Rényi training, objective A': tilted by the excess over a frozen reference's bounds.

The difference of the two bounds estimates log p/q, so that p is the optimum for every α. Both are
taken at the same times and noise, where most of their noise cancels. Reconstructed.
"""

from experiments.renyi_diffusion.methods import learner
from lib.diffusion.renyi import objectives


def make(problem: learner.Problem) -> learner.Method:
  """The mean of the data's bounds, weighted by their excess."""
  config = problem.objective

  def loss(params, state, x, key):
    draws, errors = learner.denoise(problem, params, x, key, config.times)
    bounds = learner.datum_losses(problem, draws, errors, config.times)
    known = learner.reference_errors(problem, state.extra, x, draws)
    reference = learner.datum_losses(problem, draws, known, config.times)
    tilt = learner.tilt(problem, bounds - reference, x.shape[-1], state.count)
    weights = objectives.excess_weights(bounds, reference, tilt, config.max_weight, config.mix)
    value, metrics = learner.tilted(bounds, bounds, weights, tilt)
    return value, (metrics, state.extra)

  return learner.learner(problem, loss, lambda key, reference: reference)
