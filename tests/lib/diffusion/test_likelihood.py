"""Tests of likelihoods, against Gaussian data, whose diffusion is Gaussian at all times."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from scipy import integrate, stats

from lib.diffusion import likelihood, sde
from lib.flow import regularizers

SDES = {
  'vp': sde.vp(),
  'sub_vp': sde.sub_vp(),
  've': sde.ve(0.05, 20.0),
  'cosine': sde.cosine(),
}
MEAN = np.float32([0.4, -0.7])
STD = 0.6
POINTS = np.float32([[0.4, -0.7], [1.0, 0.2], [-0.5, -0.9], [2.0, 1.0]])


def gaussian_score(process, mean, std):
  """The score of data N(mean, std²)."""

  def score(x, t):
    m = process.mean(t)
    return (m * mean - x) / ((m * std) ** 2 + process.std(t) ** 2)

  return score


def gaussian_noise(process, mean=MEAN, std=STD):
  return sde.noise_of_score(process, gaussian_score(process, mean, std))


def mixture_log_density(process, x, t):
  """Of data 0.7 N(-1, 0.3²) + 0.3 N(1, 0.3²) at time t; x and t are (B, 1)."""
  m = process.mean(t)
  std = jnp.sqrt((0.3 * m) ** 2 + process.std(t) ** 2)
  parts = jax.scipy.stats.norm.logpdf(x, m * jnp.float32([-1.0, 1.0]), std)
  return jax.nn.logsumexp(parts + jnp.log(jnp.float32([0.7, 0.3])), axis=-1)


def mixture_score(process):
  return lambda x, t: jax.grad(lambda y: jnp.sum(mixture_log_density(process, y, t)))(x)


def side_by_side():
  """The four SDEs as one, a quarter of the rows each, so that one program serves all."""
  end = SDES['cosine'].horizon
  parts = (sde.vp(horizon=end), sde.sub_vp(horizon=end), SDES['ve'], SDES['cosine'])

  def beside(name):
    def function(t):
      quarters = zip(parts, jnp.split(t, 4), strict=True)
      return jnp.concatenate([getattr(part, name)(quarter) for part, quarter in quarters])

    return function

  names = ('mean', 'std', 'rate', 'diffusion_sq', 'log_snr', 'time')

  def build(rows):
    scales = np.repeat([[part.prior_std] for part in parts], rows // 4, axis=0)
    return sde.SDE(**{name: beside(name) for name in names}, horizon=end, prior_std=scales)

  return build


class LogLikelihoodTest(chex.TestCase):
  def test_gaussian_scores_make_an_affine_flow(self):
    # Each SDE has four points under the data's score, and four under a wrong one.
    process = side_by_side()(32)
    x = np.tile(POINTS, (8, 1))
    std = np.tile(np.repeat(np.float32([STD, 1.7]), 4), 4)[:, None]
    start = 1e-5

    @jax.jit
    def solve(x):
      return likelihood.log_likelihood(gaussian_score(process, MEAN, std), process, x, start)

    log_density, z = map(np.asarray, solve(x))
    ends = [np.full((32, 1), t) for t in (start, process.horizon)]
    means = [np.float64(process.mean(t)) * MEAN for t in ends]
    stds = [np.hypot(process.mean(t) * std, process.std(t)) for t in ends]
    # The flow keeps standard units, and the model's law is what it makes of the prior.
    expected = means[1] + (x - means[0]) * stds[1] / stds[0]
    np.testing.assert_allclose(z / process.prior_std, expected / process.prior_std, atol=1e-4)
    prior = stats.norm.logpdf(expected, scale=process.prior_std)
    model = np.sum(prior + np.log(stds[1] / stds[0]), axis=-1)
    np.testing.assert_allclose(log_density, model, rtol=2e-5, atol=1e-4)
    # But for the prior's mismatch, widest for VE, that is the data's density at the start.
    exact = stats.norm.logpdf(x, means[0], stds[0]).sum(axis=-1)
    mismatch = np.abs(stats.norm.logpdf(expected, means[1], stds[1]) - prior).sum(axis=-1)
    self.assertTrue((np.abs(log_density - exact) < mismatch + 1e-4).all())
    self.assertLess(mismatch.reshape(4, 8)[[0, 1, 3]].max(), 0.03)

  def test_any_field_has_a_density_that_integrates_to_one(self):
    process = SDES['vp']
    exact = mixture_score(process)
    traces = []

    @jax.jit
    def solve(x):
      traces.append(x)

      # The first half has the data's score, the second one that is no density's.
      def score(x, t):
        first, second = jnp.split(exact(x, t), 2)
        y, s = jnp.split(x, 2)[1], jnp.split(t, 2)[1]
        return jnp.concatenate([first, 0.9 * second + 0.1 * jnp.sin(3.0 * y + s)])

      return likelihood.log_likelihood(score, process, x, 1e-3)[0]

    grid = np.linspace(-5.0, 5.0, 800, dtype=np.float32).reshape(400, 2)
    # Two batches of one shape, and one program.
    found = np.stack([solve(np.tile(x[:, None], (2, 1))) for x in grid.T], axis=-1)
    self.assertLen(traces, 1)
    density = np.exp(found.reshape(2, 800))
    x = grid.reshape(-1, 1)
    np.testing.assert_allclose(integrate.trapezoid(density, x[:, 0]), 1.0, atol=1e-3)
    expected = np.exp(mixture_log_density(process, x, jnp.full_like(x, 1e-3)))
    np.testing.assert_allclose(density[0], expected, atol=5e-3)
    self.assertGreater(np.abs(density[1] - density[0]).max(), 0.1)

  def test_hutchinson_is_unbiased_and_exact_for_diagonal_jacobians(self):
    # The first rows' covariance is diagonal, the others' is not; the flow is the same for all keys.
    process = sde.vp(beta_max=5.0)
    turn = np.float32([[0.6, -0.8], [0.8, 0.6]])
    x = np.float32(np.tile(POINTS, (2, 1)))
    stds = np.float32([0.5, 1.5])

    def score(x, t):
      first, second = jnp.split(x, 2)
      flat = jnp.concatenate([first, second @ turn])
      found = gaussian_score(process, 0.0, stds)(flat, t)
      first, second = jnp.split(found, 2)
      return jnp.concatenate([first, second @ turn.T])

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, None))
    def solve(key, x):
      divergence = functools.partial(regularizers.divergence_hutchinson, key=key, num_probes=2)
      return likelihood.log_likelihood(score, process, x, 1e-3, divergence)[0]

    found = np.asarray(solve(jax.random.split(jax.random.key(0), 64), x))
    end, start = (np.hypot(process.mean(t) * stds, process.std(t)) for t in (1.0, 1e-3))
    flat = np.concatenate([x[:4], x[4:] @ turn])
    prior = stats.norm.logpdf(flat * end / start)
    exact = np.sum(prior + np.log(end / start), axis=-1)
    np.testing.assert_allclose(found[:, :4], np.tile(exact[:4], (64, 1)), atol=5e-4)
    errors = (found - exact)[:, 4:].ravel()
    self.assertGreater(errors.std(), 0.1)
    self.assertLess(abs(errors.mean()), 5 * errors.std() / np.sqrt(errors.size))

  @parameterized.parameters(0.0, -0.1, 1.0, 2.0, float('nan'))
  def test_refuses_a_start(self, start):
    field, key = lambda x, t: x, jax.random.key(0)
    for call in (
      lambda: likelihood.log_likelihood(field, SDES['vp'], POINTS, start),
      lambda: likelihood.truncation_correction(field, SDES['vp'], POINTS, key, start),
      lambda: likelihood.nelbo(field, SDES['vp'], POINTS, key, start),
    ):
      with self.assertRaisesRegex(ValueError, 'first time'):
        call()

  def test_refuses_points_that_are_not_rows(self):
    with self.assertRaises(AssertionError):
      likelihood.log_likelihood(lambda x, t: x, SDES['vp'], POINTS[0], 0.1)


class BoundTest(chex.TestCase):
  @parameterized.parameters(*SDES)
  def test_gaussian_data_in_closed_form(self, name):
    # With the SNR times STD², w, the errors' mean is D (w/(1 + w))² + (δ/STD)² w/(1 + w)²; dt g²/σ²
    # is -dw/w.
    process, start, repeats, dim = SDES[name], 0.02, 2000, 2
    noise = gaussian_noise(process)
    keys = jax.random.split(jax.random.key(1))

    @jax.jit
    def estimate(x):
      x = jnp.repeat(x, repeats, axis=0)
      return (
        likelihood.nelbo(noise, process, x, keys[0], start, 16),
        likelihood.truncation_correction(noise, process, x, keys[1], start),
      )

    bounds, corrections = (np.asarray(found).reshape(4, -1) for found in estimate(POINTS))
    times = np.array([start, process.horizon])
    m, sigma = np.float64(process.mean(times)), np.float64(process.std(times))
    w = (m * STD / sigma) ** 2
    far = np.sum((POINTS - MEAN) ** 2, axis=1) / STD**2
    first, last = 0.5 * (dim * (np.log1p(w) + 1 / (1 + w)) - far[:, None] / (1 + w)).T
    error = dim * (w[0] / (1 + w[0])) ** 2 + far * w[0] / (1 + w[0]) ** 2
    ratio = (sigma[1] / process.prior_std) ** 2
    prior = 0.5 * np.sum((m[1] * POINTS / process.prior_std) ** 2, axis=1)
    prior += 0.5 * dim * (ratio - 1 - np.log(ratio))
    reconstruction = 0.5 * (error + dim * np.log(2 * np.pi * (sigma[0] / m[0]) ** 2))
    entropy = 0.5 * dim * np.log(2 * np.pi * np.e * sigma[0] ** 2)
    expected = prior + first - last + reconstruction
    self._assert_mean(bounds, expected)
    self._assert_mean(corrections, reconstruction - entropy)

    # The model's law at 0, but for the prior's mismatch: the start's law, denoised. The bound
    # leaves a gap at each point, and that of the posterior's width on average.
    gain = w[0] / (1 + w[0]) / m[0]
    variance = gain**2 * ((m[0] * STD) ** 2 + sigma[0] ** 2) + (sigma[0] / m[0]) ** 2
    model = stats.norm.logpdf(POINTS, MEAN, np.sqrt(variance)).sum(axis=1)
    self.assertGreater((expected + model).min(), -0.01)
    share = w[0] / (1 + w[0])
    mismatch = stats.norm.entropy(scale=np.hypot(m[1] * STD, sigma[1])) * dim
    cross = 0.5 * dim * np.log(2 * np.pi * process.prior_std**2)
    second_moment = dim * ((m[1] * STD) ** 2 + sigma[1] ** 2) + m[1] ** 2 * np.sum(MEAN**2)
    prior_gap = cross + 0.5 * second_moment / process.prior_std**2 - mismatch
    gap = prior_gap + 0.5 * dim * (share - 1 - np.log(share))
    # A function that is linear in δ² has its mean over the data where δ²/STD² = D.
    slope = np.polynomial.Polynomial.fit(far, expected - prior, 1)
    prior_mean = 0.5 * (m[1] / process.prior_std) ** 2 * (np.sum(MEAN**2) + dim * STD**2)
    prior_mean += 0.5 * dim * (ratio - 1 - np.log(ratio))
    entropy_of_data = dim * stats.norm.entropy(scale=STD)
    self.assertAlmostEqual(slope(dim) + prior_mean, entropy_of_data + gap, places=4)

  def test_mixture_is_tight_at_every_point(self):
    process = SDES['vp']
    x = np.float32([[-1.0], [-0.2], [0.3], [1.4]])
    noise = sde.noise_of_score(process, mixture_score(process))

    @jax.jit
    def estimate(x):
      rows = jnp.repeat(x, 4000, axis=0)
      return likelihood.nelbo(noise, process, rows, jax.random.key(2), 1e-4, 16)

    bounds = np.asarray(estimate(x)).reshape(4, -1)
    parts = stats.norm.pdf(x, [-1.0, 1.0], 0.3) @ [0.7, 0.3]
    self._assert_mean(bounds, -np.log(parts), 2e-3)

  def test_bounds_a_model_whose_score_is_no_density_s(self):
    # The reverse SDE of 0.8 times a Gaussian's score is linear, its variance v a linear ODE.
    process, start = sde.vp(beta_max=8.0), 1e-2
    exact = gaussian_noise(process, 0.0)
    noise = lambda x, t: 0.8 * exact(x, t)
    numbers = lambda f, t: float(f(np.float64(t)))

    def slope(t, v):
      total = (numbers(process.mean, t) * STD) ** 2 + numbers(process.std, t) ** 2
      g_sq = numbers(process.diffusion_sq, t)
      # dx = (a x - g² s) dt, s = -0.8 x/total, and noise g² that time takes away.
      return 2 * (numbers(process.rate, t) + 0.8 * g_sq / total) * v - g_sq

    v = integrate.solve_ivp(slope, (1.0, start), [1.0], rtol=1e-8).y[0, -1]
    m, sigma = numbers(process.mean, start), numbers(process.std, start)
    gain = (1 - 0.8 * sigma**2 / ((m * STD) ** 2 + sigma**2)) / m
    std = np.sqrt(gain**2 * v + (sigma / m) ** 2)
    x = np.float32([[0.0], [0.5], [-1.2]])

    @jax.jit
    def estimate(x):
      rows = jnp.repeat(x, 2000, axis=0)
      return likelihood.nelbo(noise, process, rows, jax.random.key(3), start, 16)

    bounds = np.asarray(estimate(x)).reshape(3, -1)
    gaps = bounds.mean(axis=1) + stats.norm.logpdf(x[:, 0], 0.0, std)
    self.assertTrue((gaps > 0).all())
    self.assertLess(gaps.max(), 1.0)

  @chex.variants(with_jit=True)
  def test_network_that_knows_the_data_makes_no_error(self):
    # What is left is what no network changes, without any chance. The prior does not fit.
    process, start = sde.cosine(horizon=0.5), 1e-3
    x = np.tile(MEAN, (3, 1))
    oracle = lambda x, t: (x - process.mean(t) * MEAN) / process.std(t)
    bounds, corrections = self.variant(
      lambda key: (
        likelihood.nelbo(oracle, process, x, key, start, 3),
        likelihood.truncation_correction(oracle, process, x, key, start),
      )
    )(jax.random.key(0))
    m, sigma = (np.float64(f(np.array([start, process.horizon]))) for f in process[:2])
    prior = 0.5 * np.sum((m[1] * MEAN) ** 2 + sigma[1] ** 2 - 1 - 2 * np.log(sigma[1]))
    np.testing.assert_allclose(
      bounds, prior + np.log(2 * np.pi * (sigma[0] / m[0]) ** 2), rtol=1e-4
    )
    np.testing.assert_allclose(corrections, -1 - 2 * np.log(m[0]), rtol=1e-5)

  def test_correction_shares_the_noise_of_its_key(self):
    # A network of zeros errs by the noise itself.
    key = jax.random.key(5)
    n = np.asarray(jax.random.normal(key, POINTS.shape))
    zeros = lambda x, t: jnp.zeros_like(x)
    solve = jax.jit(lambda x: likelihood.truncation_correction(zeros, SDES['ve'], x, key, 0.1))
    found = solve(POINTS)
    np.testing.assert_allclose(found, 0.5 * np.sum(n**2, axis=1) - 1, rtol=1e-5)

  def test_correction_vanishes_with_the_start_where_data_are_smooth(self):
    process = SDES['vp']
    x = np.float32(MEAN + STD * np.random.default_rng(0).normal(size=(4000, 2)))
    noise = gaussian_noise(process)

    @jax.jit
    def solve(x):
      return [
        jnp.mean(likelihood.truncation_correction(noise, process, x, jax.random.key(0), start))
        for start in (0.1, 1e-5)
      ]

    means = [float(mean) for mean in solve(x)]
    self.assertLess(means[0], -0.1)
    self.assertAlmostEqual(means[1], 0.0, delta=5 / np.sqrt(len(x)))

  @parameterized.parameters(0, -2)
  def test_refuses_no_times(self, num_times):
    with self.assertRaisesRegex(ValueError, f'num_times={num_times}'):
      likelihood.nelbo(lambda x, t: x, SDES['vp'], POINTS, jax.random.key(0), 0.1, num_times)

  def _assert_mean(self, samples, expected, slack=1e-3):
    std_error = samples.std(axis=1) / np.sqrt(samples.shape[1])
    self.assertLess(std_error.max(), 0.1)
    self.assertTrue((np.abs(samples.mean(axis=1) - expected) < 5 * std_error + slack).all())


class DequantizeTest(chex.TestCase):
  @parameterized.parameters(
    (256, -1.0, 1.0, np.uint8), (17, 0.0, 1.0, np.int32), (2, -3.0, 5.0, int)
  )
  def test_uniform_over_the_bin_of_its_level(self, num_levels, low, high, dtype):
    levels = np.tile(np.arange(num_levels, dtype=dtype), (2000, 1))
    x = likelihood.dequantize(levels, jax.random.key(0), num_levels, low, high)
    self.assertEqual(x.dtype, np.float32)
    width = (high - low) / num_levels
    inside = (np.float64(x) - low) / width - levels
    self.assertGreater(inside.min(), -1e-4)
    self.assertLess(inside.max(), 1 + 1e-4)
    self.assertGreater(stats.kstest(inside.ravel(), 'uniform').pvalue, 1e-4)
    self.assertBetween(float(np.max(x)), high - width, high)

  def test_refuses_what_is_no_level(self):
    key = jax.random.key(0)
    with self.assertRaises(AssertionError):
      likelihood.dequantize(jnp.array([0.5]), key, 256)
    with self.assertRaisesRegex(ValueError, 'num_levels=0'):
      likelihood.dequantize(jnp.array([0]), key, 0)
    with self.assertRaisesRegex(ValueError, 'interval'):
      likelihood.dequantize(jnp.array([0]), key, 2, 1.0, 1.0)


class BitsPerDimTest(chex.TestCase):
  @parameterized.parameters((256, -1.0, 1.0, 7.0), (256, 0.0, 1.0, 8.0), (17, 0.0, 17.0, 0.0))
  def test_offsets_of_images(self, num_levels, low, high, offset):
    self.assertAlmostEqual(likelihood.bits_per_dim(0.0, 64, num_levels, low, high), offset)

  @parameterized.product(num_levels=(2, 17, 256), box=((-1.0, 1.0), (0.0, 1.0), (-3.0, 5.0)))
  def test_uniform_density_takes_all_bits(self, num_levels, box):
    log_density = np.full(3, -64 * np.log(box[1] - box[0]))
    bits = likelihood.bits_per_dim(log_density, 64, num_levels, *box)
    np.testing.assert_allclose(bits, np.log2(num_levels))

  def test_histogram_takes_its_entropy(self):
    # A density that is constant on bins loses nothing to the noise.
    shares = np.float32(np.random.default_rng(0).dirichlet(np.ones(17)))
    levels = np.arange(17)[:, None]
    x = likelihood.dequantize(levels, jax.random.key(1), 17)
    log_density = np.log(shares[np.int32((x[:, 0] + 1) * 17 / 2)] * 17 / 2)
    bits = likelihood.bits_per_dim(log_density, 1, 17)
    np.testing.assert_allclose(bits, -np.log2(shares), rtol=1e-4)
    self.assertAlmostEqual(shares @ bits, stats.entropy(shares, base=2), places=4)

  @parameterized.parameters(0, -1)
  def test_refuses_no_dimension(self, dim):
    with self.assertRaisesRegex(ValueError, f'dim={dim}'):
      likelihood.bits_per_dim(0.0, dim, 256)
