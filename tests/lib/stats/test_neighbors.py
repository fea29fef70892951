"""Tests of the nearest-neighbour metrics of samples."""

from unittest import mock

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from scipy import spatial, stats

from lib.stats import neighbors

_prdc = jax.jit(neighbors.prdc, static_argnames='k')
_radii = jax.jit(neighbors.radii, static_argnames='k')


def points(seed, *shape):
  return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def tree_radii(x, k):
  # The nearest of all is the point itself, or a copy at the same distance.
  x = np.asarray(x, np.float64)
  return spatial.cKDTree(x).query(x, k + 1)[0][:, k]


def direct_prdc(real, fake, k):
  """The definitions, by all pairs at once and in double precision."""
  between = spatial.distance.cdist(np.float64(real), np.float64(fake))
  in_real = between < tree_radii(real, k)[:, None]
  in_fake = between < tree_radii(fake, k)[None]
  density = in_real.sum() / k / len(fake)
  return in_real.any(0).mean(), in_fake.any(1).mean(), density, in_real.any(1).mean()


class RadiiTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_on_the_line(self):
    x = jnp.array([[0.0], [1.0], [3.0], [7.0]])
    radii = self.variant(lambda x: neighbors.radii(x, 2))(x)
    np.testing.assert_array_equal(radii, [3, 2, 3, 6])

  def test_agrees_with_a_tree_where_neighbours_are_near_and_the_origin_far(self):
    # |x|² + |y|² - 2 x·y has an error of about 1e-2 here, and squared radii are about 1e-4.
    x = 100.0 + 0.1 * points(0, 300, 3)
    np.testing.assert_allclose(_radii(x, k=4), tree_radii(x, 4), rtol=1e-5)

  def test_copies_are_neighbours_at_distance_zero(self):
    x = points(1, 10, 4)
    x[[3, 7]] = x[0]
    radii = np.stack([_radii(x, k=k) for k in (2, 3)])
    np.testing.assert_array_equal(np.flatnonzero(radii[0] == 0), [0, 3, 7])
    self.assertTrue((radii[1] > 0).all())
    np.testing.assert_allclose(radii[1], tree_radii(x, 3), rtol=1e-6)

  def test_integers_do_not_wrap_around(self):
    x = np.array([[0], [255], [254]], np.uint8)
    np.testing.assert_array_equal(_radii(x, k=2), [255, 255, 254])

  def test_a_point_that_is_not_finite_is_far_from_all(self):
    x = np.array([[0.0], [1.0], [np.nan], [np.inf]], np.float32)
    np.testing.assert_array_equal(_radii(x, k=1), [1, 1, np.inf, np.inf])

  @parameterized.parameters(0, -1, 3, 4)
  def test_refuses_a_neighbour_that_does_not_exist(self, k):
    with self.assertRaisesRegex(ValueError, f'1 .. 2, got k={k}'):
      neighbors.radii(jnp.zeros((3, 2)), k)

  def test_refuses_what_is_no_set_of_points(self):
    with self.assertRaises(AssertionError):
      neighbors.radii(jnp.zeros(3), 1)
    with self.assertRaises(ValueError):
      neighbors.radii(jnp.zeros((0, 2)), 1)


