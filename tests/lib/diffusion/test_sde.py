"""Tests of the diffusions, against their moment equations and Gaussians in closed form."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

from lib.diffusion import sde as sdes

PROCESSES = {
  'vp': sdes.vp(),
  'vp of a constant rate': sdes.vp(1.0, 1.0, 3.0),
  'vp of a falling rate': sdes.vp(8.0, 0.5, 2.0),
  'sub-vp': sdes.sub_vp(),
  've': sdes.ve(),
  'cosine': sdes.cosine(),
}
PRESERVING = ('vp', 'vp of a constant rate', 'vp of a falling rate', 'cosine')
NUM_TIMES = 60
# Each process's times, geometric from the earliest in use to the horizon.
TIMES = {name: np.geomspace(1e-5, sde.horizon, NUM_TIMES) for name, sde in PROCESSES.items()}
MEAN, STD = 0.7, 0.4  # of the Gaussian data
POINTS = np.linspace(-2.0, 2.0, NUM_TIMES)[:, None]


def moments(sde, t):
  """All that a process says about times t."""
  return {
    'mean': sde.mean(t),
    'std': sde.std(t),
    'rate': sde.rate(t),
    'diffusion_sq': sde.diffusion_sq(t),
    'log_snr': sde.log_snr(t),
    'inverse': sde.time(sde.log_snr(t)),
  }


def slopes(sde, t):
  """The derivatives of its curves there."""
  curves = lambda t: {
    'mean_slope': sde.mean(t),
    'variance_slope': sde.std(t) ** 2,
    'log_snr_slope': sde.log_snr(t),
  }
  return jax.jvp(curves, (t,), (jnp.ones_like(t),))[1]


@functools.cache
def all_moments(dtype):
  """The moments of every process, (NUM_TIMES,) each; in float64, under x64, slopes too."""

  def evaluate(name, t):
    sde = PROCESSES[name]
    return moments(sde, t) | (slopes(sde, t) if dtype == np.float64 else {})

  times = {name: t.astype(dtype) for name, t in TIMES.items()}
  found = jax.jit(lambda times: {name: evaluate(name, t) for name, t in times.items()})(times)
  return jax.tree.map(np.asarray, found)


def gaussian_score(sde, mean=MEAN, std=STD):
  """The score of N(mean, std²) after the forward process."""
  return lambda x, t: -(x - sde.mean(t) * mean) / (sde.mean(t) ** 2 * std**2 + sde.std(t) ** 2)


def reference(name, t):
  """Mean, std and g² in float64, written without the module's formulas."""
  sde = PROCESSES[name]
  if name == 'cosine':
    angle = (t + 0.008) / 1.008 * np.pi / 2
    mean = np.cos(angle) / np.cos(0.008 / 1.008 * np.pi / 2)
    slope = np.pi / 1.008 * np.tan(angle)
    # 1 - m² as (1 - m)(1 + m), with 1 - m from cosines' difference.
    first = 0.008 / 1.008 * np.pi / 2
    drop = 2 * np.sin((angle + first) / 2) * np.sin(t / 1.008 * np.pi / 4) / np.cos(first)
    return mean, np.sqrt(drop * (1 + mean)), slope
  if name == 've':
    std = 0.01 ** (1 - t) * 50.0**t
    return np.ones_like(t), std, 2 * std**2 * np.log(5000)
  low, high = {'a constant': (1.0, 1.0), 'a falling': (8.0, 0.5)}.get(
    name.partition(' of ')[2].removesuffix(' rate'), (0.1, 20.0)
  )
  rate = low + (high - low) * t / sde.horizon
  integral = low * t + (high - low) * t**2 / (2 * sde.horizon)
  variance = -np.expm1(-integral)
  if 'sub' in name:
    return np.exp(-integral / 2), variance, rate * variance * (1 + np.exp(-integral))
  return np.exp(-integral / 2), np.sqrt(variance), rate


