"""Tests of the losses that train a diffusion by a Rényi divergence."""

import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import special, stats

from lib.diffusion import losses as denoising
from lib.diffusion import sde as sdes
from lib.diffusion import times
from lib.diffusion.renyi import objectives

LOSSES = np.random.default_rng(0).normal(3.0, 0.8, 50).astype(np.float32)
TILTS = np.float32([-1e30, -1e4, -3, -0.3, -1e-2, -1e-4, -1e-30, 0, 1e-9, 1e-3, 0.1, 1, 50, 1e30])


def gaussian_losses(n):
  """Quantiles of N(3, 0.64), far out in the tails for large n."""
  return stats.norm.ppf((np.arange(n) + 0.5) / n, 3.0, 0.8).astype(np.float32)


@jax.jit
@jax.vmap
def tilted(losses, tilt):
  value, slopes = jax.value_and_grad(objectives.tilted_mean, argnums=(0, 1))(losses, tilt)
  return value, *slopes, objectives.tilt_weights(losses, tilt)


def tilted_at(losses, tilts):
  return map(np.asarray, tilted(np.tile(np.float32(losses), (len(tilts), 1)), np.float32(tilts)))


class TiltedMeanTest(chex.TestCase):
  def test_against_float64(self):
    values, slopes, derivatives, weights = tilted_at(LOSSES, TILTS)
    for i, c in enumerate(np.float64(TILTS)):
      exact = LOSSES.astype(np.float64)
      softmax = special.softmax(c * exact)
      np.testing.assert_allclose(slopes[i], softmax, atol=1e-6)
      np.testing.assert_allclose(weights[i], LOSSES.size * softmax, atol=5e-5)
      # Below, the logarithm has lost its digits; the mean and the variance say the same.
      if abs(c) >= 1e-4:
        mean = (special.logsumexp(c * exact) - math.log(exact.size)) / c
        np.testing.assert_allclose(values[i], mean, rtol=1e-6)
        np.testing.assert_allclose(derivatives[i], (softmax @ exact - mean) / c, atol=1e-3)
      else:
        np.testing.assert_allclose(values[i], exact.mean(), rtol=1e-6)
        np.testing.assert_allclose(derivatives[i], exact.var() / 2, rtol=1e-5)
    self.assertTrue((np.diff(values) >= -1e-6).all())
    np.testing.assert_array_equal(values[[0, -1]], [LOSSES.min(), LOSSES.max()])

  def test_is_exactly_the_mean_without_a_tilt(self):
    value, slopes = jax.value_and_grad(objectives.tilted_mean)(LOSSES, 0.0)
    mean, flat = jax.value_and_grad(jnp.mean)(jnp.asarray(LOSSES))
    self.assertEqual(value, mean)
    np.testing.assert_array_equal(slopes, flat)

  @settings(max_examples=25, deadline=None)
  @given(
    losses=hnp.arrays(np.float32, 8, elements=st.floats(-100, 100, width=32)),
    shift=st.floats(-100, 100, width=32),
    tilts=st.tuples(*2 * [st.floats(-30, 30, width=32)]),
  )
  def test_laws(self, losses, shift, tilts):
    low, high = sorted(tilts)
    stacked = np.float32([losses, losses, losses + np.float32(shift)])
    values, slopes, derivatives, weights = map(
      np.asarray, tilted(stacked, np.float32([low, high, low]))
    )
    slack = 1e-4
    ends = [losses.min(), values[0], values[1], losses.max()]
    self.assertTrue((np.diff(ends) >= -slack).all(), ends)
    self.assertAlmostEqual(values[2], values[0] + shift, delta=slack)
    np.testing.assert_allclose(slopes.sum(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(8 * slopes, weights, atol=1e-4)
    self.assertTrue(np.isfinite(derivatives).all())

  def test_gaussian_losses(self):
    # log E exp(c ℓ) = c m + c² s²/2, and the effective fraction is exp(-c² s²).
    losses = gaussian_losses(20_000)
    values, _, _, weights = tilted_at(losses, [-0.5, 0.5])
    np.testing.assert_allclose(values, [2.84, 3.16], atol=1e-4)
    fractions = [objectives.effective_fraction(w) for w in weights]
    np.testing.assert_allclose(fractions, 0.8521, atol=1e-4)

  def test_noise_tilts_by_itself(self):
    # All pairs of a loss and a noise: independent, so that logarithms of means of exp add.
    noise = gaussian_losses(200) - 3.0
    noisy = (LOSSES[:, None] + noise).ravel()
    c = np.float32([-0.7, 0.7])
    clean, *_ = tilted_at(LOSSES, c)
    found, *_ = tilted_at(noisy, c)
    np.testing.assert_allclose(found - clean, c * noise.var() / 2, rtol=2e-2)
    self.assertGreater(found[1], clean[1])  # still a bound from above
    self.assertLess(found[0], clean[0])  # no longer one


class TiltWeightsTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  @parameterized.parameters(1, 3, 41, 55, 1000)
  def test_exactly_one(self, n):
    def both(losses, constant, tilt):
      return (
        objectives.tilt_weights(losses, 0.0 * tilt, 2.0, 0.1),
        objectives.tilt_weights(constant, tilt),
        objectives.normalized_weights(
          losses,
          0.0 * tilt,
          objectives.update_log_normalizer(jnp.float32(-jnp.inf), losses, 0.0 * tilt, 0.9),
          mix=0.3,
        ),
        objectives.excess_weights(losses, losses, tilt),
        objectives.ratio_weights(losses[:, None], 1.0 + 0.0 * tilt)[:, 0],
      )

    losses = np.random.default_rng(n).normal(100, 30, n).astype(np.float32)
    for weights in self.variant(both)(losses, np.full(n, 0.1, np.float32), np.float32(-7.3)):
      np.testing.assert_array_equal(weights, np.ones(n))

  def test_cut_and_mix(self):
    weights = np.asarray(objectives.tilt_weights(LOSSES, 2.0))
    cut = np.asarray(objectives.tilt_weights(LOSSES, 2.0, max_weight=1.5))
    mixed = np.asarray(objectives.tilt_weights(LOSSES, 2.0, max_weight=1.5, mix=0.25))
    self.assertAlmostEqual(weights.mean(), 1.0, places=5)
    np.testing.assert_array_equal(cut, np.minimum(weights, 1.5))
    np.testing.assert_allclose(mixed, 0.75 * cut + 0.25, rtol=1e-6)
    np.testing.assert_array_equal(objectives.tilt_weights(LOSSES, 2.0, mix=1.0), 1.0)

  def test_survives_huge_losses(self):
    # Of images in nats: the exponentials overflow, the weights do not.
    weights = objectives.tilt_weights(1e5 * LOSSES, 1.0)
    self.assertAlmostEqual(float(weights.max()), LOSSES.size, delta=1e-3)
    self.assertAlmostEqual(float(objectives.effective_fraction(weights)), 1 / LOSSES.size, places=6)

  def test_refuses(self):
    ones = np.ones(3, np.float32)
    for max_weight, mix, named in (
      (0.5, 0.0, 'max_weight=0.5'),
      (math.nan, 0.0, 'max_weight=nan'),
      (10.0, -0.1, 'mix=-0.1'),
      (10.0, 1.1, 'mix=1.1'),
      (10.0, math.nan, 'mix=nan'),
    ):
      for weights in (
        lambda *cut: objectives.tilt_weights(ones, 1.0, *cut),
        lambda *cut: objectives.excess_weights(ones, ones, 1.0, *cut),
        lambda *cut: objectives.normalized_weights(ones, 1.0, jnp.float32(0), *cut),
      ):
        with self.assertRaisesRegex(ValueError, named):
          weights(max_weight, mix)
    with self.assertRaisesRegex(ValueError, 'max_weight=0.5'):
      objectives.ratio_weights(ones[:, None], 2.0, 0.5)
    for function in (objectives.tilted_mean, objectives.tilt_weights):
      with self.assertRaisesRegex(ValueError, 'no losses'):
        function(ones[:0], 1.0)
      with self.assertRaises(AssertionError):
        function(ones[:, None], 1.0)
    with self.assertRaisesRegex(ValueError, 'no losses'):
      objectives.tilt_for_fraction(ones[:0], 0.5, 1)
    with self.assertRaises(AssertionError):
      objectives.excess_weights(ones, ones[:2], 1.0)

  def test_not_a_number_stays_one(self):
    # Silence would hide a network that has diverged.
    for bad in (np.nan, np.inf):
      losses = np.float32([1.0, bad, 2.0])
      self.assertTrue(np.isnan(objectives.tilt_weights(losses, 1.0)).any())
      self.assertTrue(np.isnan(objectives.tilted_mean(losses, 1.0)))


class TiltForFractionTest(chex.TestCase):
  @parameterized.parameters((0.9, 1), (0.9, -1), (0.3, 1), (0.3, -1), (0.05, 1), (0.05, -1))
  def test_has_the_fraction(self, fraction, sign):
    heavy = np.random.default_rng(1).standard_t(2, (5, 200)).astype(np.float32)
    # Of any unit, with outliers on either side.
    rows = heavy * np.float32([1e-6, 1, 1e4, 1, 1])[:, None] + np.float32([0, 7, 0, 0, 0])[:, None]
    rows[3, 0], rows[4, 0] = 1e4, -1e4
    find = lambda losses: objectives.tilt_for_fraction(losses, fraction, sign)
    tilts = jax.vmap(find)(rows)
    weights = jax.vmap(objectives.tilt_weights)(rows, tilts)
    np.testing.assert_allclose(
      jax.vmap(objectives.effective_fraction)(weights), fraction, rtol=2e-3
    )
    self.assertTrue((sign * tilts > 0).all())

  @chex.variants(with_jit=True)
  def test_of_gaussian_losses(self):
    losses = gaussian_losses(20_000)
    tilts = self.variant(
      lambda x: jnp.stack([objectives.tilt_for_fraction(x, 0.8521, s) for s in (1, -1, 0)])
    )(losses)
    np.testing.assert_allclose(tilts, [0.5, -0.5, 0.0], atol=1e-3)

  def test_where_there_is_none(self):
    losses = np.float32([3, 1, 3, 2, 3, 0])
    find = objectives.tilt_for_fraction
    self.assertEqual(find(losses, 1.0, 1), 0.0)
    self.assertEqual(find(np.full(4, 0.1, np.float32), 0.5, 1), 0.0)
    self.assertEqual(find(losses[:1], 0.5, -1), 0.0)
    # Three tie for the largest.
    largest = find(losses, 0.2, 1)
    gaussian = math.sqrt(math.log(1 / 0.2)) / losses.std()
    self.assertAlmostEqual(float(largest) / (2**20 * gaussian), 1.0, places=3)
    np.testing.assert_array_equal(objectives.tilt_weights(losses, largest), 2.0 * (losses == 3))
    self.assertLess(np.abs(find(losses, 0.2, -1)), largest)

  def test_refuses(self):
    for fraction in (0.0, -0.5, 1.1, math.nan):
      with self.assertRaisesRegex(ValueError, f'fraction={fraction}'):
        objectives.tilt_for_fraction(LOSSES, fraction, 1)
    with self.assertRaisesRegex(ValueError, 'sign=0.5'):
      objectives.tilt_for_fraction(LOSSES, 0.5, 0.5)


class NormalizerTest(chex.TestCase):
  def test_is_an_average(self):
    batches = np.random.default_rng(2).normal(size=(4, 7)).astype(np.float32)
    for c in (2.0, -2.0):
      means = np.exp(c * batches.astype(np.float64)).mean(axis=1)
      log_z, exact = jnp.float32(-jnp.inf), means[0]
      for batch, mean in zip(batches, means, strict=True):
        exact = 0.9 * exact + 0.1 * mean
        log_z = objectives.update_log_normalizer(log_z, batch, c, 0.9)
        self.assertAlmostEqual(float(log_z), math.log(exact), places=5)

  def test_survives_huge_losses(self):
    log_z = objectives.update_log_normalizer(jnp.float32(0), 1e4 * LOSSES, 1.0, 0.9)
    self.assertAlmostEqual(float(log_z) / (1e4 * LOSSES.max()), 1.0, places=3)
    # What falls is forgotten at a fixed rate.
    fallen = objectives.update_log_normalizer(log_z, LOSSES, 1.0, 0.9)
    self.assertAlmostEqual(float(log_z - fallen), -math.log(0.9), delta=0.01)

  def test_frees_the_weights_of_the_batch(self):
    # Under the tilt, Gaussian losses of variance 1 have mean c; a batch's softmax falls short.
    c, count = 0.3, 2**16
    losses = stats.norm.ppf((np.arange(count) + 0.5) / count).astype(np.float32)
    np.random.default_rng(3).shuffle(losses)
    for n in (2, 8):
      batches = losses.reshape(-1, n)

      def step(log_z, batch):
        weights = objectives.normalized_weights(batch, c, log_z)
        return objectives.update_log_normalizer(log_z, batch, c, 0.99), (log_z, weights)

      start = objectives.update_log_normalizer(jnp.float32(-jnp.inf), losses[:100], c, 0.99)
      _, (log_zs, free) = jax.lax.scan(step, start, batches)
      bound = jax.vmap(lambda batch: objectives.tilt_weights(batch, c))(batches)
      self.assertAlmostEqual(float(jnp.mean(free * batches)), c, delta=0.01)
      self.assertAlmostEqual(float(jnp.mean(free)), 1.0, delta=0.01)
      # To first order the softmax of n has the tilt c (1 - 1/n).
      self.assertAlmostEqual(float(jnp.mean(bound * batches)), c * (1 - 1 / n), delta=0.01)
      self.assertAlmostEqual(float(jnp.mean(log_zs)), c**2 / 2, delta=0.01)

  def test_refuses(self):
    for decay in (0.0, 1.0, -1.0, math.nan):
      with self.assertRaisesRegex(ValueError, f'decay={decay}'):
        objectives.update_log_normalizer(jnp.float32(0), LOSSES, 1.0, decay)
    with self.assertRaises(AssertionError):
      objectives.update_log_normalizer(LOSSES, LOSSES, 1.0, 0.9)


class NetworkTest(chex.TestCase):
  """Losses of a small network, and their gradients in its parameters."""

  def setUp(self):
    super().setUp()
    rng = np.random.default_rng(4)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)
    self.params = {'in': draw(3, 16), 'time': draw(1, 16), 'out': 0.3 * draw(16, 3)}
    self.sde = sdes.vp()
    self.normalizer = times.importance_normalizer(self.sde, 1e-3)
    u = times.stratified(jax.random.key(0), (30, 5))
    self.times = times.importance_times(self.sde, u, 1e-3)
    self.data, self.eps = draw(30, 3), draw(30, 5, 3)
    self.reference_losses, self.log_ratios = draw(30), draw(30, 5)

  def errors(self, params):
    def noise(x, t):
      return jnp.tanh(x @ params['in'] + t @ params['time']) @ params['out']

    return denoising.denoising_errors(noise, self.sde, self.data, self.eps, self.times)

  def losses(self, params):
    return denoising.likelihood_losses(self.errors(params), self.normalizer)

  def path(self, params, alpha):
    losses = self.losses(params)
    return jnp.mean(objectives.tilt_weights(losses, alpha - 1, 10.0, 0.1) * losses)

  def excess(self, params, alpha):
    losses = self.losses(params)
    weights = objectives.excess_weights(losses, self.reference_losses, alpha - 1, 10.0, 0.1)
    return jnp.mean(weights * losses)

  def ratio(self, params, alpha):
    weights = objectives.ratio_weights(self.log_ratios, alpha)
    return objectives.ratio_loss(self.errors(params), weights, self.normalizer, alpha)

  def risk(self, params, alpha):
    return objectives.tilted_mean(self.losses(params), alpha - 1)

  @chex.variants(with_jit=True, without_jit=True)
  def test_order_one_is_plain_denoising(self):
    plain = lambda params, alpha: jnp.mean(self.losses(params))
    expected = self.variant(jax.value_and_grad(plain))(self.params, 1.0)
    for loss in (self.path, self.excess, self.ratio, self.risk):
      chex.assert_trees_all_equal(
        self.variant(jax.value_and_grad(loss))(self.params, 1.0), expected
      )

  def test_no_gradient_through_weights(self):
    def weighted(params, alpha):
      losses = self.losses(params)
      return jnp.mean(objectives.tilt_weights(losses, alpha - 1) * losses)

    slopes = lambda loss: jax.jit(jax.vmap(jax.grad(loss), (None, 0)))
    alphas = np.float32([0.7, 1.2])
    found, expected = (slopes(loss)(self.params, alphas) for loss in (weighted, self.risk))
    chex.assert_trees_all_close(found, expected, rtol=1e-4, atol=1e-4)


class RatioTest(chex.TestCase):
  def test_each_time_is_a_softmax_of_its_own(self):
    log_ratios = np.random.default_rng(5).normal(size=(9, 4)).astype(np.float32)
    found = objectives.ratio_weights(log_ratios, 1.7)
    for column, ratios in zip(found.T, log_ratios.T, strict=True):
      np.testing.assert_allclose(column, objectives.tilt_weights(ratios, 0.7), rtol=1e-5)
    cut = objectives.ratio_weights(log_ratios, 1.7, 1.2)
    np.testing.assert_array_equal(cut, np.minimum(found, 1.2))
    # What all data share at a time does not matter, such as an error's mean over the batch.
    errors = np.exp(log_ratios)
    mean = errors.mean(axis=0, keepdims=True)
    for reference in (mean, 0 * mean):
      proxies = objectives.proxy_log_ratios(errors, reference, 2.0)
      expected = objectives.ratio_weights(2.0 * errors, 1.7)
      np.testing.assert_allclose(objectives.ratio_weights(proxies, 1.7), expected, rtol=1e-4)

  def test_gradient_reaches_only_the_errors(self):
    errors = np.random.default_rng(6).exponential(size=(6, 3)).astype(np.float32)

    def loss(errors):
      proxies = objectives.proxy_log_ratios(errors, jnp.ones_like(errors), 0.5)
      return objectives.ratio_loss(errors, objectives.ratio_weights(proxies, 2.0), 7.0, 2.0)

    weights = objectives.ratio_weights(0.5 * errors, 2.0)
    np.testing.assert_allclose(jax.grad(loss)(errors), 2.0 * 3.5 * weights / 18, rtol=1e-5)
    held = jax.grad(lambda weights: objectives.ratio_loss(errors, weights, 7.0, 2.0))(weights)
    np.testing.assert_array_equal(held, 0.0)

  def test_discriminator_finds_the_log_ratio(self):
    # Letters as often as p and q have them, in classes of different sizes.
    p, q = np.array([5, 3, 2]) / 10, np.array([4, 6, 10]) / 20
    data, model = np.repeat(np.arange(3), [5, 3, 2]), np.repeat(np.arange(3), [4, 6, 10])
    loss = lambda logits: objectives.discriminator_loss(logits[data], logits[model])
    value, slope = jax.value_and_grad(loss)(jnp.float32(np.log(p / q)))
    np.testing.assert_allclose(slope, 0.0, atol=1e-6)
    middle = (p + q) / 2
    jensen_shannon = (p @ np.log(p / middle) + q @ np.log(q / middle)) / 2
    self.assertAlmostEqual(float(value), 2 * math.log(2) - 2 * jensen_shannon, places=5)
    self.assertAlmostEqual(float(loss(jnp.zeros(3))), 2 * math.log(2), places=6)
    huge = objectives.discriminator_loss(np.float32([-1e5, 1e5]), np.float32([1e5, -1e5]))
    self.assertAlmostEqual(float(huge), 1e5, delta=1.0)

  def test_refuses_shapes_that_do_not_fit(self):
    ones = np.ones((4, 3), np.float32)
    with self.assertRaises(AssertionError):
      objectives.ratio_weights(ones[0], 2.0)
    with self.assertRaises(AssertionError):
      objectives.ratio_loss(ones, ones[:, :1], 1.0, 2.0)
    with self.assertRaises(AssertionError):
      objectives.proxy_log_ratios(ones, ones[0], 1.0)
