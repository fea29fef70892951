import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

from lib.lm import rope


class FrequenciesTest(parameterized.TestCase):
  def test_first_plane_turns_one_radian_a_token_and_the_rest_geometrically(self):
    omega = rope.frequencies(64, 10_000.0)
    self.assertEqual(omega[0], 1.0)
    np.testing.assert_allclose(omega[1:] / omega[:-1], 10_000 ** (-1 / 32), rtol=1e-12)

  def test_scaling_by_a_number_and_by_one_for_each_plane(self):
    omega = rope.frequencies(8, 500.0)
    np.testing.assert_allclose(rope.frequencies(8, 500.0, 4.0), omega / 4)
    factors = (1.0, 2.0, 4.0, 8.0)
    np.testing.assert_allclose(rope.frequencies(8, 500.0, factors), omega / factors)

  def test_llama3_leaves_fast_planes_and_slows_slow_ones_by_the_factor(self):
    scaling = rope.Llama3Scaling(factor=8.0, low=1.0, high=4.0, context=8192)
    omega = rope.frequencies(128, 500_000.0)
    scaled = rope.frequencies(128, 500_000.0, scaling)
    waves = 2 * np.pi / omega
    fast, slow = waves < 8192 / 4, waves > 8192
    np.testing.assert_allclose(scaled[fast], omega[fast])
    np.testing.assert_allclose(scaled[slow], omega[slow] / 8)
    between = ~fast & ~slow
    self.assertTrue((scaled[between] < omega[between]).all())
    self.assertTrue((scaled[between] > omega[between] / 8).all())
    self.assertTrue((np.diff(scaled) < 0).all())

  @parameterized.parameters(
    (7, 1e4, None), (0, 1e4, None), (8, 1.0, None), (8, 1e4, 0.0), (8, 1e4, (1.0, 2.0)),
    (8, 1e4, rope.Llama3Scaling(8.0, 4.0, 1.0, 64)),
  )  # fmt: skip
  def test_refuses(self, *arguments):
    with self.assertRaises(ValueError):
      rope.frequencies(*arguments)


class RotateTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  @parameterized.parameters(True, False)
  def test_products_depend_on_the_distance_alone(self, interleaved):
    omega = rope.frequencies(8, 100.0)
    q, k = jax.random.normal(jax.random.key(0), (2, 8))

    def product(i, j):
      turn = lambda x, at: rope.rotate(x[None, None, None], at[None, None], omega, interleaved)
      return jnp.vdot(turn(q, i), turn(k, j))

    product = self.variant(product)
    a, b = product(jnp.int32(9), jnp.int32(4)), product(jnp.int32(105), jnp.int32(100))
    self.assertAlmostEqual(float(a), float(b), places=4)
    self.assertAlmostEqual(float(product(jnp.int32(7), jnp.int32(7))), float(q @ k), places=4)
    self.assertGreater(abs(float(a - product(jnp.int32(9), jnp.int32(5)))), 1e-3)

  def test_layouts_are_one_rotation_in_another_order(self):
    omega = rope.frequencies(6, 100.0)
    x = jax.random.normal(jax.random.key(0), (2, 4, 3, 6))
    positions = jnp.arange(6).reshape(2, 3)
    order = jnp.array([0, 3, 1, 4, 2, 5])  # from halves to pairs
    halves = rope.rotate(x, positions, omega)
    pairs = rope.rotate(x[..., order], positions, omega, interleaved=True)
    np.testing.assert_allclose(pairs, halves[..., order], rtol=1e-5, atol=1e-6)
