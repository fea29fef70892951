"""Tests of the samplers on Gaussians, whose exact score makes every step an affine map."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

from lib.diffusion import samplers
from lib.diffusion import sde as sdes

HORIZON = 0.95
PROCESSES = {
  'vp': sdes.vp(horizon=HORIZON),
  'sub-vp': sdes.sub_vp(horizon=HORIZON),
  've': sdes.ve()._replace(horizon=HORIZON),
  'cosine': sdes.cosine(horizon=HORIZON),
}
START = 1e-5
# Data N(μ, s²) in each dimension, the last a single point.
MEAN = np.array([0.3, -0.8, 0.0], np.float32)
STD = np.array([0.5, 1.5, 0.0], np.float32)


def chosen(index):
  """The process of that number: one program then samples from all of them under vmap."""

  def choose(name):
    return lambda t: jnp.stack([getattr(sde, name)(t) for sde in PROCESSES.values()])[index]

  curves = ('mean', 'std', 'rate', 'diffusion_sq', 'log_snr', 'time')
  return PROCESSES['vp']._replace(**{name: choose(name) for name in curves})


def gaussian_score(sde, mean=MEAN, std=STD):
  """The score of N(mean, std²) after the forward process."""
  return lambda x, t: -(x - sde.mean(t) * mean) / (sde.mean(t) ** 2 * std**2 + sde.std(t) ** 2)


def gaussian_noise(sde, mean=MEAN, std=STD):
  return sdes.noise_of_score(sde, gaussian_score(sde, mean, std))


def sample_all(sampler, x, *args):
  """`sampler(sde, x, *args)` for each process, as {name: samples}; args have an axis of them."""
  run = jax.jit(jax.vmap(lambda index, *args: sampler(chosen(index), *args)))
  return dict(zip(PROCESSES, np.asarray(run(np.arange(4), x, *args)), strict=True))


def curves(name, t):
  """m, σ, a and g² in float64, at times of any shape."""
  t = np.float64(t)
  if name == 've':
    std = 0.01 * 5000**t
    return np.ones_like(t), std, np.zeros_like(t), 2 * np.log(5000) * std**2
  if name == 'cosine':
    first, angle = (np.pi / 2 * (s + 0.008) / 1.008 for s in (0.0, t))
    rate = np.pi / 1.008 * np.tan(angle)
    m = np.cos(angle) / np.cos(first)
    return m, np.sqrt(1 - m**2), -rate / 2, rate
  rate = 0.1 + 19.9 * t / HORIZON
  integral = 0.1 * t + 9.95 * t**2 / HORIZON
  variance = -np.expm1(-integral)
  if name == 'sub-vp':
    rates = -rate / 2, rate * -np.expm1(-2 * integral)
    return np.exp(-integral / 2), variance, *rates
  return np.exp(-integral / 2), np.sqrt(variance), -rate / 2, rate


def moments(name, t):
  return curves(name, t)[:2]


def marginal(name, t, mean=MEAN, std=STD):
  """Mean and standard deviation of x_t."""
  m, sigma = moments(name, t)
  return m * mean, np.sqrt((m * std) ** 2 + sigma**2)


def even_grid(name, num):
  """Times that fall to the start evenly in the log SNR, (num + 1,)."""
  t = np.geomspace(HORIZON, START, 10_001)
  m, sigma = moments(name, t)
  log_snr = np.log(m / sigma)
  return np.interp(np.linspace(log_snr[0], log_snr[-1], num + 1), log_snr, t)


def even_grids(num):
  return np.float32([even_grid(name, num) for name in PROCESSES])


def points(z, t, mean=MEAN, std=STD):
  """The noise z (B, D) as each process's x_t, (4, B, D)."""
  laws = [marginal(name, t, mean, std) for name in PROCESSES]
  return np.stack([centre + spread * z for centre, spread in laws]).astype(np.float32)


def normal(*shape):
  return np.random.default_rng(0).normal(size=shape)


