"""DLinear with quantile heads: a linear map of the trend, another of the rest.

Zeng et al. (2023), arXiv:2205.13504.
"""

from typing import Any

import chex
import flax.linen as nn
import numpy as np

from experiments.sysbio_flow import networks
from experiments.sysbio_flow.methods import learner, quantiles


class Network(nn.Module):
  """Contexts (B, L_c) to (B, H, Q)."""

  horizon: int
  kernel: int

  @nn.compact
  def __call__(self, context: chex.Array) -> chex.Array:
    x = networks.squash(context)
    trend = x @ moving_average(x.shape[-1], self.kernel)
    shape = self.horizon, len(quantiles.LEVELS)
    linear = lambda: nn.DenseGeneral(shape, kernel_init=nn.initializers.zeros)
    return linear()(trend) + linear()(x - trend)


def moving_average(length: int, kernel: int) -> np.ndarray:
  """The matrix (L, L) by which rows are averaged over `kernel` points, their ends repeated."""
  around = np.arange(length)[:, None] + np.arange(kernel) - (kernel - 1) // 2
  taken = np.clip(around, 0, length - 1)
  return np.mean(taken[..., None] == np.arange(length), axis=1).astype(np.float32).T


def make(problem: learner.Problem, options: Any) -> learner.Network:
  """Of config.dlinear: points of the moving average, `kernel`; `space` as of `quantiles.make`."""
  return quantiles.make(problem, Network(problem.horizon, options.kernel), options.space)
