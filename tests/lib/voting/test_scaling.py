"""Power laws and ratios of samples, against curves of which they are known."""

import numpy as np
from absl.testing import parameterized

from lib.voting import scaling

X = np.arange(1, 200)


class PowerLawTest(parameterized.TestCase):
  @parameterized.parameters(-0.5, -1.0, 0.25)
  def test_is_exact_on_a_power_law(self, exponent):
    law = scaling.power_law_fit([4, 6, 8, 64], 0.3 * np.array([4, 6, 8, 64.0]) ** exponent)
    np.testing.assert_allclose(law.exponent, exponent)
    np.testing.assert_allclose(law.interval, [exponent] * 2, rtol=1e-6)
    np.testing.assert_allclose((law.prefactor, law.r_squared, law.n), (0.3, 1, 4))

  def test_units_of_x_and_error_change_the_prefactor_alone(self):
    x, error = np.array([1, 2, 5, 9.0]), np.array([0.5, 0.3, 0.25, 0.1])
    law, other = scaling.power_law_fit(x, error), scaling.power_law_fit(3 * x, 7 * error)
    np.testing.assert_allclose(other.exponent, law.exponent)
    np.testing.assert_allclose(other.interval, law.interval)
    np.testing.assert_allclose(other.prefactor, 7 * law.prefactor * 3**-law.exponent)

  @parameterized.parameters(
    ([0, 1, 2], [1, 1, 1], r'x\[0\] = 0'),
    ([1, 2, 3], [1, 0, 1], r'error\[1\] = 0'),
    ([1, 2, 3], [1, 1, np.nan], r'error\[2\] = nan'),
    ([1, 2, np.inf], [1, 1, 1], r'x\[2\] = inf'),
    ([1, 2], [1, 1], ''),
    ([2, 2, 2], [1, 2, 3], ''),
    ([1, 2, 3], [1, 2], ''),
  )
  def test_refuses(self, x, error, message):
    with self.assertRaisesRegex(ValueError, message):
      scaling.power_law_fit(x, error)


class InvertTest(parameterized.TestCase):
  @parameterized.parameters(1.0, 1.7, 5.0, 23.4, 199.0)
  def test_is_exact_on_a_power_law(self, x):
    wanted = 0.4 * x**-0.6
    np.testing.assert_allclose(scaling.invert_curve(X, 0.4 * X**-0.6, wanted), x)

  def test_is_nan_beyond_the_curve(self):
    for wanted in (0.41, 0.4 * 200**-0.6):
      self.assertTrue(np.isnan(scaling.invert_curve(X, 0.4 * X**-0.6, wanted)), wanted)

  def test_takes_the_first_of_equals_and_flattens_rises(self):
    x, error = [1, 2, 4, 8, 16], [0.8, 0.2, 0.4, 0.2, 0.05]
    self.assertEqual(scaling.invert_curve(x, error, 0.2), 2)
    # From 0.2 at 8, for the rise before counts as no progress.
    np.testing.assert_allclose(scaling.invert_curve(x, error, 0.1), 8 * 2**0.5)

  def test_an_error_of_zero_ends_the_curve(self):
    found = scaling.invert_curve([1, 2, 4], [0.5, 0.25, 0.0], 0.1)
    self.assertTrue(2 <= found <= 4)

  @parameterized.parameters(
    ([1, 2], [0.5], 0.1, 'one error for each x'),
    ([], [], 0.1, 'one error for each x'),
    ([[1, 2]], [[0.5, 0.1]], 0.1, 'one error for each x'),
    ([0, 1], [0.5, 0.1], 0.2, 'ascending'),
    ([2, 1], [0.5, 0.1], 0.2, 'ascending'),
    ([1, 1], [0.5, 0.1], 0.2, 'ascending'),
    ([1, np.inf], [0.5, 0.1], 0.2, 'ascending'),
    ([1, 2], [0.5, -0.1], 0.2, 'not negative'),
    ([1, 2], [0.5, np.nan], 0.2, 'finite'),
    ([1, 2], [0.5, 0.1], 0.0, 'one to reach'),
    ([1, 2], [0.5, 0.1], np.nan, 'one to reach'),
  )
  def test_refuses(self, x, error, wanted, message):
    with self.assertRaisesRegex(ValueError, message):
      scaling.invert_curve(x, error, wanted)


class EfficiencyTest(parameterized.TestCase):
  @parameterized.parameters(0.5, 1.0, 3.0)
  def test_is_the_factor_by_which_a_curve_is_shifted(self, factor):
    error = lambda x: 0.4 * np.asarray(x, float) ** -0.6
    for x in (4.0, 11.0, 60.0):
      ratio = scaling.efficiency_ratio(x, error(factor * x), X, error(X))
      np.testing.assert_allclose(ratio, factor)

  def test_is_one_for_self_consistency(self):
    error = 1 / (1 + X.astype(float))
    for i in (0, 7, 198):
      np.testing.assert_allclose(scaling.efficiency_ratio(X[i], error[i], X, error), 1)

  @parameterized.parameters(0.0, -0.1, 0.9, 1e-9, np.nan)
  def test_is_nan_without_a_match(self, error):
    self.assertTrue(np.isnan(scaling.efficiency_ratio(8, error, X, 0.4 * X**-0.6)))
