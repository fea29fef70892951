"""Tests of the compensation inequality, Theorem 19."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from lib.pooling import compensation, pools, profiles
from tests.lib.pooling.toys import BETA, CONTEXTS, K, N, exact


@exact
def sides(dbeta, v, logp):
  """Both sides for member 0: as the paper states them, and with the smallest budget."""
  shift = profiles.first_order_shift(dbeta, v)
  remainder = profiles.remainder(dbeta, v, logp)
  budget = profiles.norm(shift + remainder[..., None], logp)
  return {
    'shift': shift,
    'remainder': remainder,
    'budget': budget,
    'size': profiles.norm(v[..., 0, :], logp),
    'left': compensation.compensation(dbeta, v, logp, 0),
    'right': compensation.compensation_bound(dbeta, v, logp, 0, budget, remainder),
    'sharp': compensation.compensation_bound(dbeta, v, logp, 0, profiles.norm(shift, logp)),
  }


class CompensationTest(chex.TestCase):
  def test_a_waluigi_that_pays_for_half(self):
    logp = np.log(np.full(4, 0.25))
    a = np.array([0.5, -0.5, 0, 0])
    b = np.array([0, 0, 0.5, -0.5]) / 20  # a twentieth of the norm of a
    v = np.stack([a, -a, -0.2 * a + 2 * b, 0.2 * a - 2 * b])
    found = sides(np.array([0.05, 0.075, -0.125, 0.0]), v, logp)
    np.testing.assert_allclose(found['budget'], 0.00441943, rtol=0, atol=5e-9)
    np.testing.assert_allclose(found['remainder'], -9.76561e-6, rtol=0, atol=5e-12)
    np.testing.assert_allclose(0.05 * found['size'], 0.01767767, rtol=0, atol=5e-9)
    np.testing.assert_allclose(found['left'], 0.009375, rtol=1e-13)
    np.testing.assert_allclose(found['right'], 0.00468404, rtol=0, atol=5e-9)
    # Members with these profiles around a uniform pool exist, and move it by shift and remainder.
    members = logp + v - np.log(np.sum(np.exp(logp + v), axis=1, keepdims=True))
    log_pool = exact(pools.log_pool)
    before = log_pool(members, np.full(4, 0.25))
    after = log_pool(members, np.array([0.3, 0.325, 0.125, 0.25]))
    np.testing.assert_allclose(before, logp, atol=1e-14)
    np.testing.assert_allclose(after - before, found['shift'] + found['remainder'], atol=1e-14)
    self.assertLess(np.ptp(after - before - found['shift']), 1e-14)

  def test_tight_where_a_duplicate_pays(self):
    logp, h = np.log(np.ones(3) / 3), np.array([1.0, -1.0, 0.0])
    found = sides(np.array([0.05, -0.05, 0.0]), np.stack([h, h, -h]), logp)
    for name in ('shift', 'budget', 'remainder', 'left'):
      np.testing.assert_allclose(found[name], 0.0, atol=1e-16)
    np.testing.assert_allclose([found['right'], found['sharp']], found['left'], atol=1e-16)

  def test_holds_for_every_change(self):
    rng = np.random.default_rng(0)
    n, outcomes = 5, 8
    logp = rng.normal(size=(10_000, n, outcomes)) * rng.uniform(0.1, 3, size=(10_000, 1, 1))
    beta, changed = rng.dirichlet(np.ones(n), size=(2, 10_000))

    @exact
    def of_groups(logits, beta, dbeta):
      logp = jax.nn.log_softmax(logits)
      logpool = pools.log_pool(logp, beta)
      v = profiles.centre(logp, logpool[:, None])
      shift = profiles.first_order_shift(dbeta, v)
      remainder = profiles.remainder(dbeta, v, logpool)
      budget = profiles.norm(shift + remainder[:, None], logpool)
      bound = compensation.compensation_bound
      return (
        compensation.compensation(dbeta, v, logpool, 0),
        bound(dbeta, v, logpool, 0, budget, remainder),
        bound(dbeta, v, logpool, 0, budget),
        bound(dbeta, v, logpool, 0, profiles.norm(shift, logpool)),
      )

    dbeta = changed - beta
    dbeta *= np.where(dbeta[:, :1] < 0, -1, 1)  # the inequality needs no weights, but δ > 0
    left, *rights = of_groups(logp, beta, dbeta)
    self.assertTrue((np.diff(rights, axis=0) >= 0).all())
    self.assertTrue((left >= rights[-1] - 1e-12).all())
    # It says something, though rarely.
    self.assertGreater((rights[0] > 0).sum(), 0)

  def test_any_member_may_be_the_one(self):
    @exact
    def of_the_last(dbeta, v, logp):
      bound = compensation.compensation_bound(dbeta, v, logp, 2, 0.01)
      return compensation.compensation(dbeta, v, logp, 2), bound

    dbeta, logp = np.array([0.1, -0.25, 0.15]), CONTEXTS[0, 0, 0]
    v = CONTEXTS[0, 1] - (CONTEXTS[0, 1] @ np.exp(logp))[:, None]
    left, right = of_the_last(dbeta, v, logp)
    first = sides(dbeta[::-1], v[::-1], logp)
    np.testing.assert_allclose(left, first['left'], rtol=1e-12)
    lost = (first['budget'] + abs(first['remainder']) - 0.01) * first['size']
    np.testing.assert_allclose(right, first['right'] + lost, rtol=1e-12)
    # With NumPy, and also where the member loses.
    products = v[:2] @ (np.exp(logp) * v[2])
    for change in (dbeta, -dbeta):
      left, right = of_the_last(change, v, logp)
      gained, lost = np.maximum(change[:2], 0), np.maximum(-change[:2], 0)
      np.testing.assert_allclose(left, gained @ np.maximum(-products, 0), rtol=1e-12)
      bound = change[2] * first['size'] ** 2 - 0.01 * first['size']
      np.testing.assert_allclose(right, bound - lost @ np.maximum(products, 0), rtol=1e-12)

  @chex.variants(with_jit=True)
  def test_contexts_one_by_one_and_gradients(self):
    logp = CONTEXTS[..., 0, :]
    dbeta = np.array([0.1, -0.3, 0.2])

    def both(dbeta, v, logp):
      bound = compensation.compensation_bound(dbeta, v, logp, 2, 0.1, -0.02)
      return compensation.compensation(dbeta, v, logp, 2), bound

    def total(dbeta, v, logp):
      return jnp.sum(sum(both(dbeta, v, logp)))

    v = CONTEXTS - np.sum(np.exp(logp[..., None, :]) * CONTEXTS, axis=-1, keepdims=True)
    with jax.enable_x64(True):
      batch = self.variant(both)(dbeta, v, logp)
      alone = self.variant(jax.vmap(jax.vmap(both, (None, 0, 0)), (None, 0, 0)))(dbeta, v, logp)
      chex.assert_trees_all_close(batch, alone, rtol=1e-12)
      chex.assert_shape(batch, (4, 2))
      gradient = self.variant(jax.grad(total, (0, 1, 2)))
      chex.assert_tree_all_finite(gradient(dbeta, v, logp))
      chex.assert_tree_all_finite(gradient(0 * dbeta, 0 * v, logp))

  def test_refuses(self):
    for h in (-1, N):
      with self.assertRaisesRegex(ValueError, 'no member'):
        compensation.compensation(BETA, CONTEXTS[0, 0], CONTEXTS[0, 0, 0], h)
      with self.assertRaisesRegex(ValueError, 'no member'):
        compensation.compensation_bound(BETA, CONTEXTS[0, 0], CONTEXTS[0, 0, 0], h, 0.1)
    with self.assertRaises(AssertionError):
      compensation.compensation(np.zeros(2), CONTEXTS[0, 0], CONTEXTS[0, 0, 0], 0)
    with self.assertRaises(AssertionError):
      compensation.compensation_bound(BETA, CONTEXTS[0, 0], np.zeros(K + 1), 0, 0.1)
