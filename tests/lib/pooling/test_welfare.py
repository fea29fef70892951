"""Tests of welfare gaps: their identities, their signs, and what rounding does to them."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from scipy.special import log_softmax

from lib.pooling import pools, welfare
from tests.lib.pooling.toys import BETA, CONTEXTS, HALVES, LOGITS, WEIGHTS, K, N, exact

TILTS = hnp.arrays(np.float64, K, elements=st.floats(-1, 1, allow_subnormal=False))


@exact
def report(logp, beta):
  """What the identities are about, of the log pool and of the linear one."""
  logpool, linear = pools.log_pool(logp, beta), pools.linear_pool(logp, beta)
  return {
    'pool': logpool,
    'entropies': welfare.entropy(logp),
    'pool entropy': welfare.entropy(logpool),
    'divergences': welfare.kl(logpool, logp),
    'partition': pools.log_partition(logp, beta),
    'gaps': (gaps := welfare.welfare_gaps(logp, logpool)),
    'strict': welfare.strictly_unanimous(gaps),
    'group': welfare.weighted_gap(logp, logpool, beta),
    'linear gaps': (gaps := welfare.welfare_gaps(logp, linear)),
    'linear strict': welfare.strictly_unanimous(gaps),
    'linear group': welfare.weighted_gap(logp, linear, beta),
    'certificate': welfare.linear_pool_certificate(logp, beta),
  }


@exact
def gaps_of(logp, beta):
  return welfare.welfare_gaps(logp, pools.log_pool(logp, beta))


@exact
def small_tilts(logp, g, t):
  """The gaps of two opposite tilts, and their expansion's coefficients."""
  logp = jax.nn.log_softmax(logp)
  g -= welfare.expectation(logp, g)
  g = jnp.stack([g, -g])
  centred = logp + welfare.entropy(logp)
  first = -welfare.expectation(logp, g * centred)
  second = -welfare.expectation(logp, g**2) - 0.5 * welfare.expectation(logp, g**2 * centred)
  return welfare.welfare_gaps(pools.tilt(logp, g, t), logp), first, second


class IdentitiesTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_agree_with_scipy_in_every_context(self):
    with jax.enable_x64(True):
      logpool = pools.log_pool(CONTEXTS, BETA)
      gaps = self.variant(welfare.welfare_gaps)(CONTEXTS, logpool)
      entropies = self.variant(welfare.entropy)(CONTEXTS)
      divergences = self.variant(welfare.kl)(CONTEXTS, logpool[..., None, :])
    p, q = np.exp(CONTEXTS), np.exp(logpool)[..., None, :]
    np.testing.assert_allclose(entropies, stats.entropy(p, axis=-1), rtol=1e-12)
    np.testing.assert_allclose(divergences, stats.entropy(p, q, axis=-1), atol=1e-13)
    np.testing.assert_allclose(gaps, np.sum((q - p) * np.log(p), axis=-1), atol=1e-13)

  @settings(max_examples=25)
  @given(logits=LOGITS, beta=WEIGHTS)
  def test_identities(self, logits, beta):
    found = report(log_softmax(logits, axis=1), beta)
    np.testing.assert_allclose(
      found['gaps'], found['entropies'] - found['pool entropy'] - found['divergences'], atol=1e-12
    )
    group = beta @ found['entropies'] - found['pool entropy'] + found['partition']
    np.testing.assert_allclose(found['group'], group, atol=1e-12)
    np.testing.assert_allclose(found['group'], beta @ found['gaps'], atol=1e-12)

  @settings(max_examples=25)
  @given(logits=LOGITS, beta=WEIGHTS)
  def test_no_linear_pool_is_unanimous(self, logits, beta):
    found = report(log_softmax(logits, axis=1), beta)
    self.assertFalse(found['linear strict'])
    np.testing.assert_allclose(found['linear group'], found['certificate'], atol=1e-12)
    self.assertLessEqual(found['certificate'], 1e-15)

  def test_linear_group_gap_vanishes_in_agreement_alone(self):
    same = np.stack([CONTEXTS[0, 0, 0]] * N)
    other = np.stack([*same[:2], CONTEXTS[0, 0, 1]])
    np.testing.assert_allclose(report(same, BETA)['certificate'], 0.0, atol=1e-14)
    self.assertLess(report(other, BETA)['certificate'], -0.01)
    # A member without weight need not agree.
    silent = report(other, np.array([0.4, 0.6, 0.0]))
    np.testing.assert_allclose(silent['certificate'], 0.0, atol=1e-14)

  @settings(max_examples=25)
  @given(logits=LOGITS, beta=WEIGHTS)
  def test_gaps_grow_with_the_number_of_draws(self, logits, beta):
    logp = log_softmax(logits, axis=1)
    once = gaps_of(logp, beta)
    twice = (logp[:, :, None] + logp[:, None]).reshape(N, -1)
    np.testing.assert_allclose(gaps_of(twice, beta), 2 * once, atol=1e-11)
    thrice = (twice[:, :, None] + logp[:, None]).reshape(N, -1)
    np.testing.assert_allclose(gaps_of(thrice, beta), 3 * once, atol=1e-11)

  @settings(max_examples=25)
  @given(logits=LOGITS, beta=WEIGHTS)
  def test_members_that_cannot_gain(self, logits, beta):
    # The uniform belief scores all outcomes alike, so that no pool matters to it.
    uniform = np.concatenate([np.zeros((1, K)), logits[1:]])
    found = report(log_softmax(uniform, axis=1), beta)
    np.testing.assert_allclose(found['gaps'][0], 0.0, atol=1e-15)
    self.assertFalse(found['strict'])
    # Nor does the pool differ from a dictator.
    found = report(log_softmax(logits, axis=1), np.array([0.0, 1.0, 0.0]))
    np.testing.assert_allclose(found['gaps'][1], 0.0, atol=1e-13)
    self.assertFalse(found['strict'])


class ExamplesTest(chex.TestCase):
  def test_three_outcomes_can_be_unanimous(self):
    logp = np.log([[0.14, 0.85, 0.01], [0.01, 0.85, 0.14]])
    found = report(logp, HALVES)
    self.assertTrue(found['strict'])
    np.testing.assert_allclose(
      np.exp(found['pool']), [0.04045765, 0.9190847, 0.04045765], rtol=1e-7
    )
    np.testing.assert_allclose(found['gaps'], 0.0442212739, rtol=0, atol=5e-11)
    np.testing.assert_allclose(found['linear gaps'], -0.1715387264, rtol=0, atol=5e-11)

  def test_another_welfare_can_make_up_for_a_loss(self):
    logp = np.log([[0.3, 0.69, 0.01], [0.01, 0.69, 0.3]])
    found = report(logp, HALVES)
    np.testing.assert_allclose(found['gaps'], -0.0548986751, rtol=0, atol=5e-11)
    gaps = exact(welfare.general_gap)(np.array([0.0, 1.0, 0.0]), logp, found['pool'])
    np.testing.assert_allclose(gaps, 0.17299, rtol=0, atol=5e-6)
    np.testing.assert_allclose(gaps, np.exp(found['pool'])[1] - 0.69, atol=1e-15)


