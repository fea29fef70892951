"""Tests of beliefs with known gaps, and of how far unanimity survives."""

import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import expit, log_softmax, logit

from lib.pooling import constructions, pools, welfare
from tests.lib.pooling.toys import CONTEXTS, HALVES, LOGITS, WEIGHTS, K, N, exact

PERTURBATIONS = hnp.arrays(np.float64, (N, K), elements=st.floats(-1, 1, allow_subnormal=False))


@exact
def gaps_of(logp, beta):
  """Gaps from the log pool and from the linear one."""
  linear = pools.linear_pool(logp, beta)
  return welfare.welfare_gaps(logp, pools.log_pool(logp, beta)), welfare.welfare_gaps(logp, linear)


def family(weights, eps):
  """Beliefs of the unanimous family, with their gaps and linear gaps."""
  with jax.enable_x64(True):
    logp = np.asarray(constructions.unanimous_family(len(weights), eps))
  return logp, *gaps_of(logp, np.array(weights))


class UnanimousFamilyTest(chex.TestCase):
  @parameterized.parameters(
    ((0.5, 0.5), 1.1512454946950386e-4),
    ((0.2, 0.8), 1.1167524269923514e-4),
    ((0.1, 0.3, 0.6), 1.151286941131128e-4),
    ((0.05, 0.15, 0.3, 0.5), 1.1512915459163134e-4),
  )
  def test_all_gain_at_any_weights(self, weights, expected):
    eps, n = 1e-5, len(weights)
    logp, gaps, linear_gaps = family(weights, eps)
    np.testing.assert_allclose(gaps.min(), expected, rtol=1e-11)
    self.assertLess(linear_gaps.min(), 0.0)
    if weights == (0.5, 0.5):
      np.testing.assert_allclose(linear_gaps.min(), -1.1512925e-4, rtol=1e-7)
    # The beliefs are those of the definition.
    p = np.exp(logp)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-15)
    others = np.where(np.eye(n, dtype=bool), eps, eps ** (n + 1))
    np.testing.assert_allclose(p[:, 1:], others, rtol=1e-12)
    # The pool's mass on o_i is of order n + 1 - n β_i > 1.
    powers = (np.array(weights) @ logp)[1:] / np.log(eps)
    np.testing.assert_allclose(powers, n + 1 - n * np.array(weights), rtol=1e-14)
    self.assertGreater(powers.min(), 1.0)

  @parameterized.parameters(
    (0.1, 0.128508369), (0.03, 0.091631519), (0.01, 0.044106723), (0.001, 0.006879119)
  )
  def test_two_members_at_equal_weights(self, eps, expected):
    np.testing.assert_allclose(family((0.5, 0.5), eps)[1], expected, rtol=0, atol=5e-10)

  def test_gaps_in_the_limit(self):
    ratios = []
    for eps in (1e-3, 1e-6, 1e-12):
      gaps = family((0.2, 0.8), eps)[1]
      ratios.append(gaps / (eps * np.log(1 / eps)))
    away = np.abs(np.array(ratios) - 1.0)
    self.assertTrue((np.diff(away, axis=0) < 0).all(), away)
    np.testing.assert_allclose(ratios[-1], 1.0, atol=1e-3)

  def test_single_precision(self):
    logp = jax.jit(lambda: constructions.unanimous_family(6, 1e-5))()
    self.assertEqual(logp.dtype, jnp.float32)
    np.testing.assert_allclose(np.min(logp), 7 * np.log(1e-5), rtol=1e-6)
    np.testing.assert_allclose(np.exp(logp).sum(axis=1), 1.0, rtol=1e-6)

  def test_refuses(self):
    for eps in (0.0, 0.25, -0.1, np.nan):
      with self.assertRaisesRegex(ValueError, r'\(0, 1/4\)'):
        constructions.unanimous_family(2, eps)
    with self.assertRaisesRegex(ValueError, 'num_members=1'):
      constructions.unanimous_family(1, 0.1)


@exact
def powers(logp):
  pair = constructions.power_family(logp, 1.2)
  logpool = pools.log_pool(pair, HALVES)
  return pair, logpool, welfare.welfare_gaps(pair, logpool)


