"""Traced. Samples handed out to questions, by a score or by a stopping rule, under one budget.

Everything here runs on paths (Q, T + 1) of what is known after n samples (`lib.voting.paths`), and
returns the number of samples of every question.

The question of the largest score is sampled next; ties go to the one with fewer samples, then to
the one that comes first.
"""

import math
from collections.abc import Callable, Sequence

import chex
import jax
import jax.numpy as jnp
import numpy as np

from lib.voting import paths


def run_policy(
  signals: chex.ArrayTree,
  score: Callable[[chex.ArrayTree, chex.Array], chex.Array],
  budget: chex.Array,
  max_budget: int,
  *,
  init: int = 1,
  batch: int = 1,
) -> chex.Array:
  """Spends a budget in rounds, on the questions of the largest scores.

  For scores that depend on the spent part of the budget, such as blends of ranks by a schedule; a
  run serves one budget, and `vmap` serves many. `run_index` is faster where they do not.

  Args:
    signals: paths (Q, T + 1) of what the score reads.
    score: maps signals (Q,) and the spent part of the budget, in [0, 1], to scores (Q,).
    budget: samples in all, in [init Q, max_budget]; may be traced. What is outside is taken as the
      end that is nearer.
    max_budget: largest budget, at most T Q.
    init: first samples of every question.
    batch: questions that get a sample in one round, at most Q.

  Returns:
    Samples (Q,) int32. They sum to the budget.

  Raises:
    ValueError: if max_budget, init or batch is out of its range.
  """
  leaf = jax.tree.leaves(signals)[0]
  num_questions, length = leaf.shape
  _check_budgets([max_budget], num_questions, length - 1, init, batch)
  # Beyond it no question may have samples left, and the loop would not end.
  budget = jnp.minimum(budget, max_budget)

  def body(state):
    samples, spent = state
    scores = score(paths.pick(signals, samples), spent / budget)
    size = jnp.minimum(batch, budget - spent)
    chosen = _top(scores, samples, size, length - 1)
    # Fewer than `size` questions have samples left where the end is near.
    return samples + chosen, spent + chosen.sum()

  start = jnp.full(num_questions, init, jnp.int32), jnp.int32(init * num_questions)
  return jax.lax.while_loop(lambda state: state[1] < budget, body, start)[0]