class SmallTiltsTest(chex.TestCase):
  @settings(max_examples=25)
  @given(logits=LOGITS, g=TILTS)
  def test_expansion(self, logits, g):
    for t in (1e-2, 1e-3):
      gaps, first, second = small_tilts(logits[0] / 2, g, t)
      # The third derivative is at most about the tilt's cube times the oscillation of log P.
      rest = np.abs(gaps - t * first - t**2 * second).max()
      self.assertLessEqual(rest, 50 * t**3 + 1e-15)

  @settings(max_examples=25)
  @given(logits=LOGITS, g=TILTS)
  def test_a_near_duplicate_loses_unless_covariances_vanish(self, logits, g):
    gaps, first, _ = small_tilts(logits[0] / 2, g, 1e-4)
    np.testing.assert_allclose(first.sum(), 0.0, atol=1e-14)
    assume(np.abs(first).max() > 1e-2)
    self.assertLess(gaps.min(), 0.0)
    self.assertGreater(gaps.max(), 0.0)

  def test_a_generic_tilt_of_a_hundredth(self):
    rng = np.random.default_rng(0)
    gaps, first, second = small_tilts(rng.normal(size=K), 0.1 * rng.normal(size=K), 0.01)
    self.assertLess(gaps[0] * gaps[1], 0.0)
    np.testing.assert_allclose(gaps, 0.01 * first, rtol=0, atol=1e-6)
    np.testing.assert_allclose(gaps, 0.01 * first + 1e-4 * second, rtol=0, atol=1e-9)

  def test_where_covariances_vanish_all_may_gain(self):
    logp, g = np.log([0.9, 0.05, 0.05]), np.array([0.0, 1.0, -1.0])
    gaps, first, second = small_tilts(logp, g, 0.01)
    np.testing.assert_allclose(first, 0.0, atol=1e-15)
    np.testing.assert_allclose(gaps, 3.0066e-6, rtol=0, atol=5e-11)
    np.testing.assert_allclose(gaps, 1e-4 * second, rtol=1e-3)
    gaps, _, _ = small_tilts(logp, g, 0.5)
    np.testing.assert_allclose(gaps, 7.055e-3, rtol=0, atol=5e-7)
    # It is a composition: the pool of the tilts is P.
    members = log_softmax(logp + 0.5 * np.stack([g, -g]), axis=1)
    found = report(members, HALVES)
    np.testing.assert_allclose(found['pool'], logp, atol=1e-14)
    np.testing.assert_allclose(found['gaps'], gaps, atol=1e-14)
    self.assertTrue(found['strict'])


