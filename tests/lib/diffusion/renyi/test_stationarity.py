"""Where models come to rest under the Rényi objectives, against closed forms.

The losses average over a batch. To integrate on a grid instead, whose points have masses, a loss is
shifted by log(mass)/c: the tilt c turns it into a factor of the weight.
"""

import functools
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
from scipy import integrate, optimize, special, stats

from lib.diffusion import losses as denoising
from lib.diffusion import sde as sdes
from lib.diffusion import times
from lib.diffusion.renyi import objectives

START = 1e-5


def log_normal(x, mean, log_std):
  return -0.5 * ((x - mean) * jnp.exp(-log_std)) ** 2 - log_std - 0.5 * math.log(2 * math.pi)


def descend(loss, params, rate, steps, scale=lambda params: 1.0):
  """Descends for `steps`; a scale of the gradient does not move where it rests."""

  def step(params, _):
    slope = jax.tree.map(jnp.multiply, scale(params), jax.grad(loss)(params))
    return jax.tree.map(lambda p, s: p - rate * s, params, slope), None

  return jax.lax.scan(step, params, length=steps)[0]


class DiscreteTest(chex.TestCase):
  """Data of eight letters, each as often as the law has it, and a model that can have any law."""

  counts = np.array([60, 50, 36, 24, 14, 8, 5, 3])
  alphas = np.float32([0.5, 0.8, 1.0, 1.3, 2.0, 4.0])

  @functools.cached_property
  def p(self):
    return self.counts / self.counts.sum()

  def rest(self, weigh):
    letters = np.repeat(np.arange(8), self.counts)

    @jax.jit
    @jax.vmap
    def run(alpha):
      def loss(logits):
        losses = -jax.nn.log_softmax(logits)[letters]
        return jnp.mean(weigh(losses, letters, alpha - 1) * losses)

      scale = lambda logits: 1.0 / jax.nn.softmax(logits)
      return jax.nn.softmax(descend(loss, jnp.zeros(8), 0.4, 100, scale))

    return run(self.alphas)

  def powers(self, exponents):
    laws = self.p ** exponents[:, None]
    return laws / laws.sum(axis=1, keepdims=True)

  def test_tilt_is_a_temperature(self):
    found = self.rest(lambda losses, letters, tilt: objectives.tilt_weights(losses, tilt))
    np.testing.assert_allclose(found, self.powers(1 / self.alphas), atol=1e-5)
    # How the mass of the three rarest moves.
    rare = found[1:4, -3:].sum(axis=1)
    np.testing.assert_allclose(rare, [0.051, 0.080, 0.120], atol=6e-4)

  def test_excess_over_the_truth_rests_at_the_truth(self):
    reference = -np.log(self.p).astype(np.float32)
    found = self.rest(
      lambda losses, letters, tilt: objectives.excess_weights(losses, reference[letters], tilt)
    )
    np.testing.assert_allclose(found, np.tile(self.p, (6, 1)), atol=1e-5)

  def test_excess_over_another_law_rests_between(self):
    reference = self.p[::-1]
    losses = -np.log(reference).astype(np.float32)
    found = self.rest(lambda x, letters, tilt: objectives.excess_weights(x, losses[letters], tilt))
    blends = self.p ** (1 / self.alphas[:, None]) * reference ** (1 - 1 / self.alphas[:, None])
    np.testing.assert_allclose(found, blends / blends.sum(axis=1, keepdims=True), atol=1e-5)