class PrdcTest(chex.TestCase):
  def test_agrees_with_the_definitions_in_any_blocks(self):
    real, fake = points(2, 61, 3), 0.8 * points(3, 47, 3) + 0.3
    expected = direct_prdc(real, fake, 3)
    np.testing.assert_allclose(_prdc(real, fake, k=3), expected, rtol=1e-6)
    # Blocks of several rows and a rest.
    with mock.patch.object(neighbors, '_BLOCK_NUMBERS', 20 * 47 * 3):
      found = jax.jit(lambda *sets: neighbors.prdc(*sets, k=3))(real, fake)
    np.testing.assert_array_equal(found, _prdc(real, fake, k=3))

  def test_blocks_have_a_row_at_least(self):
    x = points(12, 9, 2)
    with mock.patch.object(neighbors, '_BLOCK_NUMBERS', 1):
      found = jax.jit(lambda x: neighbors.radii(x, 3))(x)
    np.testing.assert_allclose(found, tree_radii(x, 3), rtol=1e-6)

  @parameterized.parameters(3, 40)
  def test_one_for_a_set_against_itself_in_any_order(self, width):
    # Far from the origin, where rounding would tell a point from itself.
    x = 30.0 + points(4, 61, width)
    np.testing.assert_array_equal(_prdc(x, x[::-1], k=3), np.ones(4))

  def test_zero_for_sets_apart(self):
    x, y = points(5, 61, 3), points(6, 47, 3) + 100.0
    np.testing.assert_array_equal(_prdc(x, y, k=3), np.zeros(4))

  @chex.variants(with_jit=True, without_jit=True)
  def test_balls_are_open(self):
    prdc = self.variant(lambda *sets: neighbors.prdc(*sets, k=1))
    # The radii are 1 and 3; 2 lies at distance 1 from a real point.
    real, fake = jnp.array([[0.0], [1.0]]), jnp.array([[2.0], [5.0]])
    np.testing.assert_array_equal(prdc(real, fake), [0, 1, 0, 0])
    # Balls (-1, 1) and (0, 2) of the real points hold 0 twice and 1.5 once; k is 1.
    fake = jnp.array([[0.5], [1.5]])
    np.testing.assert_array_equal(prdc(real, fake), [1, 1, 1.5, 1])

  def test_modes_lost_and_modes_invented(self):
    modes = 100.0 * np.arange(4, dtype=np.float32)[:, None, None] + points(7, 4, 10, 2)
    real = modes[:2].reshape(-1, 2)
    # One of two modes, four times over, and nothing else: all is good, half is missing.
    found = _prdc(real, np.tile(modes[0], (4, 1)), k=4)
    np.testing.assert_allclose(found, [1, 0.5, 1, 0.5])
    # Both modes and two that do not exist: nothing is missing, half is good.
    found = _prdc(real, modes.reshape(-1, 2), k=4)
    np.testing.assert_allclose(found, [0.5, 1, 0.5, 1])

  def test_unchanged_by_similarities(self):
    real, fake = points(2, 61, 3), 0.8 * points(3, 47, 3) + 0.3
    rotation = stats.special_ortho_group.rvs(3, random_state=0).astype(np.float32)
    moved = [7.0 * x @ rotation - 2.0 for x in (real, fake)]
    np.testing.assert_array_equal(_prdc(*moved, k=3), _prdc(real, fake, k=3))

  def test_precision_is_recall_of_the_sets_exchanged(self):
    x, y = points(8, 61, 3), 0.5 * points(9, 61, 3)
    there, back = _prdc(x, y, k=3), _prdc(y, x, k=3)
    self.assertEqual(there.precision, back.recall)
    self.assertEqual(there.recall, back.precision)
    # Narrow samples lie among wide ones, but not the other way round.
    self.assertGreater(there.precision, there.recall)

  def test_expected_values_where_the_laws_are_equal(self):
    # All M + N points are exchangeable. The ball of a real point holds no fake one if its k nearest
    # are all real; a fake point ranks among the M - 1 others of a real one as each of them does, so
    # that each of M balls holds it with probability k/M.
    m, n, k, seeds = 21, 30, 3, 200
    real, fake = points(10, seeds, m, 2), points(11, seeds, n, 2)
    found = jax.jit(jax.vmap(lambda *sets: neighbors.prdc(*sets, k=k)))(real, fake)
    missed = np.prod([(m - i) / (m + n - i) for i in range(1, k + 1)])
    for values, expected in ((found.coverage, 1 - missed), (found.density, 1.0)):
      self.assertAlmostEqual(values.mean(), expected, delta=4 * stats.sem(values))
    for seed in range(5):
      alone = direct_prdc(real[seed], fake[seed], k)
      np.testing.assert_allclose([field[seed] for field in found], alone, rtol=1e-6)

  def test_points_that_are_not_finite_are_near_nothing(self):
    real, fake = points(2, 61, 3), points(3, 47, 3)
    precision, recall, density, coverage = direct_prdc(real, fake[2:], 3)
    fake[0], fake[1, 1] = np.inf, np.nan
    found = _prdc(real, fake, k=3)
    share = 45 / 47
    expected = (share * precision, recall, share * density, coverage)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    # With three finite points left there is no third neighbour, and no ball as large as space.
    fake[3:] = np.nan
    self.assertEqual(_prdc(real, fake, k=3).recall, 0.0)
    np.testing.assert_array_equal(_prdc(real, np.full_like(fake, np.nan), k=3), np.zeros(4))

  def test_copies_of_one_point_have_empty_balls(self):
    x = np.ones((61, 3), np.float32)
    np.testing.assert_array_equal(_prdc(x, x, k=3), np.zeros(4))

  def test_refuses_sets_that_do_not_fit(self):
    x = np.zeros((6, 2))
    with self.assertRaises(AssertionError):
      neighbors.prdc(x, np.zeros((6, 3)))
    with self.assertRaises(AssertionError):
      neighbors.prdc(x, np.zeros(6))
    for real, fake in ((x, x[:5]), (x[:5], x)):
      with self.assertRaisesRegex(ValueError, 'got k=5'):
        neighbors.prdc(real, fake, k=5)