class DomainTest(chex.TestCase):
  @chex.variants(with_jit=True)
  def test_supports_that_differ(self):
    with np.errstate(divide='ignore'):
      whole, part = np.log([0.25, 0.75, 0.0]), np.log([1.0, 0.0, 0.0])
    with jax.enable_x64(True):
      kl, gap = self.variant(welfare.kl), self.variant(welfare.welfare_gap)
      self.assertEqual(kl(whole, part), np.inf)
      np.testing.assert_allclose(kl(part, whole), np.log(4), rtol=1e-14)
      self.assertEqual(self.variant(welfare.entropy)(part), 0.0)
      self.assertEqual(gap(part, whole), -np.inf)
      np.testing.assert_allclose(gap(whole, part), 0.75 * np.log(0.25 / 0.75), rtol=1e-14)
      group = self.variant(welfare.weighted_gap)
      both = np.stack([whole, part])
      self.assertEqual(group(both, whole, HALVES), -np.inf)
      self.assertEqual(group(both, whole, np.array([1.0, 0.0])), 0.0)
      self.assertEqual(self.variant(welfare.linear_pool_certificate)(both, HALVES), -np.inf)

  @chex.variants(with_jit=True)
  def test_gradients_are_finite_whatever_the_supports(self):
    logp = np.array([[-1.0, -0.5, -np.inf], [0.0, -np.inf, -np.inf], [-1.0, -1.0, -1.0]])

    def losses(logp, beta):
      logpool = pools.log_pool(logp, beta)
      return (
        jnp.sum(welfare.welfare_gaps(logp, logpool))
        + welfare.weighted_gap(logp, logpool, beta)
        + jnp.sum(welfare.kl(logp, logpool[None]))
        + jnp.sum(welfare.kl(logpool[None], logp))
        + welfare.linear_pool_certificate(logp, beta)
      )

    gradient = self.variant(jax.grad(losses, (0, 1)))
    for beta in (np.array([0.2, 0.3, 0.5]), np.array([0.5, 0.0, 0.5])):
      chex.assert_tree_all_finite(gradient(logp, beta))

  def test_gradient_of_a_gap_is_that_of_differences(self):
    @exact
    @jax.value_and_grad
    def gap(logits):
      logp = jax.nn.log_softmax(logits)
      return welfare.welfare_gaps(logp, pools.log_pool(logp, BETA))[0]

    towards = np.random.default_rng(1).normal(size=(N, K))
    _, gradient = gap(CONTEXTS[0, 0])
    high, _ = gap(CONTEXTS[0, 0] + 1e-5 * towards)
    low, _ = gap(CONTEXTS[0, 0] - 1e-5 * towards)
    np.testing.assert_allclose((high - low) / 2e-5, np.sum(gradient * towards), rtol=1e-7)

  @chex.variants(with_jit=True)
  def test_a_large_vocabulary_in_single_precision(self):
    rng = np.random.default_rng(2)
    shared = rng.normal(size=49_152)

    def loss(logits):
      logp = jax.nn.log_softmax(logits)
      gaps = welfare.welfare_gaps(logp, pools.log_pool(logp, BETA))
      return jnp.min(gaps), gaps

    gradient = self.variant(jax.grad(loss, has_aux=True))
    for size in (1.0, 4.0, 25.0):  # from flat to probabilities that underflow
      logits = size * (shared + 0.3 * rng.normal(size=(N, 49_152)))
      derivative, gaps = gradient(np.float32(logits))
      chex.assert_tree_all_finite((derivative, gaps))
      logp = log_softmax(np.float64(np.float32(logits)), axis=1)
      expected = np.sum((np.exp(log_softmax(BETA @ logp)) - np.exp(logp)) * logp, axis=1)
      # Two sums would be off by ten times as much.
      np.testing.assert_allclose(gaps, expected, rtol=1e-6, atol=welfare.gap_tolerance(gaps) / 100)
      same = np.float32(logits[:1].repeat(N, axis=0))
      self.assertFalse(welfare.strictly_unanimous(gradient(same)[1]))


class StrictnessTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_everyone_must_gain_more_than_rounding(self):
    strict = self.variant(welfare.strictly_unanimous)
    gaps = np.array([[0.1, 0.2], [0.1, 0.0], [0.1, -0.1], [0.1, 1e-6], [0.1, np.nan]])
    np.testing.assert_array_equal(strict(np.float32(gaps)), [True, False, False, False, False])
    with jax.enable_x64(True):
      np.testing.assert_array_equal(strict(gaps), [True, False, False, True, False])
      lenient = self.variant(lambda gaps: welfare.strictly_unanimous(gaps, 0.15))
      np.testing.assert_array_equal(lenient(gaps + 0.1), [True, False, False, False, False])

  def test_refuses(self):
    for tolerance in (-1e-9, np.nan):
      with self.assertRaisesRegex(ValueError, 'tolerance'):
        welfare.strictly_unanimous(np.ones(2), tolerance)
    logp = np.zeros((2, 3))
    for function in (
      lambda: welfare.kl(logp, np.zeros((2, 4))),
      lambda: welfare.expectation(logp, np.zeros(1)),
      lambda: welfare.welfare_gaps(logp, np.zeros(4)),
      lambda: welfare.weighted_gap(logp, logp[0], np.ones(3) / 3),
      lambda: welfare.linear_pool_certificate(logp, np.ones(3) / 3),
    ):
      with self.assertRaises(AssertionError):
        jax.eval_shape(function)
    for function in (
      lambda: welfare.weighted_gap(logp, logp[0], np.ones(2)),
      lambda: welfare.linear_pool_certificate(logp, np.array([1.5, -0.5])),
    ):
      with self.assertRaisesRegex(ValueError, 'sum to one'):
        jax.eval_shape(function)