class GaussianTest(chex.TestCase):
  def test_tilt_multiplies_the_variance(self):
    # p = N(0, 0.8²) and q = N(0, v): least at v = α 0.8².
    x, alphas = np.linspace(-10, 10, 401, dtype=np.float32), np.float32([0.3, 0.5, 1.5, 3.0])
    mass = log_normal(x, 0.0, math.log(0.8))

    @jax.jit
    @jax.vmap
    def run(alpha):
      def loss(log_std):
        losses = -log_normal(x, 0.0, log_std)
        weights = objectives.tilt_weights(losses + mass / (alpha - 1), alpha - 1)
        return jnp.mean(weights * losses)

      return jnp.exp(2 * descend(loss, 0.6, 0.1, 200))

    np.testing.assert_allclose(run(alphas), 0.64 * alphas, rtol=1e-3)

  def test_excess_of_one_normal_over_two(self):
    # The best single Gaussian for two seeks a mode or covers both.
    alphas = np.float32([0.3, 0.5, 0.9, 2.0, 5.0])
    starts = np.float32([[-1.8, -0.5]] * 2 + [[-0.5, 0.5]] * 3)
    x = np.linspace(-8, 8, 401, dtype=np.float32)
    modes = [log_normal(x, mode, math.log(0.5)) for mode in (-2.0, 2.0)]
    target = jnp.logaddexp(math.log(0.7) + modes[0], math.log(0.3) + modes[1])

    @jax.jit
    @jax.vmap
    def run(start, alpha):
      c = alpha - 1

      def loss(params):
        losses = -log_normal(x, *params)
        weights = objectives.excess_weights(losses + target / c, -target, c)
        return jnp.mean(weights * losses)

      scale = lambda params: jnp.stack([jnp.exp(2 * params[1]), 0.5])
      params = descend(loss, start, 0.3, 300, scale)
      excess = target - log_normal(x, *params)
      risk = objectives.tilted_mean(excess + target / c, c) + jnp.log(x.size * (x[1] - x[0])) / c
      return params[0], jnp.exp(params[1]), risk

    means, stds, risks = run(starts, alphas)
    np.testing.assert_allclose(means, [-2.000, -1.9995, -0.804, -0.785, -0.776], atol=1e-3)
    np.testing.assert_allclose(stds, [0.500, 0.5011, 1.892, 1.937, 1.958], atol=1e-3)
    # And its least value is the divergence itself.
    np.testing.assert_allclose(risks, [0.1528, 0.3565, 0.6976, 0.8771, 1.0222], atol=2e-4)


