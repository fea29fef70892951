"""Tests of the confidence intervals."""

import warnings

import chex
import numpy as np
from absl.testing import parameterized
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lib.stats import intervals

finite = st.floats(-1e6, 1e6)
samples = st.lists(finite, min_size=2, max_size=9)
any_size = st.lists(finite, min_size=2, max_size=30)


def bounds(interval):
  return np.array(interval[:3])


class TIntervalTest(chex.TestCase):
  @parameterized.parameters((2, 0.95), (5, 0.9), (40, 0.99))
  def test_agrees_with_scipys_t_law(self, n, level):
    x = np.random.default_rng(n).normal(3.0, 2.0, n)
    expected = stats.t.interval(level, n - 1, loc=x.mean(), scale=stats.sem(x))
    interval = intervals.t_interval(x, level)
    np.testing.assert_allclose([interval.low, interval.high], expected, rtol=1e-12)
    self.assertEqual(interval.method, 't')

  def test_bounds_by_hand(self):
    # t_1(0.975) = tan(0.475 π), and two values at ±1 have s/√2 = 1.
    interval = intervals.t_interval([-1.0, 1.0])
    self.assertAlmostEqual(interval.high, np.tan(0.475 * np.pi), places=9)
    self.assertEqual(interval.mean, 0.0)

  def test_covers_the_mean_of_normal_data_as_often_as_it_says(self):
    draws = np.random.default_rng(0).normal(1.0, 3.0, (1000, 4))
    found = [intervals.t_interval(x, 0.9) for x in draws]
    covered = np.mean([i.low <= 1.0 <= i.high for i in found])
    self.assertAlmostEqual(covered, 0.9, delta=4 * np.sqrt(0.9 * 0.1 / 1000))

  @settings(max_examples=50, deadline=None)
  @given(samples, st.floats(0.1, 100.0), finite)
  def test_moves_and_scales_with_the_values(self, values, scale, shift):
    x = np.array(values)
    moved = bounds(intervals.t_interval(scale * x + shift))
    size = scale * np.abs(x).max() + abs(shift) + 1.0
    np.testing.assert_allclose(
      moved, scale * bounds(intervals.t_interval(x)) + shift, atol=1e-9 * size
    )

  @settings(max_examples=50, deadline=None)
  @given(samples)
  def test_mirrors_with_the_values(self, values):
    interval = intervals.t_interval(values)
    mirrored = intervals.t_interval(-np.array(values))
    np.testing.assert_allclose((mirrored.low, mirrored.high), (-interval.high, -interval.low))

  def test_equal_values_have_width_zero(self):
    self.assertEqual(intervals.t_interval([2.0, 2.0, 2.0])[:3], (2.0, 2.0, 2.0))


class BootstrapIntervalTest(chex.TestCase):
  def test_approaches_normal_theory(self):
    x = np.random.default_rng(1).normal(5.0, 2.0, 2000)
    interval = intervals.bootstrap_interval(x)
    half = 1.96 * stats.sem(x)
    # The Monte Carlo error of a 2.5 % quantile of 9999 resamples is about 2 % of the half-width.
    np.testing.assert_allclose(
      (interval.low, interval.high), (x.mean() - half, x.mean() + half), atol=0.1 * half
    )
    self.assertEqual(interval.method, 'bootstrap')

  def test_leans_with_the_skew(self):
    x = np.random.default_rng(2).exponential(1.0, 100)
    interval = intervals.bootstrap_interval(x)
    self.assertGreater(interval.high - interval.mean, interval.mean - interval.low)

  @settings(max_examples=20, deadline=None)
  @given(any_size)
  def test_stays_in_the_range_of_the_values(self, values):
    with warnings.catch_warnings(action='error'):
      interval = intervals.bootstrap_interval(values, num_resamples=200)
    slack = 1e-9 * max(1.0, np.abs(values).max())
    self.assertLessEqual(min(values) - slack, interval.low)
    self.assertLessEqual(interval.low, interval.high)
    self.assertLessEqual(interval.high, max(values) + slack)

  @parameterized.parameters((0.1, 12), (0.0, 2), (-3.0, 50))
  def test_equal_values_have_width_zero(self, value, n):
    interval = intervals.bootstrap_interval(n * [value])
    self.assertEqual(interval.low, interval.high)
    self.assertAlmostEqual(interval.low, value, places=12)

  @parameterized.parameters(-700, -3, 3, 700)
  def test_scales_with_the_values(self, exponent):
    x = np.array([0.0, 1.0, 1.0, 4.0, 9.0])
    scaled = bounds(intervals.bootstrap_interval(np.ldexp(x, exponent)))
    np.testing.assert_array_equal(
      scaled, np.ldexp(bounds(intervals.bootstrap_interval(x)), exponent)
    )

  def test_rates_of_one_and_of_zero_mirror(self):
    # Means of zeros and ones tie often; the bias correction must count a tie as half.
    x = np.repeat([0.0, 1.0], [4, 8])
    interval, mirrored = intervals.bootstrap_interval(x), intervals.bootstrap_interval(1 - x)
    np.testing.assert_allclose((mirrored.low, mirrored.high), (1 - interval.high, 1 - interval.low))

  def test_values_that_differ_by_rounding_are_values(self):
    with warnings.catch_warnings(action='error'):
      interval = intervals.bootstrap_interval([0.3, 0.1 + 0.2] * 10)
    np.testing.assert_allclose(bounds(interval), 0.3, rtol=1e-15)

  def test_the_seed_decides(self):
    x = np.arange(20.0) ** 2
    self.assertEqual(
      intervals.bootstrap_interval(x, seed=3), intervals.bootstrap_interval(x, seed=3)
    )
    self.assertNotEqual(
      intervals.bootstrap_interval(x, seed=3), intervals.bootstrap_interval(x, seed=4)
    )

  def test_refuses_its_own_bad_arguments(self):
    with self.assertRaisesRegex(ValueError, 'num_resamples=0'):
      intervals.bootstrap_interval([1.0, 2.0], num_resamples=0)
    with self.assertRaisesRegex(ValueError, 'seed=-1'):
      intervals.bootstrap_interval([1.0, 2.0], seed=-1)


