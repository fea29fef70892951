"""Samples handed out in rounds, against a plain loop with ties, and under every budget."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

from lib.voting import allocation

S, Q, T = 14, 6, 8
# Few values, so that most decisions are ties; the zeros of both signs are one of them.
_VALUES = np.array([-np.inf, -1, -0.0, 0.0, 1 / 3, np.inf], np.float32)


def make_scores():
  rng = np.random.default_rng(0)
  scores = rng.choice(_VALUES, (S, Q, T + 1), p=[0.1, 0.3, 0.2, 0.2, 0.1, 0.1])
  n = np.arange(T + 1)
  scores[0], scores[1], scores[2] = 0, -n, n  # all tied, the fewest samples first, the most first
  # Without ties, and with the questions in another order.
  scores[3] = rng.permutation(Q * (T + 1)).reshape(Q, T + 1) - 20
  scores[4] = scores[3, ORDER]
  return scores


ORDER = np.array([3, 0, 5, 1, 4, 2])
SCORES = make_scores()


def loop(scores, budget, init, batch):
  """What the docstring says, a question at a time."""
  samples = np.full(len(scores), init)
  while samples.sum() < budget:
    left = [q for q in range(len(scores)) if samples[q] < T]
    left.sort(key=lambda q: (-scores[q, samples[q]], samples[q], q))
    samples[left[: min(batch, budget - samples.sum())]] += 1
  return samples


def budgets_of(init):
  """From the least to all there are; the ends are where rounds are short."""
  low, high = init * Q, T * Q
  return tuple(sorted({low, low + 1, low + 2, *range(low, high, 5), *range(high - 8, high + 1)}))


@functools.cache
def index_run(init, batch):
  run = lambda scores: allocation.run_index(scores, budgets_of(init), init=init, batch=batch)
  return np.asarray(jax.jit(jax.vmap(run))(SCORES))


class AllocationTest(chex.TestCase):
  @parameterized.parameters((0, 1), (2, 1), (1, 4), (0, 6))
  def test_index_agrees_with_a_loop_at_every_budget(self, init, batch):
    found = index_run(init, batch)
    self.assertEqual(found.dtype, np.int32)
    for i, budget in enumerate(budgets_of(init)):
      expected = [loop(scores, budget, init, batch) for scores in SCORES]
      np.testing.assert_array_equal(found[:, i], expected)
    # Which the loop fulfils by its making:
    np.testing.assert_array_equal(found.sum(-1), np.tile(budgets_of(init), (S, 1)))
    self.assertEqual((found.min(), found.max()), (init, T))

  def test_index_agrees_with_a_loop_where_batches_are_small(self):
    # Rounds are then run on the best questions alone, some at a time; the last ones are short.
    scores = np.concatenate(SCORES.reshape(2, 7, Q, T + 1), axis=1)
    scores = np.concatenate([scores, scores[:, ::-1]], axis=1)  # (7, 24, T + 1)
    budgets = (48, 49, 54, 80, 121, 150, 170, 185, 189, 190, 191, 192)
    run = lambda scores: allocation.run_index(scores, budgets, init=2, batch=2)
    found = jax.jit(jax.vmap(run))(scores)
    expected = [[loop(rows, budget, 2, 2) for budget in budgets] for rows in scores]
    np.testing.assert_array_equal(found, expected)

  @parameterized.parameters((0, 1), (1, 4))
  def test_policy_agrees_with_index(self, init, batch):
    ends = np.array([*budgets_of(init), T * Q + 5, 0])  # the last two out of range

    def run(scores, budget):
      score = lambda now, _: now['scores']
      return allocation.run_policy({'scores': scores}, score, budget, T * Q, init=init, batch=batch)

    found = jax.jit(jax.vmap(jax.vmap(run, (None, 0)), (0, None)))(SCORES, ends)
    self.assertEqual(found.dtype, jnp.int32)
    np.testing.assert_array_equal(found[:, :-2], index_run(init, batch))
    np.testing.assert_array_equal(found[:, -2], np.full((S, Q), T))
    np.testing.assert_array_equal(found[:, -1], np.full((S, Q), init))

  @parameterized.parameters((0, 1), (1, 4))
  def test_orders_that_are_known(self, init, batch):
    found, q = index_run(init, batch), np.arange(Q)
    for i, budget in enumerate(budgets_of(init)):
      equal = budget // Q + (q < budget % Q)
      np.testing.assert_array_equal(found[0, i], equal)
      np.testing.assert_array_equal(found[1, i], equal)
      if batch == 1:
        greedy = init + np.clip(budget - init * Q - (T - init) * q, 0, T - init)
        np.testing.assert_array_equal(found[2, i], greedy)
    # Questions in another order get what they got.
    np.testing.assert_array_equal(found[4], found[3][:, ORDER])
    # More money takes nothing away.
    self.assertTrue((np.diff(found, axis=1) >= 0).all())

  def test_policy_sees_its_progress(self):
    # The first half of the budget goes where n is large, the second where it is small.
    score = lambda now, progress: jnp.where(progress < 0.5, now, -now)
    n = jnp.broadcast_to(jnp.arange(T + 1.0), (3, T + 1))
    run = jax.jit(lambda: allocation.run_policy(n, score, 14, 14, init=0))
    np.testing.assert_array_equal(run(), [7, 4, 3])

  def test_budgets_in_any_order_and_without_choice(self):
    scores = jnp.asarray(SCORES[5])
    run = lambda batch: allocation.run_index(scores, (30, 7, 30), init=1, batch=batch)
    few = jax.jit(lambda: (run(1), run(3)))()
    for found, batch in zip(few, (1, 3), strict=True):
      expected = [loop(SCORES[5], budget, 1, batch) for budget in (30, 7, 30)]
      np.testing.assert_array_equal(found, expected)
    full = jax.jit(
      lambda: [allocation.run_index(scores, (T * Q,), init=T, batch=batch) for batch in (1, 3)]
    )()
    chex.assert_trees_all_equal(full, [np.full((1, Q), T)] * 2)

  @chex.variants(with_jit=True, without_jit=True)
  def test_stopping_agrees_with_a_loop(self):
    stops = np.random.default_rng(0).random((2, 50, T + 1)) < 0.15
    stops[0, 0], stops[0, 1] = False, True
    for cap in (1, T):
      found = self.variant(lambda stops, cap=cap: allocation.run_stopping(stops, cap))(stops)
      self.assertEqual(found.dtype, jnp.int32)
      for row, n in np.ndenumerate(found):
        self.assertEqual(n, next((i for i in range(cap) if stops[row][i]), cap))

  def test_refuses_what_does_not_add_up(self):
    scores = jnp.zeros((Q, T + 1))
    policy = lambda scores, budgets, **kwargs: allocation.run_policy(
      scores, lambda now, _: now, max(budgets), max(budgets), **kwargs
    )
    for run in (allocation.run_index, policy):
      for budget in (Q - 1, T * Q + 1):
        with self.assertRaisesRegex(ValueError, rf'take a budget in \[6, 48\], got {budget}'):
          run(scores, [budget])
      for batch in (0, -1, Q + 1):
        with self.assertRaisesRegex(ValueError, 'A batch has 1 to 6 questions'):
          run(scores, [T * Q], batch=batch)
      for init in (-1, T + 1):
        with self.assertRaisesRegex(ValueError, r'first samples must be in \[0, 8\]'):
          run(scores, [T * Q], init=init)
    with self.assertRaisesRegex(ValueError, 'more than an int32'):
      run = lambda scores: allocation.run_index(scores, [2**17])
      jax.eval_shape(run, jax.ShapeDtypeStruct((2**16, 2**15), jnp.float32))
    for cap in (0, T + 1):
      with self.assertRaisesRegex(ValueError, r'A cap lies in \[1, 8\]'):
        allocation.run_stopping(jnp.zeros((2, T + 1), bool), cap)
