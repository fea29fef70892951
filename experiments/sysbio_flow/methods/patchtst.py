"""A transformer over patches of the context, with quantile heads, as PatchTST.

Nie et al. (2023), arXiv:2211.14730. Layers normalise tokens before they add to them, patches come
with their differences, and the head has a rank, for it has as many outputs as points times levels.
"""

from typing import Any

import chex
import flax.linen as nn
import jax.numpy as jnp

from experiments.sysbio_flow import networks
from experiments.sysbio_flow.methods import learner, quantiles


class Block(nn.Module):
  """Self-attention and a perceptron of twice the width, each added to tokens (B, P, width)."""

  heads: int

  @nn.compact
  def __call__(self, x: chex.Array) -> chex.Array:
    width = x.shape[-1]
    x = x + nn.MultiHeadDotProductAttention(self.heads)(nn.LayerNorm()(x))
    h = nn.gelu(nn.Dense(2 * width)(nn.LayerNorm()(x)))
    return x + nn.Dense(width)(h)


class Network(nn.Module):
  """Contexts (B, L_c) to (B, H, Q)."""

  horizon: int
  patch: int
  stride: int
  width: int
  layers: int
  heads: int
  rank: int

  @nn.compact
  def __call__(self, context: chex.Array) -> chex.Array:
    x = nn.Dense(self.width)(networks.differences(patches(context, self.patch, self.stride)))
    x = x + self.param('positions', nn.initializers.normal(0.02), x.shape[1:])
    for _ in range(self.layers):
      x = Block(self.heads)(x)
    x = nn.LayerNorm()(x).reshape(len(context), -1)
    shape = self.horizon, len(quantiles.LEVELS)
    return nn.DenseGeneral(shape, kernel_init=nn.initializers.zeros)(nn.Dense(self.rank)(x))


def patches(context: chex.Array, patch: int, stride: int) -> chex.Array:
  """Patches (B, P, patch) of contexts (B, L_c), `stride` apart, of which the last ends them."""
  begins = jnp.arange((context.shape[-1] - patch) % stride, context.shape[-1] - patch + 1, stride)
  return context[:, begins[:, None] + jnp.arange(patch)]


def make(problem: learner.Problem, options: Any) -> learner.Network:
  """Of config.patchtst.

  Fields: points of a `patch`, from 4 to L_c, and `stride` between them; `width`, `layers` and
  `heads`, which divide the width; `rank` of the head; `space` as of `quantiles.make`.
  """
  sizes = options.width, options.layers, options.heads, options.rank
  module = Network(problem.horizon, options.patch, options.stride, *sizes)
  return quantiles.make(problem, module, options.space)
