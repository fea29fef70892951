"""Tests of the linear path, against the Gaussian and the bimodal closed forms."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from lib.flow import integrate as flow
from lib.flow import losses, paths, regularizers

GAUSSIANS = (
  {'std': 0.1, 'weight': 0.01, 'terminal': 0.140720},
  {'std': 0.1, 'weight': 0.1, 'terminal': 0.316228},
  {'std': 0.5, 'weight': 0.1, 'terminal': 0.564076},
  {'std': 0.5, 'weight': 1.0, 'terminal': 0.790569},
  {'std': 0.0, 'weight': 1e-3, 'terminal': 0.0316},
  {'std': 0.0, 'weight': 1e-2, 'terminal': 0.0995},
  {'std': 0.0, 'weight': 1e-1, 'terminal': 0.3015},
)


def quadrature(mean, std, num_nodes=40):
  """Pairs (x_0, x_1) on a line, and weights that average over N(0, 1) and N(mean, std²)."""
  nodes, weights = np.polynomial.hermite_e.hermegauss(num_nodes)
  x0, z = (grid.reshape(-1, 1) for grid in np.meshgrid(nodes, nodes, indexing='ij'))
  # Of mean 1, so that a mean over the rows is the expectation.
  weights = np.outer(weights, weights).ravel() / (2 * np.pi) * num_nodes**2
  return x0, mean + std * z, weights


def normal(*shape):
  return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def column(*numbers):
  return np.array(numbers, np.float32)[:, None]


class LinearPathTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_starts_at_noise_and_ends_at_data(self):
    x0, x1 = normal(2, 5, 3)
    path = self.variant(paths.linear_path)
    start, velocity = path(x0, x1, np.zeros((5, 1), np.float32))
    end, _ = path(x0, x1, np.ones((5, 1), np.float32))
    np.testing.assert_array_equal(start, x0)
    np.testing.assert_array_equal(end, x1)
    np.testing.assert_array_equal(velocity, x1 - x0)

  def test_velocity_is_the_derivative_in_time(self):
    x0, x1 = np.random.default_rng(0).normal(size=(2, 4, 2))
    t = np.linspace(0.1, 0.9, 4)[:, None]
    (after, velocity), (before, _) = (paths.linear_path(x0, x1, t + h) for h in (0.1, -0.1))
    np.testing.assert_allclose((after - before) / 0.2, velocity, rtol=1e-9)

  def test_refuses_noise_and_data_that_do_not_fit(self):
    with self.assertRaises(AssertionError):
      paths.linear_path(np.zeros((3, 2)), np.zeros((3, 1)), np.zeros((3, 1)))


class ScoreTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_gaussian_score_in_closed_form(self):
    x = np.array([[0.7, -1.1], [0.2, 0.4], [2.0, 0.0]], np.float32)
    t, mean, std = column(0.0, 0.4, 0.9), np.array([0.3, -0.8], np.float32), 0.5
    velocity = paths.gaussian_marginal_velocity(x, t, mean, std)
    score = self.variant(paths.score_from_velocity)(velocity, x, t)
    expected = -(x - t * mean) / paths.gaussian_variance(t, std)
    np.testing.assert_allclose(score, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(t * velocity - x, (1 - t) * expected, rtol=1e-5, atol=1e-5)

  @chex.variants(with_jit=True, without_jit=True)
  def test_conversions_are_inverse(self):
    velocity, x = normal(2, 6, 3)
    t = np.linspace(0.1, 0.9, 6, dtype=np.float32)[:, None]
    score = self.variant(paths.score_from_velocity)(velocity, x, t)
    back = self.variant(paths.velocity_from_score)(score, x, t)
    np.testing.assert_allclose(back, velocity, rtol=1e-4, atol=1e-5)

  def test_bimodal_score_is_the_mixtures(self):
    # ρ_t is the mixture of N(±m t, (1 - t)²).
    mode = 0.8
    x, t = (grid.reshape(-1, 1) for grid in np.meshgrid(np.linspace(-1, 1, 5), (0.1, 0.5, 0.8)))
    with jax.enable_x64(True):
      score = jax.jit(
        lambda: paths.score_from_velocity(paths.bimodal_marginal_velocity(x, t, mode), x, t)
      )()
    likelihoods = stats.norm.pdf(x, mode * t * np.array([-1, 1]), 1 - t)
    slopes = likelihoods * (mode * t * np.array([-1, 1]) - x) / (1 - t) ** 2
    expected = slopes.sum(axis=1) / likelihoods.sum(axis=1)
    np.testing.assert_allclose(score[:, 0], expected, rtol=1e-9, atol=1e-9)

  def test_at_the_ends(self):
    x, other = np.random.default_rng(0).normal(size=(2, 3, 2))
    np.testing.assert_array_equal(paths.score_from_velocity(other, x, np.zeros((3, 1))), -x)
    np.testing.assert_array_equal(paths.velocity_from_score(other, x, np.ones((3, 1))), x)


class ConditionalDivergenceTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_is_the_divergence_of_the_field_to_one_point(self):
    t = column(0.0, 0.3, 0.5, 0.9)
    found = self.variant(lambda t: paths.conditional_divergence(t, 3))(t)
    # The field (x_1 - x) / (1 - t) is affine, so that differences are exact.
    x, x1 = np.random.default_rng(0).normal(size=(2, 4, 3))
    slopes = [(((x1 - x - e) - (x1 - x)) / (1 - t))[:, i] for i, e in enumerate(np.eye(3))]
    np.testing.assert_allclose(found, sum(slopes), rtol=1e-5)


class GaussianTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_known_numbers(self):
    x, t = column(0.7), column(0.4)
    velocity = self.variant(lambda x, t: paths.gaussian_marginal_velocity(x, t, 0.3, 0.5))(x, t)
    self.assertAlmostEqual(float(velocity[0, 0]), -0.425, places=6)
    self.assertAlmostEqual(float(paths.gaussian_rate(t, 0.5)[0, 0]), -1.25, places=6)
    score = paths.score_from_velocity(np.asarray(velocity), x, t)
    self.assertAlmostEqual(float(score[0, 0]), -1.45, places=5)

  def test_jacobian_is_the_rate_times_identity(self):
    x, t, mean = normal(4, 3), column(0.0, 0.3, 0.6, 1.0), np.array([0.3, 1.0, -2.0], np.float32)

    @jax.jit
    def jacobian(x):
      return regularizers.jacobian(lambda y: paths.gaussian_marginal_velocity(y, t, mean, 0.5), x)

    jac, rate = np.asarray(jacobian(x)), paths.gaussian_rate(t, 0.5)[:, 0]
    np.testing.assert_allclose(jac, rate[:, None, None] * np.eye(3), atol=1e-6)

  def test_variance_is_the_interpolants(self):
    x0, x1, weights = quadrature(0.3, 0.5)
    for t in (0.0, 0.25, 0.7, 1.0):
      points = (1 - t) * x0 + t * x1
      expected = np.mean(weights * points[:, 0] ** 2) - (0.3 * t) ** 2
      np.testing.assert_allclose(paths.gaussian_variance(t, 0.5), expected, rtol=1e-6)

  @parameterized.parameters((0.1, 0.0), (0.5, 0.1), (2.0, 1.0))
  def test_rate_is_half_the_logarithmic_slope_of_the_variance(self, std, weight):
    t, h = np.linspace(0.0, 1.0, 7), 1e-6
    after, before = (np.log(paths.gaussian_variance(t + s, std) + weight) for s in (h, -h))
    found = paths.gaussian_rate(t, std, weight)
    np.testing.assert_allclose(found, (after - before) / (4 * h), rtol=1e-6, atol=1e-8)

  @parameterized.parameters((0.1, 6.9325), (0.5, 0.96350), (1.0, np.pi / 2 - 1), (2.0, 0.96350))
  def test_integrals_over_the_path(self, std, square):
    nodes, weights = np.polynomial.legendre.leggauss(200)
    times, weights = (1 + nodes) / 2, weights / 2
    rates, inverse = (paths.gaussian_rate(times, s) for s in (std, 1 / std))
    np.testing.assert_allclose(weights @ rates, np.log(std), atol=1e-10)
    np.testing.assert_allclose(weights @ rates**2, square, rtol=2e-5)
    # The path to 1/σ is as steep as the one to σ.
    np.testing.assert_allclose(weights @ inverse**2, weights @ rates**2, rtol=1e-9)

  @parameterized.parameters(*GAUSSIANS)
  def test_terminal_std(self, std, weight, terminal):
    found = paths.gaussian_terminal_std(std, weight)
    self.assertAlmostEqual(found, terminal, delta=5e-5 if std == 0 else 1e-6)

    # Every deviation from the mean grows at the rate c_λ.
    growth, _ = integrate.quad(lambda t: paths.gaussian_rate(t, std, weight), 0, 1, epsabs=1e-12)
    self.assertAlmostEqual(np.exp(growth), found, places=9)

  def test_terminal_std_between_the_data_and_a_translation(self):
    self.assertEqual(paths.gaussian_terminal_std(0.5), 0.5)
    self.assertAlmostEqual(paths.gaussian_terminal_std(0.5, 1e12), 1.0, places=9)
    still = paths.gaussian_marginal_velocity(np.ones((1, 1)), np.full((1, 1), 0.4), 0.3, 0.5, 1e12)
    np.testing.assert_allclose(still, 0.3, rtol=1e-9)

  def test_regularised_velocity_is_stationary_among_all_fields(self):
    shapes = (jnp.ones_like, lambda y: y, jnp.sin, lambda y: y**3)

    def objective(coefficients, rate, weight, x0, x1, mass, t):
      x, velocity = paths.linear_path(x0, x1, t)

      def field(y):
        optimum = 0.3 + rate * (y - t * 0.3)
        return optimum + sum(c * shape(y) for c, shape in zip(coefficients, shapes, strict=True))

      fit = losses.flow_matching_loss(field(x), velocity, mass)
      return fit + weight * jnp.mean(mass * regularizers.frobenius_sq_exact(field, x))

    with jax.enable_x64(True):
      both = jax.jit(jax.value_and_grad(objective))
      for std, weight in ((0.1, 0.0), (0.5, 0.1), (0.5, 1.0), (2.0, 0.3)):
        for time in (0.0, 0.3, 0.8):
          rate = paths.gaussian_rate(time, std, weight)
          problem = (rate, weight, *quadrature(0.3, std), time)
          least, gradient = both(np.zeros(len(shapes)), *problem)
          np.testing.assert_allclose(gradient, 0.0, atol=1e-8)
          for other in 0.1 * np.eye(len(shapes)):
            self.assertGreater(float(both(other, *problem)[0]), float(least))

  @settings(max_examples=25, deadline=None)
  @given(
    time=st.floats(0, 0.99, allow_subnormal=False),
    std=st.floats(0, 3, allow_subnormal=False),
    weight=st.floats(0, 10, allow_subnormal=False),
    other=st.floats(-5, 5, allow_subnormal=False),
  )
  def test_no_other_rate_does_better(self, time, std, weight, other):
    # E (u - (x_1 - x_0))² over the Gaussian path, for u = μ + c (x - t μ), up to a constant in c.
    variance, covariance = (1 - time) ** 2 + (time * std) ** 2, time * std**2 - (1 - time)

    def objective(c):
      return c**2 * (variance + weight) - 2 * c * covariance

    best = float(paths.gaussian_rate(np.float64(time), std, weight))
    self.assertLessEqual(objective(best), objective(other) + 1e-9 * (1 + abs(objective(other))))

  @parameterized.parameters((-0.1, 0.0, 1.0), (0.5, -1e-3, 1.0), (0.5, 0.0, -1.0))
  def test_refuses_negative_numbers(self, std, weight, source_std):
    zeros = np.zeros((3, 1))
    with self.assertRaisesRegex(ValueError, 'must not be negative'):
      paths.gaussian_rate(zeros, std, weight, source_std)
    with self.assertRaisesRegex(ValueError, 'must not be negative'):
      paths.gaussian_marginal_velocity(zeros, zeros, 0.0, std, weight, 0.0, source_std)


SOURCES = ((1.0, 0.5), (0.2, 0.5), (1.0, 1.0), (2.0, 0.1))  # deviations of source and data


class GaussianToGaussianTest(chex.TestCase):
  @parameterized.parameters(*SOURCES)
  def test_velocity_is_the_regression_on_the_point(self, source_std, std):
    noise, x1, weights = quadrature(0.3, std)
    x0 = -0.7 + source_std * noise
    for time in (0.1, 0.5, 0.9):
      x, velocity = paths.linear_path(x0, x1, time)
      field = paths.gaussian_marginal_velocity(x, time, 0.3, std, 0.0, -0.7, source_std)
      gap = (velocity - field)[:, 0] * weights
      np.testing.assert_allclose([gap.mean(), (gap * x[:, 0]).mean()], 0.0, atol=1e-6)
      # What it leaves is the loss that no field goes below.
      loss = np.mean(gap * (velocity - field)[:, 0])
      np.testing.assert_allclose(loss, paths.gaussian_loss(time, std, source_std), rtol=1e-5)

  @parameterized.parameters(*SOURCES)
  def test_integral_of_the_least_loss(self, source_std, std):
    total, _ = integrate.quad(lambda t: paths.gaussian_loss(t, std, source_std), 0, 1)
    self.assertAlmostEqual(total, np.pi / 2 * source_std * std, places=6)

  @parameterized.parameters(*SOURCES[1::2])
  def test_flow_map_is_where_the_flow_ends(self, source_std, std):
    field = lambda x, t: paths.gaussian_marginal_velocity(x, t, 0.3, std, 0.0, -0.7, source_std)
    x0 = column(-3.0, -0.7, 0.1, 2.0)
    found = jax.jit(lambda x: flow.flow_map(field, x, rtol=1e-6, atol=1e-7))(x0)
    expected = paths.gaussian_flow_map(x0, 0.3, std, -0.7, source_std)
    np.testing.assert_allclose(found, expected, atol=2e-5)
    np.testing.assert_allclose(expected[1], 0.3)

  @parameterized.parameters(
    (1.0, (0.0, 0.0826, 0.1772, 0.2347, 0.2658, 0.2825, 0.2911)),
    (0.3, (0.0, 0.1500, 0.2160, 0.2552, 0.2768, 0.2882, 0.2940)),
  )
  def test_euler_steps_lose_spread_which_a_near_source_keeps(self, source_std, spreads):
    field = lambda x, t: paths.gaussian_marginal_velocity(x, t, 0.3, 0.3, 0.0, -0.7, source_std)
    x0 = -0.7 + source_std * column(0.0, 1.0)
    for steps, spread in zip((1, 2, 4, 8, 16, 32, 64), spreads, strict=True):
      x1 = jax.jit(flow.euler, static_argnums=(0, 2))(field, x0, steps)
      self.assertAlmostEqual(float(x1[0, 0]), 0.3, places=5)  # the mean, exactly
      self.assertAlmostEqual(float(x1[1, 0] - x1[0, 0]), spread, delta=1e-4)

  def test_refuses_deviations_without_a_map(self):
    for std, source_std in ((-1.0, 1.0), (1.0, 0.0)):
      with self.assertRaisesRegex(ValueError, 'source_std > 0'):
        paths.gaussian_flow_map(np.zeros((1, 1)), 0.0, std, 0.0, source_std)


class BimodalTest(chex.TestCase):
  def test_strain_between_the_modes(self):
    mode = 0.8
    # The last two lie about the root of m² t = (1 - t)² in (0, 1).
    b = 2 + mode**2
    critical = (b - np.sqrt(b**2 - 4)) / 2
    t = column(0.1, 0.5, 0.9, critical - 1e-3, critical + 1e-3)

    @jax.jit
    def strains(x):
      return regularizers.divergence_exact(lambda y: paths.bimodal_marginal_velocity(y, t, mode), x)

    found, time = np.asarray(strains(np.zeros((5, 1), np.float32))), np.float64(t[:, 0])
    expected = (mode**2 * time / (1 - time) ** 2 - 1) / (1 - time)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    np.testing.assert_allclose(found[:3], [-1.0233, 0.56, 566.0], rtol=1e-4)
    self.assertLess(found[3], 0.0)
    self.assertGreater(found[4], 0.0)

  @chex.variants(with_jit=True, without_jit=True)
  def test_is_the_mean_velocity_given_the_point(self):
    # Bayes: x_1 = ±m with the likelihood N(x; ±m t, (1 - t)²), and u = (E[x_1 | x] - x) / (1 - t).
    mode, x, t = 0.8, column(-1.5, -0.7, 0.0, 0.1, 0.9), column(0.0, 0.5, 0.9, 0.3, 0.5)
    likelihoods = stats.norm.pdf(x, t * mode * np.array([-1, 1]), 1 - t)
    mean = likelihoods @ np.array([[-mode], [mode]]) / likelihoods.sum(axis=1, keepdims=True)
    found = self.variant(lambda x, t: paths.bimodal_marginal_velocity(x, t, mode))(x, t)
    np.testing.assert_allclose(found, (mean - x) / (1 - t), rtol=1e-4, atol=1e-5)


class MixtureTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_one_component_is_a_gaussian(self):
    x, t, mean = normal(4, 3), column(0.0, 0.3, 0.6, 1.0), normal(3)
    found = self.variant(lambda x, t: paths.mixture_marginal_velocity(x, t, mean[None], 0.5))(x, t)
    expected = paths.gaussian_marginal_velocity(x, t, mean, 0.5)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)

  def test_its_score_is_that_of_the_mixtures_density(self):
    rng = np.random.default_rng(0)
    x, means, std = rng.normal(size=(6, 2)), rng.normal(size=(3, 2)), 0.4
    t = np.array([0.05, 0.2, 0.5, 0.7, 0.9, 1.0])[:, None]

    def log_density(x, t):
      gaps = jnp.sum((x - t * means) ** 2, axis=-1)
      return jax.scipy.special.logsumexp(-gaps / (2 * ((1 - t) ** 2 + (t * std) ** 2)))

    with jax.enable_x64(True):
      score = jax.vmap(jax.grad(log_density))(x, t)
      expected = paths.velocity_from_score(score, x, t)
      found = paths.mixture_marginal_velocity(x, t, means, std)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)

  def test_narrow_components_approach_the_two_points(self):
    x, t = (grid.reshape(-1, 1) for grid in np.meshgrid(np.linspace(-1, 1, 5), (0.1, 0.5, 0.9)))
    modes = np.array([[-0.8], [0.8]])
    with jax.enable_x64(True):
      expected = paths.bimodal_marginal_velocity(x, t, 0.8)
      errors = [
        np.abs(paths.mixture_marginal_velocity(x, t, modes, std) - expected).max()
        for std in (1e-2, 1e-3, 1e-4)
      ]
    # The error is of second order in σ.
    self.assertLess(errors[2], 1e-4)
    np.testing.assert_allclose(errors[:2], np.multiply(100, errors[1:]), rtol=0.5)

  @chex.variants(with_jit=True, without_jit=True)
  def test_means_of_each_row(self):
    x, t, means = normal(4, 2), column(0.0, 0.3, 0.6, 1.0), normal(4, 3, 2)
    velocity = self.variant(lambda *inputs: paths.mixture_marginal_velocity(*inputs, 0.3))
    rows = [velocity(x[i : i + 1], t[i : i + 1], means[i])[0] for i in range(4)]
    np.testing.assert_allclose(velocity(x, t, means), rows, rtol=1e-5, atol=1e-6)

  def test_is_finite_far_away(self):
    x, t = np.full((3, 2), 1e6, np.float32), column(0.0, 0.5, 1.0)
    found = paths.mixture_marginal_velocity(x, t, normal(4, 2), 0.05)
    self.assertTrue(np.isfinite(found).all())

  @parameterized.parameters(0.0, -0.1)
  def test_refuses_a_deviation_that_is_not_positive(self, std):
    with self.assertRaisesRegex(ValueError, 'std='):
      paths.mixture_marginal_velocity(np.zeros((3, 1)), np.zeros((3, 1)), np.zeros((2, 1)), std)
