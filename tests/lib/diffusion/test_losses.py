"""Tests of denoising errors and likelihood losses, against Gaussians in closed form."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from scipy import stats

from lib.diffusion import losses, times
from lib.diffusion import sde as sdes

PROCESSES = {
  'vp': sdes.vp(),
  'sub-vp': sdes.sub_vp(),
  've': sdes.ve(),
  'cosine': sdes.cosine(),
}
START = 1e-4
MEAN, STD = 0.7, 0.4  # of the Gaussian model
DATA = np.array([0.7, 1.5, -0.5, 0.0], np.float32)[:, None]
NODES, WEIGHTS = np.polynomial.legendre.leggauss(200)
U, WEIGHTS = ((1 + NODES) / 2).astype(np.float32), WEIGHTS / 2  # a mean over [0, 1]
# Noise of the normal law's first five moments: the errors here are quadratic in it.
EPS, EPS_WEIGHTS = np.polynomial.hermite_e.hermegauss(3)
EPS_WEIGHTS = EPS_WEIGHTS / EPS_WEIGHTS.sum()


def gaussian_noise(sde, mean=MEAN, std=STD):
  """The exact prediction of the noise for data N(mean, std²)."""
  score = lambda x, t: -(x - sde.mean(t) * mean) / (sde.mean(t) ** 2 * std**2 + sde.std(t) ** 2)
  return sdes.noise_of_score(sde, score)


def averaged_errors(noise, sde, x0, t):
  """E_ε of the denoising errors of each datum at each of the times (K,), (B, K)."""
  shape = (x0.shape[0], t.shape[0])
  grid = jnp.broadcast_to(t, shape)
  errors = jax.vmap(
    lambda eps: losses.denoising_errors(noise, sde, x0, jnp.full((*shape, 1), eps), grid)
  )(EPS.astype(np.float32))
  return jnp.tensordot(EPS_WEIGHTS.astype(np.float32), errors, 1)


class DenoisingErrorsTest(chex.TestCase):
  @chex.variants(with_jit=True)
  def test_is_the_loop_it_stands_for(self):
    sde, rng = sdes.vp(1.0, 1.0, 3.0), np.random.default_rng(0)
    x0, eps = (rng.normal(size=shape).astype(np.float32) for shape in ((3, 2), (3, 4, 2)))
    t = rng.uniform(0.01, 3.0, (3, 4)).astype(np.float32)
    found = self.variant(
      lambda *args: losses.denoising_errors(lambda x, t: x * t + 1.0, sde, *args)
    )(x0, eps, t)
    expected = np.zeros((3, 4))
    for b, k in np.ndindex(3, 4):
      mean = np.exp(-t[b, k] / 2)
      point = mean * x0[b] + np.sqrt(1 - mean**2) * eps[b, k]
      expected[b, k] = np.sum((point * t[b, k] + 1.0 - eps[b, k]) ** 2)
    np.testing.assert_allclose(found, expected, rtol=1e-4)

  def test_vanish_for_the_exact_noise(self):
    # One point of data: the noise is known from x_t. Beside it, a network that is wrong by δ.
    rng = np.random.default_rng(1)
    point, delta = np.array([0.3, -0.8]), np.array([0.3, -0.4])
    eps = rng.normal(size=(5, 7, 2))

    def errors(sde, offset):
      noise = lambda x, t: (x - sde.mean(t) * point) / sde.std(t) + offset
      t = times.importance_times(sde, rng.uniform(size=(5, 7)), START)
      return losses.denoising_errors(noise, sde, np.tile(point, (5, 1)), eps, t)

    with jax.enable_x64(True):
      found = jax.jit(
        lambda: [(errors(sde, 0.0), errors(sde, delta)) for sde in PROCESSES.values()]
      )()
    for exact, wrong in found:
      np.testing.assert_allclose(exact, 0.0, atol=1e-12)
      np.testing.assert_allclose(wrong, 0.25, rtol=1e-6)

  def test_refuses_what_does_not_fit(self):
    x0, eps, t = np.zeros((3, 2)), np.zeros((3, 4, 2)), np.full((3, 4), 0.5)
    for bad in ((x0, eps[:, :3], t), (x0[:, :1], eps, t), (x0, eps, t[:, :1])):
      with self.assertRaises(AssertionError):
        losses.denoising_errors(lambda x, t: x, sdes.vp(), *bad)


class LikelihoodTest(chex.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()

    def estimate(sde):
      noise = gaussian_noise(sde)
      errors = averaged_errors(noise, sde, DATA, times.importance_times(sde, U, START))
      normalizer = times.importance_normalizer(sde, START)
      # Uniform times, on a scale on which their weights are tame.
      t = jnp.exp(jnp.log(START) + U * jnp.log(sde.horizon / START))
      weighted = losses.likelihood_weights(sde, t) * averaged_errors(noise, sde, DATA, t)
      return (
        losses.likelihood_losses(errors * WEIGHTS * U.size, normalizer),
        jnp.log(sde.horizon / START) * (weighted * t) @ WEIGHTS / 2,
        jnp.exp(sde.log_snr(jnp.array([START, sde.horizon]))),
      )

    found = jax.jit(lambda: {name: estimate(sde) for name, sde in PROCESSES.items()})()
    cls.found = jax.tree.map(lambda a: np.asarray(a, np.float64), found)

  @parameterized.parameters(*PROCESSES)
  def test_importance_sampled_times_stand_for_weighted_uniform_ones(self, name):
    importance, uniform, _ = self.found[name]
    np.testing.assert_allclose(importance, uniform, rtol=1e-4)

  @parameterized.parameters(*PROCESSES)
  def test_gaussian_in_closed_form(self, name):
    # With the signal-to-noise ratio γ = m²/σ² as clock, ℓ = ½∫ (d² + γ v²)/(1 + γ v)² dγ.
    importance, _, (high, low) = self.found[name]
    square, variance = (np.float64(DATA[:, 0]) - MEAN) ** 2, STD**2
    antiderivative = lambda ratio: (
      np.log1p(ratio * variance) + (1 - square / variance) / (1 + ratio * variance)
    )
    expected = (antiderivative(high) - antiderivative(low)) / 2
    np.testing.assert_allclose(importance, expected, rtol=1e-4)

  @parameterized.parameters('vp', 'cosine')
  def test_exact_model_attains_the_bound(self, name):
    # As γ goes from 0 to ∞, -log q = ℓ + ½ log 2π/γ + ½ for the Gaussian itself.
    importance, _, (high, _) = self.found[name]
    nll = -stats.norm.logpdf(np.float64(DATA[:, 0]), MEAN, STD)
    constant = (np.log(2 * np.pi / high) + 1) / 2
    np.testing.assert_allclose(importance + constant, nll, atol=5e-3)

  @chex.variants(with_jit=True, without_jit=True)
  def test_is_half_the_normalized_mean(self):
    errors = np.array([[1.0, 3.0], [0.0, 1.0]], np.float32)
    found = self.variant(losses.likelihood_losses)(errors, np.float32(5.0))
    np.testing.assert_allclose(found, [5.0, 1.25], rtol=1e-6)


class WrongScoreTest(chex.TestCase):
  """Data N(0, 1) under dx = -x/2 dt + dw, and models whose score is -x/v at all times.

  The marginals stay N(0, 1). Backwards from N(0, 1) the model has dx = (1/2 - 1/v) x dτ + dw, whose
  variance tends to v/(2 - v).
  """

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.variances = np.array([1.0, 1.25, 0.8, 0.5, 1.9])
    sde = sdes.vp(1.0, 1.0, 3.0)
    nodes, weights = np.polynomial.hermite_e.hermegauss(8)
    cls.x, cls.weights = nodes, weights / weights.sum()

    def bounds(variance):
      noise = lambda x, t: sde.std(t) * x / variance
      # The singular ends of the law of times cancel in differences of losses.
      t = times.importance_times(sde, U, 1e-6)
      errors = averaged_errors(noise, sde, jnp.asarray(nodes, jnp.float32)[:, None], t)
      normalizer = times.importance_normalizer(sde, 1e-6)
      return losses.likelihood_losses(errors * WEIGHTS * U.size, normalizer)

    cls.losses = np.asarray(jax.jit(jax.vmap(bounds))(np.float32(cls.variances)), np.float64)

  def test_mean_excess_is_the_divergence_of_paths(self):
    # ½∫ g² E‖Δ‖² dt = T (1 - 1/v)²/2 over paths.
    excess = (self.losses - self.losses[0]) @ self.weights
    expected = 1.5 * (1 - 1 / self.variances) ** 2
    np.testing.assert_allclose(excess, expected, atol=2e-4)
    np.testing.assert_allclose(excess[1:3], [0.06, 0.09375], atol=2e-4)

  def test_bounds_the_models_likelihood(self):
    limit = self.variances / (2 - self.variances)
    variance = limit + (1 - limit) * np.exp(-(2 / self.variances - 1) * 3)
    np.testing.assert_allclose(variance[1:3], [1.556468, 0.670370], atol=1e-6)
    # The exact model attains the bound, which fixes what does not depend on the network: a number
    # and the part m² x_0²/2 of the prior's -E log π(x_T).
    nll = -stats.norm.logpdf(self.x, 0.0, np.sqrt(variance)[:, None])
    constant = nll[0] - self.losses[0]
    spread = constant - np.exp(-3.0) * self.x**2 / 2
    np.testing.assert_allclose(spread, spread[0], atol=2e-4)
    gaps = self.losses + constant - nll
    np.testing.assert_allclose(gaps[0], 0.0, atol=1e-9)
    self.assertGreater(gaps[1:].min(), -1e-4)
    # Data processing: the mean gap is what is lost between paths and their ends.
    divergence = (nll - nll[0]) @ self.weights
    excess = 1.5 * (1 - 1 / self.variances) ** 2
    np.testing.assert_allclose(gaps @ self.weights, excess - divergence, atol=3e-4)
    self.assertTrue((excess - divergence >= 0).all())


class WeightsTest(chex.TestCase):
  @chex.variants(with_jit=True)
  def test_likelihood(self):
    # For VE, g²/σ² = 2 log(σ_max/σ_min) at all times; for VP it is β/(1 - e^{-B}).
    t = np.array([1e-5, 0.3, 1.0], np.float32)
    found = self.variant(
      lambda t: [losses.likelihood_weights(sde, t) for sde in (sdes.ve(0.1, 10.0), sdes.vp())]
    )(t)
    np.testing.assert_allclose(found[0], np.full(3, 2 * np.log(100.0)), rtol=1e-5)
    t = np.float64(t)
    expected = (0.1 + 19.9 * t) / -np.expm1(-0.1 * t - 9.95 * t**2)
    np.testing.assert_allclose(found[1], expected, rtol=1e-5)

  @chex.variants(with_jit=True, without_jit=True)
  def test_min_snr(self):
    gamma = 5.0
    sde = sdes.vp(1.0, 1.0, 3.0)
    # SNR = 1/(e^t - 1): 5 where t = log 1.2.
    t = np.log(np.array([1.00001, 1.1, 1.2, 2.0, 15.0])).astype(np.float32)
    found = self.variant(lambda t: losses.min_snr_weights(sde, t, gamma))(t)
    np.testing.assert_allclose(found, [5e-5, 0.5, 1.0, 1.0, 1.0], rtol=2e-3)
    ratio = 1 / np.expm1(np.float64(t))
    np.testing.assert_allclose(found * ratio, np.minimum(ratio, gamma), rtol=1e-5)
    # Without a bound that binds, the errors of noise count as they are.
    np.testing.assert_array_equal(losses.min_snr_weights(sde, t, 1e9), np.ones(5))

  @parameterized.parameters(0.0, -1.0, float('nan'))
  def test_min_snr_refuses(self, gamma):
    with self.assertRaisesRegex(ValueError, 'ratio must be positive'):
      losses.min_snr_weights(sdes.vp(), np.array([0.5]), gamma)
