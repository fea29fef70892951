"""Traced. Values at scattered points onto a regular grid of the unit cube, and back.

Both ways weigh a point's value by the multilinear weights of the 2^D nodes of the grid around it,
so that one is the transpose of the other.
"""

import itertools
import math
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp


class Stencil(NamedTuple):
  """Where N points lie between the nodes of a grid.

  Attributes:
    index: (N, 2^D) int32, nodes in row-major order.
    weight: (N, 2^D), >= 0, of sum 1.
  """

  index: chex.Array
  weight: chex.Array


def stencil(points: chex.Array, shape: tuple[int, ...]) -> Stencil:
  """The nodes around points, and their weights, which are differentiable in the points.

  Args:
    points: (N, D), in [0, 1]^D; what lies outside counts at the nearest face.
    shape: nodes of the grid along each of the D axes, 2 or more; the outermost ones lie at 0 and 1.

  Returns:
    The stencil.

  Raises:
    ValueError: if the grid has another dimension than the points, or too few nodes.
  """
  if points.shape[-1] != len(shape) or min(shape) < 2:
    raise ValueError(f'Points of {points.shape[-1]} coordinates on a grid of shape {shape}.')
  last = jnp.asarray(shape) - 1
  place = jnp.clip(points, 0.0, 1.0) * last
  cell = jax.lax.stop_gradient(jnp.clip(jnp.floor(place), 0, last - 1))
  fraction = place - cell
  cell = cell.astype(jnp.int32)
  strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
  indices, weights = [], []
  for corner in itertools.product((0, 1), repeat=len(shape)):
    indices.append(sum((cell[:, i] + corner[i]) * strides[i] for i in range(len(shape))))
    factors = [fraction[:, i] if on else 1 - fraction[:, i] for i, on in enumerate(corner)]
    weights.append(math.prod(factors[1:], start=factors[0]))
  return Stencil(jnp.stack(indices, axis=1), jnp.stack(weights, axis=1))


def splat(s: Stencil, values: chex.Array, num_nodes: int) -> chex.Array:
  """Spreads values of points over the nodes (..., G, C), which sums up what it gets.

  Args:
    s: of N points.
    values: (..., N, C).
    num_nodes: G, of the grid.
  """
  spread = values[..., :, None, :] * s.weight[..., None]
  nodes = jnp.zeros((*values.shape[:-2], num_nodes, values.shape[-1]), spread.dtype)
  return nodes.at[..., s.index, :].add(spread)


def sample(s: Stencil, nodes: chex.Array) -> chex.Array:
  """Interpolates values at nodes (..., G, C) at the points (..., N, C), multilinearly."""
  return jnp.einsum('nk,...nkc->...nc', s.weight, nodes[..., s.index, :])
