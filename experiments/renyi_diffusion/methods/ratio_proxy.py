"""Rényi training, objective B with the proxy B3: ratios of densities from denoising errors.

log p_t/q_t at a point is taken for the excess of the network's error there over a frozen
reference's. Reconstructed.
"""

from experiments.renyi_diffusion.methods import learner
from lib.diffusion.renyi import objectives


def make(problem: learner.Problem) -> learner.Method:
  """α Z/2 times the mean of the errors, weighted by ratios of densities."""

  def loss(params, state, x, key):
    draws, errors = learner.denoise(problem, params, x, key, 'importance')
    known = learner.reference_errors(problem, state.extra, x, draws)
    scale = 0.5 * learner.normalizer(problem)
    log_ratios = objectives.proxy_log_ratios(errors, known, scale)
    value, metrics = learner.ratio_weighted(problem, errors, log_ratios)
    return value, (metrics, state.extra)

  return learner.learner(problem, loss, lambda key, reference: reference)
