"""Tests of the aggregation of triplets and cells."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.judging import aggregate, categories

KEY = jax.random.key(0)


class PairsTest(chex.TestCase):
  @chex.variants(with_jit=True)
  def test_concatenates_and_averages(self):
    own, other = np.float32([0.1, 0.5, 0.9]), np.float32([[0.0, 0.2, 0.4], [0.2, np.nan, 0.8]])
    mask = np.array([[True, True, False], [True, False, False]])
    pairs = self.variant(aggregate.concat_pairs)(own, other, mask)
    np.testing.assert_array_equal(pairs.s_judge, np.tile(own, 2))
    np.testing.assert_array_equal(pairs.item, [0, 1, 2, 0, 1, 2])
    mean = self.variant(lambda p: aggregate.mean_over_proxies(p, 3))(pairs)
    np.testing.assert_allclose(mean.s_proxy, [0.1, 0.2, np.nan], rtol=1e-6)
    np.testing.assert_allclose(mean.s_judge, [0.1, 0.5, np.nan], rtol=1e-6)
    np.testing.assert_array_equal(mean.mask, [True, True, False])

  def test_references_have_votes_of_their_own(self):
    own, other = np.random.default_rng(0).uniform(size=(2, 1, 5)), np.zeros((2, 3, 5))
    pairs = aggregate.concat_pairs(own, other, other == 0)
    chex.assert_shape(pairs.s_judge, (30,))
    np.testing.assert_allclose(
      pairs.s_judge.reshape(2, 3, 5), np.broadcast_to(own, (2, 3, 5)), rtol=1e-6
    )

  def test_refuses(self):
    with self.assertRaisesRegex(ValueError, 'one shape'):
      aggregate.concat_pairs(np.ones(3), np.ones((2, 3)), np.ones(3, bool))
    with self.assertRaises(ValueError):
      aggregate.concat_pairs(np.ones(2), np.ones((2, 3)), np.ones((2, 3), bool))


class ShareTest(chex.TestCase):
  def test_by_cells_and_by_weight(self):
    p, n = np.array([0.01, 0.05, 0.2, np.nan]), np.array([10, 20, 30, 40])
    self.assertEqual(aggregate.share_significant(p, 0.05), 0.5)
    np.testing.assert_allclose(aggregate.share_significant(p, 0.05, n), 0.3, rtol=1e-6)

  @settings(max_examples=20)
  @given(st.lists(st.floats(0, 1), min_size=5, max_size=5), st.floats(0, 1), st.floats(0, 1))
  def test_grows_with_alpha(self, p, first, second):
    low, high = sorted((first, second))
    shares = [float(aggregate.share_significant(np.array(p), a)) for a in (low, high)]
    self.assertTrue(0 <= shares[0] <= shares[1] <= 1)
    self.assertEqual(aggregate.share_significant(np.array(p), 1.0), 1.0)

  def test_mass(self):
    own, excess, n = np.array([0.4, 0.6]), np.array([0.1, -0.05]), np.array([30, 10])
    np.testing.assert_allclose(aggregate.mass_removed(own, excess), 0.95, rtol=1e-6)
    weighted = aggregate.mass_removed(own, excess, n)
    np.testing.assert_allclose(weighted, 1 - 2.5 / 18, rtol=1e-6)
    for scale in (0.1, 7.0):
      found = aggregate.mass_removed(scale * own, scale * excess, n)
      np.testing.assert_allclose(found, weighted, rtol=1e-6)
    nothing = aggregate.mass_removed(np.append(own, np.nan), np.append(excess, np.nan), [30, 10, 0])
    np.testing.assert_allclose(nothing, weighted, rtol=1e-6)
    self.assertEqual(aggregate.mass_removed(own, 0 * own), 1.0)
    self.assertEqual(aggregate.mass_removed(own, own), 0.0)

  @parameterized.parameters(-0.1, 1.1, np.nan)
  def test_refuses_a_level(self, alpha):
    with self.assertRaisesRegex(ValueError, 'alpha='):
      aggregate.share_significant(np.ones(2), alpha)

  def test_refuses_shapes(self):
    for f in (
      lambda: aggregate.share_significant(np.ones(0)),
      lambda: aggregate.share_significant(np.ones(2), 0.05, np.ones(3)),
      lambda: aggregate.mass_removed(np.ones(2), np.ones(3)),
      lambda: aggregate.mass_removed(np.ones((2, 2)), np.ones((2, 2))),
    ):
      with self.assertRaisesRegex(ValueError, 'must be a vector'):
        f()


class ProxiesTest(chex.TestCase):
  @chex.variants(with_jit=True)
  def test_selects_and_sorts(self):
    harmful, legitimate = np.array([5, 9, 4, 9, 20, 6]), np.array([5, 5, 9, 8, 4, 7])
    category = np.full((6, 30), categories.NEITHER, np.int8)
    for row, bad, good in zip(category, harmful, legitimate, strict=True):
      row[:bad], row[bad : bad + good] = categories.HARMFUL, categories.LEGITIMATE
    found = self.variant(aggregate.select_proxies)(category)
    np.testing.assert_array_equal(found.selected, [1, 1, 0, 1, 0, 1])
    np.testing.assert_array_equal(found.order[:4], [1, 3, 5, 0])
    self.assertTrue(aggregate.select_proxies(category, 0, 0).selected.all())

  def test_most_robust(self):
    p = np.array([[0.1, np.nan, 0.9, 0.3], [np.nan] * 4, [0.2, 0.2, 0.0, 0.1]])
    np.testing.assert_array_equal(aggregate.most_robust_proxy(p), [2, 0, 0])

  @chex.variants(with_jit=True)
  def test_stability(self):
    rng = np.random.default_rng(0)
    d, mask = rng.normal(size=(4, 6)), rng.uniform(size=(4, 6)) < 0.6
    curve = self.variant(lambda k, d, m: aggregate.stability_curve(k, d, m, 500))(KEY, d, mask)
    chex.assert_shape(curve, (500, 4))
    np.testing.assert_allclose(curve[:, -1], d[mask].mean(), rtol=1e-5)
    alone = [d[i][mask[i]].mean() for i in range(4)]
    distance = np.abs(np.asarray(curve)[:, :1] - alone)
    np.testing.assert_allclose(distance.min(axis=1), 0, atol=1e-6)
    shares = np.bincount(distance.argmin(axis=1), minlength=4) / 500
    np.testing.assert_allclose(shares, 0.25, atol=4 * np.sqrt(0.25 * 0.75 / 500))
    spread = np.asarray(curve).std(axis=0)
    self.assertTrue((np.diff(spread) < 0).all())

  def test_refuses(self):
    with self.assertRaisesRegex(ValueError, 'proxies, items'):
      aggregate.select_proxies(np.zeros(3))
    with self.assertRaisesRegex(ValueError, 'min_lsp=-1'):
      aggregate.select_proxies(np.zeros((3, 2)), -1)
    with self.assertRaisesRegex(ValueError, 'a proxy'):
      aggregate.most_robust_proxy(jnp.zeros(0))
    with self.assertRaisesRegex(ValueError, 'proxies, items'):
      aggregate.stability_curve(KEY, np.zeros((3, 2)), np.ones((3, 3), bool), 5)
    with self.assertRaisesRegex(ValueError, 'num_draws=0'):
      aggregate.stability_curve(KEY, np.zeros((3, 2)), np.ones((3, 2), bool), 0)