class GridTest(chex.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()

    def grids(sde, num):
      uniform = samplers.time_grid(sde, START, num)
      even = samplers.log_snr_grid(sde, START, num)
      return uniform, even, sde.log_snr(even)

    def run(num):
      found = jax.jit(lambda: {name: grids(sde, num) for name, sde in PROCESSES.items()})()
      return jax.tree.map(np.asarray, found)

    with jax.enable_x64(True):
      cls.exact = run(50)
    cls.single = run(1000)

  @parameterized.parameters(*PROCESSES)
  def test_falls_evenly_from_the_horizon(self, name):
    uniform, even, log_snr = self.exact[name]
    for grid in (uniform, even):
      self.assertEqual(grid.shape, (51,))
      # The log SNR of the start is taken in single precision.
      np.testing.assert_allclose(grid[[0, -1]], [HORIZON, START], rtol=1e-5, atol=6e-8)
    np.testing.assert_allclose(np.diff(uniform), -(HORIZON - START) / 50, rtol=1e-9)
    np.testing.assert_allclose(np.diff(log_snr), (log_snr[-1] - log_snr[0]) / 50, rtol=1e-4)
    np.testing.assert_allclose(even, even_grid(name, 50), rtol=1e-4, atol=1e-7)

  @parameterized.parameters(*PROCESSES)
  def test_in_single_precision(self, name):
    for t in self.single[name][:2]:
      self.assertEqual((t.shape, t.dtype), ((1001,), np.float32))
      self.assertTrue((np.diff(t) < 0).all())

  def test_prior(self):
    x = np.asarray(samplers.prior(PROCESSES['ve'], jax.random.key(0), (4000, 3)))
    self.assertEqual((x.shape, x.dtype), ((4000, 3), np.float32))
    self.assertAlmostEqual(x.std() / 50.0, 1.0, delta=5 / np.sqrt(2 * x.size))
    self.assertAlmostEqual(x.mean() / 50.0, 0.0, delta=5 / np.sqrt(x.size))

  @parameterized.parameters(0, -1)
  def test_refuses_no_steps(self, num):
    for grid in (samplers.time_grid, samplers.log_snr_grid):
      with self.assertRaisesRegex(ValueError, f'at least one step, got num={num}'):
        grid(sdes.vp(), START, num)

  @parameterized.parameters(0.0, 1.0, -1.0, float('nan'))
  def test_refuses_a_start_out_of_range(self, start):
    for grid in (samplers.time_grid, samplers.log_snr_grid):
      with self.assertRaisesRegex(ValueError, r'must lie in \(0, 1.0\)'):
        grid(sdes.vp(), start, 5)


class DeterministicTest(chex.TestCase):
  """The probability flow carries m_t μ + c_t z to m_s μ + c_s z."""

  def expected(self, z, t):
    return {name: marginal(name, t)[0] + marginal(name, t)[1] * z for name in PROCESSES}

  @parameterized.named_parameters(
    ('heun', lambda sde, x, t: samplers.heun(gaussian_score(sde), sde, x, t)),
    ('dpm_solver', lambda sde, x, t: samplers.dpm_solver(gaussian_noise(sde), sde, x, t)),
  )
  def test_second_order(self, sampler):
    z = normal(6, 3)
    exact, errors = self.expected(z, START), []
    for num in (40, 80):
      found = sample_all(sampler, points(z, HORIZON), even_grids(num))
      errors.append({name: np.abs(found[name] - exact[name]) for name in PROCESSES})
    for name in PROCESSES:
      coarse, fine = (error[name][:, :2].max() for error in errors)
      self.assertGreater(np.log2(coarse / fine), 1.8, name)
      self.assertLess(fine, 0.02, name)
      # All that is left of the noise around a single point is σ at the start.
      sigma = moments(name, START)[1]
      self.assertLess(errors[1][name][:, 2].max(), 0.02 * sigma * np.abs(z).max(), name)

  def test_dpm_solver_is_exact_for_one_point_on_any_grid(self):
    # The prediction of the data is constant.
    sde, point, x = sdes.vp(), np.array([0.3, -0.8, 2.0]), normal(5, 3)
    rough = np.array([1.0, 0.9, 0.2, 0.1999, 0.05, 1e-3])
    routes = (rough, rough[[0, -1]], rough[[0, 2, -1]])

    def run(point):
      noise = lambda x, t: (x - sde.mean(t) * point) / sde.std(t)
      ends = [samplers.dpm_solver(noise, sde, x, jnp.asarray(t)) for t in routes]
      return jnp.mean(ends[1]), ends

    with jax.enable_x64(True):
      slope, ends = jax.jit(jax.grad(run, has_aux=True))(point)
    mean = np.exp(-(0.1 * rough + 9.95 * rough**2) / 2)
    m, sigma = mean[[0, -1]], np.sqrt(1 - mean[[0, -1]] ** 2)
    for end in ends:
      expected = m[1] * point + sigma[1] / sigma[0] * (x - m[0] * point)
      np.testing.assert_allclose(end, expected, rtol=1e-9)
    np.testing.assert_allclose(slope, (m[1] - m[0] * sigma[1] / sigma[0]) / 3, rtol=1e-9)

  def test_dpm_solver_is_the_published_recursion(self):
    # On a rough grid, for a network that is no Gaussian's.
    sde, x, times = sdes.vp(), normal(5, 3), np.array([1.0, 0.9, 0.5, 0.4, 0.1, 0.01])
    noise = lambda x, t: jnp.sin(x + 3 * t)
    with jax.enable_x64(True):
      found = jax.jit(lambda: samplers.dpm_solver(noise, sde, x, jnp.asarray(times)))()
    m = np.exp(-(0.1 * times + 9.95 * times**2) / 2)
    sigma = np.sqrt(1 - m**2)
    level = np.log(m / sigma)
    data = []
    for i in range(1, len(times)):
      data.append((x - sigma[i - 1] * np.sin(x + 3 * times[i - 1])) / m[i - 1])
      target, step = data[-1], level[i] - level[i - 1]
      if 1 < i < len(times) - 1:
        r = (level[i - 1] - level[i - 2]) / step
        target = (1 + 1 / (2 * r)) * data[-1] - 1 / (2 * r) * data[-2]
      x = sigma[i] / sigma[i - 1] * x - m[i] * (np.exp(-step) - 1) * target
    np.testing.assert_allclose(found, x, rtol=1e-9)

  def test_adaptive_flow(self):
    z = normal(6, 3)
    sampler = lambda sde, x: samplers.probability_flow(gaussian_score(sde), sde, x, START)
    found = sample_all(sampler, points(z, HORIZON))
    for name, expected in self.expected(z, START).items():
      self.assertEqual(found[name].dtype, np.float32)
      np.testing.assert_allclose(found[name], expected, atol=1e-3, err_msg=name)


class AncestralTest(chex.TestCase):
  def law(self, name, times):
    """Mean and variance at the last time, with the posterior's textbook form."""
    m, sigma = moments(name, times)
    mean, variance = marginal(name, times[0])[0], marginal(name, times[0])[1] ** 2
    for i in range(len(times) - 1):
      alpha = m[i] / m[i + 1]
      rest = sigma[i] ** 2 - alpha**2 * sigma[i + 1] ** 2
      gain = m[i] * STD**2 / ((m[i] * STD) ** 2 + sigma[i] ** 2)  # of E[x_0 | x_t]
      old, data = alpha * sigma[i + 1] ** 2 / sigma[i] ** 2, m[i + 1] * rest / sigma[i] ** 2
      noise = sigma[i + 1] ** 2 * rest / sigma[i] ** 2
      mean = old * mean + data * (MEAN + gain * (mean - m[i] * MEAN))
      variance = (old + data * gain) ** 2 * variance + (noise if i < len(times) - 2 else 0.0)
    return mean, variance

  def test_law_of_the_samples(self):
    num = 2000
    x, times = points(normal(num, 3), HORIZON), even_grids(40)
    sampler = lambda sde, x, key, t: samplers.ancestral(gaussian_noise(sde), sde, x, key, t)
    keys = jax.random.split(jax.random.key(0), 4)
    found = sample_all(sampler, x, keys, times)
    for name, grid in zip(PROCESSES, times, strict=True):
      mean, variance = self.law(name, grid)
      error = np.abs(found[name].mean(axis=0) - mean)
      self.assertTrue((error < 5 * np.sqrt(variance / num)).all(), name)
      ratio = np.float64(found[name]).var(axis=0) / variance
      self.assertLess(np.abs(ratio - 1).max(), 5 * np.sqrt(2 / num), name)
    # One process by itself, with the key it had among the four.
    sde = PROCESSES['cosine']
    alone = jax.jit(lambda *args: sampler(sde, *args))(x[3], keys[3], times[3])
    np.testing.assert_allclose(alone, found['cosine'], rtol=1e-3, atol=1e-4)

  @parameterized.parameters(*PROCESSES)
  def test_tends_to_the_data(self, name):
    # What the steps lose is the posterior's variance of the data, of first order in their length.
    losses = []
    for num in (200, 400):
      mean, variance = self.law(name, even_grid(name, num))
      np.testing.assert_allclose(mean, MEAN, atol=1e-3)
      losses.append(1 - variance[:2] / (STD[:2] ** 2 + moments(name, START)[1] ** 2))
    self.assertTrue(((losses[1] > 0) & (losses[1] < 0.06)).all())
    np.testing.assert_allclose(losses[0] / losses[1], 2.0, atol=0.15)

  @parameterized.parameters(*PROCESSES)
  def test_exact_for_one_point_on_any_grid(self, name):
    # Up to the last step, of which the mean is returned.
    times = np.array([HORIZON, 0.9, 0.3, 0.2999, 0.01])
    _, variance = self.law(name, times)
    m, sigma = moments(name, times)
    snr = (m / sigma) ** 2
    last = (m[-1] / m[-2] * sigma[-2] * snr[-2] / snr[-1]) ** 2
    np.testing.assert_allclose(variance[2], last, rtol=1e-6)


class PredictorCorrectorTest(chex.TestCase):
  def test_predictor_is_the_published_discretisation(self):
    # The last step, here the only one, adds no noise.
    x, times = points(normal(4, 3), 0.5), np.tile(np.float32([0.5, 0.4]), (4, 1))
    slope = np.float32([1.0, -2.0, 0.5])

    def sampler(sde, x, times):
      score = lambda x, t: x * t + slope
      return samplers.predictor_corrector(score, sde, x, jax.random.key(0), times, 0)

    found = sample_all(sampler, x, times)
    score = x * 0.5 + slope
    _, sigma = moments('ve', times[0])
    expected = x[2] + (sigma[0] ** 2 - sigma[1] ** 2) * score[2]
    np.testing.assert_allclose(found['ve'], expected, rtol=1e-5, atol=1e-6)
    for name, index in (('vp', 0), ('cosine', 3)):
      m, _ = moments(name, times[0])
      beta = 1 - (m[0] / m[1]) ** 2
      expected = (2 - np.sqrt(1 - beta)) * x[index] + beta * score[index]
      np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-6)

  def law(self, name, times, mean, std, correctors, ratio):
    """Mean and variance at the last time for data N(mean, std²), in a large batch."""
    m, sigma = moments(name, times)
    total = (m * std) ** 2 + sigma**2
    offset, variance = 0.0, total[0]  # of x_t from m_t μ
    for i in range(len(times) - 1):
      alpha = m[i] / m[i + 1]
      for _ in range(correctors):
        # The norms of z and of the score -(x - m μ)/c² are as 1 to √E(x - m μ)²/c².
        size = 2 * (alpha * ratio * total[i]) ** 2 / (variance + offset**2)
        offset *= 1 - size / total[i]
        variance = (1 - size / total[i]) ** 2 * variance + 2 * size
      rest = sigma[i] ** 2 - (alpha * sigma[i + 1]) ** 2
      offset = (2 - alpha) * (m[i] * mean + offset) - rest / total[i] * offset - m[i + 1] * mean
      variance = (2 - alpha - rest / total[i]) ** 2 * variance
      variance += rest if i < len(times) - 2 else 0.0
    return m[-1] * mean + offset, variance

  def test_law_of_the_samples(self):
    # Long Langevin steps leave a variance of their own, about 4/3 where α is 1, and long steps in
    # time predict poorly; but the law is known.
    mean, std, correctors, ratio = 0.3, 0.5, 2, 0.5
    shape = (2000, 4)
    x = points(normal(*shape), HORIZON, mean, std)
    keys = jax.random.split(jax.random.key(0), 4)

    def sampler(sde, x, key, times):
      score = gaussian_score(sde, mean, std)
      return samplers.predictor_corrector(score, sde, x, key, times, correctors, ratio)

    for times in (np.tile(np.float32([HORIZON, 0.7, 0.5, 0.4]), (4, 1)), even_grids(3)):
      found = sample_all(sampler, x, keys, times)
      for name, grid in zip(PROCESSES, times, strict=True):
        centre, variance = self.law(name, grid, mean, std, correctors, ratio)
        size, samples = np.prod(shape), np.float64(found[name])
        self.assertAlmostEqual(samples.mean(), centre, delta=5 * np.sqrt(variance / size))
        self.assertAlmostEqual(samples.var() / variance, 1.0, delta=5 * np.sqrt(2 / size))

  @parameterized.product(name=tuple(PROCESSES), correctors=(0, 1))
  def test_tends_to_the_data(self, name, correctors):
    ratio = 0.05
    for num, tolerance in ((200, 0.1), (1600, 0.015)):
      times = even_grid(name, num)
      centre, variance = self.law(name, times, 0.3, 0.5, correctors, ratio)
      self.assertAlmostEqual(centre, 0.3, delta=0.05)
      self.assertAlmostEqual(variance / 0.25, 1.0, delta=tolerance)

  @parameterized.parameters((-1, 0.16), (1, 0.0), (1, -0.1), (1, float('nan')))
  def test_refuses(self, correctors, ratio):
    with self.assertRaisesRegex(ValueError, 'corrector needs'):
      samplers.predictor_corrector(
        lambda x, t: -x, sdes.vp(), np.ones((2, 3)), jax.random.key(0), np.array([1.0, 0.5]),
        correctors, ratio,
      )  # fmt: skip


