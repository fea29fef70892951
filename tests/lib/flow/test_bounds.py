"""Tests of the bounds on how far two flows end from one another."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lib.flow import bounds, paths

EXAMPLE = np.array([[1.0, 2.0], [3.0, 4.0]])
MATRICES = hnp.arrays(
  np.float64, (3, 3), elements=st.floats(-10, 10, width=32, allow_subnormal=False)
)


@jax.jit
def norms(jac):
  x = jnp.zeros((2, jac.shape[0]))  # two starts of the iteration

  def f(x):
    return x @ jac.T

  return (
    bounds.spectral_norm_power_iteration(f, x, jax.random.key(0), 1),
    bounds.spectral_norm_power_iteration(f, x, jax.random.key(0), 60),
    bounds.logarithmic_norm(f, x),
  )


class NormsTest(chex.TestCase):
  @settings(max_examples=20, deadline=None)
  @given(jac=MATRICES)
  def test_order(self, jac):
    with jax.enable_x64(True):
      once, often, rates = map(np.asarray, norms(jac))
    spectral, frobenius = np.linalg.norm(jac, 2), np.linalg.norm(jac)
    slack = 1e-9 * (1 + frobenius)
    np.testing.assert_allclose(rates, np.linalg.eigvalsh(jac + jac.T)[-1] / 2, atol=slack)
    self.assertLessEqual(rates.max(), spectral + slack)
    self.assertLessEqual(spectral, frobenius + slack)
    # From below, and further iterations only improve.
    self.assertTrue((once <= often + slack).all())
    self.assertTrue((often <= spectral + slack).all())
    # What is missing after k steps is small, however close the two largest singular values are.
    self.assertTrue((often >= 0.9 * spectral - slack).all())

  def test_converges_to_the_largest_singular_value(self):
    left, right = (np.linalg.qr(m)[0] for m in np.random.default_rng(0).normal(size=(2, 3, 3)))
    jac = left @ np.diag([2.0, 1.0, 0.5]) @ right
    with jax.enable_x64(True):
      _, often, _ = norms(jac)
    np.testing.assert_allclose(often, 2.0, rtol=1e-12)

  @chex.variants(with_jit=True)
  def test_each_row_has_its_own_norm(self):
    # The Jacobian of sin(s x) is s cos(s x), on the diagonal.
    x = np.float32([[0.1, 0.4], [1.0, -2.0], [0.0, 3.0]])
    slopes = 2 * np.cos(2 * x)

    def both(x, key):
      def f(x):
        return jnp.sin(2 * x)

      return bounds.spectral_norm_power_iteration(f, x, key, 100), bounds.logarithmic_norm(f, x)

    spectral, rates = self.variant(both)(x, jax.random.key(1))
    np.testing.assert_allclose(spectral, np.abs(slopes).max(axis=1), rtol=1e-4)
    np.testing.assert_allclose(rates, slopes.max(axis=1), rtol=1e-4)

  def test_where_nothing_stretches(self):
    with jax.enable_x64(True):
      once, often, rates = map(np.asarray, norms(np.zeros((3, 3))))
      _, _, contracting = norms(-np.diag([1.0, 2.0, 3.0]))
      _, turning, stretch = norms(np.array([[0.0, -2.0, 0], [2.0, 0.0, 0], [0, 0, 0]]))
    np.testing.assert_array_equal([once, often, rates], 0.0)
    np.testing.assert_allclose(contracting, -1.0)
    # A rotation moves fast and separates nothing.
    np.testing.assert_allclose(turning, 2.0)
    np.testing.assert_allclose(stretch, 0.0, atol=1e-12)

  def test_refuses_no_iterations(self):
    for number in (0, -2):
      with self.assertRaisesRegex(ValueError, f'num_iterations={number}'):
        bounds.spectral_norm_power_iteration(
          lambda x: x, np.zeros((2, 2)), jax.random.key(0), number
        )


@jax.jit
def both_bounds(rates, errors, times):
  return (
    bounds.wasserstein_gronwall_bound(rates, errors, times),
    bounds.wasserstein_gronwall_bound(jnp.abs(rates), errors, times),
    bounds.wasserstein_exponential_bound(jnp.abs(rates), errors, times),
  )


class WassersteinTest(chex.TestCase):
  times = np.linspace(0, 1, 1001)

  def gaussian(self, std, weight, times):
    """Rates and errors of the regularised optimum against the field of N(μ, σ²)."""
    rates = paths.gaussian_rate(times, std, weight)
    gap = np.abs(paths.gaussian_rate(times, std) - rates)
    return rates, gap * np.sqrt(paths.gaussian_variance(times, std))

  def test_known_numbers(self):
    times = np.linspace(0, 1, 20_001)
    rates, errors = self.gaussian(0.5, 0.1, times)
    largest = np.abs(rates).max()
    self.assertAlmostEqual(largest, 1.020621, places=6)
    with jax.enable_x64(True):
      one_sided, lipschitz, crude = both_bounds(rates, errors, times)
      # One Lipschitz constant for all times is cruder still.
      _, _, crudest = both_bounds(np.full_like(rates, largest), errors, times)
    distance = paths.gaussian_terminal_std(0.5, 0.1) - 0.5
    np.testing.assert_allclose(
      [distance, one_sided, lipschitz, crudest], [0.064076, 0.097984, 0.159401, 0.337128], atol=1e-6
    )
    self.assertBetween(float(crude), float(lipschitz), float(crudest))

  @settings(max_examples=20, deadline=None)
  @given(std=st.floats(0.05, 3), weight=st.floats(0, 10, allow_subnormal=False))
  def test_bounds_the_distance_of_two_gaussians(self, std, weight):
    with jax.enable_x64(True):
      found = np.asarray(both_bounds(*self.gaussian(std, weight, self.times), self.times))
    # Both ends are Gaussian with one mean.
    distances = np.array([abs(paths.gaussian_terminal_std(std, weight) - std), *found])
    self.assertTrue((np.diff(distances) >= -1e-4 * (1 + distances[1:])).all(), distances)

  @settings(max_examples=20, deadline=None)
  @given(
    rates=hnp.arrays(np.float64, 8, elements=st.floats(-5, 5, allow_subnormal=False)),
    errors=hnp.arrays(np.float64, 8, elements=st.floats(0, 5, allow_subnormal=False)),
    gaps=hnp.arrays(np.float64, 7, elements=st.floats(0.01, 1)),
  )
  def test_order_on_any_grid(self, rates, errors, gaps):
    times = np.concatenate([[0.0], np.cumsum(gaps) / gaps.sum()])
    with jax.enable_x64(True):
      one_sided, lipschitz, crude = map(float, both_bounds(rates, errors, times))
    self.assertLessEqual(0.0, one_sided)
    # Squares of tiny errors underflow.
    self.assertLessEqual(one_sided, lipschitz * (1 + 1e-9) + 1e-100)
    self.assertLessEqual(lipschitz, crude * (1 + 1e-9) + 1e-100)

  @chex.variants(with_jit=True)
  def test_tight_for_a_constant_push_against_a_linear_field(self):
    # u* = ℓ x + ε and u = ℓ x end (e^ℓ - 1) ε / ℓ apart, wherever they start.
    rate, error, times = 0.7, 0.2, np.linspace(0, 1, 201, dtype=np.float32)
    bound = self.variant(bounds.wasserstein_gronwall_bound)
    for sign in (1.0, -1.0):
      found = bound(np.full_like(times, sign * rate), np.full_like(times, error), times)
      np.testing.assert_allclose(found, np.expm1(sign * rate) / (sign * rate) * error, rtol=1e-4)

  @chex.variants(with_jit=True)
  def test_exponential_bound_of_constants(self):
    times = np.linspace(0, 1, 201, dtype=np.float32)
    found = self.variant(bounds.wasserstein_exponential_bound)(
      np.full_like(times, 0.7), np.full_like(times, 0.2), times
    )
    np.testing.assert_allclose(found, np.exp(0.7) * 0.2, rtol=1e-5)

  def test_refuses_grids_that_do_not_fit(self):
    for bound in (bounds.wasserstein_gronwall_bound, bounds.wasserstein_exponential_bound):
      with self.assertRaises(AssertionError):
        bound(np.ones(3), np.ones(3), np.linspace(0, 1, 4))
