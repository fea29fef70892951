"""A residual perceptron with quantile heads."""

from typing import Any

import chex
import flax.linen as nn

from experiments.sysbio_flow import networks
from experiments.sysbio_flow.methods import learner, quantiles


class Network(nn.Module):
  """Contexts (B, L_c) to (B, H, Q)."""

  horizon: int
  width: int
  layers: int

  @nn.compact
  def __call__(self, context: chex.Array) -> chex.Array:
    residual = networks.Residual(self.width, self.layers, self.horizon * len(quantiles.LEVELS))
    found = residual(networks.differences(context))
    return found.reshape(*context.shape[:-1], self.horizon, len(quantiles.LEVELS))


def make(problem: learner.Problem, options: Any) -> learner.Network:
  """Of config.mlp: `width`, `layers`, and `space` as of `quantiles.make`."""
  module = Network(problem.horizon, options.width, options.layers)
  return quantiles.make(problem, module, options.space)