class ReverseSDETest(chex.TestCase):
  def law(self, name, times, mean, std):
    """Mean and variance after Euler's steps of dx = (a x - g² s) dt + g dw, backwards."""
    m, sigma, rate, square = curves(name, times)
    centre, total = m * mean, (m * std) ** 2 + sigma**2
    now, variance = centre[0], total[0]
    for i, step in enumerate(-np.diff(times)):
      now = now - step * (rate[i] * now + square[i] * (now - centre[i]) / total[i])
      variance *= (1 - step * (rate[i] + square[i] / total[i])) ** 2
      variance += step * square[i]
    return now, variance

  def test_law_of_the_samples(self):
    mean, std, start, num, shape = 0.3, 0.5, 1e-3, 40, (500, 2)
    x = points(normal(*shape), HORIZON, mean, std)

    def sampler(sde, x, key):
      return samplers.reverse_sde(gaussian_score(sde, mean, std), sde, x, key, num, start)

    found = sample_all(sampler, x, jax.random.split(jax.random.key(0), 4))
    for name in PROCESSES:
      centre, variance = self.law(name, np.linspace(HORIZON, start, num + 1), mean, std)
      size, samples = np.prod(shape), np.float64(found[name])
      self.assertAlmostEqual(samples.mean(), centre, delta=5 * np.sqrt(variance / size))
      self.assertAlmostEqual(samples.var() / variance, 1.0, delta=5 * np.sqrt(2 / size))
      # Every point has noise of its own.
      correlation = np.corrcoef(samples.T)[0, 1]
      self.assertAlmostEqual(correlation, 0.0, delta=5 / np.sqrt(shape[0]))

  @parameterized.parameters(*PROCESSES)
  def test_tends_to_the_data(self, name):
    times = np.linspace(HORIZON, START, 2001)
    centre, variance = self.law(name, times, 0.3, 0.5)
    self.assertAlmostEqual(centre, 0.3, delta=0.01)
    self.assertAlmostEqual(variance / 0.25, 1.0, delta=0.03)


