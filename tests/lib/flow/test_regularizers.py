"""Tests of the penalties on the Jacobian, and of the continuity equation they come from.

Estimates are averaged over every sign vector there is, which makes means and variances exact.
"""

import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lib.flow import paths, regularizers

DIM = 3
SIGNS = np.array(list(itertools.product((-1.0, 1.0), repeat=DIM)))
POINTS = np.random.default_rng(1).normal(size=(4, DIM)).astype(np.float32)
MIXING = np.random.default_rng(0).normal(size=(DIM, DIM)).astype(np.float32)
EXAMPLE = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
MATRICES = hnp.arrays(
  np.float64, (DIM, DIM), elements=st.floats(-10, 10, width=32, allow_subnormal=False)
)


def curved(x):
  """A smooth map, row by row, whose Jacobian varies and is not symmetric."""
  return jnp.sin(x @ MIXING) + x * jnp.roll(x, 1, axis=-1)


def dealt(*tables):
  """A law of probes that deals out the given ones: row i of a batch gets row i of the table."""
  draws = iter(tables)
  return lambda key, shape, dtype: jnp.broadcast_to(jnp.asarray(next(draws), dtype), shape)


@jax.jit
def exact(jac):
  def f(x):
    return x @ jac.T

  x = jnp.zeros((1, DIM))
  return tuple(
    quantity(f, x)[0]
    for quantity in (
      regularizers.frobenius_sq_exact,
      regularizers.strain_sq_exact,
      regularizers.divergence_exact,
    )
  )


@jax.jit
def estimates(jac, target):
  """One estimate a sign vector, and of the squared divergence one a pair of them."""

  def f(x):
    return x @ jac.T

  key, num = jax.random.key(0), len(SIGNS)
  x = jnp.zeros((num, DIM))
  pairs = np.repeat(SIGNS, num, axis=0), np.tile(SIGNS, (num, 1))
  return (
    regularizers.frobenius_sq_hutchinson(f, x, key, probe=dealt(SIGNS)),
    regularizers.strain_sq_hutchinson(f, x, key, probe=dealt(SIGNS)),
    regularizers.divergence_hutchinson(f, x, key, probe=dealt(SIGNS)),
    regularizers.divergence_sq_hutchinson(
      f, jnp.zeros((num**2, DIM)), key, target=target, probe=dealt(*pairs)
    ),
  )


class ExactTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_jacobian_agrees_with_jacfwd_row_by_row(self):
    found = self.variant(lambda x: regularizers.jacobian(curved, x))(POINTS)
    expected = jax.jit(jax.vmap(jax.jacfwd(lambda x: curved(x[None])[0])))(POINTS)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)

  @settings(max_examples=20, deadline=None)
  @given(jac=MATRICES)
  def test_identities_and_inequalities(self, jac):
    with jax.enable_x64(True):
      frobenius, strain, divergence = map(float, exact(jac))
    slack = 1e-9 * (1 + frobenius)
    self.assertAlmostEqual(frobenius, np.linalg.norm(jac) ** 2, delta=slack)
    self.assertAlmostEqual(divergence, np.trace(jac), delta=slack)
    self.assertAlmostEqual(strain, (frobenius + np.trace(jac @ jac)) / 2, delta=slack)
    self.assertLessEqual(divergence**2, DIM * frobenius + slack)
    self.assertLessEqual(np.linalg.norm(jac, 2) ** 2, frobenius + slack)
    self.assertLessEqual(strain, frobenius + slack)
    self.assertLessEqual(divergence**2, DIM * strain + slack)

  def test_a_rotation_neither_strains_nor_expands(self):
    with jax.enable_x64(True):
      turn = np.array([[0.0, -2.0, 1.0], [2.0, 0.0, 0.5], [-1.0, -0.5, 0.0]])
      frobenius, strain, divergence = exact(turn)
    self.assertAlmostEqual(float(frobenius), 10.5)
    self.assertEqual((float(strain), float(divergence)), (0.0, 0.0))


