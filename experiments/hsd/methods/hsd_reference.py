"""Hodge spectral duality as released: scalars at vertices, no metric, one layer.

Zheng et al. (2026), arXiv:2605.13834, and its code. Bases are of combinatorial Laplacians divided
by their diagonals, and nothing harmonic is given. Departures: LayerNorm for BatchNorm, and where
several vertices share a voxel the last one fills it by rule rather than by chance.
"""

from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_collections

from experiments.hsd import networks
from experiments.hsd import space as spaces
from experiments.hsd.methods import learner
from lib.hodge import operators
from lib.nn import mlp


class Gated(nn.Module):
  """y = W_out(W_1 n ⊙ silu(W_2 n)) of n = LayerNorm(x), added to x where the widths agree.

  Attributes:
    width: of the output and inside.
  """

  width: int

  @nn.compact
  def __call__(self, x: chex.Array) -> chex.Array:
    """Maps (B, Q) to (B, width)."""
    n = nn.LayerNorm()(x)
    y = nn.Dense(self.width)(nn.Dense(self.width)(n) * jax.nn.silu(nn.Dense(self.width)(n)))
    return x + y if x.shape[-1] == self.width else y


class Grid(nn.Module):
  """Fourier layers on a grid of voxels that hold a vertex's values and whether there is one.

  Attributes:
    options: of the method.
    features: of the output at a vertex.
  """

  options: Any
  features: int

  @nn.compact
  def __call__(self, space: spaces.Space, fields: chex.Array) -> chex.Array:
    """Maps fields (B, N, F) to (B, N, features)."""
    width, side = self.options.width, self.options.grid
    x = nn.Dense(width)(nearest(space, fields, side))
    for layer in range(self.options.fourier_layers):
      x = networks.SpectralConvolution(self.options.modes)(x) + nn.Dense(width)(x)
      x = nn.LayerNorm()(x)
      if layer + 1 < self.options.fourier_layers:
        x = jax.nn.gelu(x)
    x = nn.Dense(self.features)(jax.nn.gelu(nn.Dense(width)(x)))
    return networks.at_vertices(space, x, space.places)


class Reference(nn.Module):
  """The network.

  Attributes:
    problem: what to predict from what.
    options: the fields of `config.hsd_reference`.
  """

  problem: learner.Problem
  options: Any

  @nn.compact
  def __call__(self, space: spaces.Space, inputs: learner.Inputs) -> learner.Prediction:
    """Predicts cochains (B, n) of inputs (B, n)."""
    problem, options = self.problem, self.options
    fields = networks.features(problem, space, inputs)
    q = self.spectral(space, fields.swapaxes(1, 2))
    hidden = q
    for width in options.hidden:
      hidden = Gated(width)(hidden)
    basis, channels = space.bases[0], problem.channels_written
    size = basis.shape[1]
    head = nn.Dense(size * channels, kernel_init=nn.initializers.orthogonal(0.1))(hidden)
    base = jnp.einsum('nm,bmd->bnd', basis, head.reshape(-1, size, channels))
    told = nn.Dense(options.commutator_width)(q)[:, None]
    local = nn.Dense(options.commutator_width)(fields)
    told = jnp.broadcast_to(told, (*local.shape[:-1], told.shape[-1]))
    both = jnp.concatenate([local, told], axis=-1)
    commutator = mlp.MLP((2 * options.commutator_width,) * 2, channels, output_scale=1e-8)
    rest = Grid(options, channels)(space, fields) + commutator(both)
    rest -= jnp.einsum('nm,bmd->bnd', basis, jnp.einsum('nm,bnd->bmd', basis, rest))
    scale = self.param('scale', nn.initializers.constant(0.1), ())
    out = networks.output(problem, space, base + scale * rest)
    return learner.Prediction(out, options.penalty * jnp.mean(abs(rest)))

  def spectral(self, space: spaces.Space, x: chex.Array) -> chex.Array:
    """The features of values (B, F, N): coefficients in all bases, with gains that grow by mode."""
    gains = [
      self.param(f'gain_{k}', lambda _, size=basis.shape[1]: jnp.arange(1.0, size + 1))
      for k, basis in enumerate(space.bases[:2])
    ]
    c0 = gains[0] * (x @ space.bases[0])
    c1 = gains[1] * (operators.d0(space.complex, x) @ space.bases[1])
    up, back = space.derivatives[0], space.derivatives[0].T
    parts = [c0, c1 @ back.T, c1, c0 @ up.T]
    if len(space.derivatives) > 1:
      parts.append(c1 @ space.derivatives[1].T)  # c2 and its codifferential are 0
    found = jnp.concatenate(parts, axis=-1)
    return found.reshape(len(found), -1)


def nearest(space: spaces.Space, fields: chex.Array, side: int) -> chex.Array:
  """Fields (B, N, F) as voxels (B, side, ..., side, F + 1), of the last vertex in each, or zero."""
  count, dimension = space.places.shape
  voxel = jnp.round(space.places * (side - 1)).astype(jnp.int32)
  index = sum(voxel[:, axis] * side ** (dimension - 1 - axis) for axis in range(dimension))
  last = jax.ops.segment_max(jnp.arange(count), index, side**dimension)
  there = last >= 0
  values = fields[:, jnp.maximum(last, 0)] * there[:, None]
  mask = jnp.broadcast_to(there[None, :, None], (*values.shape[:-1], 1)).astype(values.dtype)
  shape = (len(fields), *(side,) * dimension, fields.shape[-1] + 1)
  return jnp.concatenate([values, mask], axis=-1).reshape(shape)


def make(problem: learner.Problem, options: ml_collections.ConfigDict) -> learner.Network:
  """Builds the network."""
  network = Reference(problem, options)
  example = {name: problem.train[name][:1] for name in problem.degrees}
  return learner.Network(lambda key: network.init(key, problem.space, example), network.apply)