class PowerFamilyTest(chex.TestCase):
  @settings(max_examples=25)
  @given(logits=LOGITS)
  def test_the_first_gains_from_a_sharper_pool(self, logits):
    pair, logpool, gaps = powers(log_softmax(logits[0]))
    np.testing.assert_allclose(logpool, log_softmax(1.2 * logits[0]), atol=1e-12)
    np.testing.assert_allclose(pair[1], log_softmax(1.4 * logits[0]), atol=1e-12)
    self.assertGreaterEqual(gaps[0], -1e-14)
    if np.ptp(logits[0]) > 0.1:
      self.assertGreater(gaps[0], 1e-6)

  @chex.variants(with_jit=True, without_jit=True)
  def test_batches_and_impossible_outcomes(self):
    logp = np.array(CONTEXTS[:, 0, 0])
    logp[..., -1] = -np.inf
    logp = log_softmax(logp, axis=-1)
    with jax.enable_x64(True):
      pair = self.variant(lambda logp: constructions.power_family(logp, 1.5))(logp)
    chex.assert_shape(pair, (4, 2, K))
    np.testing.assert_array_equal(pair[:, 0], logp)
    np.testing.assert_allclose(pair[:, 1], log_softmax(2 * logp, axis=-1), atol=1e-13)

  def test_refuses(self):
    for t in (1.0, 0.5, np.nan):
      with self.assertRaisesRegex(ValueError, 'above 1'):
        constructions.power_family(np.zeros(3), t)


class BinaryTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_known_gap(self):
    with jax.enable_x64(True):
      gap = self.variant(constructions.binary_gap)(0.7, 0.6)
    np.testing.assert_allclose(gap, -0.08472978603872, rtol=1e-13)

  def test_agrees_with_pools_of_two_outcomes(self):
    rng = np.random.default_rng(0)
    p, beta = rng.uniform(0.01, 0.99, size=(50, N)), rng.dirichlet(np.ones(N), size=50)

    @exact
    def report(p, beta):
      logp = jnp.log(jnp.stack([p, 1 - p], axis=-1))
      logpool = pools.log_pool(logp, beta)
      q = jnp.exp(logpool[:, 0])
      closed = constructions.binary_gap(p, q[:, None])
      return q, welfare.welfare_gaps(logp, logpool), closed

    q, gaps, closed = report(p, beta)
    np.testing.assert_allclose(logit(q), np.sum(beta * logit(p), axis=1), atol=1e-12)
    np.testing.assert_allclose(closed, gaps, atol=1e-13)
    self.assertLessEqual(gaps.min(axis=1).max(), 0.0)

  def test_two_outcomes_are_never_unanimous(self):
    p = np.arange(1, 100) / 100
    beta = np.array([0.1, 0.25, 0.5, 0.75, 0.9])[:, None, None]
    q = expit(beta * logit(p)[:, None] + (1 - beta) * logit(p))
    gap = exact(constructions.binary_gap)
    worse = np.minimum(gap(p[:, None], q), gap(p, q))
    self.assertLessEqual(worse.max(), 1e-15)
    # Where members agree, or have no opinion, nobody loses.
    np.testing.assert_allclose(worse[:, np.arange(99), np.arange(99)], 0.0, atol=1e-15)
    np.testing.assert_allclose(gap(0.5, p), 0.0, atol=0)


@exact
def perturbed(logits, u, beta):
  """The gaps before and after tilts by u, with bounds on the changes; and the openness radius."""
  logp = jax.nn.log_softmax(logits)
  eta = jnp.max(jnp.abs(u))
  changed = pools.tilt(logp, u)
  logpool, after = pools.log_pool(logp, beta), pools.log_pool(changed, beta)
  gaps = welfare.welfare_gaps(logp, logpool)
  return {
    'gaps': gaps,
    'after': welfare.welfare_gaps(changed, after),
    'bound': constructions.gap_change_bound(logp, eta),
    'crude': (jnp.exp(2 * eta) - 1) * constructions.oscillation(logp) + 2 * eta,
    'radius': constructions.openness_radius(logp, gaps),
    'moved': constructions.oscillation(after - logpool),
    'moved bound': constructions.belief_change_bound(logp, changed, beta),
    'total variation': 0.5 * jnp.sum(jnp.abs(jnp.exp(after) - jnp.exp(logpool))),
  }


@exact
def reweighted(logits, beta, changed):
  logp = jax.nn.log_softmax(logits)
  moved = constructions.oscillation(pools.log_pool(logp, changed) - pools.log_pool(logp, beta))
  return moved, constructions.weight_change_bound(logp, changed - beta)


