import chex
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from lib.rl import batches


class SampleBatchTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_rows_stay_together(self):
    data = {'a': jnp.arange(50.0), 'b': jnp.stack([jnp.arange(50.0), -jnp.arange(50.0)], 1)}
    sample = self.variant(lambda d, k: batches.sample_batch(d, k, 64))
    batch = sample(data, jax.random.key(0))
    chex.assert_shape(batch['b'], (64, 2))
    np.testing.assert_array_equal(batch['b'], jnp.stack([batch['a'], -batch['a']], 1))

  def test_is_uniform(self):
    draws = batches.sample_batch(jnp.arange(10), jax.random.key(0), 20_000)
    counts = np.bincount(draws, minlength=10)
    self.assertGreater(scipy.stats.chisquare(counts).pvalue, 1e-3)

  def test_refuses_nothing_to_draw(self):
    with self.assertRaisesRegex(ValueError, '0 rows'):
      batches.sample_batch(jnp.zeros((0, 2)), jax.random.key(0), 4)
    with self.assertRaisesRegex(ValueError, 'batch_size=0'):
      batches.sample_batch(jnp.zeros((3, 2)), jax.random.key(0), 0)


class NextActionsTest(chex.TestCase):
  @hypothesis.settings(max_examples=25, deadline=None)
  @hypothesis.given(st.lists(st.booleans(), min_size=9, max_size=9))
  def test_is_a_loop_over_episodes(self, terminals):
    # Where the last row is no end, its episode is not over, but no further action is stored.
    terminals = np.array(terminals)
    actions = np.arange(1.0, 19.0, dtype=np.float32).reshape(9, 2)
    expected, masks = [], []
    for episode in np.split(actions, np.flatnonzero(terminals[:-1]) + 1):
      expected += [*episode[1:], np.zeros(2)]
      masks += [1.0] * (len(episode) - 1) + [0.0]
    for ends in (terminals, terminals.astype(np.float32)):
      found = batches.next_actions(actions, ends)
      np.testing.assert_array_equal(found[0], expected)
      np.testing.assert_array_equal(found[1], masks)

  @chex.variants(with_jit=True, without_jit=True)
  def test_by_hand(self):
    actions, ends = jnp.array([[1.0], [2.0], [3.0], [4.0]]), jnp.array([0.0, 1.0, 0.0, 0.0])
    found, masks = self.variant(batches.next_actions)(actions, ends)
    np.testing.assert_array_equal(found, [[2.0], [0.0], [4.0], [0.0]])
    np.testing.assert_array_equal(masks, [1.0, 0.0, 1.0, 0.0])

  def test_refuses_lengths_that_differ(self):
    with self.assertRaises(AssertionError):
      batches.next_actions(jnp.zeros((3, 2)), jnp.zeros(4))