class EstimateTest(chex.TestCase):
  @settings(max_examples=20, deadline=None)
  @given(jac=MATRICES, target=st.floats(-5, 5, allow_subnormal=False))
  def test_unbiased_over_all_probes(self, jac, target):
    with jax.enable_x64(True):
      frobenius, strain, divergence, squares = map(np.asarray, estimates(jac, target))
    trace, gram = np.trace(jac), jac.T @ jac
    slack = 1e-9 * (1 + np.linalg.norm(jac) ** 4)
    self.assertAlmostEqual(frobenius.mean(), np.trace(gram), delta=slack)
    self.assertAlmostEqual(strain.mean(), np.linalg.norm(jac + jac.T) ** 2 / 4, delta=slack)
    self.assertAlmostEqual(divergence.mean(), trace, delta=slack)
    self.assertAlmostEqual(squares.mean(), (trace - target) ** 2, delta=slack)
    # The variances, and the bias that the square of one probe's trace would have.
    off_diagonal = np.sum(gram**2) - np.sum(np.diag(gram) ** 2)
    self.assertAlmostEqual(frobenius.var(), 2 * off_diagonal, delta=slack)
    symmetric = (jac + jac.T) / 2
    excess = 2 * (np.sum(symmetric**2) - np.sum(np.diag(jac) ** 2))
    self.assertAlmostEqual(np.mean(divergence**2) - trace**2, excess, delta=slack)

  def test_strain_estimate_may_be_negative(self):
    steep = np.array([[1.0, 3.0, 0.0], [-3.0, -1.0, 0.0], [0.0, 0.0, 0.0]])
    with jax.enable_x64(True):
      strain = np.asarray(estimates(steep, 0.0)[1])
    self.assertAlmostEqual(strain.mean(), 2.0)
    self.assertLess(strain.min(), 0.0)

  def test_exact_for_orthogonal_columns(self):
    # JᵀJ is diagonal: then, and only then, one sign vector is enough.
    jac = np.array([[2.0, 1.0, 0.0], [2.0, -1.0, 0.0], [0.0, 0.0, 3.0]])
    with jax.enable_x64(True):
      diagonal, slanted = (np.asarray(estimates(j, 0.0)[0]) for j in (jac, jac.T + np.eye(3)))
    np.testing.assert_allclose(diagonal, 19.0, rtol=1e-12)
    self.assertGreater(slanted.std(), 1.0)

  def test_known_mean_and_variances(self):
    # A rule of three nodes a dimension integrates a quartic of Gaussian probes exactly.
    nodes, masses = np.polynomial.hermite_e.hermegauss(3)
    normals = np.array(list(itertools.product(nodes, repeat=2)))
    masses = np.array([a * b for a, b in itertools.product(masses, repeat=2)]) / (2 * np.pi)
    pairs = np.array(list(itertools.product((-1.0, 1.0), repeat=2)))

    @jax.jit
    def sample():
      return [
        regularizers.frobenius_sq_hutchinson(
          lambda x: x @ EXAMPLE.T, jnp.zeros(p.shape), jax.random.key(0), probe=dealt(p)
        )
        for p in (pairs, normals)
      ]

    rademacher, gaussian = map(np.asarray, sample())
    self.assertEqual((rademacher.mean(), rademacher.var()), (30.0, 784.0))
    np.testing.assert_allclose(masses @ gaussian, 30.0, rtol=1e-5)
    np.testing.assert_allclose(masses @ (gaussian - 30.0) ** 2, 1784.0, rtol=1e-5)

  @chex.variants(with_jit=True)
  def test_default_probes_are_independent_signs(self):
    x = np.zeros((2048, 2), np.float32)

    def sample(x, key):
      def f(x):
        return x @ EXAMPLE.T

      return (
        regularizers.frobenius_sq_hutchinson(f, x, key),
        regularizers.divergence_sq_hutchinson(f, x, key),
        regularizers.frobenius_sq_hutchinson(f, x, key, probe=jax.random.normal),
      )

    single, pair, gaussian = map(np.asarray, self.variant(sample)(x, jax.random.key(0)))
    self.assertEqual(set(single.tolist()), {2.0, 58.0})
    # εᵀ J ε is 0 or 10. One probe taken twice would average 50.
    self.assertEqual(set(pair.tolist()), {0.0, 100.0})
    for values, mean, variance in (
      (single, 30.0, 784.0),
      (pair, 25.0, 1875.0),
      (gaussian, 30.0, 1784.0),
    ):
      self.assertAlmostEqual(values.mean(), mean, delta=5 * np.sqrt(variance / len(x)))

  def test_averages_over_probes_and_returns_the_velocity(self):
    signs = SIGNS[:, None, :]  # all of them for each row

    @jax.jit
    def sample(x, key):
      num = len(SIGNS)
      return (
        curved(x),
        *regularizers.velocity_and_frobenius_sq(curved, x, key, num, dealt(signs)),
        regularizers.strain_sq_hutchinson(curved, x, key, num, dealt(signs)),
        regularizers.divergence_hutchinson(curved, x, key, num, dealt(signs)),
        regularizers.frobenius_sq_exact(curved, x),
        regularizers.strain_sq_exact(curved, x),
        regularizers.divergence_exact(curved, x),
      )

    values, velocity, *found, frobenius, strain, divergence = sample(POINTS, jax.random.key(0))
    np.testing.assert_allclose(velocity, values, rtol=1e-6)
    for estimate, expected in zip(found, (frobenius, strain, divergence), strict=True):
      chex.assert_shape(estimate, (len(POINTS),))
      np.testing.assert_allclose(estimate, expected, rtol=1e-4, atol=1e-4)

  def test_target_may_differ_by_row(self):
    target = np.array([0.0, -2.0, 5.0, 1.0], np.float32)

    @jax.jit
    def sample(x, key):
      # One dimension: every probe is exact.
      return regularizers.divergence_sq_hutchinson(
        lambda x: 3.0 * x, x, key, 2, target, dealt(1.0, -1.0)
      )

    found = sample(np.zeros((4, 1), np.float32), jax.random.key(0))
    np.testing.assert_allclose(found, (3.0 - target) ** 2)

  def test_can_be_trained_on(self):
    # ‖∂(θ sin x)/∂x‖_F² = θ² Σ cos² x, exact for a diagonal Jacobian.
    @jax.jit
    def slope(theta, key):
      def loss(theta):
        return jnp.sum(
          regularizers.frobenius_sq_hutchinson(
            lambda x: theta * jnp.sin(x), POINTS, key, probe=dealt(SIGNS[:4])
          )
        )

      return jax.grad(loss)(theta)

    found = slope(np.float32(0.7), jax.random.key(0))
    np.testing.assert_allclose(found, 2 * 0.7 * np.sum(np.cos(POINTS) ** 2), rtol=1e-5)

  @parameterized.parameters(0, -1)
  def test_refuses_no_probes(self, number):
    for estimate in (
      regularizers.velocity_and_frobenius_sq,
      regularizers.frobenius_sq_hutchinson,
      regularizers.strain_sq_hutchinson,
      regularizers.divergence_hutchinson,
      regularizers.divergence_sq_hutchinson,
    ):
      with self.assertRaisesRegex(ValueError, f'got {number}'):
        estimate(lambda x: x, POINTS, jax.random.key(0), number)


