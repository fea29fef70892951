"""Traced. Which items say something about self-preference."""

import chex
import jax.numpy as jnp

NEITHER, LEGITIMATE, HARMFUL = 0, 1, 2


def categorize(j_right: chex.Array, k_right: chex.Array, r_right: chex.Array) -> chex.Array:
  """Sorts items by who was right: the judge J, its proxy K and the reference R.

  Args:
    j_right: booleans (...), whether J was right.
    k_right: booleans, for K.
    r_right: booleans, for R.

  Returns:
    int8 (...): LEGITIMATE where J and K were right and R wrong, so that a vote for oneself is
    deserved; HARMFUL where J and K were wrong and R right; NEITHER otherwise. Arguments broadcast.
  """
  j, k, r = (jnp.asarray(right, bool) for right in (j_right, k_right, r_right))
  legitimate, harmful = j & k & ~r, ~j & ~k & r
  return jnp.where(harmful, HARMFUL, jnp.where(legitimate, LEGITIMATE, NEITHER)).astype(jnp.int8)


def same_error_mask(answer_j: chex.Array, answer_k: chex.Array) -> chex.Array:
  """Whether two models gave the same answer.

  On harmful items it is the same error: what the judge's belief in its own mistake explains is then
  the same for both, which the plain baseline leaves in.

  Args:
    answer_j: integers (...), codes of J's answers (an option, or the index of a string or of a set
      of failed tests in a list of all); negative where there is none.
    answer_k: integers (...), codes of K's answers in the same list.

  Returns:
    Booleans (...), False where an answer is missing.
  """
  answer_j, answer_k = jnp.asarray(answer_j), jnp.asarray(answer_k)
  return (answer_j == answer_k) & (answer_j >= 0)
