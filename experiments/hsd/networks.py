"""Parts of networks on a mesh: what they read at vertices, what they write, and Fourier layers."""

from collections.abc import Sequence

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from experiments.hsd import space as spaces
from experiments.hsd.methods import learner
from lib.hodge import operators
from lib.nn import grids


def features(problem: learner.Problem, space: spaces.Space, inputs: learner.Inputs) -> chex.Array:
  """All inputs as fields at vertices, side by side (B, N, F), in the order of their names."""
  fields = [
    spaces.to_vertices(space, problem.degrees[name], inputs[name]) for name in sorted(inputs)
  ]
  return jnp.concatenate(fields, axis=-1)


def num_features(problem: learner.Problem) -> int:
  """F of `features`."""
  return sum(problem.channels.values())


def output(problem: learner.Problem, space: spaces.Space, fields: chex.Array) -> chex.Array:
  """The change (B, n) that fields at vertices (B, N, channels_written) are or have as potential."""
  return change(problem, space, spaces.to_cochains(space, problem.written, fields))


def change(problem: learner.Problem, space: spaces.Space, w: chex.Array) -> chex.Array:
  """The change (B, n) that cochains of the degree that is written are or have as potential."""
  if problem.written == problem.degree:
    return w
  return operators.derivative(space.complex, problem.written, w)


class FourierLayers(nn.Module):
  """A Fourier neural operator between lifted fields on a grid. Li et al. (2020), arXiv:2010.08895.

  Each layer adds a linear map of each node's channels to one of the lowest frequencies of all
  nodes, then GELU but for the last. The transforms are products with the few columns of the
  discrete Fourier transform that are kept.

  Attributes:
    width: channels.
    layers: how many.
    modes: frequencies from 0 on that are kept along each axis; but for the last axis, the negative
      ones too.
  """

  width: int
  layers: int
  modes: int

  @nn.compact
  def __call__(self, x: chex.Array) -> chex.Array:
    """Maps (B, G1, ..., GD, width) to the same shape."""
    for layer in range(self.layers):
      x = SpectralConvolution(self.modes)(x) + nn.Dense(self.width)(x)
      if layer + 1 < self.layers:
        x = jax.nn.gelu(x)
    return x


class SpectralConvolution(nn.Module):
  """A linear map of the channels of each of the lowest frequencies.

  Attributes:
    modes: as in `FourierLayers`.
  """

  modes: int

  @nn.compact
  def __call__(self, x: chex.Array) -> chex.Array:
    """Maps (B, G1, ..., GD, C) to the same shape."""
    shape, width = x.shape[1:-1], x.shape[-1]
    if max(2 * self.modes - 1, 1) > min(shape):
      raise ValueError(f'{self.modes} modes do not fit on a grid of shape {shape}.')
    kept = [_frequencies(self.modes, axis + 1 == len(shape)) for axis in range(len(shape))]
    sizes = [len(frequencies) for frequencies in kept]
    init = lambda key, shape: jax.random.normal(key, shape) / width
    real, imaginary = (
      self.param(name, init, (*sizes, width, width)) for name in ('real', 'imaginary')
    )
    transforms = [
      np.exp(-2j * np.pi * np.outer(np.arange(size), frequencies) / size).astype(np.complex64)
      for size, frequencies in zip(shape, kept, strict=True)
    ]
    for axis in reversed(range(len(shape))):
      x = _along(x, transforms[axis], axis + 1)
    x = jnp.einsum('b...i,...io->b...o', x, jax.lax.complex(real, imaginary))
    for axis, transform in enumerate(transforms):
      inverse = transform.conj().T / shape[axis]
      if axis + 1 == len(shape):
        # The negative frequencies of a real field are the conjugates of the positive ones.
        inverse = inverse * np.where(kept[axis] > 0, 2, 1)[:, None].astype(np.float32)
      x = _along(x, inverse, axis + 1)
    return x.real