class MomentsTest(chex.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    with jax.enable_x64(True):
      cls.exact = all_moments(np.float64)
    cls.single = all_moments(np.float32)

  @parameterized.parameters(*PROCESSES)
  def test_solve_their_equations(self, name):
    # dm/dt = a m and dσ²/dt = 2 a σ² + g², from dx = a x dt + g dw.
    at = self.exact[name]
    np.testing.assert_allclose(at['mean_slope'], at['rate'] * at['mean'], rtol=1e-9)
    growth = 2 * at['rate'] * at['std'] ** 2 + at['diffusion_sq']
    # The two terms cancel where the variance is near its limit.
    np.testing.assert_allclose(at['variance_slope'], growth, rtol=1e-6, atol=1e-9)

  @parameterized.parameters(*PROCESSES)
  def test_log_snr(self, name):
    at = self.exact[name]
    np.testing.assert_allclose(at['log_snr'], 2 * np.log(at['mean'] / at['std']), atol=1e-9)
    self.assertTrue((np.diff(at['log_snr']) < 0).all())
    # -dλ/dt = g²/σ² for every linear drift.
    expected = -at['diffusion_sq'] / at['std'] ** 2
    np.testing.assert_allclose(at['log_snr_slope'], expected, rtol=1e-8)
    np.testing.assert_allclose(at['inverse'], TIMES[name], rtol=1e-9)

  @parameterized.parameters(*PROCESSES)
  def test_in_single_precision(self, name):
    t = np.float64(np.float32(TIMES[name]))
    at = self.single[name]
    for key, expected in zip(('mean', 'std', 'diffusion_sq'), reference(name, t), strict=True):
      self.assertEqual(at[key].dtype, np.float32)
      # Near the pole of the cosine schedule its angle's rounding shows.
      rtol = 1e-4 if name == 'cosine' else 5e-6
      np.testing.assert_allclose(at[key], expected, rtol=rtol)
    mean, std, _ = reference(name, t)
    np.testing.assert_allclose(at['log_snr'], 2 * np.log(mean / std), rtol=1e-5, atol=5e-5)
    # VE and cosine start at a finite level of noise or angle, beside which small times round.
    atol = 0.0 if 'vp' in name else 6e-8
    np.testing.assert_allclose(at['inverse'], t, rtol=2e-5, atol=atol)

  @parameterized.parameters(*PRESERVING)
  def test_preserve_variance(self, name):
    at = self.exact[name]
    np.testing.assert_allclose(at['mean'] ** 2 + at['std'] ** 2, 1.0, rtol=1e-12)
    self.assertEqual(PROCESSES[name].prior_std, 1.0)

  def test_sub_vp_has_the_square_of_vps_deviation(self):
    vp, sub = self.exact['vp'], self.exact['sub-vp']
    np.testing.assert_array_equal(sub['mean'], vp['mean'])
    np.testing.assert_allclose(sub['std'], vp['std'] ** 2, rtol=1e-9)
    self.assertTrue((sub['std'] < vp['std']).all())
    self.assertTrue((sub['diffusion_sq'] < vp['diffusion_sq']).all())

  def test_at_the_ends(self):
    # ∫β = (0.1 + 20)/2 at the horizon of VP.
    self.assertAlmostEqual(self.exact['vp']['mean'][-1], np.exp(-10.05 / 2), places=12)
    self.assertAlmostEqual(self.exact['vp of a constant rate']['mean'][-1], np.exp(-1.5), places=12)
    self.assertAlmostEqual(self.exact['ve']['std'][-1], PROCESSES['ve'].prior_std, places=9)
    self.assertAlmostEqual(float(PROCESSES['ve'].std(np.float32(0))), 0.01, places=8)
    for name in ('vp', 'sub-vp', 'cosine'):
      sde = PROCESSES[name]
      self.assertEqual(float(sde.mean(np.float32(0))), 1.0)
      self.assertEqual(float(sde.std(np.float32(0))), 0.0)
      self.assertAlmostEqual(float(self.exact[name]['std'][-1]), sde.prior_std, delta=1e-4)


class FieldsTest(chex.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()

    def fields(name, t):
      sde, t = PROCESSES[name], t[:, None]
      score = gaussian_score(sde)
      noise = sdes.noise_of_score(sde, score)
      return {
        'score': score(POINTS, t),
        'noise': noise(POINTS, t),
        'back': sdes.score_of_noise(sde, noise)(POINTS, t),
        'data': sdes.data_of_noise(sde, noise)(POINTS, t),
        'velocity': sdes.probability_flow(sde, score)(POINTS, t),
      }

    with jax.enable_x64(True):
      cls.exact = all_moments(np.float64)
      found = jax.jit(lambda: {name: fields(name, t) for name, t in TIMES.items()})()
      cls.fields = jax.tree.map(lambda a: np.asarray(a)[:, 0], found)

  @parameterized.parameters(*PROCESSES)
  def test_conversions_meet_tweedies_formula(self, name):
    at, fields, x = self.exact[name], self.fields[name], POINTS[:, 0]
    np.testing.assert_allclose(fields['back'], fields['score'], rtol=1e-9)
    # The posterior mean of the data, from conjugate Gaussians.
    precision = 1 / STD**2 + (at['mean'] / at['std']) ** 2
    posterior = (MEAN / STD**2 + at['mean'] * x / at['std'] ** 2) / precision
    np.testing.assert_allclose(fields['data'], posterior, rtol=1e-7, atol=1e-9)
    tweedie = (x + at['std'] ** 2 * fields['score']) / at['mean']
    np.testing.assert_allclose(fields['data'], tweedie, rtol=1e-9, atol=1e-12)
    # The noise is what remains of the point.
    rest = (x - at['mean'] * posterior) / at['std']
    np.testing.assert_allclose(fields['noise'], rest, rtol=1e-6, atol=1e-9)

  @parameterized.parameters(*PROCESSES)
  def test_probability_flow_carries_the_marginal(self, name):
    # The quantile m μ + c z of N(m μ, c²), c² = m² s² + σ², moves along the flow.
    at, x = self.exact[name], POINTS[:, 0]
    variance = (at['mean'] * STD) ** 2 + at['std'] ** 2
    slope = 2 * at['mean'] * at['mean_slope'] * STD**2 + at['variance_slope']
    stretch = slope / (2 * variance)
    expected = at['mean_slope'] * MEAN + stretch * (x - at['mean'] * MEAN)
    np.testing.assert_allclose(self.fields[name]['velocity'], expected, rtol=1e-6, atol=1e-9)


class PerturbTest(chex.TestCase):
  @chex.variants(with_jit=True)
  def test_is_the_forward_points_law(self):
    sde = sdes.vp(1.0, 1.0, 3.0)
    x0, noise = np.random.default_rng(0).normal(size=(2, 3, 2)).astype(np.float32)
    t = np.array([[1e-5], [np.log(4.0)], [3.0]], np.float32)
    found = self.variant(lambda *args: sdes.perturb(sde, *args))(x0, noise, t)
    mean = np.exp(-np.float64(t) / 2)
    np.testing.assert_allclose(found, mean * x0 + np.sqrt(1 - mean**2) * noise, rtol=1e-5)
    # e^{-B} = 1/4 gives half the data.
    np.testing.assert_allclose(found[1], x0[1] / 2 + np.sqrt(0.75) * noise[1], rtol=1e-5)

  def test_refuses_what_does_not_fit(self):
    x, t = np.zeros((3, 2)), np.full((3, 1), 0.5)
    for bad in ((x, np.zeros((3, 1)), t), (x, x, t[:, 0])):
      with self.assertRaises(AssertionError):
        sdes.perturb(sdes.vp(), *bad)


class RefusalTest(chex.TestCase):
  @parameterized.parameters(0.0, -1.0, float('nan'), float('inf'))
  def test_rates_and_horizons(self, bad):
    for make in (sdes.vp, sdes.sub_vp):
      for name in ('beta_min', 'beta_max', 'horizon'):
        with self.assertRaisesRegex(ValueError, f'^{name} must be positive'):
          make(**{name: bad})

  @parameterized.parameters((0.0, 1.0), (-1.0, 1.0), (1.0, 1.0), (2.0, 1.0), (0.1, float('inf')))
  def test_deviations(self, low, high):
    with self.assertRaisesRegex(ValueError, 'sigma_min < sigma_max'):
      sdes.ve(low, high)

  @parameterized.parameters((0.0, 0.9), (float('nan'), 0.9), (0.008, 0.0), (0.008, 1.0))
  def test_cosine(self, shift, horizon):
    with self.assertRaisesRegex(ValueError, 'cosine schedule'):
      sdes.cosine(shift, horizon)