class MeanIntervalTest(chex.TestCase):
  @parameterized.parameters((1, 't'), (9, 't'), (10, 'bootstrap'), (25, 'bootstrap'))
  def test_the_number_of_values_chooses_the_method(self, n, method):
    x = np.random.default_rng(n).normal(size=n)
    interval = intervals.mean_interval(x)
    self.assertEqual(interval.method, method)
    self.assertAlmostEqual(interval.mean, x.mean())

  @parameterized.parameters(
    intervals.t_interval, intervals.bootstrap_interval, intervals.mean_interval
  )
  def test_one_value_has_no_bounds(self, interval_of):
    interval = interval_of([0.7])
    self.assertEqual(interval.mean, 0.7)
    self.assertTrue(np.isnan(interval.low) and np.isnan(interval.high))

  @parameterized.product(
    interval_of=(intervals.t_interval, intervals.bootstrap_interval, intervals.mean_interval),
    case=(
      ([], 'shape'),
      (1.0, 'shape'),
      ([[1.0, 2.0]], 'shape'),
      ([1.0, np.nan], r'values\[1\] = nan'),
      ([1.0, 2.0, -np.inf], r'values\[2\] = -inf'),
    ),
  )
  def test_refuses_what_is_no_finite_sample(self, interval_of, case):
    values, message = case
    with self.assertRaisesRegex(ValueError, message):
      interval_of(values)

  @parameterized.parameters(0.0, 1.0, 95.0, np.nan)
  def test_refuses_a_level_outside_0_1(self, level):
    with self.assertRaisesRegex(ValueError, 'level='):
      intervals.mean_interval([1.0, 2.0], level)
    with self.assertRaisesRegex(ValueError, 'level='):
      intervals.bootstrap_interval([1.0, 2.0], level)
    with self.assertRaisesRegex(ValueError, 'level='):
      intervals.proportion_interval(1, 2, level)


class PairedIntervalTest(chex.TestCase):
  @parameterized.parameters((5, 'paired t'), (12, 'paired bootstrap'))
  def test_is_the_interval_of_the_differences(self, n, method):
    a, b = np.random.default_rng(n).normal(size=(2, n))
    paired = intervals.paired_interval(a, b)
    self.assertEqual(paired[:3], intervals.mean_interval(a - b)[:3])
    self.assertEqual(paired.method, method)

  def test_bounds_agree_with_scipys_paired_test(self):
    a, b = np.random.default_rng(4).normal(size=(2, 6))
    expected = stats.ttest_rel(a, b).confidence_interval(0.95)
    np.testing.assert_allclose(intervals.paired_interval(a, b)[1:3], expected)

  def test_what_pairs_share_cancels(self):
    shared = np.random.default_rng(5).normal(0.0, 100.0, 5)
    gain = np.array([1.0, 1.1, 0.9, 1.2, 0.8])
    paired = intervals.paired_interval(shared + gain, shared)
    np.testing.assert_allclose(paired[:3], intervals.t_interval(gain)[:3], atol=1e-9)

  def test_refuses_what_cannot_be_paired(self):
    with self.assertRaisesRegex(ValueError, '3 and 2 values'):
      intervals.paired_interval([1.0, 2.0, 3.0], [1.0, 2.0])
    with self.assertRaisesRegex(ValueError, r'b\[0\] = inf'):
      intervals.paired_interval([1.0, 2.0], [np.inf, 2.0])