class MaterialDerivativeTest(chex.TestCase):
  @chex.variants(with_jit=True)
  def test_gaussian_in_closed_form(self):
    mean, std = 0.3, 0.5
    x, t = np.float32([[0.7], [-1.0], [0.2]]), np.float32([[0.4], [0.0], [0.9]])

    def acceleration(x, t):
      return regularizers.material_derivative(
        lambda x, t: paths.gaussian_marginal_velocity(x, t, mean, std), x, t
      )

    found = self.variant(acceleration)(x, t)
    expected = std**2 / paths.gaussian_variance(t, std) ** 2 * (x - t * mean)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(found[0], 0.90625, rtol=1e-5)

  @parameterized.parameters((0.1, 7.0189), (0.5, 3.0908), (1.0, 4.3562), (2.0, 12.363))
  def test_mean_square_over_the_path(self, std, integral):
    nodes, weights = np.polynomial.legendre.leggauss(200)
    times = np.repeat((1 + nodes) / 2, 2)[:, None]
    spread = np.sqrt(paths.gaussian_variance(times, std))
    # ±1 have the second moment of a standard normal.
    x = times * 0.3 + spread * np.tile([1.0, -1.0], 200)[:, None]

    def field(x, t):
      return paths.gaussian_marginal_velocity(x, t, 0.3, std)

    with jax.enable_x64(True):
      found = jax.jit(lambda x, t: regularizers.material_derivative(field, x, t))(x, times)
    squares = np.mean(np.asarray(found).reshape(200, 2) ** 2, axis=1)
    np.testing.assert_allclose(squares, std**4 / spread[::2, 0] ** 6, rtol=1e-9)
    np.testing.assert_allclose(weights @ squares / 2, integral, rtol=5e-5)

  def test_straight_and_turning_trajectories(self):
    turn = np.float32([[0.0, -2.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    t = np.float32([[0.0], [0.2], [0.5], [1.0]])

    @jax.jit
    def accelerations(x):
      return [
        regularizers.material_derivative(field, x, t)
        for field in (
          lambda x, t: x / (1.0 + t),  # straight lines out of one point
          lambda x, t: x @ turn.T,
          lambda x, t: x,
          lambda x, t: jnp.ones_like(x) * t,
        )
      ]

    straight, turning, stretching, pushed = accelerations(POINTS)
    np.testing.assert_allclose(straight, 0.0, atol=1e-6)
    np.testing.assert_allclose(turning, -4.0 * POINTS * np.float32([1, 1, 0]), rtol=1e-6)
    np.testing.assert_allclose(stretching, POINTS, rtol=1e-6)
    np.testing.assert_allclose(pushed, 1.0, rtol=1e-6)

  def test_the_carrying_velocity_may_be_a_constant_to_the_gradient(self):
    # u = θ x has the acceleration θ² x, the one θ from the derivative and the other from u.
    x, t = np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32)

    @jax.jit
    def slopes(theta):
      def acceleration(theta, stop_tangent):
        return regularizers.material_derivative(lambda x, t: theta * x, x, t, stop_tangent)[0, 0]

      return [jax.value_and_grad(acceleration)(theta, stop) for stop in (False, True)]

    (value, slope), (stopped_value, stopped_slope) = slopes(np.float32(3.0))
    self.assertEqual((float(value), float(slope)), (9.0, 6.0))
    self.assertEqual((float(stopped_value), float(stopped_slope)), (9.0, 3.0))


class ContinuityResidualTest(chex.TestCase):
  def test_known_numbers(self):
    # With no field the residual is ∂_t log ρ alone; a constant field adds the score.
    def log_density(x, t):
      std = jnp.sqrt(paths.gaussian_variance(t, 0.5))
      return jax.scipy.stats.norm.logpdf(x, 0.3 * t, std)[:, 0]

    with jax.enable_x64(True):

      @jax.jit
      def residuals(x, t):
        return [
          regularizers.continuity_residual(log_density, field, x, t)[0]
          for field in (
            lambda x, t: paths.gaussian_marginal_velocity(x, t, 0.3, 0.5),
            lambda x, t: jnp.zeros_like(x),
            lambda x, t: jnp.ones_like(x),
            lambda x, t: x,
          )
        ]

      found = residuals(np.full((1, 1), 0.7), np.full((1, 1), 0.4))
    self.assertLess(abs(float(found[0])), 1e-9)
    np.testing.assert_allclose(found[1:], [0.63375, 0.63375 - 1.45, 0.63375 + 1 - 0.7 * 1.45])

  @chex.variants(with_jit=True)
  def test_zero_where_the_field_carries_the_density(self):
    def field(x, t):
      return paths.gaussian_marginal_velocity(x, t, 0.3, 0.5)

    def log_density(x, t):
      variance = paths.gaussian_variance(t, 0.5)
      return -0.5 * jnp.sum((x - 0.3 * t) ** 2 / variance + jnp.log(variance), axis=-1)

    def residual(x, t):
      return regularizers.continuity_residual(log_density, field, x, t)

    t = np.float32([[0.0], [0.2], [0.5], [1.0]])
    np.testing.assert_allclose(self.variant(residual)(POINTS, t), 0.0, atol=2e-4)


class ScoreFormTest(chex.TestCase):
  def test_zero_for_marginal_fields_only(self):
    modes = np.random.default_rng(2).normal(size=(4, DIM))

    def gaussian(x, t):
      return paths.gaussian_marginal_velocity(x, t, 0.3, 0.5)

    def bimodal(x, t):
      return paths.bimodal_marginal_velocity(x, t, 0.8)  # in each dimension

    def atoms(x, t):
      distances = jnp.sum((x[:, None] - t[:, None] * modes) ** 2, axis=-1)
      posterior = jax.nn.softmax(-distances / (2 * (1 - t) ** 2))
      return (posterior @ modes - x) / (1 - t)

    def perturbed(x, t):
      return bimodal(x, t) + 0.1 * jnp.sin(x)

    def regularised(x, t):
      return paths.gaussian_marginal_velocity(x, t, 0.3, 0.5, 0.1)

    t = np.array([[0.0], [0.2], [0.5], [0.7]])

    @jax.jit
    def residuals(x):
      return [
        regularizers.continuity_residual_score_form(field, x, t)
        for field in (gaussian, bimodal, atoms, perturbed, regularised)
      ]

    with jax.enable_x64(True):
      *marginal, perturbed_residual, regularised_residual = residuals(np.float64(POINTS))
    for residual in marginal:
      chex.assert_shape(residual, POINTS.shape)
      np.testing.assert_allclose(residual, 0.0, atol=1e-8)
    for residual in (perturbed_residual, regularised_residual):
      self.assertGreater(np.abs(residual).max(axis=1).min(), 1e-3)

  @chex.variants(with_jit=True)
  def test_a_linear_field_in_closed_form(self):
    rate, t = -0.5, np.float32([[0.0], [0.2], [0.5], [0.7]])

    def residual(x, t):
      return regularizers.continuity_residual_score_form(lambda x, t: rate * x, x, t)

    # g = (t c - 1) x / (1 - t) for u = c x, and the divergence is constant.
    expected = POINTS * ((rate - 1) / (1 - t) ** 2 + 2 * rate * (t * rate - 1) / (1 - t))
    np.testing.assert_allclose(self.variant(residual)(POINTS, t), expected, rtol=1e-4, atol=1e-5)
