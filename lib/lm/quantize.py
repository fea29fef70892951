"""Traced. Weights in eight bits with a scale for each output, and products with them."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp


class Int8(NamedTuple):
  """A matrix W ≈ s ∘ Q.

  Attributes:
    values: Q, int8 (..., inputs, outputs).
    scale: s, (..., 1, outputs), or (..., inputs, 1) for an embedding, whose rows are looked up.
  """

  values: chex.Array
  scale: chex.Array


Matrix = jax.Array | Int8


def quantize(matrix: chex.Array, axis: int = -2) -> Int8:
  """Rounds a matrix to 255 levels; the largest error of an entry is half of its scale.

  Args:
    matrix: (..., m, n).
    axis: along which the scale is shared: -2 (the inputs of x @ W) or -1 (a row of an embedding).

  Returns:
    The matrix with scales of `matrix`'s type; a scale of zero stands for zeros.
  """
  largest = jnp.max(jnp.abs(matrix), axis=axis, keepdims=True)
  scale = largest / 127.0
  values = jnp.round(matrix / jnp.where(scale > 0, scale, 1.0)).astype(jnp.int8)
  return Int8(values, scale)


def dequantize(matrix: Matrix) -> chex.Array:
  """Returns the matrix as an ordinary array."""
  if isinstance(matrix, Int8):
    return matrix.values.astype(matrix.scale.dtype) * matrix.scale
  return matrix


def matmul(x: chex.Array, matrix: Matrix) -> chex.Array:
  """x @ W, for x (..., m) and W (m, n); the scales of the outputs are applied to the product."""
  if isinstance(matrix, Int8):
    return (x @ matrix.values.astype(x.dtype)) * matrix.scale[0].astype(x.dtype)
  return x @ matrix


def matmul_transposed(x: chex.Array, matrix: Matrix) -> chex.Array:
  """x @ Wᵀ, for x (..., n) and an embedding W (m, n) with a scale for each row."""
  if isinstance(matrix, Int8):
    product = jnp.einsum('...n,mn->...m', x, matrix.values.astype(x.dtype))
    return product * matrix.scale[:, 0].astype(x.dtype)
  return jnp.einsum('...n,mn->...m', x, matrix)


def rows(matrix: Matrix, index: chex.Array) -> chex.Array:
  """Looks rows of an embedding up."""
  if isinstance(matrix, Int8):
    scale = jnp.take(matrix.scale, index, axis=0)
    return jnp.take(matrix.values, index, axis=0).astype(scale.dtype) * scale
  return jnp.take(matrix, index, axis=0)
