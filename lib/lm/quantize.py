"""Traced. Weights in eight bits with a scale for each output, and products with them."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp


class Int8(NamedTuple):
  """A matrix W ≈ s ∘ Q.

  Attributes:
    values: Q, int8 (..., outputs, inputs).
    scale: s (..., outputs, 1).
  """

  values: chex.Array
  scale: chex.Array


Matrix = jax.Array | Int8


def quantize(matrix: chex.Array) -> Int8:
  """Rounds each row of a matrix to 255 levels; an entry's error is at most half of its scale.

  Args:
    matrix: (..., outputs, inputs).

  Returns:
    The matrix with scales of `matrix`'s type; a scale of zero stands for zeros.
  """
  scale = jnp.max(jnp.abs(matrix), axis=-1, keepdims=True) / 127.0
  values = jnp.round(matrix / jnp.where(scale > 0, scale, 1.0)).astype(jnp.int8)
  return Int8(values, scale)


def dequantize(matrix: Matrix) -> chex.Array:
  """Returns the matrix as an ordinary array."""
  if isinstance(matrix, Int8):
    return matrix.values.astype(matrix.scale.dtype) * matrix.scale
  return matrix


def matmul(matrix: Matrix, x: chex.Array) -> chex.Array:
  """W x, for W (m, n) and x (n, N), summed in float32; scales are applied to the product."""
  values = matrix.values.astype(x.dtype) if isinstance(matrix, Int8) else matrix
  wide = jnp.promote_types(x.dtype, jnp.float32)
  product = jnp.matmul(values, x, preferred_element_type=wide)
  if isinstance(matrix, Int8):
    product = product * matrix.scale.astype(wide)
  return product.astype(x.dtype)


def rows(matrix: Matrix, index: chex.Array) -> chex.Array:
  """Looks rows up."""
  return dequantize(jax.tree.map(lambda x: jnp.take(x, index, axis=0), matrix))