class OpennessTest(chex.TestCase):
  @settings(max_examples=50)
  @given(logits=LOGITS, u=PERTURBATIONS, beta=WEIGHTS, size=st.sampled_from([1e-3, 0.1, 1.0]))
  def test_bounds_hold(self, logits, u, beta, size):
    found = perturbed(logits, size * u, beta)
    self.assertTrue((np.abs(found['after'] - found['gaps']) <= found['bound'] + 1e-12).all())
    self.assertTrue((found['bound'] <= found['crude'] + 1e-12).all())
    self.assertLessEqual(found['moved'], found['moved bound'] + 1e-12)
    eta = size * np.abs(u).max()
    self.assertLessEqual(found['moved bound'], 2 * eta + 1e-12)
    self.assertLessEqual(found['total variation'], np.tanh(eta / 2) + 1e-12)

  @settings(max_examples=25)
  @given(logits=LOGITS, beta=WEIGHTS, changed=WEIGHTS)
  def test_weights_that_change(self, logits, beta, changed):
    moved, bound = reweighted(logits, beta, changed)
    self.assertLessEqual(moved, bound + 1e-12)

  @parameterized.parameters(0.1, 0.01, 0.001)
  def test_unanimity_persists_within_the_radius(self, eps):
    logp = family((0.5, 0.5), eps)[0]
    still = perturbed(logp, np.zeros((2, 3)), HALVES)
    radius = still['radius']
    self.assertGreater(radius, 0.0)
    # It solves min_i Δ_i = η (osc + 2), and beats the radius of the cruder bound.
    slack = still['gaps'] - radius * (np.ptp(logp, axis=1) + 2)
    np.testing.assert_allclose(slack.min(), 0.0, atol=1e-15)
    crude = np.expm1(2 * radius) * np.ptp(logp, axis=1) + 2 * radius
    self.assertTrue((crude >= still['gaps'] - 1e-15).any())
    for signs in itertools.islice(itertools.product((-1.0, 1.0), repeat=6), 32):
      u = 0.999 * radius * np.reshape(signs, (2, 3))
      self.assertGreater(perturbed(logp, u, HALVES)['after'].min(), 0.0)

  def test_total_variation_reaches_its_bound(self):
    eta = 0.3
    belief = np.log([1.0, np.exp(eta)])
    found = perturbed(belief[None], np.array([[eta, -eta]]), np.ones(1))
    np.testing.assert_allclose(found['total variation'], np.tanh(eta / 2), rtol=1e-12)

  def test_gaps_change_by_almost_as_much_as_the_bound_allows(self):
    # Half of the mass on one outcome, half on a thousand. A member without weight goes one way, and
    # the pool the other.
    logits = np.array([[np.log(1000.0), *np.zeros(1000)]] * 2)
    u = 0.01 * np.where(logits > 0, 1.0, -1.0) * np.array([[-1.0], [1.0]])
    found = perturbed(logits, u, np.array([0.0, 1.0]))
    change = found['after'][0] - found['gaps'][0]
    np.testing.assert_allclose(change, 0.01 * np.log(1000), rtol=5e-3)
    self.assertBetween(found['bound'][0], change, change + 0.021)

  def test_no_radius_without_unanimity(self):
    logp = CONTEXTS[0, 0]
    found = perturbed(logp, np.zeros((N, K)), np.array([0.0, 1.0, 0.0]))
    self.assertLess(found['gaps'].min(), 0.0)
    self.assertEqual(found['radius'], 0.0)

  @chex.variants(with_jit=True)
  def test_radius_of_batches(self):
    gaps = np.random.default_rng(1).uniform(0.1, 1, size=(4, 2, N))
    with jax.enable_x64(True):
      found = self.variant(constructions.openness_radius)(CONTEXTS, gaps)
    np.testing.assert_allclose(found, (gaps / (np.ptp(CONTEXTS, axis=-1) + 2)).min(axis=-1))

  def test_refuses_shapes_that_do_not_match(self):
    logp = np.zeros((2, 3))
    for function in (
      lambda: constructions.openness_radius(logp, np.zeros(3)),
      lambda: constructions.belief_change_bound(logp, np.zeros((2, 4)), HALVES),
      lambda: constructions.belief_change_bound(logp, logp, np.ones(3) / 3),
      lambda: constructions.weight_change_bound(logp, np.zeros(3)),
    ):
      with self.assertRaises(AssertionError):
        function()
    with self.assertRaisesRegex(ValueError, 'sum to one'):
      constructions.belief_change_bound(logp, logp, np.ones(2))
