"""Tests of the flow-matching loss."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

from lib.flow import losses, paths, regularizers, timesteps


def normal(*shape):
  return np.random.default_rng(0).normal(size=shape).astype(np.float32)


class FlowMatchingLossTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_is_the_mean_over_batch_and_dimensions(self):
    prediction, velocity = normal(2, 5, 3)
    loss = self.variant(losses.flow_matching_loss)(prediction, velocity)
    chex.assert_shape(loss, ())
    expected = np.sum((prediction - velocity) ** 2) / (5 * 3)
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    self.assertEqual(float(self.variant(losses.flow_matching_loss)(velocity, velocity)), 0.0)

  @chex.variants(with_jit=True, without_jit=True)
  def test_weights_stand_for_repeated_rows(self):
    prediction, velocity = normal(2, 3, 2)
    loss = self.variant(losses.flow_matching_loss)
    weighted = loss(prediction, velocity, np.array([2.0, 0.0, 1.0], np.float32))
    repeated = loss(prediction[[0, 0, 2]], velocity[[0, 0, 2]], np.ones(3, np.float32))
    np.testing.assert_allclose(weighted, repeated, rtol=1e-6)

  def test_weights_of_one_change_nothing(self):
    prediction, velocity = normal(2, 4, 2)
    plain = losses.flow_matching_loss(prediction, velocity)
    weighted = losses.flow_matching_loss(prediction, velocity, np.ones(4, np.float32))
    np.testing.assert_allclose(plain, weighted, rtol=1e-6)

  def test_minimised_by_the_mean_of_the_velocities(self):
    # Many data points behind one noisy point: the best answer to all is their mean.
    velocity = normal(6, 2)
    gradient = jax.jit(
      jax.grad(lambda u: losses.flow_matching_loss(u * np.ones_like(velocity), velocity))
    )
    np.testing.assert_allclose(gradient(velocity.mean(axis=0)), 0.0, atol=1e-6)

  def test_beta_times_with_weights_give_the_loss_of_uniform_times(self):
    # The field 0.3 - x errs by a polynomial in t, which the quadrature integrates exactly.
    nodes, masses = np.polynomial.legendre.leggauss(20)
    t, masses = (1 + nodes[:, None]) / 2, masses / 2
    x0, x1 = np.full_like(t, -0.4), np.full_like(t, 0.9)
    x, velocity = paths.linear_path(x0, x1, t)

    def both():
      log_prob = timesteps.beta_log_prob(t[:, 0], 2.0, 2.0)
      # A mean over nodes, each as likely as Beta(2, 2) has it, stands for the draw of times.
      density = jnp.exp(log_prob) * masses * len(t)
      weights = density * timesteps.importance_weights(log_prob, 1e9)
      return (
        losses.flow_matching_loss(0.3 - x, velocity, weights),
        losses.flow_matching_loss(0.3 - x, velocity, masses * len(t)),
      )

    with jax.enable_x64(True):
      weighted, uniform = jax.jit(both)()
    np.testing.assert_allclose(weighted, uniform, rtol=1e-9)
    # The error is e(t) = 0.3 - x_t - (x_1 - x_0), from -0.6 to -1.9 and linear.
    np.testing.assert_allclose(uniform, (0.6**2 + 0.6 * 1.9 + 1.9**2) / 3, rtol=1e-9)

  @parameterized.parameters(
    ((3, 2), (3, 1), None), ((3, 2), (2, 2), None), ((3, 2), (3, 2), (3, 1)), ((3, 2), (3, 2), (2,))
  )
  def test_refuses_shapes_that_would_broadcast(self, prediction, velocity, weights):
    with self.assertRaises(AssertionError):
      losses.flow_matching_loss(
        np.zeros(prediction), np.zeros(velocity), None if weights is None else np.zeros(weights)
      )


class TimeLawTest(chex.TestCase):
  def test_optimum_is_the_same_under_any_law(self):
    # Gaussian data, and one rate c a time: u = μ + c (x - t μ).
    mean, std, weight = 0.3, 0.5, 0.1
    nodes, masses = np.polynomial.hermite_e.hermegauss(8)
    x0, z = (grid.ravel() for grid in np.meshgrid(nodes, nodes))
    masses = np.tile(np.outer(masses, masses).ravel() / (2 * np.pi) * x0.size, 3)
    times = np.array([0.2, 0.5, 0.7])
    x0, x1 = np.tile(x0, 3)[:, None], np.tile(mean + std * z, 3)[:, None]
    t = np.repeat(times, nodes.size**2)[:, None]

    def objective(rates, fit_density, penalty_density):
      rates, fit, penalty = (
        jnp.repeat(a, nodes.size**2) for a in (rates, fit_density, penalty_density)
      )
      x, velocity = paths.linear_path(x0, x1, t)

      def field(y):
        return mean + rates[:, None] * (y - t * mean)

      return losses.flow_matching_loss(field(x), velocity, masses * fit) + weight * jnp.mean(
        masses * penalty * regularizers.frobenius_sq_exact(field, x)
      )

    with jax.enable_x64(True):
      density = np.exp(np.asarray(jax.jit(lambda t: timesteps.beta_log_prob(t, 2.0, 5.0))(times)))
      slope = jax.jit(jax.grad(objective))
      shared = paths.gaussian_rate(times, std, weight)
      np.testing.assert_allclose(slope(shared, np.ones(3), np.ones(3)), 0.0, atol=1e-12)
      np.testing.assert_allclose(slope(shared, density, density), 0.0, atol=1e-12)
      # Two laws change λ by their ratio.
      rates = [
        float(paths.gaussian_rate(t, std, weight * p)) for t, p in zip(times, density, strict=True)
      ]
      np.testing.assert_allclose(slope(np.array(rates), np.ones(3), density), 0.0, atol=1e-12)
      self.assertGreater(float(np.abs(slope(shared, np.ones(3), density)).max()), 1e-3)
