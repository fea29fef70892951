"""Traced. A convolution whose training is fast in compiled loops on CPUs as well."""

from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp


class Conv(nn.Module):
  """A 3 x 3 convolution with a bias, of as many pixels as came in.

  `nn.Conv` would do, but for loops on CPUs: within `lax.scan` XLA reorders no axes, and what has
  other orders than NHWC and HWIO, as JAX's derivatives have, takes it 30 times as long. So in
  training the derivatives are written out, which rules out forward mode; elsewhere they are JAX's.

  Attributes:
    width: channels of the output.
    scale: factor on the variance of the first kernel.
    dtype: of the computation.
  """

  width: int
  scale: float = 1.0
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(self, x: chex.Array, deterministic: bool) -> chex.Array:
    """Maps (B, H, W, C) to (B, H, W, width); training is what is not `deterministic`."""
    kernel = self.param('kernel', scaled_kernel(self.scale), (3, 3, x.shape[-1], self.width))
    bias = self.param('bias', nn.initializers.zeros, (self.width,))
    x, kernel, bias = (array.astype(self.dtype) for array in (x, kernel, bias))
    return (_convolve if deterministic else _convolve_trained)(x, kernel) + bias


def scaled_kernel(scale: float) -> nn.initializers.Initializer:
  """Uniform kernels of variance `scale` over the mean of inputs and outputs; nearly zero at 0."""
  return nn.initializers.variance_scaling(max(scale, 1e-10), 'fan_avg', 'uniform')


def _convolve(x: chex.Array, kernel: chex.Array, padding: Any = 'SAME') -> chex.Array:
  names = ('NHWC', 'HWIO', 'NHWC')
  return jax.lax.conv_general_dilated(x, kernel, (1, 1), padding, dimension_numbers=names)


@jax.custom_vjp
def _convolve_trained(x: chex.Array, kernel: chex.Array) -> chex.Array:
  return _convolve(x, kernel)


def _forward(x, kernel):
  return _convolve(x, kernel), (x, kernel)


def _backward(saved, g):
  return jax.lax.platform_dependent(*saved, g, cpu=_backward_cpu, default=_backward_default)


def _backward_default(x, kernel, g):
  return jax.vjp(_convolve, x, kernel)[1](g)


def _backward_cpu(x, kernel, g):
  # Channels are summed over for x, images for the kernel; both are convolutions in the usual order
  # of axes once they are transposed.
  from_x = _convolve(g, kernel[::-1, ::-1].swapaxes(2, 3))
  rows, columns = (size // 2 for size in kernel.shape[:2])
  padding = ((rows, rows), (columns, columns))
  from_kernel = _convolve(x.transpose(3, 1, 2, 0), g.transpose(1, 2, 0, 3), padding)
  return from_x, from_kernel.transpose(1, 2, 0, 3)


_convolve_trained.defvjp(_forward, _backward)
