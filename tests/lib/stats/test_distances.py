"""Tests of the distances between samples."""

from unittest import mock

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from scipy import stats

from lib.stats import distances


def direct(x, y, unbiased):
  """The definition, by all pairs at once."""
  between, within_x, within_y = (
    np.linalg.norm(a[:, None] - b[None], axis=-1) for a, b in ((x, y), (x, x), (y, y))
  )
  n, m = len(x), len(y)
  return (
    2 * between.mean()
    - within_x.sum() / (n * (n - unbiased))
    - within_y.sum() / (m * (m - unbiased))
  )


def points(seed, *shape):
  return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


class EnergyDistanceTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_is_the_square_of_scipys_on_the_line(self):
    x, y = points(0, 50, 1), points(1, 70, 1) + 0.3
    found = self.variant(distances.energy_distance)(x, y)
    expected = stats.energy_distance(x[:, 0], y[:, 0]) ** 2
    np.testing.assert_allclose(found, expected, rtol=1e-4)

  @chex.variants(with_jit=True, without_jit=True)
  @parameterized.parameters(7, 10**9)
  def test_blocks_do_not_change_the_definition(self, block):
    x, y = points(2, 23, 3), 1.5 * points(3, 11, 3)
    with mock.patch.object(distances, '_BLOCK_NUMBERS', block * y.size):
      biased = self.variant(distances.energy_distance)(x, y)
      unbiased = self.variant(distances.energy_distance_unbiased)(x, y)
    np.testing.assert_allclose(biased, direct(x, y, unbiased=False), atol=1e-5)
    np.testing.assert_allclose(unbiased, direct(x, y, unbiased=True), atol=1e-5)

  def test_zero_on_the_same_points_in_any_order(self):
    x = points(4, 200, 2)
    np.testing.assert_allclose(distances.energy_distance(x, x[::-1]), 0.0, atol=1e-6)
    self.assertGreater(float(distances.energy_distance(x, x + 0.1)), 1e-3)

  @chex.variants(with_jit=True)
  def test_symmetric_and_linear_in_scale(self):
    distance = self.variant(distances.energy_distance)
    x, y = points(5, 40, 2), points(6, 40, 2) - 1.0
    np.testing.assert_allclose(distance(y, x), distance(x, y), rtol=1e-5)
    np.testing.assert_allclose(distance(3 * x, 3 * y), 3 * distance(x, y), rtol=1e-5)

  def test_unchanged_by_a_rigid_motion(self):
    x, y = points(7, 40, 3), 2.0 * points(8, 30, 3)
    rotation = stats.special_ortho_group.rvs(3, random_state=0).astype(np.float32)
    np.testing.assert_allclose(
      distances.energy_distance(x @ rotation + 1.0, y @ rotation + 1.0),
      distances.energy_distance(x, y),
      rtol=1e-4,
    )

  @parameterized.parameters(0.0, 0.5, 2.0)
  def test_unbiased_for_the_closed_form_of_two_gaussians(self, shift):
    # For N(0, 1) and N(m, 1) every difference is normal with variance 2, so D² is 2 E|N(m, 2)|
    # minus 2 E|N(0, 2)|, folded normal means.
    scale = np.sqrt(2.0)
    folded = stats.foldnorm.mean(shift / scale, scale=scale)
    expected = 2 * folded - 4 / np.sqrt(np.pi)
    x = points(9, 200, 50, 1)
    y = points(10, 200, 50, 1) + np.float32(shift)
    estimates = np.asarray(jax.jit(jax.vmap(distances.energy_distance_unbiased))(x, y))
    self.assertAlmostEqual(estimates.mean(), expected, delta=4 * stats.sem(estimates))
    biased = np.asarray(jax.jit(jax.vmap(distances.energy_distance))(x, y))
    bias = 2 * (2 / np.sqrt(np.pi)) / 50
    self.assertAlmostEqual(biased.mean(), expected + bias, delta=4 * stats.sem(biased))

  @chex.variants(with_jit=True)
  def test_gradient_is_finite_where_points_coincide(self):
    x = jnp.zeros((5, 2)).at[4].set(1.0)
    gradient = self.variant(jax.grad(distances.energy_distance))(x, x[:3])
    chex.assert_tree_all_finite(gradient)
    # The three zeros of y pull the stray point towards them.
    self.assertTrue(bool((gradient[4] > 0).all()))

  def test_gradient_agrees_with_differences(self):
    with jax.enable_x64(True):
      x, y = jnp.asarray(points(11, 6, 2), jnp.float64), jnp.asarray(points(12, 4, 2), jnp.float64)
      direction = jnp.asarray(points(13, 6, 2), jnp.float64)

      @jax.jit
      def along(h):
        return distances.energy_distance(x + h * direction, y)

      slope = jax.jit(jax.grad(along))(0.0)
      np.testing.assert_allclose(slope, (along(1e-6) - along(-1e-6)) / 2e-6, rtol=1e-6)

  def test_refuses_samples_that_do_not_fit(self):
    with self.assertRaises(AssertionError):
      distances.energy_distance(jnp.zeros((3, 2)), jnp.zeros((3, 1)))
    with self.assertRaises(AssertionError):
      distances.energy_distance(jnp.zeros(3), jnp.zeros(3))
    with self.assertRaisesRegex(ValueError, 'got 0 and 3'):
      distances.energy_distance(jnp.zeros((0, 2)), jnp.zeros((3, 2)))
    with self.assertRaisesRegex(ValueError, 'got 1 and 3'):
      distances.energy_distance_unbiased(jnp.zeros((1, 2)), jnp.zeros((3, 2)))
