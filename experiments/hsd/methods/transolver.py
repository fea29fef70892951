"""Transolver: attention between slices of the mesh. Wu et al. (2024), arXiv:2402.02366."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_collections

from experiments.hsd import networks
from experiments.hsd import space as spaces
from experiments.hsd.methods import learner
from lib.nn import mlp


class SliceAttention(nn.Module):
  """Each vertex gives shares of itself to slices, whose means attend to each other.

  Attributes:
    heads: which divide the channels.
    slices: of each head.
  """

  heads: int
  slices: int

  @nn.compact
  def __call__(self, x: chex.Array) -> chex.Array:
    """Maps (B, N, C) to the same shape."""
    width = x.shape[-1]
    size = width // self.heads
    split = lambda y: y.reshape(*y.shape[:-1], self.heads, size)
    project = lambda name: nn.Dense(size, use_bias=False, name=name)
    logits = nn.Dense(self.slices, kernel_init=nn.initializers.orthogonal(), name='slice')(
      split(nn.Dense(width, name='place')(x))
    )
    temperature = self.param('temperature', nn.initializers.constant(0.5), (self.heads, 1))
    shares = jax.nn.softmax(logits / jnp.maximum(temperature, 0.1), axis=-1)
    sums = jnp.einsum('bnhs,bnhc->bhsc', shares, split(nn.Dense(width, name='value')(x)))
    tokens = sums / (shares.sum(axis=1)[..., None] + 1e-5)
    query, key, value = (
      project(name)(tokens) for name in ('token_query', 'token_key', 'token_value')
    )
    scores = jnp.einsum('bhsc,bhtc->bhst', query, key) / size**0.5
    tokens = jnp.einsum('bhst,bhtc->bhsc', jax.nn.softmax(scores, axis=-1), value)
    found = jnp.einsum('bnhs,bhsc->bnhc', shares, tokens)
    return nn.Dense(width, name='out')(found.reshape(x.shape))


class Transolver(nn.Module):
  """Blocks of slice attention and a network at each vertex, both after LayerNorm.

  Attributes:
    width: channels.
    layers: blocks.
    heads: of the attention.
    slices: of each head.
    features: of the output at a vertex.
  """

  width: int
  layers: int
  heads: int
  slices: int
  features: int

  @nn.compact
  def __call__(self, space: spaces.Space, fields: chex.Array) -> chex.Array:
    """Maps fields (B, N, F) to (B, N, features)."""
    x = mlp.MLP((2 * self.width,), self.width)(networks.beside(fields, space.places - 0.5))
    for _ in range(self.layers):
      x += SliceAttention(self.heads, self.slices)(nn.LayerNorm()(x))
      x += mlp.MLP((self.width,), self.width)(nn.LayerNorm()(x))
    return nn.Dense(self.features)(nn.LayerNorm()(x))


def make(problem: learner.Problem, options: ml_collections.ConfigDict) -> learner.Network:
  """Builds the network.

  Args:
    problem: what to predict from what.
    options: `width`, `layers`, `heads` that divide the width, and `slices` of each.
  """
  network = Transolver(
    options.width, options.layers, options.heads, options.slices, problem.channels_written
  )
  return networks.on_vertices(problem, network)
