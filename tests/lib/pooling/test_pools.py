"""Tests of pools, tilts and splits, against NumPy and the identities that define them."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from absl.testing import parameterized
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import log_softmax, logsumexp

from lib.pooling import constructions, pools, welfare
from tests.lib.pooling.toys import BETA, CONTEXTS, HALVES, LOGITS, WEIGHTS, K, N, exact

DIRECTIONS = hnp.arrays(np.float64, K, elements=st.floats(-8, 8, allow_subnormal=False))


def geometric(logp, beta):
  """The pool as a product of powers of probabilities."""
  product = np.prod(np.exp(logp) ** beta[:, None], axis=-2)
  return product / product.sum(axis=-1, keepdims=True)


def total_divergence(logq, logp, beta):
  return float(beta @ (np.exp(logq) * (logq - logp)).sum(axis=-1))


@exact
def pooled(logits, beta):
  logp = jax.nn.log_softmax(logits)
  return pools.log_pool(logp, beta), pools.log_partition(logp, beta), pools.linear_pool(logp, beta)


@exact
def gaps_of(logits, beta):
  logp = jax.nn.log_softmax(logits)
  return welfare.welfare_gaps(logp, pools.log_pool(logp, beta))


class PoolsTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_log_pool_agrees_with_products_of_probabilities(self):
    with jax.enable_x64(True):
      logpool = self.variant(pools.log_pool)(CONTEXTS, BETA)
    chex.assert_shape(logpool, (4, 2, K))
    np.testing.assert_allclose(np.exp(logpool), geometric(CONTEXTS, BETA), rtol=1e-12)

  def test_partition_and_linear_pool_agree_with_sums_of_probabilities(self):
    partition, linear = map(exact, (pools.log_partition, pools.linear_pool))
    product = np.prod(np.exp(CONTEXTS) ** BETA[:, None], axis=-2)
    np.testing.assert_allclose(partition(CONTEXTS, BETA), np.log(product.sum(axis=-1)), rtol=1e-10)
    mixture = np.exp(linear(CONTEXTS, BETA))
    np.testing.assert_allclose(mixture, BETA @ np.exp(CONTEXTS), rtol=1e-12)

  @chex.variants(with_jit=True)
  def test_contexts_one_by_one_and_weights_of_their_own(self):
    betas = np.random.default_rng(1).dirichlet(np.ones(N), size=(4, 2))
    with jax.enable_x64(True):
      for pool in (pools.log_pool, pools.linear_pool, pools.log_partition):
        batch = self.variant(pool)(CONTEXTS, betas)
        alone = self.variant(jax.vmap(jax.vmap(pool)))(CONTEXTS, betas)
        np.testing.assert_allclose(batch, alone, rtol=1e-13)

  @settings(max_examples=25)
  @given(logits=LOGITS, beta=WEIGHTS, other=DIRECTIONS)
  def test_log_pool_is_the_closest_belief(self, logits, beta, other):
    logpool, partition, _ = pooled(logits, beta)
    self.assertLessEqual(partition, 1e-14)
    logp, logq = log_softmax(logits, axis=1), log_softmax(other)
    # Σ_i β_i KL(Q‖P_i) = -log Z + KL(Q‖P) for every Q.
    excess = np.exp(logq) @ (logq - logpool)
    np.testing.assert_allclose(
      total_divergence(logq, logp, beta), excess - partition, rtol=1e-12, atol=1e-12
    )

  def test_a_solver_finds_the_log_pool_and_its_partition(self):
    logp = CONTEXTS[0, 0]
    logpool, partition, _ = pooled(logp, BETA)
    found = scipy.optimize.minimize(
      lambda x: total_divergence(log_softmax(x), logp, BETA), np.zeros(K), options={'gtol': 1e-9}
    )
    np.testing.assert_allclose(found.fun, -partition, rtol=1e-10)
    np.testing.assert_allclose(np.exp(log_softmax(found.x)), np.exp(logpool), atol=1e-6)

  @settings(max_examples=25)
  @given(
    logits=LOGITS, beta=WEIGHTS, constants=hnp.arrays(np.float64, N, elements=st.floats(-9, 9))
  )
  def test_invariances(self, logits, beta, constants):
    before, gaps = pooled(logits, beta), gaps_of(logits, beta)
    members, outcomes = np.array([2, 0, 1]), np.array([3, 0, 4, 1, 2])
    for order in (members, np.arange(N)):
      again = logits[order] + constants[:, None], beta[order]
      chex.assert_trees_all_close(pooled(*again), before, atol=1e-12)
      np.testing.assert_allclose(gaps_of(*again), gaps[order], atol=1e-12)
    logpool, partition, linear = before
    expected = logpool[outcomes], partition, linear[outcomes]
    chex.assert_trees_all_close(pooled(logits[:, outcomes], beta), expected, atol=1e-12)
    np.testing.assert_allclose(gaps_of(logits[:, outcomes], beta), gaps, atol=1e-12)

  @settings(max_examples=25)
  @given(logits=LOGITS, beta=WEIGHTS, share=st.floats(0.05, 0.95))
  def test_pools_of_pools_and_clones(self, logits, beta, share):
    logp = log_softmax(logits, axis=1)
    flat, _, mixture = pooled(logits, beta)
    outer = np.array([beta[:2].sum(), beta[2]])
    first, _, mixed = pooled(logp[:2], beta[:2] / outer[0])
    nested, _, _ = pooled(np.stack([first, logp[2]]), outer)
    np.testing.assert_allclose(nested, flat, atol=1e-12)
    _, _, nested = pooled(np.stack([mixed, logp[2]]), outer)
    np.testing.assert_allclose(nested, mixture, atol=1e-12)

    # Clones keep their parent's gap, and the other member its own.
    pair, shares = logp[[0, 2]], outer * np.array([1, share])
    shares = np.append(shares, outer[1] * (1 - share))
    clones = logp[[0, 2, 2]]
    np.testing.assert_allclose(pooled(clones, shares)[0], pooled(pair, outer)[0], atol=1e-12)
    gaps = gaps_of(pair, outer)[[0, 1, 1]]
    np.testing.assert_allclose(gaps_of(clones, shares), gaps, atol=1e-12)

  def test_agreement_and_dictatorship(self):
    logp = CONTEXTS[0, 0]
    alike = pooled(np.stack([logp[0]] * N), BETA)
    chex.assert_trees_all_close(alike, (logp[0], 0.0, logp[0]), atol=1e-13)
    dictated = pooled(logp, np.array([0.0, 1.0, 0.0]))
    chex.assert_trees_all_close(dictated, (logp[1], 0.0, logp[1]), atol=1e-13)

  @chex.variants(with_jit=True)
  def test_impossible_outcomes(self):
    with np.errstate(divide='ignore'):
      logp = np.log([[0.5, 0.5, 0.0, 0.0], [0.0, 0.2, 0.8, 0.0], [0.1, 0.2, 0.3, 0.4]])
    with jax.enable_x64(True):
      log_pool, linear = self.variant(pools.log_pool), self.variant(pools.linear_pool)
      # One veto is enough, and needs weight.
      np.testing.assert_allclose(np.exp(log_pool(logp, BETA)), [0, 1, 0, 0])
      found = np.exp(log_pool(logp, np.array([0.0, 0.5, 0.5])))
      middle = np.sqrt([0.04, 0.24])
      np.testing.assert_allclose(found, [0, *middle / middle.sum(), 0])
      np.testing.assert_allclose(np.exp(linear(logp, BETA)), BETA @ np.exp(logp))
      self.assertEqual(linear(logp[:2], np.array([0.5, 0.5]))[3], -np.inf)
      # Nothing is left.
      disjoint, halves = logp[:2, ::2], np.array([0.5, 0.5])
      self.assertEqual(self.variant(pools.log_partition)(disjoint, halves), -np.inf)
      self.assertTrue(np.isnan(log_pool(disjoint, halves)).all())

  @parameterized.parameters(pools.log_pool, pools.linear_pool, pools.log_partition)
  def test_gradients_are_finite_at_impossible_outcomes(self, pool):
    logp = np.array([[0.0, 1.0, -np.inf, -np.inf], [0.5, -np.inf, -1.0, -np.inf], [1.0, 2, 0, 0]])
    for beta in (np.array([0.4, 0.6, 0.0]), np.array([0.2, 0.3, 0.5])):

      def loss(logp, beta):
        found = pool(logp, beta)
        return jnp.sum(jnp.where(found > -jnp.inf, found, 0.0) * jnp.arange(found.size))

      chex.assert_tree_all_finite(jax.jit(jax.grad(loss, (0, 1)))(logp, beta))

  @parameterized.parameters(pools.log_pool, pools.linear_pool, pools.log_partition)
  def test_gradients_are_those_of_differences(self, pool):
    loss = exact(jax.value_and_grad(lambda logp, beta: jnp.sum(pool(logp, beta) ** 2), (0, 1)))
    towards = np.random.default_rng(5).normal(size=(N, K)), np.array([0.3, -0.1, -0.2])
    _, gradients = loss(CONTEXTS[0, 0], BETA)
    high, _ = loss(CONTEXTS[0, 0] + 1e-5 * towards[0], BETA + 1e-5 * towards[1])
    low, _ = loss(CONTEXTS[0, 0] - 1e-5 * towards[0], BETA - 1e-5 * towards[1])
    along = sum(np.sum(g * d) for g, d in zip(gradients, towards, strict=True))
    np.testing.assert_allclose((high - low) / 2e-5, along, rtol=1e-7)

  @chex.variants(with_jit=True)
  def test_a_large_vocabulary_in_single_precision(self):
    rng = np.random.default_rng(2)
    logits = rng.normal(size=(N, 49_152)) * 25  # probabilities below 1e-80 underflow

    def losses(logits):
      logp = jax.nn.log_softmax(logits)
      logpool = pools.log_pool(logp, BETA)
      linear = pools.linear_pool(logp, BETA)
      return jnp.sum(jnp.exp(logpool) * linear), (logpool, linear, pools.log_partition(logp, BETA))

    gradients, found = self.variant(jax.grad(losses, has_aux=True))(logits.astype(np.float32))
    self.assertEqual(found[0].dtype, jnp.float32)
    chex.assert_tree_all_finite((gradients, found))
    logp = log_softmax(logits, axis=1)
    partition = logsumexp(BETA @ logp)
    linear = logsumexp(logp, axis=0, b=BETA[:, None])
    chex.assert_trees_all_close(
      found, (BETA @ logp - partition, linear, partition), rtol=1e-5, atol=1e-5
    )

  def test_refuses_bad_groups(self):
    logp = np.zeros((2, 3))
    for pool in (pools.log_pool, pools.linear_pool, pools.log_partition):
      for beta in ([0.5, 0.6], [-0.1, 1.1], [np.nan, 1.0]):
        with self.assertRaisesRegex(ValueError, 'sum to one'):
          pool(logp, np.array(beta))
      with self.assertRaisesRegex(ValueError, 'at least two outcomes'):
        pool(np.zeros((2, 1)), np.array([0.5, 0.5]))
      with self.assertRaises(AssertionError):
        pool(logp, np.ones(3) / 3)
      # Traced weights are not looked at.
      jax.eval_shape(pool, logp, np.array([0.5, 0.6]))


@exact
def split(logp, g, beta):
  """Member 1 in two: the pool before, the children, their pool, and the pool after."""
  shares = np.array([0.3, 0.7])
  children = pools.compatible_split(logp[1], g, 0.3)
  members, weights = pools.split_members(logp, 1, children), pools.split_weights(beta, 1, shares)
  parent = pools.log_pool(children, shares)
  return pools.log_pool(logp, beta), children, parent, pools.log_pool(members, weights)


class SplitTest(chex.TestCase):
  @settings(max_examples=25)
  @given(logits=LOGITS, beta=WEIGHTS, g=DIRECTIONS)
  def test_a_compatible_split_leaves_the_pool_as_it_is(self, logits, beta, g):
    logp = log_softmax(logits, axis=1)
    before, children, parent, after = split(logp, g, beta)
    _, clones, _, _ = split(logp, np.zeros(K), beta)
    np.testing.assert_allclose(after, before, atol=1e-12)
    np.testing.assert_allclose(parent, logp[1], atol=1e-12)
    np.testing.assert_allclose(clones, np.stack([logp[1]] * 2), atol=1e-14)
    # Opposite tilts of one belief.
    np.testing.assert_allclose(logsumexp(children, axis=1), 0.0, atol=1e-13)
    tilts = children - logp[1] - np.outer([0.7, -0.3], g)
    np.testing.assert_allclose(np.ptp(tilts, axis=1), 0.0, atol=1e-12)

  def test_a_child_may_lose_where_its_parent_gains(self):
    @exact
    def family(size):
      pair = constructions.power_family(np.log([0.6, 0.3, 0.1]), 1.5)
      logpool = pools.log_pool(pair, HALVES)
      children = pools.compatible_split(pair[0], jnp.array([-size, 0.0, 0.0]), 0.4)
      rebuilt = pools.log_pool(children, np.array([0.4, 0.6]))
      gaps = welfare.welfare_gaps(jnp.concatenate([pair, children]), logpool)
      return gaps, jnp.exp(rebuilt)

    expected = [0.128975, 0.121525, -0.062208, -0.807044, -2.620105, -4.348108]
    for size, first_child in zip([0.0, 1.0, 2.0, 4.0, 8.0, 12.0], expected, strict=True):
      gaps, rebuilt = family(size)
      np.testing.assert_allclose(gaps[0], 0.1289745781560654, rtol=0, atol=1e-15)
      np.testing.assert_allclose(gaps[1], -0.1671569548, rtol=0, atol=5e-11)
      np.testing.assert_allclose(gaps[2], first_child, rtol=0, atol=5e-7)
      np.testing.assert_allclose(rebuilt, [0.6, 0.3, 0.1], rtol=0, atol=4e-16)
    # There is no floor: the child's entropy is bounded, its divergence is not.
    self.assertLess(family(1e4)[0][2], -1000.0)

  @chex.variants(with_jit=True)
  def test_batches(self):
    g = np.random.default_rng(3).normal(size=(2, K))
    with jax.enable_x64(True):
      split = self.variant(lambda logp, g: pools.compatible_split(logp, g, 0.3))
      children = split(CONTEXTS[..., 0, :], g)
      chex.assert_shape(children, (4, 2, 2, K))
      expected = np.asarray(split(CONTEXTS[3, 1, 0], g[1]))
      np.testing.assert_allclose(children[3, 1], expected, rtol=1e-13)
      members = self.variant(lambda logp, children: pools.split_members(logp, 0, children))
      found = members(CONTEXTS, children)
      np.testing.assert_array_equal(found[:, :, :2], children)
      np.testing.assert_array_equal(found[:, :, 2:], CONTEXTS[:, :, 1:])

  @parameterized.parameters(
    (0, [0.06, 0.14, 0.5, 0.3]), (1, [0.2, 0.15, 0.35, 0.3]), (2, [0.2, 0.5, 0.09, 0.21])
  )
  def test_children_stand_in_their_parents_place(self, i, expected):
    found = pools.split_weights(BETA, i, np.array([0.3, 0.7]))
    np.testing.assert_allclose(found, expected, rtol=1e-6)

  def test_refuses(self):
    for alpha in (0.0, 1.0, -0.2, 1.5, np.nan):
      with self.assertRaisesRegex(ValueError, r'\(0, 1\)'):
        pools.compatible_split(np.zeros(3), np.zeros(3), alpha)
    for i in (-1, 3):
      with self.assertRaisesRegex(ValueError, 'no member'):
        pools.split_weights(BETA, i, np.array([0.5, 0.5]))
      with self.assertRaisesRegex(ValueError, 'no member'):
        pools.split_members(np.zeros((3, 4)), i, np.zeros((2, 4)))
    for beta, alphas in ((BETA, [0.5, 0.6]), (BETA, [-0.5, 1.5]), (2 * BETA, [0.5, 0.5])):
      with self.assertRaisesRegex(ValueError, 'sum to one'):
        pools.split_weights(beta, 0, np.array(alphas))
    with self.assertRaises(AssertionError):
      pools.split_members(np.zeros((3, 4)), 0, np.zeros((2, 5)))
    with self.assertRaises(AssertionError):
      pools.compatible_split(np.zeros(3), np.zeros(4), 0.5)
    with self.assertRaisesRegex(ValueError, 'at least two outcomes'):
      pools.tilt(np.zeros(1), np.zeros(1))


@exact
def tilted(logp, g):
  return pools.tilt(logp, g, 0.1)


class TiltTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_is_a_group(self):
    logp, g = CONTEXTS[:, 0], np.random.default_rng(4).normal(size=(4, N, K))
    with jax.enable_x64(True):
      tilt = self.variant(pools.tilt)
      np.testing.assert_allclose(tilt(logp, g, 0.0), logp, atol=1e-14)
      np.testing.assert_allclose(tilt(tilt(logp, g, 0.3), g, -1.0), tilt(logp, g, -0.7), atol=1e-13)
      np.testing.assert_allclose(tilt(logp, g + 5.0, 2.0), tilt(logp, g, 2.0), atol=1e-12)

  @settings(max_examples=25)
  @given(logits=LOGITS, g=DIRECTIONS, beta=WEIGHTS)
  def test_opposite_tilts_pool_to_what_they_tilt(self, logits, g, beta):
    logp = log_softmax(logits[0])
    tilts = np.stack([g, logits[1], -(beta[0] * g + beta[1] * logits[1]) / beta[2]])
    found, _, _ = pooled(tilted(logp, tilts), beta)
    np.testing.assert_allclose(found, logp, atol=1e-11)
