"""Tests of the distances between samples."""

from unittest import mock

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from scipy import linalg, stats

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


def covariances(seed, *shape):
  """Wishart matrices (*shape, shape[-1]), of full rank and well conditioned."""
  factors = points(seed, *shape, 3 * shape[-1])
  return (factors @ np.swapaxes(factors, -1, -2) / factors.shape[-1]).astype(np.float32)


def direct_frechet(mean0, cov0, mean1, cov1):
  """The definition, with SciPy's matrix square root, in double precision."""
  mean0, cov0, mean1, cov1 = map(np.float64, (mean0, cov0, mean1, cov1))
  root = linalg.sqrtm(cov0 @ cov1).real
  return np.sum((mean0 - mean1) ** 2) + np.trace(cov0 + cov1 - 2 * root)


_frechet = jax.jit(distances.frechet_gaussian)
_frechet_rows = jax.jit(jax.vmap(distances.frechet_gaussian))
_frechet_distance = jax.jit(distances.frechet_distance)


class FrechetGaussianTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_agrees_with_the_definition(self):
    laws = points(20, 3), covariances(21, 3), points(22, 3), covariances(23, 3)
    found = self.variant(distances.frechet_gaussian)(*laws)
    np.testing.assert_allclose(found, direct_frechet(*laws), rtol=1e-5)

  def test_vmap_symmetry_and_rigid_motions(self):
    mean0, cov0, mean1, cov1 = laws = [
      points(24, 6, 4),
      covariances(25, 6, 4),
      points(26, 6, 4),
      2 * covariances(27, 6, 4),
    ]
    expected = [direct_frechet(*law) for law in zip(*laws, strict=True)]
    np.testing.assert_allclose(_frechet_rows(*laws), expected, rtol=1e-5)
    np.testing.assert_allclose(_frechet_rows(mean1, cov1, mean0, cov0), expected, rtol=1e-5)
    turn = stats.special_ortho_group.rvs(4, random_state=0).astype(np.float32)
    moved = mean0 @ turn + 5.0, turn.T @ cov0 @ turn, mean1 @ turn + 5.0, turn.T @ cov1 @ turn
    np.testing.assert_allclose(_frechet_rows(*moved), expected, rtol=1e-4)
    scaled = 3 * mean0, 9 * cov0, 3 * mean1, 9 * cov1
    np.testing.assert_allclose(_frechet_rows(*scaled), 9 * np.array(expected), rtol=1e-5)

  def test_its_root_obeys_the_triangle_inequality(self):
    means, covs = points(28, 3, 6, 4), np.stack([covariances(29 + i, 6, 4) for i in range(3)])
    ab, bc, ac = (
      np.sqrt(_frechet_rows(means[i], covs[i], means[j], covs[j]))
      for i, j in ((0, 1), (1, 2), (0, 2))
    )
    self.assertTrue((ac <= ab + bc).all())

  def test_zero_where_the_laws_are_equal_and_only_there(self):
    mean, cov = points(32, 6, 4), covariances(33, 6, 4)
    np.testing.assert_allclose(_frechet_rows(mean, cov, mean, cov), 0.0, atol=1e-10)
    np.testing.assert_allclose(_frechet_rows(mean, cov, mean + 1.0, cov), 4.0, rtol=1e-5)
    # √(c² Σ) is c √Σ, so that the distance is (c - 1)² tr Σ. It does not drown in rounding.
    trace = np.trace(cov, axis1=1, axis2=2)
    for factor, rtol in ((2.0, 1e-5), (1.001, 2e-3)):
      found = _frechet_rows(mean, cov, mean, np.float32(factor**2) * cov)
      np.testing.assert_allclose(found, (factor - 1) ** 2 * trace, rtol=rtol)

  def test_commuting_and_singular_covariances(self):
    turn = stats.special_ortho_group.rvs(4, random_state=1).astype(np.float32)
    std0 = np.array([[1, 2, 3, 4], [1, 2, 3, 4], [1, 0, 0, 2], [1, 1, 0, 0], [0] * 4, [0] * 4])
    std1 = np.array(
      [[2, 2, 1, 0.5], [4, 3, 2, 1], [0, 3, 0, 2], [0, 0, 1, 1], [1, 2, 3, 4], [0] * 4]
    )
    cov0, cov1 = ((turn * std[:, None] ** 2 @ turn.T).astype(np.float32) for std in (std0, std1))
    mean = np.zeros((6, 4), np.float32)
    expected = np.sum((std0 - std1) ** 2, axis=-1)
    np.testing.assert_allclose(
      _frechet_rows(mean, cov0, mean, cov1), expected, rtol=1e-4, atol=1e-5
    )

  def test_rank_one_covariances_and_one_dimension(self):
    # (u uᵀ, v vᵀ): the optimal plan moves c u to ±c v, at |u|² + |v|² - 2 |u·v|.
    u, v = points(34, 6, 4), points(35, 6, 4)
    mean = np.zeros((6, 4), np.float32)
    found = _frechet_rows(mean, u[:, :, None] * u[:, None], mean, v[:, :, None] * v[:, None])
    expected = (u**2 + v**2).sum(-1) - 2 * np.abs((u * v).sum(-1))
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    line = jnp.array([1.0]), jnp.array([[4.0]]), jnp.array([-2.0]), jnp.array([[25.0]])
    np.testing.assert_allclose(_frechet(*line), 3.0**2 + 3.0**2, rtol=1e-6)

  def test_refuses_or_shows_what_is_no_gaussian(self):
    zero, eye = np.zeros(2), np.eye(2)
    for broken in (
      (zero, eye, np.zeros(3), eye),
      (zero, np.eye(3), zero, eye),
      (zero, np.ones(2), zero, eye),
      (zero[None], eye, zero[None], eye),
    ):
      with self.assertRaises(AssertionError):
        distances.frechet_gaussian(*broken)
    line = jnp.array([1.0]), jnp.array([[jnp.nan]]), jnp.array([-2.0]), jnp.array([[25.0]])
    self.assertTrue(np.isnan(_frechet(*line)))


class FrechetDistanceTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_is_that_of_the_fitted_gaussians(self):
    x, y = points(36, 40, 3) @ points(37, 3, 3), points(38, 30, 3) + 1.0
    fits = (fit for z in (x, y) for fit in (z.mean(0), np.cov(z, rowvar=False)))
    found = self.variant(distances.frechet_distance)(x, y)
    np.testing.assert_allclose(found, direct_frechet(*fits), rtol=1e-4)

  def test_of_the_same_points_moved(self):
    x = points(39, 40, 3)
    np.testing.assert_allclose(_frechet_distance(x, x[::-1]), 0.0, atol=1e-10)
    np.testing.assert_allclose(_frechet_distance(x, x + 100.0), 3e4, rtol=1e-5)
    spread = x.var(0, ddof=1).sum()
    np.testing.assert_allclose(
      _frechet_distance(x, 3 * (x - x.mean(0))) - np.sum(x.mean(0) ** 2), 4 * spread, rtol=1e-5
    )

  def test_vmap_over_seeds_with_fewer_points_than_features(self):
    x, y = points(40, 5, 4, 6), points(41, 5, 3, 6)
    found = jax.jit(jax.vmap(distances.frechet_distance))(x, y)
    for seed in range(5):
      # tr (Σ₀^½ Σ₁ Σ₀^½)^½ is the nuclear norm of the product of any factors of the two.
      a, b = (np.float64(z - z.mean(0)) / np.sqrt(len(z) - 1) for z in (x[seed], y[seed]))
      cross = np.linalg.svd(a @ b.T, compute_uv=False).sum()
      gap = x[seed].mean(0) - y[seed].mean(0)
      expected = gap @ gap + (a**2).sum() + (b**2).sum() - 2 * cross
      np.testing.assert_allclose(found[seed], expected, rtol=1e-3)

  def test_refuses_samples_that_do_not_fit(self):
    with self.assertRaises(AssertionError):
      distances.frechet_distance(jnp.zeros((3, 2)), jnp.zeros((3, 1)))
    with self.assertRaisesRegex(ValueError, 'got 3 and 1'):
      distances.frechet_distance(jnp.zeros((3, 2)), jnp.zeros((1, 2)))


class ClassesTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  @parameterized.parameters(0.0, 0.5)
  def test_shares_are_smoothed_counts(self, smoothing):
    labels = np.random.default_rng(42).integers(0, 4, (3, 50))
    shares = self.variant(jax.vmap(lambda x: distances.class_shares(x, 6, smoothing)))(labels)
    for row, share in zip(labels, shares, strict=True):
      expected = (np.bincount(row, minlength=6) + smoothing) / (50 + 6 * smoothing)
      np.testing.assert_allclose(share, expected, rtol=1e-6)

  def test_labels_of_no_class_do_not_count(self):
    shares = jax.jit(distances.class_shares, static_argnums=(1, 2))
    labels = jnp.array([0, 1, 1, -1, 3, 2**31 - 1])
    np.testing.assert_allclose(shares(labels, 3), [1 / 3, 2 / 3, 0], rtol=1e-6)
    # Without data, smoothing alone gives equal shares.
    np.testing.assert_allclose(shares(labels[:0], 4, 1.0), 0.25)
    self.assertTrue(np.isnan(shares(labels[:0], 4)).all())

  def test_divergence_in_closed_form(self):
    kl = jax.jit(distances.histogram_kl)
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    self.assertAlmostEqual(float(kl(p, q)), 0.2748872196, places=6)
    # Counts of any size are as good as shares.
    rows = np.random.default_rng(43).integers(1, 20, (5, 3))
    np.testing.assert_allclose(kl(rows, 7 * q), stats.entropy(rows, q[None], axis=1), rtol=2e-5)
    np.testing.assert_allclose(kl(rows, 3 * rows), 0.0, atol=1e-6)

  def test_missing_classes(self):
    kl = jax.jit(distances.histogram_kl)
    full, half = np.array([1.0, 1.0]), np.array([1.0, 0.0])
    self.assertAlmostEqual(float(kl(half, full)), np.log(2), places=6)
    self.assertEqual(float(kl(full, half)), np.inf)
    self.assertEqual(float(kl(half, half)), 0.0)
    self.assertEqual(float(kl(full, 0 * full)), np.inf)
    self.assertEqual(float(kl(0 * full, full)), np.inf)

  def test_refuses_what_is_no_histogram(self):
    labels = jnp.zeros(3, jnp.int32)
    for classes, smoothing in ((0, 0.0), (2, -1.0), (2, np.nan), (2, np.inf)):
      with self.assertRaisesRegex(ValueError, 'smoothing'):
        distances.class_shares(labels, classes, smoothing)
    with self.assertRaisesRegex(ValueError, 'integers'):
      distances.class_shares(jnp.zeros(3), 2)
    with self.assertRaises(AssertionError):
      distances.class_shares(labels[None], 2)
    with self.assertRaises(AssertionError):
      distances.histogram_kl(jnp.ones(3), jnp.ones(2))
