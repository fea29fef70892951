"""Tests of the least-squares line."""

import warnings

import chex
import numpy as np
from absl.testing import parameterized
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lib.stats import regression

finite = st.floats(-1e6, 1e6, allow_subnormal=False)


def points(n, seed=0, slope=2.0):
  rng = np.random.default_rng(seed)
  x = rng.normal(3.0, 1.0, n)
  return x, slope * x - 1.0 + rng.normal(size=n)


class LinearRegressionTest(chex.TestCase):
  @parameterized.parameters(3, 10, 500)
  def test_agrees_with_scipy_and_with_the_normal_equations(self, n):
    x, y = points(n, seed=n)
    found = regression.linear_regression(x, y, level=0.9)
    expected = stats.linregress(x, y)
    self.assertEqual(found.n, n)
    np.testing.assert_allclose(
      [found.slope, found.intercept, found.r_squared, found.p_value, found.slope_stderr],
      [expected.slope, expected.intercept, expected.rvalue**2, expected.pvalue, expected.stderr],
      rtol=1e-9,
    )
    design = np.stack([x, np.ones(n)], axis=1)
    line, (residual,), _, _ = np.linalg.lstsq(design, y, rcond=None)
    np.testing.assert_allclose([found.slope, found.intercept], line, rtol=1e-9)
    error = np.sqrt(residual / (n - 2) * np.linalg.inv(design.T @ design)[0, 0])
    bounds = stats.t.interval(0.9, n - 2, loc=line[0], scale=error)
    np.testing.assert_allclose(found.slope_interval, bounds, rtol=1e-8)
    np.testing.assert_allclose(found.r_squared, 1 - residual / np.square(y - y.mean()).sum())

  def test_covers_the_slope_as_often_as_it_says(self):
    fits = [regression.linear_regression(*points(8, seed, slope=0.0)) for seed in range(1000)]
    covered = np.mean([f.slope_interval[0] <= 0 <= f.slope_interval[1] for f in fits])
    self.assertAlmostEqual(covered, 0.95, delta=4 * np.sqrt(0.95 * 0.05 / 1000))
    # The interval and the p-value are one test.
    self.assertEqual(covered, np.mean([f.p_value > 0.05 for f in fits]))

  def test_a_perfect_fit_and_a_constant_response(self):
    x = np.arange(5.0)
    perfect = regression.linear_regression(x, 3 * x + 1)
    np.testing.assert_allclose(perfect[:2], (3.0, 1.0))
    np.testing.assert_allclose(perfect.slope_interval, (3.0, 3.0), rtol=1e-6)
    self.assertAlmostEqual(perfect.r_squared, 1.0)
    self.assertLess(perfect.p_value, 1e-12)
    flat = regression.linear_regression(x, np.full(5, 0.1))
    self.assertEqual(flat, (0.0, 0.1, (0.0, 0.0), 0.0, 1.0, 0.0, 5))

  @settings(max_examples=30)
  @given(st.lists(st.tuples(finite, finite), min_size=3, max_size=12), st.integers(-300, 300))
  def test_scales_with_the_units(self, pairs, exponent):
    x, y = np.array(pairs).T
    if np.ptp(x) <= 1e-3 * np.abs(x).max():
      return
    with warnings.catch_warnings(action='error'):
      plain = regression.linear_regression(x, y)
      scaled = regression.linear_regression(np.ldexp(x, exponent), y)
    np.testing.assert_allclose(np.ldexp(scaled.slope, exponent), plain.slope)
    np.testing.assert_allclose(scaled[3:5], plain[3:5])
    self.assertTrue(0 <= plain.r_squared <= 1 + 1e-12)

  @parameterized.parameters(
    ([0.0, 1.0], [0.0, 1.0], 'at least 3 points, got 2'),
    ([], [], 'at least 3 points, got 0'),
    ([0.0, 1.0, 2.0], [0.0, 1.0], 'one length'),
    ([[0.0, 1.0, 2.0]], [[0.0, 1.0, 2.0]], 'one length'),
    ([0.3, 0.1 + 0.2, 0.3], [0.0, 1.0, 2.0], 'x must not be constant'),
    ([0.0, 0.0, 0.0], [0.0, 1.0, 2.0], 'x must not be constant'),
    ([0.0, np.nan, 2.0], [0.0, 1.0, 2.0], r'x\[1\] = nan'),
    ([0.0, 1.0, 2.0], [0.0, 1.0, -np.inf], r'y\[2\] = -inf'),
  )
  def test_refuses(self, x, y, message):
    with self.assertRaisesRegex(ValueError, message):
      regression.linear_regression(x, y)

  @parameterized.parameters(0.0, 1.0, 95.0, np.nan)
  def test_refuses_a_level_outside_0_1(self, level):
    with self.assertRaisesRegex(ValueError, 'level='):
      regression.linear_regression(*points(5), level)
