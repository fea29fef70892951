"""Tests of the sources of flows, against kernels, moments and other Gaussian processes."""

import functools
import importlib.util
import unittest

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from lib.flow import losses, paths, priors, regimes

LENGTH, HORIZON = 16, 32
FREQUENCIES = (1.0, 2.5)
FAMILIES = regimes.bases(LENGTH, HORIZON, frequencies=FREQUENCIES, dampings=(0.0, 1.0))
LEADS = np.arange(1, HORIZON + 1, dtype=np.float32) / LENGTH

se = functools.partial(priors.squared_exponential, rate=8.0)
ou = functools.partial(priors.ornstein_uhlenbeck, rate=2.0)
seasonal = functools.partial(priors.periodic, rate=1.0, frequency=2.0)
fit = jax.jit(regimes.fit)
source = jax.jit(priors.structured_source)
posterior = jax.jit(priors.gp_posterior, static_argnums=(1, 4, 5))


def walk(seed, *shape):
  x = np.random.default_rng(seed).normal(size=shape).cumsum(axis=-1)
  return ((x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)).astype(np.float32)


def covariance_of(root):
  """Of `correlated_noise`, by its definition: a circulant has the spectrum's transform as rows."""
  return np.fft.irfft(np.asarray(root) ** 2)[..., : root.shape[-1] - 1]


class NoiseTest(chex.TestCase):
  def test_of_trends_is_ornstein_uhlenbeck(self):
    for regime in (0, 1, 2, 4):
      expected = ou(LEADS, LEADS[:1])[:, 0]
      for root in FAMILIES[regime].noise:
        np.testing.assert_allclose(covariance_of(root), expected, atol=1e-6)

  def test_of_rhythms_is_periodic_times_ornstein_uhlenbeck(self):
    for root, frequency in zip(FAMILIES[3].noise, np.repeat(FREQUENCIES, 2), strict=True):
      rhythm = priors.periodic(LEADS, LEADS[:1], 1.0, float(frequency))
      expected = (rhythm * ou(LEADS, LEADS[:1]))[:, 0]
      found = covariance_of(root)
      np.testing.assert_allclose(found, expected, atol=2e-3)
      np.testing.assert_allclose(found[0], 1.0, rtol=1e-6)

  def test_samples_have_the_covariance(self):
    root = np.broadcast_to(FAMILIES[3].noise[2].astype(np.float32), (20_000, HORIZON + 1))
    x = np.asarray(jax.jit(priors.correlated_noise)(jax.random.key(0), root))
    expected = covariance_of(root[0])[np.abs(np.subtract.outer(range(HORIZON), range(HORIZON)))]
    np.testing.assert_allclose(np.cov(x.T), expected, atol=5 * np.sqrt(2 / len(x)))
    np.testing.assert_allclose(x.mean(axis=0), 0.0, atol=5 / np.sqrt(len(x)))

  def test_of_a_flat_spectrum_is_white(self):
    root = np.ones((3, HORIZON + 1), np.float32)
    white = jax.random.normal(jax.random.key(1), (3, 2 * HORIZON))[:, :HORIZON]
    found = jax.jit(priors.correlated_noise)(jax.random.key(1), root)
    np.testing.assert_allclose(found, white, atol=1e-5)

  def test_scale_grows_for_one_length_of_the_context(self):
    scale = priors.lead_scale(LENGTH, HORIZON, 0.1, 0.25)
    np.testing.assert_allclose(scale[:LENGTH], 0.1 + 0.25 * LEADS[:LENGTH], rtol=1e-6)
    np.testing.assert_allclose(scale[LENGTH:], 0.35)


