"""Traced. Offline transitions on the device: uniform batches, and what comes next."""

import chex
import jax
import jax.numpy as jnp


def sample_batch(data: chex.ArrayTree, key: chex.PRNGKey, batch_size: int) -> chex.ArrayTree:
  """Draws rows uniformly with replacement.

  Call it inside the compiled step: the rows are gathered on the device and no batch crosses the
  host.

  Args:
    data: arrays with one common leading axis of N rows.
    key: typed PRNG key.
    batch_size: number of rows to draw, > 0.

  Returns:
    The same tree with leading axis `batch_size`.

  Raises:
    ValueError: if the batch size is not positive or the data set is empty.
  """
  leaves = jax.tree.leaves(data)
  chex.assert_equal_shape_prefix(leaves, 1)
  size = leaves[0].shape[0]
  if batch_size <= 0 or size == 0:
    raise ValueError(f'Cannot draw {batch_size=} rows from {size} rows.')
  index = jax.random.randint(key, (batch_size,), 0, size)
  return jax.tree.map(lambda x: jnp.take(x, index, axis=0), data)


def next_actions(actions: chex.Array, terminals: chex.Array) -> tuple[chex.Array, chex.Array]:
  """Finds the action that follows each one in its episode, which some critics' targets want.

  Args:
    actions: (N, A), the episodes one after another.
    terminals: (N,), 1 at the last row of each episode, whatever ended it.

  Returns:
    The next actions (N, A), zeros where there is none, and masks (N,), 0 there and 1 elsewhere.
    The first action of the next episode is never taken for the next one of this.
  """
  chex.assert_equal_shape_prefix([actions, terminals], 1)
  masks = (1.0 - jnp.asarray(terminals)).at[-1].set(0.0)
  return jnp.roll(actions, -1, axis=0) * masks[:, None], masks
