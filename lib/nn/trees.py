"""Traced. Trees of parameters by name."""

import functools

import chex
import jax


def named_leaves(tree: chex.ArrayTree) -> dict[str, chex.Array]:
  """Returns the leaves of a tree by dotted path: {'a': [x, {'b': y}]} gives 'a.0' and 'a.1.b'."""
  name = functools.partial(jax.tree_util.keystr, simple=True, separator='.')
  return {name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