class StructuredSourceTest(chex.TestCase):
  def setUp(self):
    super().setUp()
    self.fits = fit(walk(0, 4, LENGTH), FAMILIES)
    self.scale = priors.lead_scale(LENGTH, HORIZON, 0.1, 0.25)

  @parameterized.parameters(0, 3, 4)
  def test_of_a_given_regime_is_gaussian_around_its_mean(self, regime):
    weights = np.broadcast_to(np.eye(5, dtype=np.float32)[regime], (4000, 5))
    fits = jax.tree.map(lambda x: jnp.broadcast_to(x[1], (4000, *x.shape[1:])), self.fits)
    draw = source(jax.random.key(regime), fits, weights, self.scale, FAMILIES)
    self.assertTrue(bool((draw.regime == regime).all()))
    np.testing.assert_array_equal(draw.mean, fits.means[:, regime])
    standard = np.asarray((draw.x0 - draw.mean) / self.scale)
    root = FAMILIES[regime].noise[int(self.fits.members[1, regime])]
    expected = covariance_of(root)[np.abs(np.subtract.outer(range(HORIZON), range(HORIZON)))]
    np.testing.assert_allclose(np.cov(standard.T), expected, atol=5 * np.sqrt(2 / 4000))
    self.assertGreater(stats.kstest(standard[:, 7], 'norm').pvalue, 1e-3)

  def test_regimes_are_drawn_by_their_weights(self):
    weights = np.float32([0.1, 0.4, 0.0, 0.3, 0.2])
    fits = jax.tree.map(lambda x: jnp.broadcast_to(x[2], (4000, *x.shape[1:])), self.fits)
    draw = source(
      jax.random.key(1), fits, np.broadcast_to(weights, (4000, 5)), self.scale, FAMILIES
    )
    shares = np.bincount(draw.regime, minlength=5) / 4000
    np.testing.assert_allclose(shares, weights, atol=5 * np.sqrt(0.25 / 4000))
    self.assertEqual(shares[2], 0.0)

  def test_without_scale_is_the_mean(self):
    weights = np.full((4, 5), 0.2, np.float32)
    draw = source(jax.random.key(2), self.fits, weights, np.zeros(HORIZON), FAMILIES)
    np.testing.assert_array_equal(draw.x0, draw.mean)

  def test_maps_over_series_with_keys_of_their_own(self):
    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, 0, None))
    def draw(key, context, families):
      fits = regimes.fit(context, families)
      weights = regimes.posterior(fits.errors, regimes.NUM_PARAMETERS, LENGTH, 0.3)
      return priors.structured_source(key, fits, weights, self.scale, families)

    keys, contexts = jax.random.split(jax.random.key(3), 4), walk(0, 4, LENGTH)
    draws = draw(keys, contexts, FAMILIES)
    chex.assert_shape((draws.x0, draws.mean), (4, HORIZON))
    turned = draw(keys[::-1], contexts[::-1], FAMILIES)
    chex.assert_trees_all_equal(turned, jax.tree.map(lambda x: x[::-1], draws))


class GaussianSourceTest(chex.TestCase):
  @chex.variants(with_jit=True)
  def test_of_the_standard_law_gives_the_vanilla_loss_bit_for_bit(self):
    y, t = walk(1, 6, HORIZON), np.linspace(0, 1, 6, dtype=np.float32)[:, None]
    network = lambda x, t: jnp.tanh(x) * (1 - t)

    def loss(x0):
      x, velocity = paths.linear_path(x0, y, t)
      return losses.flow_matching_loss(network(x, t), velocity)

    def structured(key):
      mean, scale = jnp.zeros_like(y), jnp.ones(HORIZON)
      return loss(priors.gaussian_source(key, mean, scale, jnp.eye(HORIZON)))

    vanilla = lambda key: loss(jax.random.normal(key, y.shape))
    key = jax.random.key(4)
    self.assertEqual(float(self.variant(structured)(key)), float(self.variant(vanilla)(key)))

  def test_moments(self):
    root = np.linalg.cholesky(np.asarray(se(LEADS, LEADS)) + 1e-4 * np.eye(HORIZON))
    mean, scale = np.sin(LEADS), 0.5 + LEADS
    draw = jax.jit(priors.gaussian_source)
    batch = np.broadcast_to(mean, (20_000, HORIZON))
    x = np.asarray(draw(jax.random.key(5), batch, scale, root.astype(np.float32)))
    expected = np.outer(scale, scale) * (root @ root.T)
    np.testing.assert_allclose(np.cov(x.T), expected, atol=5 * scale.max() ** 2 * 0.01)
    np.testing.assert_allclose(x.mean(axis=0), mean, atol=5 * scale.max() / np.sqrt(len(x)))


