"""Tests of the laws of the times, against scipy's."""

import chex
import jax
import numpy as np
from absl.testing import parameterized
from scipy import special, stats

from lib.flow import timesteps

NUM_SAMPLES = 4000
BETAS = ((1.0, 1.0), (2.0, 2.0), (1.0, 1.5), (2.0, 5.0), (0.5, 0.5))
NODES, WEIGHTS = np.polynomial.legendre.leggauss(400)
TIMES, WEIGHTS = (1 + NODES) / 2, WEIGHTS / 2


class SampleTest(chex.TestCase):
  def check_law(self, t, law):
    self.assertEqual((t.shape, t.dtype), ((NUM_SAMPLES,), np.float32))
    t = np.asarray(t)  # spares the compilation of each reduction
    self.assertGreaterEqual(float(t.min()), 0.0)
    self.assertLessEqual(float(t.max()), 1.0)
    self.assertGreater(stats.kstest(t, law.cdf).pvalue, 1e-3)
    std_error = law.std() / np.sqrt(NUM_SAMPLES)
    self.assertAlmostEqual(float(t.mean()), law.mean(), delta=5 * std_error)

  @parameterized.parameters(*BETAS)
  def test_beta(self, a, b):
    t = timesteps.sample_beta(jax.random.key(1), (NUM_SAMPLES,), a, b)
    self.check_law(t, stats.beta(a, b))
    t, variance = np.asarray(t), a * b / ((a + b) ** 2 * (a + b + 1))
    fourth = stats.beta(a, b).stats('k') + 3
    std_error = variance * np.sqrt((fourth - 1) / NUM_SAMPLES)
    self.assertAlmostEqual(float(t.mean()), a / (a + b), delta=5 * np.sqrt(variance / t.size))
    self.assertAlmostEqual(float(t.var()), variance, delta=5 * std_error)

  @parameterized.parameters((2.0, 2.0, 0.5, 0.05), (1.0, 1.5, 0.4, 0.068571))
  def test_moments_of_the_beta_density(self, a, b, mean, variance):
    with jax.enable_x64(True):
      density = np.exp(jax.jit(lambda: timesteps.beta_log_prob(TIMES, a, b))())
    self.assertAlmostEqual(WEIGHTS @ (density * TIMES), mean, places=5)
    self.assertAlmostEqual(WEIGHTS @ (density * (TIMES - mean) ** 2), variance, places=5)

  def test_beta_of_ones_is_uniform(self):
    t = timesteps.sample_beta(jax.random.key(2), (NUM_SAMPLES,), 1.0, 1.0)
    self.check_law(t, stats.uniform())

  @parameterized.parameters((0.0, 1.0), (-1.0, 0.5), (2.0, 2.0))
  def test_logit_normal(self, mean, std):
    t = timesteps.sample_logit_normal(jax.random.key(3), (NUM_SAMPLES,), mean, std)
    self.assertEqual((t.shape, t.dtype), ((NUM_SAMPLES,), np.float32))
    z = special.logit(np.asarray(t, np.float64))
    self.assertGreater(stats.kstest(z, stats.norm(mean, std).cdf).pvalue, 1e-3)

  @chex.variants(with_jit=True, without_jit=True)
  def test_traced(self):
    key, shape = jax.random.key(0), (NUM_SAMPLES,)
    uniform = self.variant(lambda key: timesteps.sample_uniform(key, shape))(key)
    self.check_law(uniform, stats.uniform())
    logit = self.variant(lambda key: timesteps.sample_logit_normal(key, shape, eps=0.2))(key)
    self.assertBetween(float(np.mean(logit)), 0.45, 0.55)
    # Compiling the gamma law takes seconds, so that it is only traced.
    beta = jax.eval_shape(jax.jit(lambda key: timesteps.sample_beta(key, shape, 2.0, 5.0)), key)
    self.assertEqual((beta.shape, beta.dtype), (shape, np.float32))

  def test_keeps_away_from_the_ends(self):
    for eps in (timesteps.EPS, 0.2):
      t = timesteps.sample_beta(jax.random.key(5), (NUM_SAMPLES,), 0.01, 0.01, eps)
      z = timesteps.sample_logit_normal(jax.random.key(6), (NUM_SAMPLES,), 0.0, 50.0, eps)
      for times in (np.asarray(t), np.asarray(z)):
        # Laws so wide that both ends are certain to be met.
        self.assertEqual(float(times.min()), np.float32(eps))
        self.assertEqual(float(times.max()), np.float32(1.0 - eps))
        self.assertTrue(np.isfinite(1 / (1 - times)).all())

  def test_one_key_gives_one_sample(self):
    def draw(seed):
      return timesteps.sample_beta(jax.random.key(seed), (NUM_SAMPLES,), 2.0, 2.0)

    np.testing.assert_array_equal(draw(0), draw(0))
    self.assertFalse(np.array_equal(draw(0), draw(1)))

  @parameterized.parameters(0.0, -1.0, float('nan'))
  def test_refuses_what_is_not_positive(self, bad):
    key, t = jax.random.key(0), np.full(3, 0.5)
    for call in (
      lambda: timesteps.sample_beta(key, (3,), bad, 1.0),
      lambda: timesteps.beta_log_prob(t, bad, 1.0),
    ):
      with self.assertRaisesRegex(ValueError, '^a must be positive'):
        call()
    for call in (
      lambda: timesteps.sample_beta(key, (3,), 1.0, bad),
      lambda: timesteps.beta_log_prob(t, 1.0, bad),
    ):
      with self.assertRaisesRegex(ValueError, '^b must be positive'):
        call()
    for call in (
      lambda: timesteps.sample_logit_normal(key, (3,), 0.0, bad),
      lambda: timesteps.logit_normal_log_prob(t, 0.0, bad),
    ):
      with self.assertRaisesRegex(ValueError, '^std must be positive'):
        call()
    with self.assertRaisesRegex(ValueError, '^max_weight must be positive'):
      timesteps.importance_weights(t, bad)


