"""Tests of the linear path, against the Gaussian and the bimodal closed forms."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

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


class LinearPathTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_starts_at_noise_and_ends_at_data(self):
    x0, x1 = jax.random.normal(jax.random.key(0), (2, 5, 3))
    path = self.variant(paths.linear_path)
    start, velocity = path(x0, x1, jnp.zeros((5, 1)))
    end, _ = path(x0, x1, jnp.ones((5, 1)))
    np.testing.assert_array_equal(start, x0)
    np.testing.assert_array_equal(end, x1)
    np.testing.assert_array_equal(velocity, x1 - x0)

  def test_velocity_is_the_derivative_in_time(self):
    x0, x1 = jax.random.normal(jax.random.key(1), (2, 4, 2))
    t = jnp.linspace(0.0, 1.0, 4)[:, None]
    (_, velocity), (slope, _) = jax.jvp(
      lambda t: paths.linear_path(x0, x1, t), (t,), (jnp.ones_like(t),)
    )
    np.testing.assert_allclose(slope, velocity, rtol=1e-6)

  def test_refuses_noise_and_data_that_do_not_fit(self):
    with self.assertRaises(AssertionError):
      paths.linear_path(jnp.zeros((3, 2)), jnp.zeros((3, 1)), jnp.zeros((3, 1)))


class ScoreTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_gaussian_score_in_closed_form(self):
    x = jnp.array([[0.7, -1.1], [0.2, 0.4], [2.0, 0.0]])
    t = jnp.array([[0.0], [0.4], [0.9]])
    mean, std = jnp.array([0.3, -0.8]), 0.5
    velocity = paths.gaussian_marginal_velocity(x, t, mean, std)
    score = self.variant(paths.score_from_velocity)(velocity, x, t)
    expected = -(x - t * mean) / paths.gaussian_variance(t, std)
    np.testing.assert_allclose(score, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(t * velocity - x, (1 - t) * expected, rtol=1e-5, atol=1e-5)

  @chex.variants(with_jit=True, without_jit=True)
  def test_conversions_are_inverse(self):
    velocity, x = jax.random.normal(jax.random.key(0), (2, 6, 3))
    t = jnp.linspace(0.1, 0.9, 6)[:, None]
    score = self.variant(paths.score_from_velocity)(velocity, x, t)
    back = self.variant(paths.velocity_from_score)(score, x, t)
    np.testing.assert_allclose(back, velocity, rtol=1e-4, atol=1e-5)

  def test_bimodal_score_is_the_mixtures(self):
    # ρ_t is the mixture of N(±m t, (1 - t)²).
    with jax.enable_x64(True):
      mode, x = 0.8, jnp.linspace(-1.5, 1.5, 7)[:, None]
      for time in (0.1, 0.5, 0.8):
        t = jnp.full_like(x, time)

        def log_density(x, time=time):
          modes = jnp.array([-mode, mode]) * time
          return jax.nn.logsumexp(jax.scipy.stats.norm.logpdf(x, modes, 1 - time))

        velocity = paths.bimodal_marginal_velocity(x, t, mode)
        np.testing.assert_allclose(
          paths.score_from_velocity(velocity, x, t)[:, 0],
          jax.vmap(jax.grad(log_density))(x[:, 0]),
          rtol=1e-9,
          atol=1e-9,
        )

  def test_end_of_the_path_needs_no_score(self):
    x, score = jax.random.normal(jax.random.key(0), (2, 3, 2))
    np.testing.assert_array_equal(paths.velocity_from_score(score, x, jnp.ones((3, 1))), x)
    np.testing.assert_array_equal(paths.score_from_velocity(score, x, jnp.zeros((3, 1))), -x)


class ConditionalDivergenceTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_is_the_divergence_of_the_field_to_one_point(self):
    x, x1 = jax.random.normal(jax.random.key(0), (2, 4, 3))
    t = jnp.array([[0.0], [0.3], [0.5], [0.9]])
    expected = regularizers.divergence_exact(lambda y: (x1 - y) / (1 - t), x)
    found = self.variant(lambda t: paths.conditional_divergence(t, 3))(t)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(found, -3 / (1 - t[:, 0]), rtol=1e-6)


class GaussianTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_known_numbers(self):
    x, t = jnp.full((1, 1), 0.7), jnp.full((1, 1), 0.4)
    velocity = self.variant(lambda x, t: paths.gaussian_marginal_velocity(x, t, 0.3, 0.5))(x, t)
    self.assertAlmostEqual(float(velocity[0, 0]), -0.425, places=6)
    self.assertAlmostEqual(float(paths.gaussian_rate(t, 0.5)[0, 0]), -1.25, places=6)
    score = paths.score_from_velocity(velocity, x, t)
    self.assertAlmostEqual(float(score[0, 0]), -1.45, places=5)

  @chex.variants(with_jit=True, without_jit=True)
  def test_jacobian_is_the_rate_times_identity(self):
    x = jax.random.normal(jax.random.key(0), (4, 3))
    t = jnp.array([[0.0], [0.3], [0.6], [1.0]])
    rate = paths.gaussian_rate(t, 0.5)[:, 0]
    jac = self.variant(
      lambda x: regularizers.jacobian(
        lambda y: paths.gaussian_marginal_velocity(y, t, jnp.array([0.3, 1.0, -2.0]), 0.5), x
      )
    )(x)
    np.testing.assert_allclose(jac, rate[:, None, None] * jnp.eye(3), atol=1e-6)
    np.testing.assert_allclose(jnp.trace(jac, axis1=1, axis2=2), 3 * rate, rtol=1e-5)
    np.testing.assert_allclose(jnp.sum(jac**2, axis=(1, 2)), 3 * rate**2, rtol=1e-5)

  def test_variance_is_the_interpolants(self):
    x0, x1, weights = quadrature(0.3, 0.5)
    for t in (0.0, 0.25, 0.7, 1.0):
      points = (1 - t) * x0 + t * x1
      expected = np.mean(weights * points[:, 0] ** 2) - (0.3 * t) ** 2
      np.testing.assert_allclose(paths.gaussian_variance(t, 0.5), expected, rtol=1e-6)

  def test_rate_is_half_the_logarithmic_slope_of_the_variance(self):
    with jax.enable_x64(True):
      t = jnp.linspace(0.0, 1.0, 7)
      for std, weight in ((0.1, 0.0), (0.5, 0.1), (2.0, 1.0)):
        slope = jax.vmap(jax.grad(lambda t: jnp.log(paths.gaussian_variance(t, std) + weight)))(t)  # noqa: B023
        np.testing.assert_allclose(paths.gaussian_rate(t, std, weight), slope / 2, rtol=1e-12)

  @parameterized.parameters((0.1, 6.9325), (0.5, 0.96350), (1.0, np.pi / 2 - 1), (2.0, 0.96350))
  def test_integrals_over_the_path(self, std, square):
    with jax.enable_x64(True):
      nodes, weights = np.polynomial.legendre.leggauss(200)
      rates = paths.gaussian_rate(jnp.asarray((1 + nodes) / 2), std)
      np.testing.assert_allclose(weights @ rates / 2, np.log(std), atol=1e-10)
      np.testing.assert_allclose(weights @ rates**2 / 2, square, rtol=2e-5)
      inverse = paths.gaussian_rate(jnp.asarray((1 + nodes) / 2), 1 / std)
      np.testing.assert_allclose(weights @ inverse**2, weights @ rates**2, rtol=1e-9)

  @parameterized.parameters(*GAUSSIANS)
  def test_terminal_std(self, std, weight, terminal):
    found = paths.gaussian_terminal_std(std, weight)
    self.assertAlmostEqual(found, terminal, delta=5e-5 if std == 0 else 1e-6)

    def rate(t):
      return (t * std**2 - (1 - t)) / ((1 - t) ** 2 + (t * std) ** 2 + weight)

    # Every deviation from the mean grows at the rate c_λ.
    growth, _ = integrate.quad(rate, 0, 1, epsabs=1e-12)
    self.assertAlmostEqual(np.exp(growth), found, places=9)
    with jax.enable_x64(True):
      t = jnp.linspace(0.0, 1.0, 5)
      np.testing.assert_allclose(paths.gaussian_rate(t, std, weight), rate(np.asarray(t)))

  def test_terminal_std_between_the_data_and_a_translation(self):
    self.assertEqual(paths.gaussian_terminal_std(0.5), 0.5)
    self.assertAlmostEqual(paths.gaussian_terminal_std(0.5, 1e12), 1.0, places=9)
    x, t = jnp.ones((1, 1)), jnp.full((1, 1), 0.4)
    still = paths.gaussian_marginal_velocity(x, t, 0.3, 0.5, 1e12)
    np.testing.assert_allclose(still, 0.3, rtol=1e-6)

  @parameterized.parameters((0.1, 0.0), (0.5, 0.1), (0.5, 1.0), (2.0, 0.3))
  def test_regularised_velocity_is_stationary_among_all_fields(self, std, weight):
    with jax.enable_x64(True):
      x0, x1, mass = (jnp.asarray(a) for a in quadrature(0.3, std))
      shapes = (jnp.ones_like, lambda y: y, jnp.sin, jnp.cos, lambda y: y**3)

      @jax.jit
      def objective(coefficients, time):
        t = jnp.full_like(x0, time)
        x, velocity = paths.linear_path(x0, x1, t)

        def field(y):
          optimum = paths.gaussian_marginal_velocity(y, t, 0.3, std, weight)
          return optimum + sum(c * shape(y) for c, shape in zip(coefficients, shapes, strict=True))

        fit = losses.flow_matching_loss(field(x), velocity, mass)
        penalty = jnp.mean(mass * regularizers.frobenius_sq_exact(field, x))
        return fit + weight * penalty

      at = jnp.zeros(len(shapes))
      for time in (0.0, 0.3, 0.8):
        np.testing.assert_allclose(jax.grad(objective)(at, time), 0.0, atol=1e-9)
      for i in range(len(shapes)):
        self.assertGreater(float(objective(at.at[i].set(0.1), 0.3)), float(objective(at, 0.3)))

  @settings(max_examples=25, deadline=None)
  @given(
    time=st.floats(0, 0.99), std=st.floats(0, 3), weight=st.floats(0, 10), other=st.floats(-5, 5)
  )
  def test_no_other_rate_does_better(self, time, std, weight, other):
    # E (u - (x_1 - x_0))² over the Gaussian path, for u = μ + c (x - t μ), up to a constant in c.
    variance, covariance = (1 - time) ** 2 + (time * std) ** 2, time * std**2 - (1 - time)

    def objective(c):
      return c**2 * (variance + weight) - 2 * c * covariance

    best = float(paths.gaussian_rate(np.float64(time), std, weight))
    self.assertLessEqual(objective(best), objective(other) + 1e-9 * (1 + abs(objective(other))))

  @parameterized.parameters((-0.1, 0.0), (0.5, -1e-3))
  def test_refuses_negative_numbers(self, std, weight):
    with self.assertRaisesRegex(ValueError, 'must not be negative'):
      paths.gaussian_rate(jnp.zeros(3), std, weight)
    with self.assertRaisesRegex(ValueError, 'must not be negative'):
      paths.gaussian_marginal_velocity(jnp.zeros((3, 1)), jnp.zeros((3, 1)), 0.0, std, weight)


class BimodalTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  @parameterized.parameters((0.1, -1.0233), (0.5, 0.56), (0.9, 566.0))
  def test_strain_between_the_modes(self, time, expected):
    t = jnp.full((1, 1), time)
    strain = self.variant(
      lambda x: regularizers.divergence_exact(
        lambda y: paths.bimodal_marginal_velocity(y, t, 0.8), x
      )
    )(jnp.zeros((1, 1)))
    np.testing.assert_allclose(strain, (0.64 * time / (1 - time) ** 2 - 1) / (1 - time), rtol=1e-4)
    np.testing.assert_allclose(strain, expected, rtol=1e-4)

  def test_separates_once_the_modes_are_further_apart_than_wide(self):
    mode = 0.8
    # The root of m² t = (1 - t)² in (0, 1).
    b = 2 + mode**2
    critical = (b - np.sqrt(b**2 - 4)) / 2
    t = jnp.array([[critical - 1e-3], [critical + 1e-3]])
    before, after = regularizers.divergence_exact(
      lambda y: paths.bimodal_marginal_velocity(y, t, mode), jnp.zeros((2, 1))
    )
    self.assertLess(float(before), 0.0)
    self.assertGreater(float(after), 0.0)

  def test_is_the_mean_velocity_given_the_point(self):
    # Bayes: x_1 = ±m with the likelihood N(x; ±m t, (1 - t)²), and u = (E[x_1 | x] - x) / (1 - t).
    mode, x = 0.8, np.linspace(-1.5, 1.5, 7)[:, None]
    for time in (0.0, 0.5, 0.9):
      likelihood = stats.norm.pdf(x, time * mode * np.array([-1, 1]), 1 - time)
      posterior = likelihood / likelihood.sum(axis=1, keepdims=True)
      mean = mode * (posterior[:, 1:] - posterior[:, :1])
      np.testing.assert_allclose(
        paths.bimodal_marginal_velocity(jnp.asarray(x), jnp.full((7, 1), time), mode),
        (mean - x) / (1 - time),
        rtol=1e-4,
        atol=1e-5,
      )