class PosteriorTest(chex.TestCase):
  @parameterized.parameters((se, 0.0), (se, 0.1), (ou, 0.0), (ou, 0.5), (seasonal, 0.2))
  @unittest.skipUnless(importlib.util.find_spec('sklearn'), 'needs scikit-learn')
  def test_is_scikit_learns(self, kernel, noise):
    from sklearn import gaussian_process
    from sklearn.gaussian_process import kernels

    # Their exp(-d² / 2l²), Matérn ½ and exp(-2 sin²(π d / p) / l²).
    theirs = {
      se: kernels.RBF(0.25),
      ou: kernels.Matern(0.5, nu=0.5),
      seasonal: kernels.ExpSineSquared(np.sqrt(2), 0.5),
    }[kernel]
    with jax.enable_x64(True):
      context, times = np.float64(walk(2, 12)), np.linspace(0, 1.1, 12)
      ahead = np.linspace(0.05, 3, 9)
      mean, root = posterior(context, kernel, times, ahead, noise, 1e-8)
    model = gaussian_process.GaussianProcessRegressor(theirs, alpha=noise + 1e-8, optimizer=None)
    model.fit(times[:, None], context)
    expected, covariance = model.predict(ahead[:, None], return_cov=True)
    np.testing.assert_allclose(mean, expected, rtol=1e-5, atol=1e-5)
    root = np.asarray(root)
    np.testing.assert_allclose(root @ root.T, covariance, atol=1e-6)
    np.testing.assert_array_equal(np.triu(root, 1), 0.0)

  @parameterized.parameters(se, ou)
  def test_interpolates_and_forgets(self, kernel):
    with jax.enable_x64(True):
      context, times = np.float64(walk(3, 8)), np.linspace(0, 1, 8)
      ahead = np.append(times, [30.0, 40.0])
      mean, root = posterior(context, kernel, times, ahead, 0.0, 1e-9)
    np.testing.assert_allclose(mean[:8], context, atol=1e-4)
    variance = np.sum(np.square(root), axis=1)
    np.testing.assert_allclose(variance[:8], 0.0, atol=1e-7)
    np.testing.assert_allclose(mean[8:], 0.0, atol=1e-6)
    np.testing.assert_allclose(variance[8:], 1.0, rtol=1e-6)

  def test_of_a_periodic_kernel_has_its_season(self):
    times = np.arange(16, dtype=np.float32) / 8  # four seasons of ½
    ahead = 2 + np.arange(16, dtype=np.float32) / 8
    mean, root = posterior(walk(4, 16), seasonal, times, ahead, 0.1, 1e-4)
    np.testing.assert_allclose(mean[4:], mean[:-4], atol=1e-4)
    variance = np.sum(np.square(root), axis=1)
    np.testing.assert_allclose(variance[4:], variance[:-4], atol=1e-5)

  def test_of_white_noise_knows_nothing(self):
    times = np.arange(5, dtype=np.float32)
    mean, root = posterior(walk(5, 5), priors.iso, times, times + 5, 0.0, 1e-4)
    np.testing.assert_array_equal(mean, np.zeros(5))
    np.testing.assert_allclose(root, np.sqrt(1 + 1e-4) * np.eye(5), rtol=1e-6)

  def test_one_factor_serves_all_contexts(self):
    batch = walk(6, 3, LENGTH)
    times = np.arange(LENGTH, dtype=np.float32) / LENGTH
    mean, root = posterior(batch, ou, times, 1 + LEADS, 0.1, 1e-4)
    means, roots = jax.jit(jax.vmap(lambda c: priors.gp_posterior(c, ou, times, 1 + LEADS, 0.1)))(
      batch
    )
    np.testing.assert_allclose(mean, means, atol=1e-5)
    np.testing.assert_allclose(roots, np.broadcast_to(root, roots.shape), atol=1e-5)

  @settings(max_examples=20)
  @given(hnp.arrays(np.float32, LENGTH, elements=st.floats(-3, 3, width=32)))
  def test_smooth_kernels_factorise_with_the_jitter_of_single_precision(self, context):
    times = np.arange(LENGTH, dtype=np.float32) / LENGTH
    for kernel in (se, seasonal):
      chex.assert_tree_all_finite(posterior(context, kernel, times, 1 + LEADS, 0.0, 1e-4))

  @parameterized.parameters((-1.0, 1e-4), (0.0, 0.0))
  def test_refuses_noise_and_jitter_out_of_range(self, noise, jitter):
    times = np.arange(3.0)
    with self.assertRaisesRegex(ValueError, 'Needs noise'):
      priors.gp_posterior(np.zeros(3), ou, times, times, noise, jitter)
