"""Traced. What has been voted after every number of samples, for answers drawn in advance.

`answers` (..., T) holds the codes 0 .. K-1 of the T answers that a question would give, in their
order, drawn once. A policy only chooses how many of them it looks at, so what it sees after n
samples is a path that is computed once for all policies, budgets and stopping rules: they are
compared on common random numbers, and a run is an allocation of samples, not a loop over votes. A
code of -1 is an answer that could not be read: it costs a sample and votes for nothing.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from lib.voting import confidence


class Votes(NamedTuple):
  """What every rule here knows of a question.

  Attributes:
    first: (...) votes for the leader.
    second: (...) votes for the runner-up.
    seen: (...) number of distinct answers.
    total: (...) number of samples, those without a readable answer included.
  """

  first: chex.Array
  second: chex.Array
  seen: chex.Array
  total: chex.Array


def votes_of(counts: chex.Array, total: chex.Array | None = None) -> Votes:
  """Summarises the votes (..., K); `total` (...) where some samples have voted for nothing."""
  first, second = confidence.top_two(counts)
  total = counts.sum(-1) if total is None else total
  return Votes(first, second, (counts > 0).sum(-1), total)


def vote_paths(answers: chex.Array, num_answers: int) -> Votes:
  """The votes after 0, 1, ..., T samples.

  Args:
    answers: (..., T) codes in [-1, num_answers).
    num_answers: the number of answers K.

  Returns:
    `Votes` of arrays (..., T + 1), int32.
  """
  return _scan(answers, num_answers, votes_of)


def error_paths(answers: chex.Array, right: chex.Array) -> chex.Array:
  """The expected error of self-consistency after 0, 1, ..., T samples.

  Its answer is the leader, one of the tied leaders at random: 1 - |right leaders| / |leaders|.

  Args:
    answers: (..., T) codes in [-1, K).
    right: (..., K) booleans, the limiting answer or the correct ones. Where none is right the error
      is 1 throughout.

  Returns:
    Errors (..., T + 1) in [0, 1].
  """

  def error(counts: chex.Array, total: chex.Array) -> chex.Array:
    del total
    leads = counts == counts.max(-1, keepdims=True)
    return 1 - (leads & right).sum(-1) / leads.sum(-1)

  return _scan(answers, right.shape[-1], error)


def top_paths(answers: chex.Array, num_answers: int, top: int) -> chex.Array:
  """The votes of the leading answers after 0, 1, ..., T samples, in descending order.

  Args:
    answers: (..., T) codes in [-1, num_answers).
    num_answers: the number of answers K.
    top: how many of them, > 0; all where K is less.

  Returns:
    (..., T + 1, min(top, K)), int32.
  """
  if top < 1:
    raise ValueError(f'At least one leading answer is wanted, got {top=}.')
  return _scan(answers, num_answers, lambda counts, _: -jnp.sort(-counts, axis=-1)[..., :top])


def counts_after(answers: chex.Array, samples: chex.Array, num_answers: int) -> chex.Array:
  """Votes (..., K) after the first `samples` (...) of the answers (..., T)."""
  _check(answers, num_answers)
  taken = jnp.arange(answers.shape[-1]) < samples[..., None]
  codes = jnp.where(taken, answers, -1)
  return jax.nn.one_hot(codes, num_answers, dtype=jnp.int32).sum(-2)


def pick(path: chex.ArrayTree, samples: chex.Array) -> chex.ArrayTree:
  """The entries (..., Q) of paths (..., Q, T + 1) after `samples` (..., Q)."""

  def take(leaf: chex.Array) -> chex.Array:
    return jnp.take_along_axis(leaf, samples[..., None], axis=-1)[..., 0]

  return jax.tree.map(take, path)


def _scan(answers, num_answers, summary):
  """`summary(counts, total)` before the first and after every sample, along the axis of samples."""
  _check(answers, num_answers)

  def step(carry, answer):
    counts, total = carry
    # one_hot of -1 is zero: no vote.
    after = counts + jax.nn.one_hot(answer, num_answers, dtype=jnp.int32), total + 1
    return after, summary(*after)

  shape = answers.shape[:-1]
  start = jnp.zeros((*shape, num_answers), jnp.int32), jnp.full(shape, -1)
  # A first answer that is none gives the state before all samples.
  codes = jnp.concatenate([jnp.full((1, *shape), -1, answers.dtype), jnp.moveaxis(answers, -1, 0)])
  _, found = jax.lax.scan(step, start, codes)
  return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, answers.ndim - 1), found)


def _check(answers, num_answers) -> None:
  if num_answers < 1:
    raise ValueError(f'Votes need at least one answer, got {num_answers=}.')
  if not jnp.issubdtype(answers.dtype, jnp.integer):
    raise ValueError(f'Answers are integer codes, got {answers.dtype}.')