class LogProbTest(chex.TestCase):
  @chex.variants(with_jit=True)
  def test_beta_agrees_with_scipy(self):
    t = np.array([1e-4, 0.1, 0.5, 0.9, 0.999], np.float32)
    found = self.variant(lambda t: [timesteps.beta_log_prob(t, a, b) for a, b in BETAS])(t)
    expected = [stats.beta.logpdf(np.float64(t), a, b) for a, b in BETAS]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)

  @chex.variants(with_jit=True)
  def test_logit_normal_is_the_normal_by_change_of_variables(self):
    t = np.array([1e-4, 0.1, 0.5, 0.9, 0.999], np.float32)
    found = self.variant(lambda t: timesteps.logit_normal_log_prob(t, -0.5, 2.0))(t)
    t = np.float64(t)
    expected = stats.norm.logpdf(special.logit(t), -0.5, 2.0) - np.log(t * (1 - t))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)

  def test_densities_integrate_to_one(self):
    with jax.enable_x64(True):
      logs = jax.jit(
        lambda: (
          timesteps.beta_log_prob(TIMES, 2.0, 5.0),
          timesteps.logit_normal_log_prob(TIMES),
          timesteps.logit_normal_log_prob(TIMES, -1.0, 0.5),
        )
      )()
    for log in logs:
      self.assertAlmostEqual(WEIGHTS @ np.exp(log), 1.0, places=6)


class ImportanceWeightsTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_is_the_clipped_inverse_density(self):
    log_prob = np.log(np.array([4.0, 1.0, 0.5, 0.1, 0.01, 1e-30], np.float32))
    weights = self.variant(lambda p: timesteps.importance_weights(p, 10.0))(log_prob)
    np.testing.assert_allclose(weights, [0.25, 1.0, 2.0, 10.0, 10.0, 10.0], rtol=1e-5)
    # Where the density underflows, the clip still holds.
    never = self.variant(lambda p: timesteps.importance_weights(p, 10.0))(
      np.array([-1e4, -np.inf, np.inf, 0.0, 0.0, 0.0], np.float32)
    )
    np.testing.assert_allclose(never, [10.0, 10.0, 0.0, 1.0, 1.0, 1.0], rtol=1e-5)

  def test_times_from_beta_stand_for_uniform_ones(self):
    def weigh():
      log_prob = timesteps.beta_log_prob(TIMES, 2.0, 2.0)
      return log_prob, timesteps.importance_weights(log_prob, 1e9)

    with jax.enable_x64(True):
      log_prob, weights = map(np.asarray, jax.jit(weigh)())
    average = WEIGHTS @ (np.exp(log_prob) * weights * np.cos(3 * TIMES))
    self.assertAlmostEqual(average, np.sin(3) / 3, places=9)

  def test_has_no_gradient(self):
    gradient = jax.grad(lambda p: timesteps.importance_weights(p, 10.0))(np.float32(-0.3))
    self.assertEqual(float(gradient), 0.0)
