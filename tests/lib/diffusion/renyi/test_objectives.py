"""Tests of the losses that train a diffusion by a Rényi divergence."""

import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
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
      if abs(c) > 5e-5:
        mean = (special.logsumexp(c * exact) - math.log(exact.size)) / c
        np.testing.assert_allclose(values[i], mean, rtol=1e-6)
        np.testing.assert_allclose(derivatives[i], (softmax @ exact - mean) / c, atol=1e-3)
      else:
        np.testing.assert_allclose(values[i], exact.mean(), rtol=1e-6)
        np.testing.assert_allclose(derivatives[i], exact.var() / 2, rtol=1e-5)
    self.assertTrue((np.diff(values) >= -1e-6).all())
    np.testing.assert_array_equal(values[[0, -1]], [LOSSES.min(), LOSSES.max()])

  def test_is_exactly_the_mean_without_a_tilt(self):
    value, slopes = jax.jit(jax.value_and_grad(objectives.tilted_mean))(LOSSES, 0.0)
    mean, flat = jax.jit(jax.value_and_grad(jnp.mean))(LOSSES)
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
    found = tilted(stacked, np.float32([low, high, low]))
    values, slopes, derivatives, weights = map(np.asarray, found)
    slack = 1e-4
    ends = [losses.min(), values[0], values[1], losses.max()]
    self.assertTrue((np.diff(ends) >= -slack).all(), ends)
    self.assertAlmostEqual(values[2], values[0] + shift, delta=slack)
    np.testing.assert_allclose(slopes.sum(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(8 * slopes, weights, atol=1e-4)
    self.assertTrue(np.isfinite(derivatives).all())

  def test_gaussian_losses(self):
    # log E exp(c ℓ) = c m + c² s²/2, and the effective fraction is exp(-c² s²).
    losses = gaussian_losses(10_000)
    values, _, _, weights = tilted_at(losses, [-0.5, 0.5])
    np.testing.assert_allclose(values, [2.84, 3.16], atol=1e-4)
    fractions = jax.vmap(objectives.effective_fraction)(weights)
    np.testing.assert_allclose(fractions, 0.8521, atol=2e-4)

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
  @chex.variants(with_jit=True)
  def test_exactly_one(self):
    sizes = (1, 41, 55, 1000)

    def all_kinds(rows, tilt):
      found = []
      for losses, constant in rows:
        start = jnp.float32(-jnp.inf)
        log_z = objectives.update_log_normalizer(start, losses, 0.0 * tilt, 0.9)
        log_z = objectives.update_log_normalizer(log_z, losses[::-1], 0.0 * tilt, 0.9)
        found.append(
          (
            objectives.tilt_weights(losses, 0.0 * tilt, 2.0, 0.1),
            objectives.tilt_weights(constant, tilt),
            objectives.normalized_weights(losses, 0.0 * tilt, log_z, mix=0.3),
            objectives.excess_weights(losses, losses, tilt),
            objectives.ratio_weights(losses[:, None], 1.0 + 0.0 * tilt)[:, 0],
          )
        )
      return found

    draw = np.random.default_rng(0)
    rows = [(np.float32(draw.normal(100, 30, n)), np.full(n, 0.1, np.float32)) for n in sizes]
    found = self.variant(all_kinds)(rows, np.float32(-7.3))
    for n, weights in zip(sizes, found, strict=True):
      np.testing.assert_array_equal(weights, np.ones((5, n)))

  def test_cut_and_mix(self):
    kinds = ((), (1.5,), (1.5, 0.25), (1.5, 1.0))
    weights, cut, mixed, flat = jax.jit(
      lambda losses: [objectives.tilt_weights(losses, 2.0, *kind) for kind in kinds]
    )(LOSSES)
    self.assertAlmostEqual(float(weights.mean()), 1.0, places=5)
    np.testing.assert_array_equal(cut, np.minimum(weights, 1.5))
    np.testing.assert_allclose(mixed, 0.75 * cut + 0.25, rtol=1e-6)
    np.testing.assert_array_equal(flat, 1.0)

  def test_survives_huge_losses(self):
    # Of images in nats: the exponentials overflow, the weights do not.
    weights = objectives.tilt_weights(1e5 * LOSSES, 1.0)
    self.assertAlmostEqual(float(weights.max()), LOSSES.size, delta=1e-3)
    self.assertAlmostEqual(float(objectives.effective_fraction(weights)), 1 / LOSSES.size, places=6)

  @chex.variants(with_jit=True, without_jit=True)
  def test_effective_fraction_of_extreme_weights(self):
    fraction = self.variant(objectives.effective_fraction)
    for scale in (1e-24, 1.0, 1e24):
      weights = np.float32(scale) * np.float32([3.0, 1.0, 1.0, 1.0])
      self.assertAlmostEqual(float(fraction(weights)), 36 / 48, places=6)
    self.assertAlmostEqual(float(fraction(np.float32([1e20, 1e-24]))), 0.5, places=6)

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
    losses = np.repeat(LOSSES[None], 2, axis=0)
    losses[:, 7] = [np.nan, np.inf]
    values, _, _, weights = tilted(losses, np.float32([1.0, 1.0]))
    self.assertTrue(np.isnan(values).all() and np.isnan(weights).any(axis=1).all())


class TiltForFractionTest(chex.TestCase):
  def test_has_the_fraction(self):
    wanted = [(fraction, sign) for fraction in (0.9, 0.3, 0.05) for sign in (1, -1)]
    rows = np.random.default_rng(1).standard_t(2, (5, 200)).astype(np.float32)
    # Of any unit, with outliers on either side.
    rows *= np.float32([1e-6, 1, 1e4, 1, 1])[:, None]
    rows[1] += 7
    rows[3, 0], rows[4, 0] = 1e4, -1e4

    def find(losses):
      tilts = jnp.stack([objectives.tilt_for_fraction(losses, *want) for want in wanted])
      weights = jax.vmap(objectives.tilt_weights, (None, 0))(losses, tilts)
      return tilts, jax.vmap(objectives.effective_fraction)(weights)

    tilts, fractions = jax.jit(jax.vmap(find))(rows)
    np.testing.assert_array_equal(np.sign(tilts), [[sign for _, sign in wanted]] * 5)
    np.testing.assert_allclose(fractions, [[fraction for fraction, _ in wanted]] * 5, rtol=2e-3)

  @chex.variants(with_jit=True)
  def test_of_gaussian_losses(self):
    losses = gaussian_losses(20_000)
    tilts = self.variant(
      lambda x: jnp.stack([objectives.tilt_for_fraction(x, 0.8521, s) for s in (1, -1, 0)])
    )(losses)
    np.testing.assert_allclose(tilts, [0.5, -0.5, 0.0], atol=1e-3)

  def test_where_there_is_none(self):
    losses = np.float32([3, 1, 3, 2, 3, 0])

    @jax.jit
    def find(losses, constant):
      of = objectives.tilt_for_fraction
      return of(losses, 1.0, 1), of(constant, 0.5, 1), of(losses[:1], 0.5, -1), of(losses, 0.2, 1)

    *zeros, largest = find(losses, np.full(6, 0.1, np.float32))
    np.testing.assert_array_equal(zeros, 0.0)
    # Three tie for the largest.
    gaussian = math.sqrt(math.log(1 / 0.2)) / losses.std()
    self.assertAlmostEqual(float(largest) / (2**20 * gaussian), 1.0, places=3)
    np.testing.assert_array_equal(objectives.tilt_weights(losses, largest), 2.0 * (losses == 3))

  def test_refuses(self):
    for fraction in (0.0, -0.5, 1.1, math.nan):
      with self.assertRaisesRegex(ValueError, f'fraction={fraction}'):
        objectives.tilt_for_fraction(LOSSES, fraction, 1)
    with self.assertRaisesRegex(ValueError, 'sign=0.5'):
      objectives.tilt_for_fraction(LOSSES, 0.5, 0.5)


class NormalizerTest(chex.TestCase):
  def test_is_an_average(self):
    batches = np.random.default_rng(2).normal(size=(4, 7)).astype(np.float32)
    update = jax.jit(lambda *args: objectives.update_log_normalizer(*args, 0.9))
    for c in (2.0, -2.0):
      means = np.exp(c * batches.astype(np.float64)).mean(axis=1)
      log_z, exact = jnp.float32(-jnp.inf), means[0]
      for batch, mean in zip(batches, means, strict=True):
        exact = 0.9 * exact + 0.1 * mean
        log_z = update(log_z, batch, c)
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

      @jax.jit
      def run(batches):
        start = objectives.update_log_normalizer(jnp.float32(-jnp.inf), losses[:100], c, 0.99)
        _, found = jax.lax.scan(step, start, batches)
        return *found, jax.vmap(lambda batch: objectives.tilt_weights(batch, c))(batches)

      log_zs, free, bound = run(batches)
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
    self.times = rng.uniform(0.01, 1.0, (30, 5)).astype(np.float32)
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

  @chex.variants(with_jit=True)
  def test_order_one_is_plain_denoising(self):
    plain = lambda params, alpha: jnp.mean(self.losses(params))
    expected = self.variant(jax.value_and_grad(plain))(self.params, 1.0)
    for loss in (self.path, self.excess, self.ratio, self.risk):
      found = self.variant(jax.value_and_grad(loss))(self.params, 1.0)
      chex.assert_trees_all_equal(found, expected)

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
    errors = np.exp(log_ratios)

    @jax.jit
    def run(log_ratios, errors):
      weigh = lambda ratios, *cut: objectives.ratio_weights(ratios, 1.7, *cut)
      proxies = lambda reference: objectives.proxy_log_ratios(errors, reference, 2.0)
      mean = errors.mean(axis=0, keepdims=True)
      alone = jax.vmap(objectives.tilt_weights, (1, None), 1)(log_ratios, 0.7)
      return (
        (weigh(log_ratios), alone, weigh(log_ratios, 1.2)),
        (weigh(2.0 * errors), weigh(proxies(mean)), weigh(proxies(0 * mean))),
      )

    (found, alone, cut), (raw, *others) = run(log_ratios, errors)
    np.testing.assert_allclose(found, alone, rtol=1e-5)
    np.testing.assert_array_equal(cut, np.minimum(found, 1.2))
    # What all data share at a time does not matter, such as an error's mean over the batch.
    for other in others:
      np.testing.assert_allclose(other, raw, rtol=1e-4)

  def test_gradient_reaches_only_the_errors(self):
    errors = np.random.default_rng(6).exponential(size=(6, 3)).astype(np.float32)

    def loss(errors):
      proxies = objectives.proxy_log_ratios(errors, jnp.ones_like(errors), 0.5)
      return objectives.ratio_loss(errors, objectives.ratio_weights(proxies, 2.0), 7.0, 2.0)

    @jax.jit
    def slopes(errors):
      weights = objectives.ratio_weights(0.5 * errors, 2.0)
      held = jax.grad(lambda weights: objectives.ratio_loss(errors, weights, 7.0, 2.0))
      return weights, jax.grad(loss)(errors), held(weights)

    weights, slope, held = slopes(errors)
    np.testing.assert_allclose(slope, 7.0 * weights / 18, rtol=1e-5)
    np.testing.assert_array_equal(held, 0.0)

  def test_discriminator_finds_the_log_ratio(self):
    # Letters as often as p and q have them, in classes of different sizes.
    p, q = np.array([5, 3, 2]) / 10, np.array([4, 6, 10]) / 20
    data, model = np.repeat(np.arange(3), [5, 3, 2]), np.repeat(np.arange(3), [4, 6, 10])
    loss = lambda logits: objectives.discriminator_loss(logits[data], logits[model])
    both = jax.jit(jax.vmap(jax.value_and_grad(loss)))
    (value, zero, huge), (slope, _, finite) = both(
      np.float32([np.log(p / q), [0, 0, 0], [-1e5, 1e5, 0]])
    )
    np.testing.assert_allclose(slope, 0.0, atol=1e-6)
    middle = (p + q) / 2
    jensen_shannon = (p @ np.log(p / middle) + q @ np.log(q / middle)) / 2
    self.assertAlmostEqual(float(value), 2 * math.log(2) - 2 * jensen_shannon, places=5)
    self.assertAlmostEqual(float(zero), 2 * math.log(2), places=6)
    self.assertAlmostEqual(float(huge), 1e5 * (p[0] + q[1]), delta=1.0)
    self.assertTrue(np.isfinite(finite).all())

  def test_refuses_shapes_that_do_not_fit(self):
    ones = np.ones((4, 3), np.float32)
    with self.assertRaises(AssertionError):
      objectives.ratio_weights(ones[0], 2.0)
    with self.assertRaises(AssertionError):
      objectives.ratio_loss(ones, ones[:, :1], 1.0, 2.0)
    with self.assertRaises(AssertionError):
      objectives.proxy_log_ratios(ones, ones[0], 1.0)
