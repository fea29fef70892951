"""Networks that two or more methods share."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from lib.nn import embeddings

# To the space in which something is learnt, and back.
SPACES = {'linear': (lambda x: x, lambda x: x), 'asinh': (jnp.arcsinh, jnp.sinh)}


class Residual(nn.Module):
  """A perceptron whose hidden layers add to what they read.

  Attributes:
    width: of the hidden layers.
    layers: how many add.
    features: of the output, which starts at zero.
  """

  width: int
  layers: int
  features: int

  @nn.compact
  def __call__(self, *parts: chex.Array) -> chex.Array:
    """Maps parts of an input (..., d) each, embedded apart, to outputs (..., features)."""
    x = sum(nn.Dense(self.width)(part) for part in parts if part.shape[-1])
    for _ in range(self.layers):
      h = nn.Dense(self.width)(nn.silu(nn.LayerNorm()(x)))
      x = x + nn.Dense(self.width)(nn.silu(h))
    return nn.Dense(self.features, kernel_init=nn.initializers.zeros)(nn.silu(nn.LayerNorm()(x)))


class Field(nn.Module):
  """Numbers (..., B, H) at points (..., B, H) of a flow, times (..., B, 1) and codes (B, C)."""

  width: int
  layers: int
  features: int

  @nn.compact
  def __call__(self, x: chex.Array, time: chex.Array, code: chex.Array) -> chex.Array:
    residual = Residual(self.width, self.layers, self.features)
    return residual(x, code, embeddings.fourier(time[..., 0], 4))


def squash(x: chex.Array, limit: float = 3.0) -> chex.Array:
  """Large numbers as inputs of a network: linear to ±limit, logarithmic beyond."""
  size = jnp.abs(x)
  return jnp.where(
    size <= limit, x, jnp.sign(x) * limit * (1 + jnp.log(jnp.maximum(size, limit) / limit))
  )


def differences(context: chex.Array) -> chex.Array:
  """A context (..., L) and its differences of orders 1 to 3, (..., 4 L - 6), each magnified.

  Trajectories are smooth, and their future lies in what differs little.
  """
  found = [context]
  for _ in range(3):
    found.append(4.0 * jnp.diff(found[-1], axis=-1))
  return squash(jnp.concatenate(found, axis=-1))


def parameter_count(params: chex.ArrayTree) -> int:
  """How many numbers the parameters are."""
  return sum(x.size for x in jax.tree.leaves(params))