class DiffusionTest(chex.TestCase):
  """Laws pushed through the VP diffusion, with exact scores and ratios."""

  sde = sdes.vp()

  def times(self, count):
    return times.importance_times(self.sde, (jnp.arange(count) + 0.5) / count, START)

  @functools.cached_property
  def normalizer(self):
    return times.importance_normalizer(self.sde, START)

  def test_ratio_loss_is_the_divergence(self):
    # N(0, 1), which VP keeps, and N(1, 4); errors against the exact noise, given the point.
    alphas = np.float32([0.5, 1.5, 2.0])
    x = np.linspace(-8, 8, 201, dtype=np.float32)[:, None]

    @jax.jit
    def run(alphas):
      t = self.times(64)
      mean, std = self.sde.mean(t), self.sde.std(t)
      variance = 4 * mean**2 + std**2
      errors = std**2 * ((x - mean) / variance - x) ** 2
      mass = log_normal(x, 0.0, 0.0)
      log_ratios = mass - log_normal(x, mean, 0.5 * jnp.log(variance))

      def loss(alpha):
        weights = objectives.ratio_weights(log_ratios + mass / (alpha - 1), alpha)
        return objectives.ratio_loss(errors, weights, self.normalizer, alpha)

      return jax.vmap(loss)(alphas)

    divergences = [0.3231435513, 0.5110570858, 0.5561964295]
    np.testing.assert_allclose(run(alphas), divergences, rtol=1e-3)

  def test_excess_of_bounds_is_the_log_ratio(self):
    # For exact scores, of N(0, 1) and N(1, 4), the bounds are tight. Three nodes do for a square.
    starts = np.float32([-1.5, 0.0, 2.0])
    nodes, mass = special.roots_hermitenorm(3)
    x0 = np.repeat(starts, 3)[:, None]
    eps = np.broadcast_to(np.tile(nodes, 3)[:, None, None], (9, 256, 1)).astype(np.float32)

    @jax.jit
    def proxies():
      t = jnp.broadcast_to(self.times(256), (9, 256))

      def errors(mean, variance):
        def score(x, t):
          m, s = self.sde.mean(t), self.sde.std(t)
          return (m * mean - x) / (m**2 * variance + s**2)

        noise = sdes.noise_of_score(self.sde, score)
        return denoising.denoising_errors(noise, self.sde, x0, eps, t)

      model, reference = errors(1.0, 4.0), errors(0.0, 1.0)
      bounds = [denoising.likelihood_losses(e, self.normalizer) for e in (model, reference)]
      return objectives.proxy_log_ratios(model, reference, 0.5 * self.normalizer), *bounds

    found, model, reference = map(np.asarray, proxies())
    np.testing.assert_allclose(found.mean(axis=1), model - reference, rtol=1e-3, atol=1e-3)
    expected = stats.norm.logpdf(starts) - stats.norm.logpdf(starts, 1, 2)
    averages = found.mean(axis=1).reshape(3, 3) @ mass / mass.sum()
    np.testing.assert_allclose(averages, expected, atol=2e-3)

  def test_ratio_rests_at_data_within_reach(self):
    # Data N(1, 0.49), a normal model; draws (x_0, ε) of a lattice, noise and times of their own.
    alphas = np.float32([0.5, 1.0, 2.0])
    lattice = (np.arange(1, 1025)[:, None] * [0.7548776662, 0.5698402910]) % 1
    normal = stats.norm.ppf(lattice).astype(np.float32)
    x0, eps = 1 + 0.7 * normal[:, :1], np.repeat(normal[:, 1:, None], 12, axis=1)

    @jax.jit
    @jax.vmap
    def run(alpha):
      t = jnp.broadcast_to(self.times(12), (1024, 12))
      mean, std = self.sde.mean(t), self.sde.std(t)
      points = mean * x0 + std * eps[..., 0]
      log_data = log_normal(points, mean, 0.5 * jnp.log(0.49 * mean**2 + std**2))

      def loss(params):
        variance = jnp.exp(2 * params[1])

        def score(x, t):
          m, s = self.sde.mean(t), self.sde.std(t)
          return (m * params[0] - x) / (m**2 * variance + s**2)

        noise = sdes.noise_of_score(self.sde, score)
        errors = denoising.denoising_errors(noise, self.sde, x0, eps, t)
        log_model = log_normal(points, mean * params[0], 0.5 * jnp.log(variance * mean**2 + std**2))
        weights = objectives.ratio_weights(log_data - log_model, alpha)
        return objectives.ratio_loss(errors, weights, self.normalizer, alpha) / alpha

      return descend(loss, jnp.zeros(2), 0.2, 100)

    rests = run(alphas)
    np.testing.assert_allclose(rests[:, 0], 1.0, atol=0.02)
    np.testing.assert_allclose(np.exp(rests[:, 1]), 0.7, atol=0.02)

  def test_data_out_of_reach(self):
    # Data N(0, diag(1, ¼)) and models N(0, v I). The excess finds the least divergence, where
    # Σ (s² - v)/(α v + (1-α) s²) = 0. The ratio holds its weights, and finds where the same at
    # every noise τ = σ²/m² averages to zero.
    alphas, squares = np.float32([0.5, 2.0]), np.array([1.0, 0.25])

    def balance(v, tau, alpha):
      return np.sum((squares - v) / (alpha * v + (1 - alpha) * squares + tau))

    def averaged(v, alpha):
      return integrate.quad(lambda tau: balance(v, tau, alpha) / (v + tau) ** 2, 0, np.inf)[0]

    lows = np.where(alphas > 1, 0.51, 0.3)  # where q is wide enough for a finite divergence
    roots = lambda f, *tau: [
      optimize.brentq(f, low, 0.99, args=(*tau, alpha))
      for low, alpha in zip(lows, alphas, strict=True)
    ]
    least, held = roots(balance, 0.0), roots(averaged)
    z = np.stack(np.meshgrid(*2 * [np.linspace(-6, 6, 21)]), axis=-1).reshape(-1, 1, 2)
    x0 = z[:, 0] * np.sqrt(squares)

    @jax.jit
    @jax.vmap
    def run(alpha):
      c = alpha - 1
      t = self.times(32)
      mean, std = self.sde.mean(t)[:, None], self.sde.std(t)[:, None]
      data = mean**2 * squares + std**2  # (K, 2)
      points = z * jnp.sqrt(data)  # (B, K, 2)
      mass = jnp.sum(log_normal(z, 0.0, 0.0), axis=-1)
      log_data = jnp.sum(log_normal(points, 0.0, 0.5 * jnp.log(data)), axis=-1)

      def excess(log_std):
        losses = -jnp.sum(log_normal(x0, 0.0, log_std), axis=-1)
        reference = -jnp.sum(log_normal(x0, 0.0, 0.5 * np.log(squares)), axis=-1)
        weights = objectives.excess_weights(losses + mass[:, 0] / c, reference, c)
        return jnp.mean(weights * losses)

      def ratio(log_std):
        model = mean**2 * jnp.exp(2 * log_std) + std**2
        errors = jnp.sum(std**2 * (points / model - points / data) ** 2, axis=-1)
        log_model = jnp.sum(log_normal(points, 0.0, 0.5 * jnp.log(model)), axis=-1)
        weights = objectives.ratio_weights(log_data - log_model + mass / c, alpha)
        return objectives.ratio_loss(errors, weights, self.normalizer, alpha)

      return [jnp.exp(2 * descend(loss, 0.0, 0.1, 60)) for loss in (excess, ratio)]

    found = run(alphas)
    np.testing.assert_allclose(found[0], least, rtol=2e-3)
    np.testing.assert_allclose(found[1], held, rtol=5e-3)
    # Nearer to the fit of likelihood, 0.625.
    np.testing.assert_array_less(np.abs(found[1] - 0.625) + 0.02, np.abs(found[0] - 0.625))
