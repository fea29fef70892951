"""Traced. How undecided votes are."""

import math

import chex
import jax.numpy as jnp
import numpy as np

from lib.judging import categories

# Keeps logarithms finite at votes of 0 and 1.
_SMALLEST = 1e-10


def binary_entropy_bits(p: chex.Array) -> chex.Array:
  """The entropy of a coin, h(p) = -p log2 p - (1 - p) log2(1 - p), in bits.

  Args:
    p: probabilities (...) in [0, 1]; p and 1 - p are clipped to at least 1e-10.

  Returns:
    Bits (...), in [0, 1].
  """
  p = jnp.asarray(p)
  heads, tails = (jnp.clip(q, _SMALLEST, 1.0) for q in (p, 1 - p))
  bits = -(heads * jnp.log(heads) + tails * jnp.log(tails)) / math.log(2)
  return jnp.minimum(bits, 1.0)


def entropy_gap(votes: chex.Array, category: chex.Array) -> chex.Array:
  """How much less decided votes are on harmful items than on legitimate ones.

    gap = mean h(s | HARMFUL) - mean h(s | LEGITIMATE)

  Args:
    votes: (..., n) votes s in [0, 1].
    category: (..., n) as `categories.categorize` gives.

  Returns:
    The gap (...) in bits; NaN where either kind has no item.

  Raises:
    ValueError: if the shapes differ.
  """
  if np.shape(votes) != np.shape(category):
    raise ValueError(
      f'Votes and categories must have one shape, got {np.shape(votes)} and {np.shape(category)}.'
    )
  bits = binary_entropy_bits(votes)
  harmful, legitimate = (
    jnp.where(keep, bits, 0.0).sum(axis=-1) / keep.sum(axis=-1)
    for keep in (category == categories.HARMFUL, category == categories.LEGITIMATE)
  )
  return harmful - legitimate