def _frequencies(modes: int, last: bool) -> np.ndarray:
  return np.arange(modes) if last else np.arange(1 - modes, modes)


def _along(x: chex.Array, matrix: np.ndarray, axis: int) -> chex.Array:
  """Multiplies an axis of x by a matrix (old, new)."""
  return jnp.moveaxis(jnp.tensordot(x, matrix, (axis, 0)), -1, axis)


def on_grid(
  space: spaces.Space,
  fields: chex.Array,
  shape: Sequence[int],
  places: chex.Array,
  least: float = 1e-6,
) -> chex.Array:
  """Fields at vertices (B, N, C) on a grid (B, G1, ..., GD, C), averaged by the vertices' sizes.

  The mean at a node weighs each vertex by its share of the mesh and its nearness; a node without a
  vertex nearby is zero, and below the weight `least` of a vertex of mean size it goes there.
  """
  s = grids.stencil(places, tuple(shape))
  num_nodes = int(np.prod(shape))
  size = space.stars[0][:, None] / space.stars[0].mean()
  sums = grids.splat(s, fields * size, num_nodes)
  weights = grids.splat(s, size, num_nodes)
  mean = sums / jnp.maximum(weights, least)
  return mean.reshape(fields.shape[0], *shape, fields.shape[-1])


def at_vertices(space: spaces.Space, nodes: chex.Array, places: chex.Array) -> chex.Array:
  """Interpolates a grid (B, G1, ..., GD, C) at vertices (B, N, C)."""
  shape = nodes.shape[1:-1]
  s = grids.stencil(places, shape)
  return grids.sample(s, nodes.reshape(nodes.shape[0], int(np.prod(shape)), nodes.shape[-1]))


class GridOperator(nn.Module):
  """Fields at vertices onto a grid, through Fourier layers, and back.

  Attributes:
    shape: of the grid.
    width: channels.
    layers: Fourier layers.
    modes: kept frequencies.
    features: of the output at a vertex.
    least: as in `on_grid`.
  """

  shape: tuple[int, ...]
  width: int
  layers: int
  modes: int
  features: int
  least: float = 1e-6

  @nn.compact
  def __call__(self, space: spaces.Space, fields: chex.Array, places: chex.Array) -> chex.Array:
    """Maps fields (B, N, F) at places (N, D) in the unit cube to (B, N, features)."""
    ones = jnp.ones((*fields.shape[:-1], 1), fields.dtype)
    nodes = on_grid(space, jnp.concatenate([fields, ones], axis=-1), self.shape, places, self.least)
    nodes = FourierLayers(self.width, self.layers, self.modes)(nn.Dense(self.width)(nodes))
    found = at_vertices(space, nodes, places)
    return nn.Dense(self.features)(jax.nn.gelu(nn.Dense(2 * self.width)(found)))


def on_vertices(problem: learner.Problem, module: nn.Module) -> learner.Network:
  """A network of a module that maps a space and fields at vertices (B, N, F) to the output's."""

  def init(key):
    inputs = {name: problem.train[name][:1] for name in problem.degrees}
    return module.init(key, problem.space, features(problem, problem.space, inputs))

  def apply(params, space, inputs):
    found = module.apply(params, space, features(problem, space, inputs))
    return learner.Prediction(output(problem, space, found), jnp.zeros(()))

  return learner.Network(init, apply)


def beside(fields: chex.Array, own: chex.Array) -> chex.Array:
  """Fields (B, N, F) with what all samples share at vertices (N, C), as (B, N, F + C)."""
  return jnp.concatenate(
    [fields, jnp.broadcast_to(own, (*fields.shape[:-1], own.shape[-1]))], axis=-1
  )


def flat(problem: learner.Problem, inputs: learner.Inputs) -> chex.Array:
  """All inputs' cochains side by side (B, P), in the order of their names."""
  return jnp.concatenate([inputs[name] for name in sorted(problem.degrees)], axis=-1)