def run_index(
  scores: chex.Array, budgets: Sequence[int], *, init: int = 1, batch: int = 1
) -> chex.Array:
  """Spends budgets in rounds by a score that does not depend on them: one run serves them all.

  Args:
    scores: (Q, T + 1) the score of every question after n samples.
    budgets: samples in all, each in [init Q, T Q].
    init: first samples of every question.
    batch: questions that get a sample in one round, at most Q.

  Returns:
    Samples (B, Q) int32; row b sums to budgets[b].

  Raises:
    ValueError: if a budget, init or batch is out of its range.
  """
  num_questions, length = scores.shape
  _check_budgets(budgets, num_questions, length - 1, init, batch)
  if batch == 1:
    return _run_greedy(scores, budgets, init)

  # Within so many rounds none but the best `rounds * batch` can be chosen: a round takes at most
  # `batch` of those ahead of another, and the rest of them stay ahead.
  rounds = max(1, math.isqrt(num_questions // batch))
  width = min(rounds * batch, num_questions)
  small = jnp.int16 if max(length, num_questions) < 2**15 else jnp.int32
  flat = scores.reshape(-1)

  def step(samples, size, front):
    # `front` has indices of questions in ascending order, then `num_questions` as padding.
    now = flat.at[front * length + samples].get(mode='clip')
    left = jnp.where(front < num_questions, samples, length - 1)
    return samples + _top(now, left, size, length - 1)

  def block(samples, _):
    best = _top(paths.pick(scores, samples), samples, width, length - 1)
    front = jnp.flatnonzero(best, size=width, fill_value=num_questions)

    def one(here, _):
      return step(here, batch, front), here.astype(small)

    here, trace = jax.lax.scan(one, samples[front], None, length=rounds)
    kept = samples.astype(small), front.astype(small), trace
    return samples.at[front].set(here, mode='drop'), kept

  everyone = jnp.arange(num_questions)
  start = jnp.full(num_questions, init, jnp.int32)
  largest = max(budgets)
  needed = -(-(largest - init * num_questions) // batch)
  if largest > (num_questions - batch + 1) * (length - 1):
    needed += length - 1 - init  # rounds may be short once few questions have samples left
  _, kept = jax.lax.scan(block, start, None, length=needed // rounds + 1)
  before, fronts, trace = jax.tree.map(lambda leaf: leaf.astype(jnp.int32), kept)
  counted = jnp.where(fronts[:, None] < num_questions, trace, 0).sum(-1)
  spent = (before.sum(-1, keepdims=True) + counted - counted[:, :1]).reshape(-1)

  def finish(budget):
    last = jnp.searchsorted(spent, budget, side='right') - 1
    at, turn = last // rounds, last % rounds
    samples = before[at].at[fronts[at]].set(trace[at, turn], mode='drop')
    return step(samples, budget - spent[last], everyone)

  return jax.vmap(finish)(jnp.asarray(budgets, jnp.int32))


def run_stopping(stops: chex.Array, cap: int) -> chex.Array:
  """Samples every question until its rule says stop, or `cap` times.

  Args:
    stops: booleans (..., T + 1), whether the rule is content with n samples.
    cap: largest number of samples, in [1, T].

  Returns:
    Samples (...) in [0, cap], int32.

  Raises:
    ValueError: if the cap is out of its range.
  """
  if not 1 <= cap < stops.shape[-1]:
    raise ValueError(f'A cap lies in [1, {stops.shape[-1] - 1}], got {cap=}.')
  stops = jnp.asarray(stops)[..., : cap + 1].at[..., cap].set(True)
  return stops.argmax(-1).astype(jnp.int32)


def _run_greedy(scores: chex.Array, budgets: Sequence[int], init: int) -> chex.Array:
  """One sample at a time, for all budgets by one sort.

  A question is sampled until its score has fallen below those of all others, so its n-th sample
  comes in the order of the lowest score that it had until then.
  """
  num_questions, length = scores.shape
  lowest = jax.lax.cummin(scores[:, init:-1], axis=1)
  # While its score is above the lowest it stays ahead; at the lowest, its samples decide ties.
  n = jnp.arange(init, length - 1)
  since = jax.lax.cummax(jnp.where(scores[:, init:-1] == lowest, n, 0), axis=1)
  question = jnp.broadcast_to(jnp.arange(num_questions)[:, None], lowest.shape)
  keys = -lowest, since, question, jnp.broadcast_to(n, lowest.shape)
  order = jax.lax.sort([key.reshape(-1) for key in keys], num_keys=4)[2]
  place = jnp.arange(order.size)

  def samples(budget):
    spent = (place < budget - init * num_questions).astype(jnp.int32)
    return init + jax.ops.segment_sum(spent, order, num_questions)

  return jax.vmap(samples)(jnp.asarray(budgets, jnp.int32))


def _top(scores: chex.Array, samples: chex.Array, size: chex.Array, limit: int) -> chex.Array:
  """Marks the `size` questions of the largest scores that have fewer than `limit` samples.

  The size may be traced. The order of the docstring above, by two thresholds: on the score, then,
  among those tied at it, on the samples and the index.
  """
  num_questions = scores.shape[0]
  keys = jnp.where(samples < limit, _ordered(scores), 0)
  threshold = _kth_largest(keys, size, 32)
  above = keys > threshold
  order = (limit - samples) * num_questions + jnp.arange(num_questions, 0, -1)
  tied = jnp.where((keys == threshold) & (keys > 0), order, 0).astype(jnp.uint32)
  bits = int(np.ceil(np.log2((limit + 1) * num_questions + 2)))
  last = _kth_largest(tied, size - above.sum(), bits)
  return (above | (tied >= jnp.maximum(last, 1))).astype(jnp.int32)


def _ordered(x: chex.Array) -> chex.Array:
  """Maps floats to positive integers (uint32) of the same order; both zeros are equal."""
  # Not x + 0.0, which the compiler takes for x.
  x = x.astype(jnp.float32)
  bits = jax.lax.bitcast_convert_type(jnp.where(x == 0, 0.0, x), jnp.uint32)
  return jnp.where(bits >> 31, ~bits, bits | jnp.uint32(2**31))


def _kth_largest(keys: chex.Array, k: chex.Array, bits: int) -> chex.Array:
  """The k-th largest of unsigned integers (n,), bit by bit; the largest of all for k = 0.

  Far cheaper than a sort on a CPU, and k may be traced.
  """

  def body(i, value):
    trial = value | (jnp.uint32(1) << (bits - 1 - i).astype(jnp.uint32))
    return jnp.where((keys >= trial).sum(dtype=jnp.int32) >= k, trial, value)

  return jax.lax.fori_loop(0, bits, body, jnp.uint32(0))


def _check_budgets(budgets, num_questions, limit, init, batch) -> None:
  if not 0 <= init <= limit:
    raise ValueError(f'The first samples must be in [0, {limit}], got {init=}.')
  if not 1 <= batch <= num_questions:
    raise ValueError(f'A batch has 1 to {num_questions} questions, got {batch=}.')
  if (limit + 1) * num_questions >= 2**31:
    raise ValueError(f'{num_questions} questions of {limit} samples are more than an int32 counts.')
  low, high = init * num_questions, limit * num_questions
  for budget in budgets:
    if not low <= budget <= high:
      raise ValueError(
        f'{num_questions} questions with {init} to {limit} samples take a budget in '
        f'[{low}, {high}], got {budget}.'
      )
