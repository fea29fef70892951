"""Tests of the laws of times, against integrals by scipy and by quadrature."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from scipy import integrate, stats

from lib.diffusion import losses, times
from lib.diffusion import sde as sdes

PROCESSES = {
  'vp': sdes.vp(),
  'slow vp': sdes.vp(1.0, 1.0, 3.0),
  'sub-vp': sdes.sub_vp(),
  've': sdes.ve(),
  'cosine': sdes.cosine(),
}
STARTS = (1e-5, 1e-3, 0.1)
EXPONENTS = (0.0, 0.5, 1.0, 2.0)
NODES, WEIGHTS = np.polynomial.legendre.leggauss(200)
U, WEIGHTS = ((1 + NODES) / 2).astype(np.float32), WEIGHTS / 2  # a mean over [0, 1]
ENDS = np.concatenate([[0.0], U, [1.0]]).astype(np.float32)


class StratifiedTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_one_in_each_stratum_and_uniform_together(self):
    num, strata = 4000, 5
    u = self.variant(lambda key: times.stratified(key, (2, num // 2, strata)))(jax.random.key(0))
    self.assertEqual((u.shape, u.dtype), ((2, num // 2, strata), np.float32))
    u = np.asarray(u, np.float64).reshape(num, strata)
    self.assertGreater(len(np.unique(u)), 0.99 * u.size)
    np.testing.assert_array_equal(np.floor(u * strata), np.tile(np.arange(strata), (num, 1)))
    # Uniform within each stratum, hence uniform as a whole.
    for inside in (u * strata - np.arange(strata)).T:
      self.assertGreater(stats.kstest(inside, stats.uniform.cdf).pvalue, 1e-3)
    # The strata's averages vary by 1/12 K³, against 1/12 K of independent numbers.
    average = u.mean(axis=1)
    variance = 1 / (12 * strata**3)
    self.assertAlmostEqual(average.mean(), 0.5, delta=5 * np.sqrt(variance / num))
    self.assertAlmostEqual(average.var() / variance, 1.0, delta=5 * np.sqrt(2 / num))


class UniformTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_is_affine(self):
    sde = sdes.vp(horizon=2.0)
    t = self.variant(lambda u: times.uniform_times(sde, u, 0.5))(ENDS)
    np.testing.assert_allclose(t, 0.5 + 1.5 * ENDS, rtol=1e-6)


class ImportanceTest(chex.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()

    def draw(sde, start):
      t = times.importance_times(sde, ENDS, start)
      slope = jax.vmap(jax.grad(lambda u: times.importance_times(sde, u, start)))(ENDS[1:-1])
      weight = losses.likelihood_weights(sde, t)
      geometric = jnp.exp(jnp.log(start) + U * jnp.log(sde.horizon / start))
      integrand = geometric * losses.likelihood_weights(sde, geometric)
      return t, slope, weight, times.importance_normalizer(sde, start), integrand

    found = jax.jit(
      lambda: {(n, start): draw(sde, start) for n, sde in PROCESSES.items() for start in STARTS}
    )()
    cls.found = {key: [np.asarray(a) for a in value] for key, value in found.items()}

  @parameterized.product(name=tuple(PROCESSES), start=STARTS)
  def test_from_start_to_horizon(self, name, start):
    t, *_ = self.found[name, start]
    # A time of 1e-5 stands beside VE's least noise, and its log SNR rounds it.
    self.assertAlmostEqual(float(t[0]), start, delta=1e-5 * start + 6e-8)
    self.assertAlmostEqual(float(t[-1]) / PROCESSES[name].horizon, 1.0, places=5)
    self.assertTrue((np.diff(t) >= 0).all())
    self.assertTrue((t >= np.float32(start)).all())
    self.assertTrue((t <= np.float32(PROCESSES[name].horizon)).all())

  @parameterized.product(name=tuple(PROCESSES), start=STARTS)
  def test_density(self, name, start):
    # dt/du is one over the density g²/(σ² Z).
    _, slope, weight, normalizer, _ = self.found[name, start]
    np.testing.assert_allclose(slope * weight[1:-1] / normalizer, 1.0, rtol=2e-3)

  @parameterized.product(name=tuple(PROCESSES), start=STARTS)
  def test_stands_for_uniform_times(self, name, start):
    # E[Z f(t) σ²/g²] = ∫ f dt.
    t, _, weight, normalizer, _ = self.found[name, start]
    horizon = PROCESSES[name].horizon
    for f, whole in (
      (np.ones_like, lambda t: t),
      (lambda t: np.cos(3 * t), lambda t: np.sin(3 * t) / 3),
    ):
      average = WEIGHTS @ (normalizer * f(t[1:-1]) / weight[1:-1])
      self.assertAlmostEqual(average, whole(horizon) - whole(start), places=4)

  @parameterized.product(name=tuple(PROCESSES), start=STARTS)
  def test_normalizer_is_the_integral_of_the_weights(self, name, start):
    *_, normalizer, integrand = self.found[name, start]
    integral = np.log(PROCESSES[name].horizon / start) * WEIGHTS @ integrand
    self.assertAlmostEqual(float(normalizer) / integral, 1.0, places=4)

  @chex.variants(with_jit=True)
  def test_each_row_may_have_its_start(self):
    sde, starts = sdes.vp(), np.array([[1e-5], [1e-3], [0.1]], np.float32)
    t = self.variant(lambda u, start: times.importance_times(sde, u, start))(ENDS, starts)
    normalizer = self.variant(lambda start: times.importance_normalizer(sde, start))(starts)
    for row, start in enumerate(STARTS):
      np.testing.assert_allclose(t[row], self.found['vp', start][0], rtol=1e-5)
      np.testing.assert_allclose(normalizer[row, 0], self.found['vp', start][3], rtol=1e-6)


class SoftTruncationTest(chex.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.sde, cls.start = sdes.vp(), 1e-2
    sde, start = cls.sde, cls.start

    def draw(exponent):
      earliest = times.soft_truncation(sde, ENDS, start, exponent)
      column = earliest[1:-1, None]
      t = times.importance_times(sde, ENDS[None, 1:-1], column)
      return earliest, t, times.importance_normalizer(sde, column)

    cls.found = jax.tree.map(np.asarray, jax.jit(lambda: {k: draw(k) for k in EXPONENTS})())

  def distribution(self, exponent):
    """P(τ < t) on a fine grid of log t, by the trapezoidal rule."""
    logs = np.linspace(np.log(self.start), 0.0, 20_001)
    mass = integrate.cumulative_trapezoid(np.exp((1 - exponent) * logs), logs, initial=0)
    return lambda t: np.interp(np.log(t), logs, mass / mass[-1])

  @parameterized.parameters(*EXPONENTS)
  def test_distribution_function(self, exponent):
    earliest = self.found[exponent][0]
    self.assertTrue((np.diff(earliest) > 0).all())
    np.testing.assert_allclose(self.distribution(exponent)(earliest), ENDS, atol=2e-6)
    np.testing.assert_allclose(earliest[[0, -1]], [self.start, 1.0], rtol=2e-5)

  @chex.variants(with_jit=True, without_jit=True)
  def test_known_laws(self):
    # k = 0 is uniform, k = 1 uniform in log τ, k = 2 uniform in 1/τ.
    sde, start, u = sdes.vp(horizon=2.0), 0.1, ENDS
    draw = self.variant(lambda u: [times.soft_truncation(sde, u, start, k) for k in (0, 1, 2)])
    uniform, logarithmic, inverse = draw(u)
    np.testing.assert_allclose(uniform, start + u * 1.9, rtol=1e-5)
    np.testing.assert_allclose(logarithmic, 2.0 * (start / 2.0) ** (1 - u), rtol=1e-5)
    np.testing.assert_allclose(1 / inverse, 10 - u * 9.5, rtol=1e-5)

  def test_nearly_one_is_one(self):
    # τ/τ_1 = 1 + (k - 1) u (1 - u) log²(T/start)/2 + ...
    one = times.soft_truncation(self.sde, ENDS, 1e-5, 1.0)
    for power in (1e-4, -1e-5, 1e-6, 1e-12):
      near = times.soft_truncation(self.sde, ENDS, 1e-5, 1.0 + power)
      expected = one * np.exp(-power * ENDS * (1 - ENDS) * np.log(1e5) ** 2 / 2)
      np.testing.assert_allclose(near, expected, rtol=1e-5)

  def test_steep_laws_stay_in_the_interval(self):
    found = times.soft_truncation(self.sde, np.float32([0.0, 0.5, 1.0]), 1e-5, 50.0)
    np.testing.assert_allclose(found, [1e-5, 1e-5 * 0.5 ** (-1 / 49), 1.0], rtol=1e-5)

  @parameterized.parameters(*EXPONENTS)
  def test_weighs_the_likelihood_by_the_truncations_distribution(self, exponent):
    # E_τ ½∫_τ^T (g²/σ²) h dt = ½∫ (g²/σ²) P(τ < t) h dt, for errors h(t) of a network.
    errors = lambda t: np.cos(2 * t) ** 2
    _, t, normalizer = self.found[exponent]
    truncated = WEIGHTS @ (normalizer[:, 0] / 2 * (errors(t) @ WEIGHTS))
    logs = np.linspace(np.log(self.start), 0.0, 20_001)
    grid = np.exp(logs)
    weights = (0.1 + 19.9 * grid) / -np.expm1(-0.1 * grid - 9.95 * grid**2)
    integrand = grid * weights / 2 * errors(grid) * self.distribution(exponent)(grid)
    np.testing.assert_allclose(truncated, integrate.trapezoid(integrand, logs), rtol=1e-4)


class RefusalTest(chex.TestCase):
  @parameterized.parameters(0, 0.0, -1.0, 1.0, 2.0, float('nan'))
  def test_starts(self, bad):
    for call in (
      lambda: times.uniform_times(sdes.vp(), jnp.zeros(2), bad),
      lambda: times.importance_times(sdes.vp(), jnp.zeros(2), bad),
      lambda: times.soft_truncation(sdes.vp(), jnp.zeros(2), bad),
    ):
      with self.assertRaisesRegex(ValueError, r'must lie in \(0, 1.0\)'):
        call()

  @parameterized.parameters(-0.5, float('nan'))
  def test_exponents(self, bad):
    with self.assertRaisesRegex(ValueError, 'exponent must not be negative'):
      times.soft_truncation(sdes.vp(), jnp.zeros(2), 0.1, bad)