class RefusalTest(chex.TestCase):
  def calls(self, x, times):
    network, key, sde = (lambda x, t: -x), jax.random.key(0), sdes.vp()
    return (
      lambda: samplers.ancestral(network, sde, x, key, times),
      lambda: samplers.predictor_corrector(network, sde, x, key, times),
      lambda: samplers.heun(network, sde, x, times),
      lambda: samplers.dpm_solver(network, sde, x, times),
    )

  def test_a_grid_of_one_time(self):
    for call in self.calls(np.ones((2, 3)), np.array([1.0])):
      with self.assertRaisesRegex(ValueError, 'at least two times, got 1'):
        call()

  def test_shapes(self):
    for x, times in ((np.ones(3), np.ones(4)), (np.ones((2, 3)), np.ones((4, 1)))):
      for call in self.calls(x, times):
        with self.assertRaises(AssertionError):
          call()

  @parameterized.parameters(0.0, 1.0, -1.0, float('nan'))
  def test_starts(self, start):
    network, x = (lambda x, t: -x), np.ones((2, 3), np.float32)
    with self.assertRaisesRegex(ValueError, r'must lie in \(0, 1.0\)'):
      samplers.probability_flow(network, sdes.vp(), x, start)
    with self.assertRaisesRegex(ValueError, r'must lie in \(0, 1.0\)'):
      samplers.reverse_sde(network, sdes.vp(), x, jax.random.key(0), 5, start)
    with self.assertRaisesRegex(ValueError, 'at least one step'):
      samplers.reverse_sde(network, sdes.vp(), x, jax.random.key(0), 0, 0.1)
