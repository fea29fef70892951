"""Traced. A replay buffer of fixed capacity, as a value: rows come in, batches go out."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp


class Buffer(NamedTuple):
  """The latest rows of a stream.

  Attributes:
    rows: tree of arrays with one leading axis, the capacity.
    added: how many rows ever came, int32 (); beyond the capacity each one replaced the oldest.
  """

  rows: chex.ArrayTree
  added: chex.Array

  @property
  def capacity(self) -> int:
    """How many rows there is room for."""
    return jax.tree.leaves(self.rows)[0].shape[0]

  @property
  def size(self) -> chex.Array:
    """How many rows there are, int32 ()."""
    return jnp.minimum(self.added, self.capacity)


def empty(like: chex.ArrayTree, capacity: int) -> Buffer:
  """Makes a buffer without rows.

  Args:
    like: arrays, or shapes and types, of rows: (n, ...) each, of which n is ignored.
    capacity: > 0.

  Raises:
    ValueError: if the capacity is not positive.
  """
  if capacity <= 0:
    raise ValueError(f'A buffer needs room for at least one row, got {capacity=}.')
  rows = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape[1:]), x.dtype), like)
  return Buffer(rows, jnp.zeros((), jnp.int32))


def add(buffer: Buffer, rows: chex.ArrayTree, valid: chex.Array) -> Buffer:
  """Adds the rows that are valid, in their order; the oldest give way.

  Args:
    buffer: to add to.
    rows: tree as the buffer's, with a leading axis n.
    valid: which of them to add, bool (n,); padding lets every call have one shape.

  Returns:
    The new buffer.
  """
  chex.assert_equal_shape_prefix([valid, *jax.tree.leaves(rows)], 1)
  count = jnp.cumsum(valid, dtype=jnp.int32)
  kept = valid & (count > count[-1] - buffer.capacity)  # the latest, where not all find room
  place = jnp.where(kept, (buffer.added + count - 1) % buffer.capacity, buffer.capacity)
  # A place beyond the capacity is dropped.
  new = jax.tree.map(lambda old, row: old.at[place].set(row, mode='drop'), buffer.rows, rows)
  return Buffer(new, buffer.added + count[-1])


def mix(
  buffer: Buffer, batch: chex.ArrayTree, probability: chex.Numeric, key: chex.PRNGKey
) -> chex.ArrayTree:
  """Replaces each row of a batch, with some probability, by a row drawn from the buffer.

  With probability size / (N + size) and a batch drawn uniformly from N rows, the result is drawn
  uniformly from both together.

  Args:
    buffer: to draw from, uniformly with replacement; an empty one leaves the batch as it is.
    batch: tree as the buffer's rows, with a leading axis B.
    probability: in [0, 1].
    key: typed PRNG key.

  Returns:
    The batch.
  """
  which_key, row_key = jax.random.split(key)
  size = jax.tree.leaves(batch)[0].shape[0]
  replace = jax.random.bernoulli(which_key, probability, (size,)) & (buffer.size > 0)

  def choose(old, drawn):
    return jnp.where(replace.reshape((size,) + (1,) * (old.ndim - 1)), drawn, old)

  return jax.tree.map(choose, batch, sample(buffer, row_key, size))


def sample(buffer: Buffer, key: chex.PRNGKey, num_rows: int) -> chex.ArrayTree:
  """Draws rows uniformly with replacement.

  Args:
    buffer: to draw from.
    key: typed PRNG key.
    num_rows: n.

  Returns:
    Rows (n, ...); zeros from an empty buffer.
  """
  index = jax.random.randint(key, (num_rows,), 0, jnp.maximum(buffer.size, 1))
  return jax.tree.map(lambda rows: jnp.take(rows, index, axis=0), buffer.rows)
