"""Networks that two or more methods share."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp


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
  def __call__(self, x: chex.Array) -> chex.Array:
    """Maps inputs (..., d) to outputs (..., features)."""
    x = nn.Dense(self.width)(x)
    for _ in range(self.layers):
      h = nn.Dense(self.width)(nn.silu(nn.LayerNorm()(x)))
      x = x + nn.Dense(self.width)(nn.silu(h))
    return nn.Dense(self.features, kernel_init=nn.initializers.zeros)(nn.silu(nn.LayerNorm()(x)))


def squash(x: chex.Array, limit: float = 3.0) -> chex.Array:
  """Large numbers as inputs of a network: linear to ±limit, logarithmic beyond."""
  size = jnp.abs(x)
  return jnp.where(size <= limit, x, jnp.sign(x) * limit * (1 + jnp.log(jnp.maximum(size, limit) / limit)))




def parameter_count(params: chex.ArrayTree) -> int:
  """How many numbers the parameters are."""
  return sum(x.size for x in jax.tree.leaves(params))
