"""What votes tell: posteriors against scipy, the martingale, and counts by the thousand."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from scipy import integrate, special, stats

from lib.voting import confidence

# All pairs of few votes, then up to 20,000 votes each, ties and near ties among them.
_NEAR = (0, 1, 2, 5, 30, 150, 500)
_LARGE = np.geomspace(131, 19_500, 10).astype(int)
SIDES = np.unique(np.concatenate([np.arange(131), *(_LARGE + near for near in _NEAR)]))
A, B = (side.astype(np.float64) for side in np.broadcast_arrays(SIDES[:, None], SIDES))


def everything(first, second):
  return {
    'log uncertainty': confidence.beta_log_uncertainty(first, second),
    'confidence': confidence.beta_confidence(first, second),
    'log ratio': confidence.ppr_log_ratio(first, second),
    'expected margin': confidence.expected_margin(first, second),
  }


@functools.cache
def table(double):
  """All pairs of sides, of whole numbers in float32 or of floats in float64."""
  with jax.enable_x64(double):
    sides = jnp.asarray(SIDES, jnp.float64 if double else jnp.int32)
    found = jax.jit(everything)(sides[:, None], sides)
    chex.assert_type(list(found.values()), jnp.float64 if double else jnp.float32)
    return jax.tree.map(np.asarray, found)


def log_ratio(a, b):
  """log R in float64, where log-Gammas of 20,000 are right to 1e-11."""
  gammas = special.gammaln(a + b + 2) - special.gammaln(a + 1) - special.gammaln(b + 1)
  return gammas - (a + b) * np.log(2)


class TopTwoTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_agrees_with_sorting(self):
    counts = np.random.default_rng(0).integers(0, 4, (30, 5, 6))
    first, second = self.variant(confidence.top_two)(jnp.asarray(counts))
    ordered = np.sort(counts, axis=-1)
    np.testing.assert_array_equal(first, ordered[..., -1])
    np.testing.assert_array_equal(second, ordered[..., -2])
    self.assertEqual(first.dtype, jnp.int32)

  def test_one_answer_has_no_rival(self):
    first, second = confidence.top_two(jnp.array([[3], [0]]))
    np.testing.assert_array_equal(first, [3, 0])
    np.testing.assert_array_equal(second, [0, 0])

  def test_refuses_no_answers(self):
    for shape in ((), (3, 0)):
      with self.assertRaisesRegex(ValueError, 'at least one answer'):
        confidence.top_two(jnp.zeros(shape))


class BetaTest(chex.TestCase):
  @parameterized.parameters((False, 2e-7), (True, 1e-8))
  def test_confidence_of_few_votes(self, double, atol):
    a, b = [3, 4, 5, 7, 9, 20, 1], [0, 0, 1, 2, 3, 10, 1]
    expected = [0.9375, 0.96875, 0.9375, 0.9453125, 0.953857421875, 0.9646222270, 0.5]
    found = table(double)['confidence'][a, b]
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)

  def test_agrees_with_tails_of_the_binomial(self):
    tail = stats.binom.logsf(A, A + B + 1, 0.5)
    known = tail > -600  # below, scipy's are of less precision, then underflow
    self.assertGreater(known.mean(), 0.7)
    single, double = (table(x)['log uncertainty'] for x in (False, True))
    np.testing.assert_allclose(double[known], tail[known], rtol=2e-8, atol=2e-8)
    np.testing.assert_allclose(single[known], tail[known], rtol=3e-6, atol=2e-6)
    np.testing.assert_allclose(single, double, rtol=3e-6, atol=2e-6)
    # Beyond, by the first terms of its sum: R/(2(a + 1)) (1 + b/(a + 2) (1 + (b - 1)/(a + 3) ...)).
    a, b = A[~known], B[~known]
    series = np.ones_like(a)
    for i in range(400, -1, -1):
      series = 1 + np.maximum(b - i, 0) / (a + 2 + i) * series
    expected = log_ratio(a, b) - np.log(2 * (a + 1)) + np.log(series)
    np.testing.assert_allclose(double[~known], expected, rtol=1e-9)

  def test_others_in_single_precision(self):
    double = table(True)
    np.testing.assert_allclose(double['log ratio'], log_ratio(A, B), rtol=1e-10, atol=1e-9)
    margin = -np.expm1(special.betaln(A + 1.5, B + 1.5) - special.betaln(A + 1, B + 1) + np.log(2))
    # The last digits of this are gone at ties of thousands, for its terms cancel.
    np.testing.assert_allclose(double['expected margin'], margin, rtol=0, atol=1e-9)
    for name in ('log ratio', 'expected margin'):
      atol = 2e-6 if name == 'log ratio' else 0
      np.testing.assert_allclose(table(False)[name], double[name], rtol=3e-6, atol=atol)

  @parameterized.parameters(False, True)
  def test_ties_are_exact_halves(self, double):
    found = table(double)
    log_uncertainty = np.diagonal(found['log uncertainty'])
    np.testing.assert_array_equal(log_uncertainty, log_uncertainty.dtype.type(np.log(0.5)))
    np.testing.assert_array_equal(np.diagonal(found['confidence']), 0.5)

  @parameterized.parameters(False, True)
  def test_exchanging_the_answers(self, double):
    found = table(double)
    total = found['confidence'] + found['confidence'].T
    np.testing.assert_allclose(total, 1.0, rtol=0, atol=1e-13 if double else 2e-7)
    for name in ('log ratio', 'expected margin'):
      np.testing.assert_array_equal(found[name], found[name].T)

  def test_a_vote_moves_it_towards_its_answer(self):
    found = table(False)['log uncertainty']
    for_first, for_second = np.diff(found, axis=0), np.diff(found, axis=1)
    self.assertTrue((for_first <= 0).all())
    self.assertTrue((for_second >= 0).all())
    # Behind, what is left of certainty rounds to one.
    self.assertTrue((for_first < 0)[(A >= B)[:-1]].all())
    self.assertTrue((for_second > 0)[(A >= B)[:, 1:]].all())
    self.assertTrue((found <= 0).all())

  def test_unanimous_votes(self):
    found = table(False)
    log_uncertainty, log_ratios = found['log uncertainty'][:, 0], found['log ratio'][:, 0]
    np.testing.assert_allclose(log_uncertainty, -(SIDES + 1) * np.log(2), rtol=1e-6)
    np.testing.assert_allclose(
      log_ratios, np.log(SIDES + 1) - SIDES * np.log(2), rtol=1e-6, atol=3e-7
    )
    # Adaptive consistency stops at .95 after four.
    self.assertEqual(np.argmax(found['confidence'][:, 0] >= 0.95), 4)

  def test_derivatives_in_the_votes(self):
    a, b = np.array([3.0, 50.0, 900.0, 2.5]), np.array([1.0, 20.0, 880.0, 0.0])
    towards = np.array([1.0, -2.0, 0.5, 1.0]), np.array([0.3, 1.0, 1.0, 0.0])
    step = 1e-4 * np.array([[1.0], [-1.0]])

    directions = tuple(np.broadcast_to(t, (2, 4)) for t in towards)
    functions = (
      confidence.beta_log_uncertainty,
      confidence.ppr_log_ratio,
      confidence.expected_margin,
    )
    along = jax.jit(lambda a, b: [jax.jvp(f, (a, b), directions) for f in functions])
    with jax.enable_x64(True):
      found = along(a + step * towards[0], b + step * towards[1])
    for values, slopes in jax.tree.map(np.asarray, found):
      np.testing.assert_allclose(slopes.mean(0), (values[0] - values[1]) / 2e-4, rtol=1e-5)


class PprTest(chex.TestCase):
  @parameterized.parameters((False, 1e-6), (True, 1e-10))
  def test_ratios_of_few_votes(self, double, rtol):
    expected = [1, 0.5, 0.65625, 0.03515625, 0.20947265625, 1.5]
    found = np.exp(table(double)['log ratio'][[0, 3, 5, 8, 10, 1], [0, 0, 1, 0, 2, 1]])
    np.testing.assert_allclose(found, expected, rtol=rtol)

  @parameterized.product(double=(False, True), n=(5, 20, 100))
  def test_inverse_is_a_martingale_of_mean_one(self, double, n):
    a = np.arange(n + 1)
    inverse = np.exp(-table(double)['log ratio'][a, n - a].astype(np.float64))
    mean = stats.binom.pmf(a, n, 0.5) @ inverse
    np.testing.assert_allclose(mean, 1.0, rtol=0, atol=1e-10 if double else 1e-5)

  def test_inverse_is_a_martingale_step_by_step(self):
    inverse = -table(False)['log ratio'][:131, :131]
    after = np.logaddexp(inverse[1:, :-1], inverse[:-1, 1:]) - np.log(2)
    np.testing.assert_allclose(inverse[:-1, :-1], after, rtol=3e-6, atol=3e-6)

  def test_unanimous_votes_stop(self):
    level = np.exp(jax.jit(confidence.ppr_log_level)(np.arange(20), 0, np.array([[2], [5]])))
    found = [[int(np.argmax(row <= delta)) for delta in (0.1, 0.05, 0.01)] for row in level]
    self.assertEqual(found, [[7, 8, 11], [9, 10, 13]])

  @chex.variants(with_jit=True)
  def test_level(self):
    a, b = np.array([30, 30, 30, 5, 5]), np.array([4, 4, 4, 5, 0])
    seen = np.array([1, 2, 5, 2, 0])
    found = self.variant(confidence.ppr_log_level)(a, b, seen)
    ratio = table(False)['log ratio'][a, b]
    # One answer seen counts as two; ties are at level one however many votes they have.
    expected = np.minimum(ratio + np.log([1, 1, 4, 1, 1]), 0)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    self.assertEqual(found[3], 0.0)
    self.assertGreater(ratio[3], 0.0)


class DirichletTest(chex.TestCase):
  def test_agrees_with_quadrature(self):
    counts = np.array([[2, 7, 4, 0, 1], [3, 3, 3, 3, 3], [9, 0, 0, 0, 0]])
    draw = jax.jit(functools.partial(confidence.dirichlet_confidence, num_draws=4096, top=3))
    found = draw(jax.random.key(0), counts)
    for row, probability in zip(counts, found, strict=True):
      leading = np.sort(row)[:1:-1] + 1

      def density(x, leading=leading):
        return stats.gamma.pdf(x, leading[0]) * np.prod(stats.gamma.cdf(x, leading[1:]))

      expected, _ = integrate.quad(density, 0, 60)
      self.assertAlmostEqual(float(probability), expected, delta=4 * np.sqrt(0.25 / 4096))

  def test_refuses(self):
    for num_draws, top in ((0, 5), (-1, 5), (3, 0)):
      with self.assertRaisesRegex(ValueError, 'positive'):
        confidence.dirichlet_confidence(jax.random.key(0), jnp.ones(3), num_draws, top)
    with self.assertRaisesRegex(ValueError, 'at least one answer'):
      confidence.dirichlet_confidence(jax.random.key(0), jnp.ones((3, 0)), 3)


class MarginTest(chex.TestCase):
  @chex.variants(with_jit=True)
  def test_is_the_best_tilt(self):
    p = np.random.default_rng(0).dirichlet(np.ones(5), 50)
    with jax.enable_x64(True):
      m, rate = (np.asarray(self.variant(f)(p)) for f in (confidence.margin, confidence.rate))
    first, second = np.sort(p, axis=-1)[:, :-3:-1].T
    tilts = np.linspace(0, 8, 20_001)[:, None]
    generating = 1 - first - second + first * np.exp(-tilts) + second * np.exp(tilts)
    np.testing.assert_allclose(1 - m, generating.min(axis=0), rtol=0, atol=2e-6)
    np.testing.assert_allclose(np.exp(-rate), 1 - m, rtol=1e-14)

  @chex.variants(with_jit=True)
  def test_near_ties_and_certainty(self):
    p = np.array([[0.5, 0.5], [0.50001, 0.49999], [1.0, 0.0]], np.float32)
    gap = float(p[1, 0]) - float(p[1, 1])
    margin, rate = (self.variant(f)(p) for f in (confidence.margin, confidence.rate))
    np.testing.assert_allclose(margin, [0, gap**2 / 2, 1], rtol=1e-5)
    np.testing.assert_allclose(rate, [0, gap**2 / 2, np.inf], rtol=1e-5)
    self.assertEqual(self.variant(confidence.margin)(np.ones(1, np.float32)), 1.0)

  def test_derivatives(self):
    p = np.array([0.2, 0.5, 0.3])
    r = np.sqrt(0.3 / 0.5)
    m = 0.8 - 2 * np.sqrt(0.15)
    gradient = jax.jit(jax.vmap(jax.grad(confidence.rate)))
    with jax.enable_x64(True):
      found, at_tie = gradient(np.stack([p, [0.4, 0.4, 0.2]]))
    np.testing.assert_allclose(found, np.array([0, 1 - r, 1 - 1 / r]) / (1 - m), rtol=1e-12)
    np.testing.assert_array_equal(at_tie, 0.0)

  @chex.variants(with_jit=True)
  def test_plugin_information(self):
    n = A + B + 3
    expected = n * (np.sqrt((A + 1) / (n + 2)) - np.sqrt((B + 1) / (n + 2))) ** 2
    found = self.variant(confidence.plugin_information)(SIDES[:, None], SIDES, n)
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-12)
    self.assertEqual(self.variant(confidence.plugin_information)(0, 0, 0), 0.0)

  def test_expected_margin_is_a_posterior_mean(self):
    found = table(True)['expected margin']
    self.assertAlmostEqual(found[0, 0], 1 - np.pi / 4, delta=1e-10)
    for a, b in ((4, 0), (12, 5), (2, 2)):
      density = stats.beta(a + 1, b + 1).pdf
      expected, _ = integrate.quad(lambda t, f=density: f(t) * (1 - 2 * np.sqrt(t * (1 - t))), 0, 1)
      self.assertAlmostEqual(found[a, b], expected, delta=1e-8)
    # About 1/(2n) at a tie of n votes in all.
    ties = np.diagonal(table(False)['expected margin']) * 4 * SIDES
    np.testing.assert_allclose(ties[SIDES > 9000], 1.0, rtol=1e-3)