class ProportionIntervalTest(chex.TestCase):
  @parameterized.parameters((0, 10), (3, 7), (49, 50), (250, 250))
  def test_bounds_solve_the_score_equation(self, successes, trials):
    # Wilson's bounds are the p for which |p̂ - p| = z √(p (1 - p) / n).
    interval = intervals.proportion_interval(successes, trials)
    z = stats.norm.ppf(0.975)
    for p in interval[1:3]:
      if 0 < p < 1:
        self.assertAlmostEqual(abs(interval.mean - p), z * np.sqrt(p * (1 - p) / trials))
    self.assertLess(interval.low, interval.high)
    self.assertEqual(interval.method, 'wilson')

  @settings(max_examples=50, deadline=None)
  @given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
  def test_successes_and_failures_mirror(self, counts):
    successes, trials = counts
    of_successes = intervals.proportion_interval(successes, trials)
    of_failures = intervals.proportion_interval(trials - successes, trials)
    self.assertAlmostEqual(of_successes.low, 1 - of_failures.high)
    self.assertAlmostEqual(of_successes.high, 1 - of_failures.low)
    self.assertLessEqual(0.0, of_successes.low)
    self.assertLessEqual(of_successes.high, 1.0)

  @parameterized.parameters((0, 0), (-1, 5), (6, 5))
  def test_refuses_impossible_counts(self, successes, trials):
    with self.assertRaisesRegex(ValueError, f'{successes}|{trials}'):
      intervals.proportion_interval(successes, trials)


class StdIntervalTest(chex.TestCase):
  @parameterized.parameters((2, 0.95), (5, 0.95), (8, 0.8))
  def test_covers_the_deviation_of_normal_data_as_often_as_it_says(self, n, level):
    draws = np.random.default_rng(n).normal(1.0, 3.0, (1000, n))
    found = [intervals.std_interval(x, level) for x in draws]
    covered = np.mean([i.low <= 3.0 <= i.high for i in found])
    self.assertAlmostEqual(covered, level, delta=4 * np.sqrt(level * (1 - level) / 1000))
    # Of those that miss, as many lie above as below.
    missed = np.mean([i.low > 3.0 for i in found])
    self.assertAlmostEqual(missed, (1 - level) / 2, delta=4 * np.sqrt((1 - level) / 2000))

  def test_bounds_by_hand(self):
    # χ² with two degrees of freedom is exponential: P(χ² > x) = exp(-x / 2).
    x = [1.0, 2.0, 3.0]  # s = 1
    expected = [1.0, np.sqrt(-1 / np.log(0.025)), np.sqrt(-1 / np.log(0.975))]
    np.testing.assert_allclose(bounds(intervals.std_interval(x)), expected, rtol=1e-9)
    self.assertEqual(intervals.std_interval(x).method, 'chi-square')

  @settings(max_examples=50, deadline=None)
  @given(samples, st.floats(0.1, 100.0), finite)
  def test_scales_with_the_values_and_does_not_move_with_them(self, values, scale, shift):
    x = np.array(values)
    plain, moved = (bounds(intervals.std_interval(v)) for v in (x, shift - scale * x))
    size = scale * np.abs(x).max() + abs(shift) + 1.0
    # The factor of the upper bound reaches 32 with two values.
    np.testing.assert_allclose(moved, scale * plain, rtol=1e-9, atol=1e-11 * size)

  @settings(max_examples=50, deadline=None)
  @given(any_size.filter(lambda values: len(values) > 2))
  def test_contains_the_estimate(self, values):
    interval = intervals.std_interval(values)
    self.assertAlmostEqual(interval.mean, np.std(values, ddof=1))
    self.assertLessEqual(interval.low, interval.mean)
    self.assertLessEqual(interval.mean, interval.high)

  def test_one_value_has_no_spread(self):
    self.assertTrue(np.isnan(bounds(intervals.std_interval([0.7]))).all())

  @parameterized.parameters(([],), ([1.0, np.nan],), ([[1.0, 2.0]],))
  def test_refuses_what_is_no_finite_sample(self, values):
    with self.assertRaisesRegex(ValueError, 'values'):
      intervals.std_interval(values)
