"""Tests of the yardsticks: counts are exact, times are only ordered."""

import time

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

from experiments.bench import yardsticks

ROWS, WIDTH = 32, 64
PRODUCT = 2 * ROWS * WIDTH * WIDTH


def step(x, w):
  return jnp.tanh(x @ w)


def unrolled(x, w, turns):
  for _ in range(turns):
    x = step(x, w)
  return x


def scanned(x, w, turns):
  return jax.lax.scan(lambda x, _: (step(x, w), None), x, length=turns)[0]


def partly_unrolled(x, w, turns):
  return jax.lax.scan(lambda x, _: (step(x, w), None), x, length=turns, unroll=4)[0]


def nested(x, w, turns):
  return jax.lax.fori_loop(0, 2, lambda _, x: scanned(x, w, turns), x)


class FlopsTest(chex.TestCase):
  def setUp(self):
    super().setUp()
    self.x, self.w = jnp.ones((ROWS, WIDTH)), jnp.ones((WIDTH, WIDTH))

  def test_a_product_of_matrices(self):
    self.assertEqual(yardsticks.flops(jnp.matmul, self.x, self.w), PRODUCT)

  def test_xla_counts_one_turn_of_a_scan(self):
    # The fact that `flops` corrects: where this fails, the correction must go.
    lowered = jax.jit(lambda x, w: scanned(x, w, 10)).lower(self.x, self.w)
    for cost in (lowered.cost_analysis(), lowered.compile().cost_analysis()):
      self.assertAlmostEqual(cost['flops'] / PRODUCT, 1.0, places=3)

  @parameterized.parameters(
    (scanned, 0, 0),
    (scanned, 1, 1),
    (scanned, 10, 10),
    (partly_unrolled, 3, 3),
    (partly_unrolled, 4, 4),
    (partly_unrolled, 11, 11),
    (nested, 5, 10),
  )
  def test_every_turn_of_a_scan_counts(self, loop, turns, products):
    count = yardsticks.flops(lambda x, w: loop(x, w, turns), self.x, self.w)
    self.assertAlmostEqual(count / PRODUCT, products, places=3)

  def test_a_gradient_through_a_scan_counts_as_that_through_its_unrolled_loop(self):
    def count(loop):
      return yardsticks.flops(jax.grad(lambda w, x: loop(x, w, 6).sum()), self.w, self.x)

    # The unrolled one spares the first turn's gradient by x, one product in eighteen.
    self.assertAlmostEqual(count(scanned) / count(unrolled), 18 / 17, places=1)

  @parameterized.parameters(jax.jit, jax.checkpoint, lambda f: jax.vmap(f, (0, None)))
  def test_scans_are_found_inside_other_calls(self, wrap):
    loop = wrap(lambda x, w: scanned(x, w, 4))
    self.assertAlmostEqual(yardsticks.flops(loop, self.x, self.w) / PRODUCT, 4.0, places=3)

  def test_shapes_are_enough(self):
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (self.x, self.w)]
    self.assertEqual(yardsticks.flops(jnp.matmul, *shapes), PRODUCT)

  def test_keys_may_pass_through_a_scan(self):
    def draws(key):
      return jax.lax.scan(
        lambda key, _: (jax.random.split(key)[0], jax.random.normal(key, (5,))), key, length=7
      )[1]

    self.assertGreater(yardsticks.flops(draws, jax.random.key(0)), 7 * 5)

  def test_an_unknown_number_of_turns_is_refused(self):
    def loop(x):
      return jax.lax.while_loop(lambda x: x.sum() < 3, lambda x: x + 1, x)

    with self.assertRaisesRegex(ValueError, 'while_loop'):
      yardsticks.flops(jax.jit(loop), self.x)


class RatesTest(chex.TestCase):
  @parameterized.parameters(0.0, 0.02)
  def test_counts_the_time_of_one_call(self, min_seconds):
    tasks = {'sleep': yardsticks.Task(lambda: time.sleep(0.005), 7.0)}
    for rates in yardsticks.rates(tasks, 3, min_seconds):
      self.assertLessEqual(rates['sleep'], 7.0 / 0.005)

  def test_tasks_take_turns(self):
    calls = []
    tasks = {name: yardsticks.Task(lambda name=name: calls.append(name), 1.0) for name in 'ab'}
    rounds = yardsticks.rates(tasks, 2, 0.0)
    first = next(rounds)
    self.assertEqual(set(first), {'a', 'b'})
    calls.clear()
    next(rounds)
    self.assertEqual(calls, ['a', 'b'])
    self.assertEmpty(list(rounds))

  @parameterized.parameters((0, 1.0, 'num_rounds=0'), (1, -1.0, 'min_seconds=-1.0'))
  def test_refuses_to_time_nothing(self, num_rounds, min_seconds, message):
    with self.assertRaisesRegex(ValueError, message):
      next(yardsticks.rates({}, num_rounds, min_seconds))

  def test_work_is_what_the_definition_says(self):
    self.assertEqual(yardsticks.matmul(64).work, 2 * 64**3)
    self.assertEqual(yardsticks.triad(1000).work, 3 * 4 * 1000)
    x = jnp.ones((16, 16))
    self.assertEqual(yardsticks.function(jnp.matmul, x, x).work, 2 * 16**3)

  def test_yardsticks_do_their_work(self):
    product = yardsticks.matmul(64).call()
    a, b = jax.random.normal(jax.random.key(0), (2, 64, 64))
    np.testing.assert_allclose(product, np.asarray(a) @ np.asarray(b), rtol=1e-2, atol=1e-1)
    triad = yardsticks.triad(1000)
    for _ in range(2):  # the array that the second call donates is the first one's
      last = triad.call()
    np.testing.assert_array_equal(last, np.full(1000, 4.0, np.float32))
