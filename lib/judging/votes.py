"""Traced. From a judge's log-probabilities to its votes.

A judge reads a question with answers A and B and says A, B or T, a tie; its probabilities of the
three are (..., 3) in this order. Every pair is shown twice: in game 1 the answer of interest is A,
in game 2 it is B.
"""

import chex
import jax
import jax.numpy as jnp
import numpy as np

NUM_LABELS = 3


def label_probs(log_probs: chex.Array, label_ids: chex.Array) -> tuple[chex.Array, chex.Array]:
  """The probabilities of A, B and T: the sum over a label's spellings, renormalised over the three.

  Args:
    log_probs: (..., V) log-probabilities (or logits) of the next token at the verdict, -∞ where a
      token is unlisted, as with interfaces that give the likeliest twenty.
    label_ids: (3, m) tokens that spell A, B and T, such as with and without a leading space; rows
      are filled up with -1.

  Returns:
    Probabilities (..., 3), each 1/3 where no spelling is listed; and whether one was, (...).

  Raises:
    ValueError: if `label_ids` is not (3, m); or, where its values are at hand, one lies outside
      [-1, V) or appears twice, or a label has no spelling.
  """
  _check_label_ids(label_ids, log_probs.shape[-1])
  ids = jnp.asarray(label_ids)
  spelled = jnp.where(ids >= 0, log_probs[..., jnp.maximum(ids, 0)], -jnp.inf)
  labels = jax.nn.logsumexp(spelled, axis=-1)
  found = jnp.any(~jnp.isneginf(labels), axis=-1)
  probs = jax.nn.softmax(jnp.where(found[..., None], labels, 0.0), axis=-1)
  return probs, found


def keep_ties(probs: chex.Array) -> chex.Array:
  """Leaves the probabilities (..., 3) as they are, so that a tie is a vote for neither."""
  _check_probs(probs)
  return probs


def drop_ties(probs: chex.Array) -> chex.Array:
  """Conditions on a decision: p_A / (p_A + p_B), p_B / (p_A + p_B), 0.

  Args:
    probs: (..., 3).

  Returns:
    Probabilities (..., 3); a certain tie becomes (½, ½, 0).

  Raises:
    ValueError: if the last axis is not 3.
  """
  _check_probs(probs)
  decided = probs[..., :2]
  total = decided.sum(axis=-1, keepdims=True)
  shares = jnp.where(total > 0, decided / jnp.where(total > 0, total, 1.0), 0.5)
  return jnp.concatenate([shares, jnp.zeros_like(total)], axis=-1)


def split_ties(probs: chex.Array) -> chex.Array:
  """Gives half of a tie to each answer: p_A + p_T/2, p_B + p_T/2, 0.

  Args:
    probs: (..., 3).

  Returns:
    Probabilities (..., 3).

  Raises:
    ValueError: if the last axis is not 3.
  """
  _check_probs(probs)
  tie = probs[..., 2:]
  return jnp.concatenate([probs[..., :2] + tie / 2, jnp.zeros_like(tie)], axis=-1)


def position_average(game1: chex.Array, game2: chex.Array) -> chex.Array:
  """The vote for an answer over both orders, s = ½ (p_A(game 1) + p_B(game 2)).

  With the games exchanged it is the other answer's vote, and the two votes and the mean tie sum to
  one. A judge that looks at positions alone and never ties gives s = ½.

  Args:
    game1: (..., 3), the answer of interest at A.
    game2: (..., 3), the same pair with the answer of interest at B.

  Returns:
    Votes (...) in [0, 1].

  Raises:
    ValueError: if the shapes differ or the last axis is not 3.
  """
  _check_games(game1, game2)
  return (game1[..., 0] + game2[..., 1]) / 2


def swap_consistent(game1: chex.Array, game2: chex.Array) -> chex.Array:
  """Whether the likeliest verdict names the same answer (or a tie) in both orders.

  Args:
    game1: (..., 3).
    game2: (..., 3), the same pair in the other order.

  Returns:
    Booleans (...).

  Raises:
    ValueError: if the shapes differ or the last axis is not 3.
  """
  _check_games(game1, game2)
  swapped = game2[..., np.array([1, 0, 2])]
  return jnp.argmax(game1, axis=-1) == jnp.argmax(swapped, axis=-1)


def _check_label_ids(label_ids: chex.Array, vocabulary: int) -> None:
  shape = np.shape(label_ids)
  if len(shape) != 2 or shape[0] != NUM_LABELS:
    raise ValueError(f'Label tokens must have shape (3, m), got {shape}.')
  if isinstance(label_ids, jax.core.Tracer):
    return
  ids = np.asarray(label_ids)
  listed = ids[ids >= 0]
  if (ids < -1).any() or (ids >= vocabulary).any():
    raise ValueError(f'Label tokens must lie in [-1, {vocabulary}), got {ids.tolist()}.')
  if len(set(listed.tolist())) < listed.size:
    raise ValueError(f'A token must spell one label, once, got {ids.tolist()}.')
  if not (ids >= 0).any(axis=1).all():
    raise ValueError(f'Every label needs a spelling, got {ids.tolist()}.')


def _check_probs(probs: chex.Array) -> None:
  if np.ndim(probs) < 1 or np.shape(probs)[-1] != NUM_LABELS:
    raise ValueError(f'Probabilities must have shape (..., 3), got {np.shape(probs)}.')


def _check_games(game1: chex.Array, game2: chex.Array) -> None:
  _check_probs(game1)
  if np.shape(game1) != np.shape(game2):
    raise ValueError(f'Games must be pairs, got shapes {np.shape(game1)} and {np.shape(game2)}.')
