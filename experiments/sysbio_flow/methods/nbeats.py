"""N-BEATS with quantile heads: blocks that explain the context piece by piece.

Oreshkin et al. (2020), arXiv:1905.10437. A block reads what those before it left of the context,
takes its own backcast off, and adds its forecast; both are combinations of a basis that is fixed or
learnt. Here a block reads the differences too, and has coefficients for each quantile.
"""

from typing import Any

import chex
import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from experiments.sysbio_flow import networks
from experiments.sysbio_flow.methods import learner, quantiles

STACKS = ('generic', 'trend', 'seasonal')


class Block(nn.Module):
  """From (B, L_c) to a backcast (B, L_c), and coefficients (B, Q, K) and functions (K, H)."""

  horizon: int
  stack: str
  size: int
  width: int
  layers: int

  @nn.compact
  def __call__(self, x: chex.Array) -> tuple[chex.Array, chex.Array, chex.Array]:
    length = x.shape[-1]
    if self.stack == 'generic':
      shape = self.size, length + self.horizon
      functions = self.param('basis', nn.initializers.normal(self.size**-0.5), shape)
    else:
      functions = basis(self.stack, self.size, length, self.horizon)
    h = networks.differences(x)
    for _ in range(self.layers):
      h = nn.relu(nn.Dense(self.width)(h))
    shape = 1 + len(quantiles.LEVELS), len(functions)
    theta = nn.DenseGeneral(shape, kernel_init=nn.initializers.zeros)(h)
    return theta[:, 0] @ functions[:, :length], theta[:, 1:], functions[:, length:]


class Network(nn.Module):
  """Contexts (B, L_c) to (B, H, Q)."""

  horizon: int
  stacks: tuple[str, ...]
  blocks: int
  size: int
  width: int
  layers: int

  @nn.compact
  def __call__(self, context: chex.Array) -> chex.Array:
    rest, thetas, functions = context, [], []
    for stack in self.stacks:
      for _ in range(self.blocks):
        sizes = self.size, self.width, self.layers
        backcast, theta, beyond = Block(self.horizon, stack, *sizes)(rest)
        rest = rest - backcast
        thetas.append(theta)
        functions.append(beyond)
    theta, beyond = jnp.concatenate(thetas, axis=-1), jnp.concatenate(functions)
    return jnp.einsum('bqk,kh->bhq', theta, beyond)  # the sum of all forecasts


def basis(stack: str, size: int, length: int, horizon: int) -> np.ndarray:
  """The functions (K, L + H) of a stack, of time in horizons from the end of the context.

  Powers below `size`, or a constant and sines and cosines of up to `size` turns a horizon.
  """
  time = np.arange(1 - length, horizon + 1) / horizon
  if stack == 'trend':
    found = time ** np.arange(size)[:, None]
  else:
    angles = 2 * np.pi * np.arange(1, size + 1)[:, None] * time
    found = np.concatenate([np.ones_like(time)[None], np.sin(angles), np.cos(angles)])
  return found.astype(np.float32)


def make(problem: learner.Problem, options: Any) -> learner.Network:
  """Of config.nbeats.

  Fields: `stacks`, names of STACKS; `blocks` of each; `size`, how many functions a block learns or,
  in other stacks, powers or frequencies; `width` and `layers` of a block's perceptron;
  `space` as of `quantiles.make`.
  """
  sizes = options.blocks, options.size, options.width, options.layers
  module = Network(problem.horizon, tuple(options.stacks), *sizes)
  return quantiles.make(problem, module, options.space)
