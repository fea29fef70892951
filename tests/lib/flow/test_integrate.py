"""Tests of the flow of a field, against the closed forms of Gaussian and linear flows."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from scipy import linalg, stats

from lib.flow import integrate, paths, regularizers

POINTS = np.random.default_rng(0).normal(size=(4, 2))
GENERATOR = np.array([[-0.4, 1.2], [-0.7, 0.3]])
SHIFT = np.array([0.3, -0.2])


def linear_flow():
  """Where the flow of x ↦ GENERATOR x + SHIFT takes the points."""
  flow = linalg.expm(GENERATOR)
  return POINTS @ flow.T + np.linalg.solve(GENERATOR, (flow - np.eye(2)) @ SHIFT)


class EulerTest(chex.TestCase):
  @parameterized.parameters(
    (0.5, (0.0, 0.2, 0.430783, 0.492645)), (0.1, (0.0, 0.0099010, 0.0617246, 0.0956288))
  )
  def test_std_of_a_gaussian(self, std, expected):
    def field(x, t):
      return paths.gaussian_marginal_velocity(x, t, 0.3, std)

    x0 = np.array([[0.0], [1.0]])
    with jax.enable_x64(True):
      for num_steps, known in zip((1, 2, 10, 100), expected, strict=True):
        low, high = np.asarray(jax.jit(lambda x, k=num_steps: integrate.euler(field, x, k))(x0))
        # The map is affine, so that it scales the standard deviation as it scales lengths.
        self.assertAlmostEqual(float(high[0] - low[0]), known, places=6)
        # The mean stays on the path whatever the step.
        self.assertAlmostEqual(float(low[0]), 0.3, places=12)

  @chex.variants(with_jit=True, without_jit=True)
  def test_one_step_gives_the_mean_of_any_data(self):
    x0 = np.float32(POINTS)

    def both(x):
      return (
        integrate.euler(lambda x, t: paths.bimodal_marginal_velocity(x, t, 0.8), x, 1),
        integrate.euler(lambda x, t: paths.gaussian_marginal_velocity(x, t, 0.3, 0.5), x, 1),
      )

    bimodal, gaussian = self.variant(both)(x0)
    np.testing.assert_allclose(bimodal, 0.0, atol=1e-6)
    np.testing.assert_allclose(gaussian, 0.3, rtol=1e-5)

  @chex.variants(with_jit=True, without_jit=True)
  def test_is_the_loop_it_stands_for(self):
    def field(x, t):
      return x * t + t**2

    x0 = np.float32(POINTS)
    expected = POINTS
    for i in range(3):
      expected = expected + field(expected, i / 3) / 3
    found = self.variant(lambda x: integrate.euler(field, x, 3))(x0)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    self.assertEqual(found.dtype, np.float32)

  def test_first_order(self):
    # Halving the step halves the error.
    with jax.enable_x64(True):

      @jax.jit
      def run(x):
        return [integrate.euler(lambda x, t: x @ GENERATOR.T + SHIFT, x, k) for k in (100, 200)]

      errors = [np.abs(x - linear_flow()).max() for x in run(POINTS)]
    self.assertAlmostEqual(errors[0] / errors[1], 2.0, delta=0.05)

  def test_gradient_reaches_points_and_parameters(self):
    # One step is x + θ x / K: the derivative of (1 + θ / K)^K x.
    @jax.jit
    @jax.grad
    def slopes(inputs):
      theta, x = inputs
      return integrate.euler(lambda x, t: theta * x, x, 4)[0, 0]

    theta, x = slopes((np.float32(0.8), np.full((1, 1), 2.0, np.float32)))
    np.testing.assert_allclose(theta, 2.0 * 1.2**3, rtol=1e-5)
    np.testing.assert_allclose(x, 1.2**4, rtol=1e-5)

  @parameterized.parameters(0, -3)
  def test_refuses_no_steps(self, num_steps):
    with self.assertRaisesRegex(ValueError, f'num_steps={num_steps}'):
      integrate.euler(lambda x, t: x, POINTS, num_steps)


class FlowMapTest(chex.TestCase):
  def test_gaussian_in_closed_form(self):
    # The first half of the rows has the marginal field, the second the regularised one.
    def field(x, t):
      halves = zip(jnp.split(x, 2), jnp.split(t, 2), (0.0, 0.1), strict=True)
      return jnp.concatenate(
        [paths.gaussian_marginal_velocity(x, t, SHIFT, 0.5, weight) for x, t, weight in halves]
      )

    # With every sign vector the estimate is the trace.
    signs = np.array([[[1, 1]], [[1, -1]], [[-1, 1]], [[-1, -1]]])

    def divergence(f, x):
      return regularizers.divergence_hutchinson(
        f, x, jax.random.key(0), 4, lambda key, shape, dtype: jnp.full(shape, signs, dtype)
      )

    def solve(x, log_density):
      return integrate.flow_map_with_log_density(field, x, log_density, divergence, 1e-8, 1e-8)

    with jax.enable_x64(True):
      solution = jax.jit(solve)(POINTS, stats.norm.logpdf(POINTS).sum(axis=1))
    x1, log_density = map(np.asarray, solution)
    std = np.array([0.5, 0.5, 0.564076, 0.564076])[:, None]
    np.testing.assert_allclose(x1, SHIFT + std * POINTS, atol=2e-6)
    expected = stats.norm.logpdf(x1, SHIFT, std).sum(axis=1)
    np.testing.assert_allclose(log_density, expected, atol=1e-5)

  def test_density_of_a_curved_flow_follows_the_volume(self):
    # log ρ_1 - log ρ_0 = -log |det ∂x_1/∂x_0|, by differences: the neighbours of a point stand in
    # its batch, so that they share its steps.
    def field(x, t):
      return jnp.sin(x @ GENERATOR.T + t) + x * jnp.roll(x, 1, axis=-1) * 0.2

    step = 1e-4
    stencil = step * np.array([[0, 0], [1, 0], [0, 1], [-1, 0], [0, -1]])
    x0 = (POINTS[:, None] + stencil).reshape(-1, 2)

    def solve(x, log_density):
      return integrate.flow_map_with_log_density(field, x, log_density, rtol=1e-8, atol=1e-8)

    with jax.enable_x64(True):
      x1, change = map(np.asarray, jax.jit(solve)(x0, np.zeros(len(x0))))
    x1, change = x1.reshape(4, 5, 2), change.reshape(4, 5)[:, 0]
    jac = (x1[:, 1:3] - x1[:, 3:]) / (2 * step)
    np.testing.assert_allclose(change, -np.linalg.slogdet(jac)[1], atol=1e-5)

  @chex.variants(with_jit=True)
  def test_linear_flow_is_the_exponential(self):
    generator, shift = np.float32(GENERATOR), np.float32(SHIFT)
    solve = self.variant(lambda x: integrate.flow_map(lambda x, t: x @ generator.T + shift, x))
    x1 = solve(np.float32(POINTS))
    self.assertEqual(x1.dtype, np.float32)
    np.testing.assert_allclose(x1, linear_flow(), atol=1e-4)

  def test_refuses_a_density_that_does_not_fit(self):
    with self.assertRaises(AssertionError):
      integrate.flow_map_with_log_density(lambda x, t: x, POINTS, np.zeros((4, 1)))

  def test_backwards_undoes_forwards_and_times_add_up(self):
    def field(x, t):
      return jnp.sin(x @ GENERATOR.T + 3 * t) * (1 + t)

    @jax.jit
    def carry(state, t0, t1):
      return integrate.flow_map_with_log_density(
        field, *state, rtol=1e-8, atol=1e-8, t0=t0, t1=t1, norm=integrate.worst_row
      )

    with jax.enable_x64(True):
      start = (jnp.asarray(POINTS), jnp.arange(4.0))
      whole = carry(start, 0.2, 1.1)
      legs = carry(carry(start, 0.2, 0.7), 0.7, 1.1)
      found = start, whole, legs, carry(whole, 1.1, 0.2), carry(start, 0.4, 0.4)
    start, whole, legs, back, nowhere = jax.tree.map(np.asarray, found)
    self.assertGreater(np.abs(whole[0] - POINTS).max(), 0.3)
    chex.assert_trees_all_close(legs, whole, atol=1e-6)
    chex.assert_trees_all_close(back, start, atol=1e-6)
    chex.assert_trees_all_equal(nowhere, start)

  def test_worst_row_is_as_accurate_among_many_easy_rows(self):
    # Only the first row moves, on a circle; the others let the default norm forget it.
    x0 = np.zeros((400, 2), np.float32)
    x0[0] = 1.0, 0.0
    quarters = np.float32([[0, 20], [-20, 0]])

    @jax.jit
    def solve(x):
      field = lambda x, t: x @ quarters
      return [integrate.flow_map(field, x, 1e-4, 1e-4, norm=n) for n in (None, integrate.worst_row)]

    default, worst = solve(x0)
    exact = np.array([np.cos(20.0), np.sin(20.0)])
    errors = [np.abs(np.asarray(x)[0] - exact).max() for x in (default, worst)]
    self.assertLess(errors[1], 2e-3)
    self.assertGreater(errors[0], 5 * errors[1])

  def test_worst_row_by_hand(self):
    errors = np.float32([[3.0, 4.0], [0.0, -1.0]]), np.float32([-1.0, 7.0])
    self.assertAlmostEqual(float(integrate.worst_row(errors[0])), np.sqrt(12.5), places=5)
    self.assertEqual(float(integrate.worst_row(errors)), 7.0)
    slopes = jax.grad(integrate.worst_row)(np.zeros((2, 2), np.float32))
    np.testing.assert_array_equal(slopes, 0.0)

  def test_failure_is_nan_and_stays_with_its_seed(self):
    # The field of the second, third and fourth seed is not finite, the last one's point is not.
    def solve(scale, late, x):
      return integrate.flow_map(lambda x, t: jnp.where(t > 0.5, late, scale) * x, x)

    scales = np.float32([0.5, np.nan, np.inf, 0.5, 0.5])
    lates = np.float32([0.5, 0.5, 0.5, np.nan, 0.5])
    x = np.ones((5, 2, 1), np.float32)
    x[4, 1] = np.nan
    ends = jax.jit(jax.vmap(solve))(scales, lates, x)
    np.testing.assert_allclose(ends[0], np.exp(0.5), rtol=1e-4)
    self.assertTrue(np.isnan(ends[1:]).all())
