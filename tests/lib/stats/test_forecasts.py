"""Tests of the scores of forecasts, against closed forms, integrals and laws."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import integrate, stats

from lib.stats import distances, forecasts

finite = st.floats(-100, 100, width=32, allow_subnormal=False)
ensembles = hnp.arrays(np.float32, (5, 3), elements=finite)

crps = jax.jit(forecasts.crps_samples, static_argnames='fair')
energy_score = jax.jit(forecasts.energy_score)
intervals = jax.jit(forecasts.central_intervals)
coverage = jax.jit(forecasts.coverage)
pit = jax.jit(forecasts.pit)


def normal(seed, *shape):
  return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def direct(samples, y, fair):
  """The definition, by all pairs."""
  size, pairs = len(samples), np.abs(samples[:, None] - samples[None]).sum(axis=(0, 1))
  return np.abs(samples - y).mean(axis=0) - pairs / (2 * size * (size - fair))


class CrpsSamplesTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  @parameterized.parameters(True, False)
  def test_is_the_definition_over_all_pairs(self, fair):
    samples, y = normal(0, 7, 4, 3), normal(1, 4, 3)
    score = self.variant(lambda x, y: forecasts.crps_samples(x, y, fair))
    np.testing.assert_allclose(score(samples, y), direct(samples, y, fair), rtol=1e-5, atol=1e-6)

  @settings(max_examples=30)
  @given(ensembles, hnp.arrays(np.float32, 3, elements=finite), st.booleans())
  def test_is_the_definition_with_ties_too(self, samples, y, fair):
    found = crps(samples, y, fair)
    np.testing.assert_allclose(found, direct(samples, y, fair), rtol=1e-4, atol=1e-3)

  def test_unfair_is_the_integral_of_the_squared_gap_of_the_laws(self):
    samples, y = np.sort(normal(2, 6)), np.float32(0.3)
    knots = np.sort(np.append(samples, y))
    law = np.searchsorted(samples, knots[:-1], side='right') / len(samples)
    integral = np.sum((law - (y <= knots[:-1])) ** 2 * np.diff(knots))
    found = crps(samples, y, fair=False)
    np.testing.assert_allclose(found, integral, rtol=1e-5)

  @parameterized.parameters(0.0, 0.5, 1.0, 2.0)
  def test_fair_has_no_bias_and_unfair_a_known_one(self, y):
    size = 10
    samples = normal(3, size, 40_000)
    at = np.full(40_000, y, np.float32)
    exact = float(forecasts.crps_gaussian(0.0, 1.0, y))
    for fair, bias in ((True, 0.0), (False, 1 / (size * np.sqrt(np.pi)))):
      scores = np.asarray(crps(samples, at, fair))
      self.assertAlmostEqual(scores.mean(), exact + bias, delta=4 * stats.sem(scores))

  @parameterized.parameters(True, False)
  def test_of_one_point_is_the_absolute_error(self, fair):
    x, y = normal(4, 2, 5)
    np.testing.assert_array_equal(crps(x[None], y, fair), np.abs(x - y))

  def test_shifts_scales_and_reorders(self):
    samples, y = normal(5, 9, 4), normal(6, 4)
    score = crps(samples, y)
    np.testing.assert_allclose(crps(-3 * samples, -3 * y), 3 * score, rtol=1e-4)
    moved = crps(samples[::-1] + 1e4, y + np.float32(1e4))
    np.testing.assert_allclose(moved, score, atol=3e-3)

  def test_is_proper(self):
    y = normal(7, 20_000)
    mean = lambda shift, scale: float(crps(shift + scale * normal(8, 20, 20_000), y).mean())
    for worse in ((0.5, 1.0), (0.0, 2.0), (0.0, 0.4)):
      self.assertLess(mean(0.0, 1.0), mean(*worse))

  def test_gradient_agrees_with_differences(self):
    with jax.enable_x64(True):
      samples, y = (
        jnp.asarray(normal(9, 6, 3), jnp.float64),
        jnp.asarray(normal(10, 3), jnp.float64),
      )
      chex.assert_numerical_grads(lambda x: crps(x, y).sum(), (samples,), order=1)

  def test_refuses_what_does_not_fit(self):
    with self.assertRaisesRegex(ValueError, 'at least one sample'):
      crps(np.zeros((0, 3)), np.zeros(3))
    with self.assertRaises(AssertionError):
      crps(np.zeros((4, 3)), np.zeros(2))


class CrpsGaussianTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  @parameterized.parameters((0.0, 0.2336950), (0.5, 0.3314035), (1.0, 0.6024414), (2.0, 1.4527918))
  def test_known_numbers(self, y, expected):
    found = self.variant(forecasts.crps_gaussian)(0.0, 1.0, y)
    self.assertAlmostEqual(float(found), expected, places=6)

  @parameterized.parameters((0.3, 0.5, -1.0), (-2.0, 3.0, 4.0))
  def test_is_the_integral_of_the_squared_gap_of_the_laws(self, mean, std, y):
    law = stats.norm(mean, std).cdf
    below, _ = integrate.quad(lambda x: law(x) ** 2, -np.inf, y)
    above, _ = integrate.quad(lambda x: (1 - law(x)) ** 2, y, np.inf)
    np.testing.assert_allclose(forecasts.crps_gaussian(mean, std, y), below + above, rtol=1e-5)

  def test_of_a_narrow_law_is_the_absolute_error(self):
    np.testing.assert_allclose(forecasts.crps_gaussian(0.0, 1e-6, np.float32(0.7)), 0.7, rtol=1e-5)


class QuantilesTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  @parameterized.parameters(1, 2, 9)
  def test_midpoint_levels_give_the_score_of_the_empirical_law(self, size):
    samples, y = normal(11, size, 4), normal(12, 4)
    levels = (np.arange(size, dtype=np.float32) + 0.5) / size
    found = self.variant(forecasts.crps_quantiles)(np.sort(samples, axis=0), y, levels)
    expected = crps(samples, y, fair=False)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)

  def test_many_quantiles_approach_the_score_of_the_law(self):
    levels = (np.arange(2000) + 0.5) / 2000
    quantiles = stats.norm.ppf(levels)[:, None].astype(np.float32)
    found = forecasts.crps_quantiles(quantiles, np.float32([1.0]), levels.astype(np.float32))
    np.testing.assert_allclose(found, 0.6024414, rtol=1e-3)

  @parameterized.parameters(0.1, 0.5, 0.9)
  def test_pinball_is_least_at_the_quantile(self, level):
    y = normal(13, 4001)
    grid = np.linspace(-2, 2, 401, dtype=np.float32)
    quantiles = np.broadcast_to(grid[:, None], (grid.size, y.size))
    loss = forecasts.pinball(quantiles, y, np.full(grid.size, level, np.float32))
    best = grid[np.argmin(loss.mean(axis=1))]
    self.assertAlmostEqual(best, np.quantile(y, level), delta=0.02)

  def test_pinball_of_the_median_is_half_the_absolute_error(self):
    q, y = normal(14, 2, 5)
    loss = forecasts.pinball(q[None], y, np.float32([0.5]))[0]
    np.testing.assert_allclose(loss, 0.5 * np.abs(y - q), rtol=1e-6)


class NormalScoresTest(chex.TestCase):
  levels = np.arange(1, 100) / 100

  @chex.variants(with_jit=True, without_jit=True)
  def test_agree_with_scipys_interpolation_both_ways(self):
    levels, scores = self.levels, stats.norm.ppf(self.levels)
    quantiles = np.sort(normal(0, 99, 3), axis=0)
    x, z = 2.0 * normal(1, 40, 3), 2.0 * normal(2, 40, 3)
    forth = jax.vmap(self.variant(forecasts.normal_scores), in_axes=(0, None, None))
    back = jax.vmap(self.variant(forecasts.from_normal_scores), in_axes=(0, None, None))
    for i in range(3):
      expected = np.interp(x[:, i], quantiles[:, i], scores)
      np.testing.assert_allclose(forth(x, quantiles, levels)[:, i], expected, atol=2e-3)
      expected = np.interp(z[:, i], scores, quantiles[:, i])
      np.testing.assert_allclose(back(z, quantiles, levels)[:, i], expected, atol=1e-4)

  def test_are_inverse_between_the_outermost_and_flat_beyond(self):
    quantiles = jnp.asarray(stats.expon.ppf(self.levels)[:, None], jnp.float32)
    z = jnp.linspace(-2.2, 2.2, 50)[:, None]
    x = jax.vmap(lambda z: forecasts.from_normal_scores(z, quantiles, self.levels))(z)
    again = jax.vmap(lambda x: forecasts.normal_scores(x, quantiles, self.levels))(x)
    np.testing.assert_allclose(again, z, atol=1e-4)
    for far in (-50.0, 50.0):
      end = quantiles[0 if far < 0 else -1]
      found = forecasts.from_normal_scores(jnp.array([far]), quantiles, self.levels)
      np.testing.assert_allclose(found, end, rtol=1e-5)
      score = forecasts.normal_scores(jnp.array([far]), quantiles, self.levels)
      np.testing.assert_allclose(abs(score), stats.norm.ppf(0.99), rtol=1e-5)

  def test_of_draws_from_the_law_are_standard_normal(self):
    draws = np.random.default_rng(0).gamma(2.0, size=4000)
    quantiles = np.broadcast_to(stats.gamma.ppf(self.levels, 2.0)[:, None], (99, 4000))
    scores = np.asarray(forecasts.normal_scores(draws, quantiles, self.levels))
    inside = abs(scores) < 2.3
    law = stats.truncnorm(-2.3, 2.3)
    self.assertGreater(stats.kstest(scores[inside], law.cdf).pvalue, 1e-3)

  def test_coinciding_quantiles_give_finite_scores_and_gradients(self):
    quantiles = jnp.array([0.0, 1.0, 1.0, 1.0, 2.0])[:, None]
    levels = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    total = lambda q, x: forecasts.normal_scores(x, q, levels).sum()
    for x in (-1.0, 0.0, 1.0, 1.5, 3.0):
      found = jax.value_and_grad(total, argnums=(0, 1))(quantiles, jnp.array([x]))
      chex.assert_tree_all_finite(found)
    low, high = (forecasts.normal_scores(jnp.array([x]), quantiles, levels) for x in (0.999, 1.001))
    self.assertLess(low, stats.norm.ppf(0.3) + 1e-2)
    self.assertGreater(high, stats.norm.ppf(0.7) - 1e-2)


class EnergyScoreTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_on_the_line_is_the_crps(self):
    samples, y = normal(15, 12, 1), normal(16, 1)
    found = self.variant(forecasts.energy_score)(samples, y)
    np.testing.assert_allclose(found, crps(samples, y)[0], rtol=1e-5)

  def test_is_the_energy_distance_to_one_point_without_its_bias(self):
    samples, y = normal(17, 8, 5), normal(18, 5)
    half = jax.jit(distances.energy_distance)(samples, y[None]) / 2
    pairs = np.linalg.norm(samples[:, None] - samples, axis=-1).sum()
    bias = pairs / 2 * (1 / (8 * 7) - 1 / 8**2)
    np.testing.assert_allclose(energy_score(samples, y), half - bias, rtol=1e-5)

  def test_sees_dependence_that_the_entries_do_not(self):
    y = np.repeat(normal(19, 400, 1), 6, axis=1)
    noise = normal(20, 400, 30, 6)
    score = jax.jit(lambda x: jax.lax.map(lambda a: forecasts.energy_score(*a), (x, y)).mean())
    self.assertLess(float(score(np.repeat(noise[..., :1], 6, axis=2))), float(score(noise)))

  def test_one_sample_and_coinciding_ones(self):
    x, y = normal(21, 2, 4)
    np.testing.assert_allclose(energy_score(x[None], y), np.linalg.norm(x - y), rtol=1e-6)
    gradient = jax.jit(jax.grad(forecasts.energy_score))(np.repeat(y[None], 3, axis=0), y)
    chex.assert_tree_all_finite(gradient)


class CalibrationTest(chex.TestCase):
  @parameterized.parameters((normal,), (lambda s, *n: np.random.default_rng(s).poisson(0.7, n),))
  def test_transform_is_uniform_whatever_the_ties(self, draw):
    samples, y = draw(22, 7, 5000), draw(23, 5000)
    found = np.asarray(pit(samples, y, jax.random.key(0)))
    self.assertGreater(stats.kstest(found, 'uniform').pvalue, 0.01)

  @chex.variants(with_jit=True, without_jit=True)
  def test_transform_without_a_key_is_the_middle_rank(self):
    samples = np.float32([[1, 1], [2, 1], [3, 5]])
    found = self.variant(forecasts.pit)(samples, np.float32([2.5, 1]))
    np.testing.assert_allclose(found, [2.5 / 4, 1.5 / 4], rtol=1e-6)
    ranks = stats.rankdata(np.vstack([np.float32([2.5, 1]), samples]), axis=0)[0]
    np.testing.assert_allclose(found, (ranks - 0.5) / 4, rtol=1e-6)

  @parameterized.parameters(5, 20, 100)
  def test_calibrated_forecasts_are_covered_as_claimed(self, size):
    levels = np.float32([0.5, 0.6, 2 / 3]) if size == 5 else np.float32([0.5, 0.8, 0.9])
    rng = np.random.default_rng(24)
    samples, y = rng.random((size, 20_000)), rng.random(20_000)
    found = np.asarray(np.mean(coverage(samples, y, levels), axis=1))
    np.testing.assert_allclose(found, levels, atol=4 * 0.5 / np.sqrt(20_000))
    self.assertLess(float(forecasts.calibration_error(found, levels)), 0.01)

  def test_intervals_are_scipys_weibull_quantiles(self):
    samples, levels = normal(25, 30, 4), np.float32([0.5, 0.9])
    low, high = intervals(samples, levels)
    for bound, p in ((low, (1 - levels) / 2), (high, (1 + levels) / 2)):
      expected = np.quantile(samples, p, axis=0, method='weibull')
      np.testing.assert_allclose(bound, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(forecasts.width(samples, levels), high - low)

  def test_intervals_are_nested_and_end_at_the_samples(self):
    samples, y = normal(26, 6, 50), normal(27, 50)
    levels = np.linspace(0.05, 0.99, 9, dtype=np.float32)
    low, high = intervals(samples, levels)
    self.assertTrue(bool((np.diff(low, axis=0) <= 0).all() & (np.diff(high, axis=0) >= 0).all()))
    np.testing.assert_array_equal(low[-1], samples.min(axis=0))
    np.testing.assert_array_equal(high[-1], samples.max(axis=0))
    covered = np.asarray(coverage(samples, y, levels))
    self.assertTrue((np.diff(covered.astype(int), axis=0) >= 0).all())

  def test_quantiles_of_a_head_stand_for_samples(self):
    levels = np.arange(1, 20) / 20
    quantiles = stats.norm.ppf(levels)[:, None].astype(np.float32)
    found = forecasts.width(quantiles, np.float32([0.5, 0.9]))[:, 0]
    np.testing.assert_allclose(found, 2 * stats.norm.ppf([0.75, 0.95]), rtol=1e-4)

  @parameterized.parameters(0.3, 3.0)
  def test_error_of_laws_of_the_wrong_width(self, scale):
    levels = np.float32([0.5, 0.8, 0.9, 0.95])
    samples, y = scale * normal(28, 200, 4000), normal(29, 4000)
    found = forecasts.calibration_error(np.mean(coverage(samples, y, levels), axis=1), levels)
    true = 2 * stats.norm.cdf(scale * stats.norm.ppf((1 + levels) / 2)) - 1
    np.testing.assert_allclose(found, np.abs(true - levels).mean(), atol=0.02)
