"""Tests of the bounds, against Riccati equations, quadrature and Gaussian closed forms."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import integrate, special, stats

from lib.diffusion import sde as sdes
from lib.diffusion.renyi import bounds

ALPHAS = np.array([-3.0, -0.5, 0.0, 0.3, 0.999999, 1.0, 1.5, 2.0, 10.0])

holder_bounds = jax.jit(jax.vmap(bounds.holder_bound, (None, 0, None)), static_argnums=2)
holder_at_three = jax.jit(
  jax.vmap(jax.value_and_grad(lambda i, a: bounds.holder_bound(i, a, 3.0), (0, 1)), (None, 0))
)
renyi_bounds = jax.jit(jax.vmap(bounds.variational_renyi_bound, (None, 0)))


class HolderTest(chex.TestCase):
  """Data N(0, 1), for which VP with β = 1 stands still up to T = 3, and the model score -x/v."""

  horizon = 3.0

  def exact(self, alpha, v, p=2.0):
    # log E exp(c ∫ x² dt) of a stationary Ornstein–Uhlenbeck process, by Feynman–Kac.
    tilt = p / (p - 1) * (alpha - 1)
    c = 0.5 * tilt * (p * (alpha - 1) + 1) * (1 - 1 / v) ** 2

    def flow(_, state):
      return [2 * state[0] ** 2 - state[0] + c, state[0]]

    end = integrate.solve_ivp(flow, (0, self.horizon), [0.0, 0.0], rtol=1e-10, atol=1e-12).y[:, -1]
    return (end[1] - np.log(1 - 2 * end[0]) / 2) / tilt

  @parameterized.parameters(
    (1.25, (0.1272827, 0.2229541), (0.0803934, 0.0973528), 0.06),
    (0.8, (0.2064978, 0.4317771), (0.1767664, 0.3400000), 0.09375),
  )
  def test_gaussian_paths(self, v, numbers, of_paths, kl):
    np.testing.assert_allclose([self.exact(a, v) for a in (1.5, 2.0)], numbers, atol=1e-7)
    # Above the divergences that it bounds, and tight as α → 1.
    self.assertTrue((np.array(numbers) > of_paths).all())
    np.testing.assert_allclose(self.exact(1 + 1e-5, v), kl, rtol=1e-4)

    num_paths, steps = 5000, 100
    rng, decay = np.random.default_rng(0), np.exp(-self.horizon / steps / 2)
    x = [rng.normal(size=num_paths)]
    for _ in range(steps):
      x.append(decay * x[-1] + np.sqrt(1 - decay**2) * rng.normal(size=num_paths))
    integrals = (1 - 1 / v) ** 2 * integrate.trapezoid(
      np.square(x), dx=self.horizon / steps, axis=0
    )
    alphas = np.array([1.0, 1.2, 1.5])
    for alpha, found in zip(alphas, holder_bounds(integrals, alphas, 2.0), strict=True):
      tilt = 2 * (alpha - 1)
      weights = np.exp(0.5 * tilt * (2 * alpha - 1) * integrals)
      error = weights.std() / weights.mean() / tilt if tilt else integrals.std() / 2
      expected = self.exact(alpha, v) if tilt else kl
      np.testing.assert_allclose(found, expected, atol=5 * error / np.sqrt(num_paths))

  def test_any_integrals(self):
    integrals = np.float32([0.1, 2.0, 0.7, 1.5])
    alphas = np.float32([1.0, 1.0001, 1.7, 4.0])
    found, (slopes, in_alpha) = holder_at_three(integrals, alphas)
    tilts, halves = 1.5 * (alphas - 1), 0.5 * (3 * (alphas - 1) + 1)
    exponents = np.float64(tilts * halves)[1:, None] * integrals
    tilted = (special.logsumexp(exponents, axis=1) - np.log(4)) / tilts[1:]
    # At α = 1 half the mean, whatever p is.
    np.testing.assert_allclose(found, [integrals.mean() / 2, *tilted], rtol=1e-4)
    softmax = special.softmax((tilts * halves)[:, None] * integrals, axis=1)
    np.testing.assert_allclose(slopes, halves[:, None] * softmax, rtol=1e-4)
    self.assertTrue((np.isfinite(in_alpha) & (in_alpha > 0)).all())
    # Without spread there is no Jensen gap.
    found, _ = holder_at_three(np.full(4, 0.6, np.float32), alphas)
    np.testing.assert_allclose(found, 0.6 * halves, rtol=1e-6)

  def test_refuses_exponents(self):
    for p in (1.0, 0.5, np.inf, np.nan):
      with self.assertRaisesRegex(ValueError, 'exponent'):
        bounds.holder_bound(np.ones(3), 2.0, p)


class VariationalRenyiBoundTest(chex.TestCase):
  @settings(max_examples=20, deadline=None)
  @given(logs=hnp.arrays(np.float64, (5, 2), elements=st.floats(-300, 100, allow_subnormal=False)))
  def test_order_and_special_cases(self, logs):
    with jax.enable_x64(True):
      found = np.asarray(renyi_bounds(logs, ALPHAS))
    slack = 1e-12 * (1 + np.abs(logs).max())
    self.assertTrue((np.diff(found, axis=0) <= slack).all(), found)
    # The ELBO and the importance-weighted bound.
    np.testing.assert_allclose(found[5], logs.mean(axis=0), atol=slack)
    weighted = special.logsumexp(logs, axis=0) - np.log(5)
    np.testing.assert_allclose(found[2], weighted, atol=slack)
    for alpha, value in zip(ALPHAS, found, strict=True):
      if abs(alpha - 1) > 1e-3:
        c = 1 - alpha
        expected = (special.logsumexp(c * logs, axis=0) - np.log(5)) / c
        np.testing.assert_allclose(value, expected, atol=10 * slack)
    self.assertTrue((found >= logs.min(axis=0) - slack).all())
    self.assertTrue((found <= logs.max(axis=0) + slack).all())

  @chex.variants(with_jit=True)
  def test_one_path_does_not_feel_the_order(self):
    logs = np.float32([[-3.0, 100.0, 0.5]])
    bound = self.variant(bounds.variational_renyi_bound)
    for alpha in (-1.0, 0.0, 1.0, 2.5):
      found = bound(logs, np.float32(alpha))
      np.testing.assert_allclose(found, logs[0], rtol=1e-6)

  def test_refuses_weights_without_paths(self):
    for logs in (np.zeros(3), np.zeros((0, 3))):
      with self.assertRaises(AssertionError):
        bounds.variational_renyi_bound(logs, 0.5)


def log_mean(log_weights):
  """log mean_k R_k (B,) and its standard error."""
  log_weights = np.asarray(log_weights, float)
  top = log_weights.max(axis=0)
  weights = np.exp(log_weights - top)
  mean = weights.mean(axis=0)
  return top + np.log(mean), weights.std(axis=0) / mean / np.sqrt(len(weights))


class DenoisingLogWeightsTest(chex.TestCase):
  @parameterized.named_parameters(
    ('vp', sdes.vp(0.1, 5.0), (0.3, 1.0)), ('ve', sdes.ve(0.3, 2.0), (0.2, 1.0))
  )
  def test_mean_weight_is_the_density_of_the_chain(self, sde, times):
    # A network that is no Gaussian's, and the chain of Ho et al. as they write it, by quadrature.
    noise = lambda x, t: jnp.tanh(2 * x) * (0.5 + t)
    x0 = np.float32([-1.5, 0.1, 0.8])
    log_weights = jax.jit(
      lambda x, key: bounds.denoising_log_weights(noise, sde, x, key, jnp.asarray(times), 20_000)
    )(x0[:, None], jax.random.key(0))
    chex.assert_shape(log_weights, (20_000, 3))

    x = np.linspace(-8, 8, 801)
    (m, mt), (s, std) = (np.asarray(f(np.array(times))) for f in (sde.mean, sde.std))
    predicted = lambda x, m, s, t: (x - s * np.tanh(2 * x) * (0.5 + t)) / m
    ratio = mt / m
    step_var = std**2 - ratio**2 * s**2
    end = stats.norm(0, sde.prior_std).pdf(x)
    mean = ratio * s**2 / std**2 * x + m * step_var / std**2 * predicted(x, mt, std, times[1])
    posterior_std = np.sqrt(s**2 * step_var / std**2)
    first = stats.norm(mean[:, None], posterior_std).pdf(x)
    density = end @ first * (x[1] - x[0])
    decoder = stats.norm(predicted(x, m, s, times[0]), s / m).pdf(x0[:, None])
    expected = np.log(decoder @ density * (x[1] - x[0]))
    found, error = log_mean(log_weights)
    self.assertTrue((error < 0.05).all(), error)
    np.testing.assert_array_less(np.abs(found - expected), 5 * error)
    # The ELBO is a lower bound.
    self.assertTrue((np.asarray(log_weights).mean(axis=0) < expected).all())

  def test_gaussian_data(self):
    # Exact noise of data N(0, s² I).
    sde, std, num_paths = sdes.vp(0.1, 20.0), 0.6, 1000
    variance = lambda t: (std * sde.mean(t)) ** 2 + sde.std(t) ** 2
    noise = lambda x, t: sde.std(t) / variance(t) * x
    x0 = np.float32([[0.0, 0.3], [-0.7, 1.1]])
    exact = stats.norm(0, std).logpdf(x0).sum(axis=1)

    # Even in the log SNR, and every second time of them, and so on.
    @jax.jit
    def grid(ends):
      log_snr = jnp.linspace(*sde.log_snr(ends), 1281)
      times = sde.time(log_snr)
      return log_snr, times, sde.mean(times), sde.std(times), variance(times)

    with jax.enable_x64(True):
      log_snr, times, m, s, v = map(np.asarray, grid(np.array([1e-3, 1.0])))
    # The ELBO in closed form, for each ε_t is N(0, I).
    errors = (2 * (m * std) ** 4 + (s * m) ** 2 * np.sum(x0**2, axis=1)[:, None]) / v**2
    prior = np.sum(0.5 - (m[-1] * x0) ** 2 / 2 - s[-1] ** 2 / 2 + np.log(s[-1]), axis=1)
    decoder = -0.5 * errors[:, 0] - np.log(2 * np.pi) + log_snr[0]
    elbos = []
    for stride in (64, 4, 2, 1):
      steps = np.expm1(-np.diff(log_snr[::stride]))
      elbos.append(prior + decoder - 0.5 * errors[:, ::stride][:, 1:] @ steps)
    # The gap closes with the first power of the step.
    gaps = exact - np.array(elbos)
    self.assertTrue((gaps > 0).all())
    np.testing.assert_allclose(gaps[1:-1] / gaps[2:], 2, rtol=0.03)
    np.testing.assert_allclose(2 * gaps[-1] - gaps[-2], 0, atol=5e-3)

    log_weights = jax.jit(
      lambda key, times: bounds.denoising_log_weights(noise, sde, x0, key, times, num_paths)
    )(jax.random.key(1), np.float32(times)[::4])
    found = np.asarray(renyi_bounds(log_weights, np.float32(ALPHAS)))
    errors = np.asarray(log_weights).std(axis=0) / np.sqrt(num_paths)
    np.testing.assert_array_less(np.abs(found[5] - elbos[1]), 5 * errors)
    # Orders in [0, 1) are nearer to log p(x_0), the importance-weighted bound nearest.
    distances = np.abs(found - exact)[[2, 3, 5]]
    self.assertTrue((np.diff(distances, axis=0) > 0).all(), distances)
    np.testing.assert_array_less(distances[0], 0.5 * gaps[1])

  def test_one_time_is_a_decoder_from_the_prior(self):
    # A network that sees no noise: x_0 = (x_T + σ z)/m is Gaussian.
    sde = sdes.vp(0.1, 2.0)
    m, s = float(sde.mean(1.0)), float(sde.std(1.0))
    x0 = np.float32([[0.5]])
    log_weights = jax.jit(
      lambda key: bounds.denoising_log_weights(
        lambda x, t: jnp.zeros_like(x), sde, x0, key, jnp.ones(1), 20_000
      )
    )(jax.random.key(0))
    found, error = log_mean(log_weights)
    expected = stats.norm(0, np.sqrt(1 + s**2) / m).logpdf(0.5)
    np.testing.assert_allclose(found, expected, atol=5 * error.max())

  def test_refuses_no_paths(self):
    for number in (0, -1):
      with self.assertRaisesRegex(ValueError, f'num_paths={number}'):
        bounds.denoising_log_weights(
          lambda x, t: x, sdes.vp(), np.zeros((2, 1)), jax.random.key(0), np.ones(1), number
        )
