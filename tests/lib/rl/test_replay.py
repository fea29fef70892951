"""Tests of the replay buffer, against a python deque."""

import collections

import chex
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from absl.testing import parameterized

from lib.rl import replay

CAPACITY = 5
add, mix = jax.jit(replay.add), jax.jit(replay.mix)


def rows_of(numbers):
  """Rows that each say their number twice."""
  x = jnp.asarray(numbers, jnp.float32)
  return {'a': x, 'b': jnp.stack([x, -x], axis=1)}


def filled(*numbers, capacity=CAPACITY):
  buffer = replay.empty(rows_of([0.0]), capacity)
  return add(buffer, rows_of(numbers), jnp.ones(len(numbers), bool)) if numbers else buffer


def stack(*trees):
  return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def assert_whole(batch):
  np.testing.assert_array_equal(batch['b'], np.stack([batch['a'], -batch['a']], axis=1))


class AddTest(chex.TestCase):
  @hypothesis.settings(max_examples=25, deadline=None)
  @hypothesis.given(st.lists(st.lists(st.booleans(), min_size=7, max_size=7), max_size=4))
  def test_keeps_what_a_deque_keeps(self, masks):
    buffer, kept = replay.empty(rows_of([0.0]), CAPACITY), collections.deque(maxlen=CAPACITY)
    added = 0
    for call, valid in enumerate(masks):
      numbers = 7.0 * call + jnp.arange(1.0, 8.0)  # more than there is room for
      buffer = add(buffer, rows_of(numbers), jnp.array(valid))
      kept.extend(numbers[np.array(valid)].tolist())
      added += sum(valid)
    self.assertEqual(int(buffer.added), added)
    self.assertEqual(int(buffer.size), len(kept))
    self.assertEqual(buffer.capacity, CAPACITY)
    # Its rows are the first ones, the oldest at the place that gives way next.
    rows = np.asarray(buffer.rows['a'])
    order = np.arange(added - len(kept), added) % CAPACITY
    np.testing.assert_array_equal(rows[order], list(kept))
    np.testing.assert_array_equal(rows[len(kept) :], 0.0)
    assert_whole(buffer.rows)

  @chex.variants(with_jit=True, without_jit=True)
  def test_the_oldest_gives_way(self):
    buffer = self.variant(replay.add)(
      filled(1, 2, 3, 4), rows_of([5, 6, 7]), jnp.array([True, False, True])
    )
    np.testing.assert_array_equal(buffer.rows['a'], [7, 2, 3, 4, 5])
    self.assertEqual(int(buffer.added), 6)

  def test_seeds_under_vmap_equal_a_loop(self):
    buffers = stack(*(filled(x, x + 1, x + 2) for x in range(3)))
    rows = stack(*(rows_of([10 + x, 20 + x, 30 + x]) for x in range(3)))
    valid = jnp.array([[True, True, True], [False, False, False], [False, True, True]])
    together = jax.jit(jax.vmap(replay.add))(buffers, rows, valid)
    self.assertEqual(together.added.tolist(), [6, 3, 5])
    for i in range(3):
      of_seed = lambda tree, i=i: jax.tree.map(lambda x: x[i], tree)
      alone = add(of_seed(buffers), of_seed(rows), valid[i])
      chex.assert_trees_all_equal(of_seed(together), alone)

  def test_takes_shapes_and_types(self):
    like = {'x': jax.ShapeDtypeStruct((7, 2), jnp.float16), 'n': jnp.zeros(0, jnp.int32)}
    buffer = replay.empty(like, 3)
    chex.assert_shape(buffer.rows['x'], (3, 2))
    self.assertEqual((buffer.rows['x'].dtype, buffer.rows['n'].dtype), (jnp.float16, jnp.int32))
    self.assertEqual(int(buffer.size), 0)

  @parameterized.parameters(0, -1)
  def test_refuses_no_capacity(self, capacity):
    with self.assertRaisesRegex(ValueError, f'capacity={capacity}'):
      replay.empty(rows_of([0.0]), capacity)

  def test_refuses_masks_of_other_lengths(self):
    with self.assertRaises(AssertionError):
      replay.add(filled(1), rows_of([1, 2]), jnp.ones(3, bool))


class MixTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_leaves_the_batch_where_nothing_is_to_come_in(self):
    batch = rows_of(jnp.arange(100.0, 164.0))
    mixed = self.variant(replay.mix)
    key = jax.random.key(0)
    chex.assert_trees_all_equal(mixed(filled(1, 2, 3), batch, 0.0, key), batch)
    chex.assert_trees_all_equal(mixed(filled(), batch, 1.0, key), batch)

  @parameterized.parameters(1, 3, 5, 8)
  def test_with_certainty_every_row_is_one_of_the_buffers(self, count):
    buffer = replay.empty(rows_of([0.0]), CAPACITY)
    for number in range(1, count + 1):
      buffer = add(buffer, rows_of([number]), jnp.ones(1, bool))
    batch = mix(buffer, rows_of(jnp.full(512, 99.0)), 1.0, jax.random.key(0))
    self.assertEqual({*np.asarray(batch['a'])}, {*range(max(1, count - CAPACITY + 1), count + 1)})
    assert_whole(batch)

  @chex.variants(with_jit=True, without_jit=True)
  def test_by_the_share_of_the_buffer_all_rows_come_alike(self):
    offline, buffer = 7, filled(7, 8, 9)
    drawn, key = jax.random.split(jax.random.key(0))
    batch = rows_of(jax.random.randint(drawn, (20_000,), 0, offline))
    share = buffer.size / (offline + buffer.size)
    mixed = self.variant(replay.mix)(buffer, batch, share, key)
    counts = np.bincount(np.asarray(mixed['a'], int), minlength=10)
    self.assertLen(counts, 10)
    self.assertGreater(scipy.stats.chisquare(counts).pvalue, 1e-3)
    assert_whole(mixed)

  def test_seeds_under_vmap_equal_a_loop(self):
    buffers = stack(filled(), filled(1), filled(2, 3))
    batches = stack(*(rows_of(jnp.arange(x, x + 8)) for x in (100, 200, 300)))
    keys = jax.random.split(jax.random.key(1), 3)
    shares = jnp.array([0.9, 0.5, 0.5])
    together = jax.jit(jax.vmap(replay.mix))(buffers, batches, shares, keys)
    for i in range(3):
      of_seed = lambda tree, i=i: jax.tree.map(lambda x: x[i], tree)
      alone = mix(of_seed(buffers), of_seed(batches), shares[i], keys[i])
      chex.assert_trees_all_equal(of_seed(together), alone)


class SampleTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_draws_whole_rows_alike(self):
    draw = self.variant(replay.sample, static_argnums=2)
    rows = draw(filled(7, 8, 9), jax.random.key(0), 6000)
    counts = np.bincount(np.asarray(rows['a'], int), minlength=10)
    self.assertEqual(counts[:7].sum(), 0)
    self.assertGreater(scipy.stats.chisquare(counts[7:]).pvalue, 1e-3)
    assert_whole(rows)

  def test_is_what_mix_puts_in(self):
    buffer, key = filled(1, 2, 3, 4, 5, 6), jax.random.key(3)
    mixed = replay.mix(buffer, rows_of(jnp.zeros(32)), 1.0, key)
    row_key = jax.random.split(key)[1]
    chex.assert_trees_all_equal(mixed, replay.sample(buffer, row_key, 32))

  def test_an_empty_buffer_gives_zeros(self):
    rows = replay.sample(filled(), jax.random.key(0), 4)
    np.testing.assert_array_equal(rows['b'], np.zeros((4, 2)))
