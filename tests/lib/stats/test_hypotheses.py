"""Tests of the tests, against SciPy, closed forms and what holds for any data."""

import itertools
from unittest import mock

import chex
import jax
import numpy as np
import scipy
from absl.testing import parameterized
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from lib.stats import hypotheses

SIZE, CLUSTERS, DRAWS = 64, 40, 4000
SHORT = hnp.arrays(np.float32, 6, elements=st.floats(-4, 4, width=32, allow_subnormal=False))
JUDGE, PROXY = np.float32([0.6, 0.7, 0.2, 0.9]), np.float32([0.5, 0.6, 0.4, 0.7])
KEY = jax.random.key(0)

t_sf = jax.jit(hypotheses.t_sf)
masked_t = jax.jit(lambda d, m: (hypotheses.paired_t(d, m), hypotheses.cohens_dz(d, m)))
masked_ks = jax.jit(hypotheses.ks_2samp)
masked_effect = jax.jit(hypotheses.cohens_d_pooled)


@jax.jit
def masked_clusters(key, d, cluster, mask):
  flips = hypotheses.sign_flip_test(key, d, cluster, CLUSTERS, DRAWS, mask)
  return flips, hypotheses.cluster_bootstrap(key, d, cluster, CLUSTERS, DRAWS, 0.9, mask)


def normal(*shape, seed=0):
  return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def padded(x, fill=np.nan):
  """x among values that the mask hides, so that data of any size are one program."""
  values, mask = np.full(SIZE, fill, np.asarray(x).dtype), np.zeros(SIZE, bool)
  places = np.sort(np.random.default_rng(0).permutation(SIZE)[: len(x)])
  values[places], mask[places] = x, True
  return values, mask


def paired_t(d):
  return masked_t(*padded(d))[0]


def cohens_dz(d):
  return masked_t(*padded(d))[1]


def ks_2samp(x, y):
  (x, x_mask), (y, y_mask) = padded(x), padded(y)
  return masked_ks(x, y, x_mask, y_mask)


def cohens_d_pooled(x, y):
  (x, mask), (y, _) = padded(x), padded(y)
  return masked_effect(x, y, mask)


def clusters(d, cluster):
  (d, mask), (cluster, _) = padded(d), padded(cluster, 0)
  return masked_clusters(KEY, d, cluster, mask)


class StudentTest(chex.TestCase):
  DF = np.array([1, 2, 3.5, 10, 20, 20.1, 50, 300, 301, 4000, 40_000.0])
  T = np.array([0.0, 1e-4, 0.01, 0.5, 1, 3, 4.4, 7, 10])

  @parameterized.parameters((np.float32, 1e-3), (np.float64, 1e-9))
  def test_both_tails_agree_with_scipy(self, dtype, rtol):
    t = np.concatenate([-self.T, self.T])[:, None].astype(dtype)
    expected = stats.t.sf(t.astype(np.float64), self.DF)
    with jax.enable_x64(dtype == np.float64):
      found = t_sf(t, self.DF.astype(dtype))
    self.assertEqual(found.dtype, dtype)
    shown = expected > 1e-37  # the smallest float32
    np.testing.assert_allclose(np.asarray(found)[shown], expected[shown], rtol=rtol)
    np.testing.assert_allclose(np.asarray(found)[~shown], 0.0, atol=1e-36)

  def test_closed_forms_and_limits(self):
    t = np.float32([-np.inf, -2, 0, 2, np.inf])
    cauchy = np.where(np.isinf(t), t < 0, 0.5 - np.arctan(t) / np.pi)
    np.testing.assert_allclose(t_sf(t, 1.0), cauchy, rtol=1e-5)
    np.testing.assert_allclose(t_sf(t, 1e12), stats.norm.sf(t), rtol=1e-5)
    self.assertTrue(np.isnan(t_sf(np.float32([np.nan]), 3.0)).all())
    np.testing.assert_array_equal(t_sf(np.float32([1e30, -1e30]), 1000.0), [0, 1])


class PairedTTest(chex.TestCase):
  def test_the_small_case(self):
    found = paired_t(JUDGE - PROXY)
    expected = 4, 0.05, 0.1732050808, 0.5773502692, 0.6041813036, 0.3020906518, 0.6979093482
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(cohens_dz(JUDGE - PROXY), 0.2886751346, rtol=1e-5)
    np.testing.assert_allclose(cohens_d_pooled(JUDGE, PROXY), 0.2540002540, rtol=1e-5)
    self.assertAlmostEqual(float(ks_2samp(JUDGE, PROXY).statistic), 0.25)

  @chex.variants(with_jit=True)
  def test_cells_of_different_sizes_agree_with_scipy(self):
    cells = [normal(n, seed=n) + np.float32(0.2) for n in (2, 5, 30)]
    values, masks = (np.stack(a) for a in zip(*map(padded, cells), strict=True))
    found = self.variant(jax.vmap(hypotheses.paired_t))(values, masks)
    for i, cell in enumerate(cells):
      exact = cell.astype(np.float64)
      expected = [len(cell), exact.mean(), exact.std(ddof=1), stats.ttest_1samp(exact, 0).statistic]
      expected += [
        stats.ttest_1samp(exact, 0, alternative=a).pvalue for a in ('two-sided', 'greater', 'less')
      ]
      np.testing.assert_allclose([v[i] for v in found], expected, rtol=1e-3)

  @settings(max_examples=30)
  @given(SHORT)
  def test_exchanging_the_pair_flips_the_sign(self, d):
    found, flipped = paired_t(d), paired_t(-d)
    np.testing.assert_array_equal(
      [found.mean, found.t, found.p_two], [-flipped.mean, -flipped.t, flipped.p_two]
    )
    np.testing.assert_array_equal(found.p_greater, flipped.p_less)
    if d.any():
      np.testing.assert_allclose(found.p_greater + found.p_less, 1.0, rtol=1e-6)
    self.assertTrue(0 <= found.p_two <= 1)

  @parameterized.parameters(0.0, 0.1, -1e-25)
  def test_equal_differences(self, value):
    d = np.full(6, value, np.float32)
    found = paired_t(d)
    self.assertEqual(found.std, 0)
    self.assertEqual(found.mean, np.float32(value))
    self.assertEqual(found.t, np.inf * np.sign(value) if value else 0.0)
    expected = (0, value < 0, value > 0) if value else (1, 1, 1)
    self.assertEqual(tuple(map(float, found[4:])), expected)
    self.assertEqual(cohens_dz(d), found.t)

  def test_small_differences_have_a_spread(self):
    d = normal(6)
    np.testing.assert_allclose(paired_t(d * np.float32(2**-90)).t, paired_t(d).t, rtol=1e-6)

  @parameterized.parameters(0, 1)
  def test_too_few_have_no_p_value(self, n):
    found = paired_t(np.ones(n, np.float32))
    self.assertEqual(found.n, n)
    self.assertTrue(np.isnan(found[2:]).all())
    self.assertEqual(np.isnan(found.mean), n == 0)

  @parameterized.parameters(np.nan, np.inf)
  def test_what_is_not_finite_has_no_p_value(self, bad):
    d = normal(6)
    d[2] = bad
    self.assertTrue(np.isnan(paired_t(d)[4:]).all())
    self.assertTrue(np.isnan(clusters(d, np.arange(6))[0]).all())
    self.assertTrue(np.isnan(ks_2samp(d, normal(6))).all())

  def test_copies_make_t_larger(self):
    d = normal(7) + np.float32(0.5)
    for m in (2, 9):
      growth = paired_t(np.tile(d, m)).t / paired_t(d).t
      # √m, but for the variance's n - 1.
      np.testing.assert_allclose(growth, np.sqrt((7 * m - 1) / (7 - 1)), rtol=1e-5)

  def test_refuses_what_is_no_vector(self):
    for f in (hypotheses.paired_t, hypotheses.cohens_dz):
      for d, mask in ((np.ones((2, 3)), None), (np.ones(3), np.ones(2)), (1.0, None), ([], None)):
        with self.assertRaises(ValueError):
          f(d, mask)
    for f in (hypotheses.cohens_d_pooled, hypotheses.pearson):
      with self.assertRaisesRegex(ValueError, 'y must be a vector'):
        f(np.ones(3), np.ones(4))


class TwoSampleTest(chex.TestCase):
  @parameterized.parameters((30, 50), (7, 7), (1, 64))
  def test_statistic_agrees_with_scipy(self, n, m):
    x, y = np.round(normal(n, seed=1), 1), np.round(normal(m, seed=2) + 0.4, 1)  # with ties
    expected = stats.ks_2samp(x, y).statistic
    np.testing.assert_allclose(ks_2samp(x, y).statistic, expected, rtol=1e-6)
    np.testing.assert_allclose(ks_2samp(y, x), ks_2samp(x, y), rtol=1e-6)
    np.testing.assert_allclose(ks_2samp(-x, -y), ks_2samp(x, y), rtol=1e-5)

  def test_p_value_is_near_scipys(self):
    x = np.arange(64, dtype=np.float32)
    for shift in (0, 3, 10, 20, 30, 50, 63):
      found = ks_2samp(x, x + np.float32(shift + 0.5))
      expected = stats.ks_2samp(x, x + shift + 0.5, method='asymp')
      np.testing.assert_allclose(found.p, expected.pvalue, rtol=0.1, atol=0.005)

  def test_series_agree_with_the_limit_law(self):
    values = np.concatenate([[0.0], np.geomspace(0.01, 6, 60), [0.999, 1.0, 1.001]])
    found = jax.jit(hypotheses._kolmogorov_sf)(values.astype(np.float32))
    np.testing.assert_allclose(found, scipy.special.kolmogorov(values), rtol=1e-4, atol=1e-7)

  def test_same_samples_and_disjoint_ones(self):
    x = normal(40)
    same, apart = ks_2samp(x, x[::-1].copy()), ks_2samp(x, x + np.float32(100))
    self.assertEqual(tuple(map(float, same)), (0.0, 1.0))
    self.assertEqual(apart.statistic, 1.0)
    self.assertLess(apart.p, 1e-12)
    self.assertTrue(np.isnan(ks_2samp(x[:0], x)).all())


class EffectTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_pearson_agrees_with_scipy(self):
    x = normal(30, seed=3)
    y = x + normal(30, seed=4)
    expected = stats.pearsonr(x[5:], y[5:]).statistic
    pearson = self.variant(hypotheses.pearson)
    mask = np.arange(30) >= 5
    np.testing.assert_allclose(pearson(x, y, mask), expected, rtol=1e-5)
    np.testing.assert_allclose(pearson(x, -3 * x + 1, mask), -1.0, rtol=1e-6)
    self.assertTrue(np.isnan(pearson(x, np.ones(30, np.float32), mask)))

  def test_pooled_effect_of_constants(self):
    one, two = np.ones(4, np.float32), 2 * np.ones(4, np.float32)
    self.assertEqual(cohens_d_pooled(one, one), 0)
    self.assertEqual(cohens_d_pooled(one, two), -np.inf)


class ClusterTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_sums(self):
    d = np.float32([1, 2, 4, np.nan, 16])
    sums = self.variant(lambda d, c, m: hypotheses.cluster_sums(d, c, 4, m))
    found = sums(d, np.array([0, 2, 0, 1, 2]), np.array([1, 1, 1, 0, 1], bool))
    np.testing.assert_array_equal(found, [5, 0, 18, 0])

  def test_flips_follow_their_exact_law(self):
    d = np.float32([0.3, 1.1, -0.4, 0.9, 0.25, 0.6])
    cluster = np.array([0, 0, 1, 2, 3, 4])
    sums = np.bincount(cluster, d)
    flipped = np.array(list(itertools.product([-1, 1], repeat=5))) @ sums
    greater, two = (
      np.mean(flipped >= sums.sum() - 1e-6),
      np.mean(abs(flipped) >= sums.sum() - 1e-6),
    )
    found, _ = clusters(d, cluster)
    self.assertAlmostEqual(float(found.p_greater), greater, delta=4 * np.sqrt(greater / DRAWS))
    self.assertAlmostEqual(float(found.p_two), two, delta=4 * np.sqrt(two / DRAWS))
    # (1 + count) / (1 + draws), and a pattern and its opposite are as likely.
    np.testing.assert_allclose(np.array(found) * (DRAWS + 1) % 1, [0, 0], atol=1e-3)
    mirrored, _ = clusters(-d, cluster)
    self.assertEqual(mirrored.p_two, found.p_two)

  def test_ties_count(self):
    # Two equal clusters: all of four patterns are ties in size, or zero.
    found, _ = clusters(np.full(62, 0.1, np.float32), np.arange(62) % 2)
    self.assertAlmostEqual(float(found.p_greater), 0.25, delta=0.03)
    self.assertAlmostEqual(float(found.p_two), 0.5, delta=0.03)
    # Values that cancel, but not to the last digit: no pattern's sum is smaller.
    values = normal(20, seed=5)
    found, _ = clusters(np.concatenate([values, -values]), np.arange(40))
    self.assertEqual(found.p_two, 1.0)

  @parameterized.parameters(2, 3)
  def test_copies_change_nothing(self, m):
    d, cluster = normal(20) + np.float32(0.2), np.arange(20) // 2
    copied, once = clusters(np.tile(d, m), np.tile(cluster, m)), clusters(d, cluster)
    self.assertEqual(copied[0], once[0])
    np.testing.assert_allclose(copied[1], once[1], rtol=1e-5, atol=1e-6)

  def test_blocks_do_not_change_the_law(self):
    d, cluster = normal(60, seed=6) + np.float32(0.15), np.arange(60) // 2
    whole = clusters(d, cluster)
    (d, mask), (cluster, _) = padded(d), padded(cluster, 0)
    with mock.patch.object(hypotheses, '_BLOCK_NUMBERS', 700 * CLUSTERS):  # six, the last half full
      blocks = jax.jit(masked_clusters.__wrapped__)(KEY, d, cluster, mask)
    for p, q in zip(whole[0], blocks[0], strict=True):
      self.assertAlmostEqual(float(p), float(q), delta=6 * np.sqrt(float(p) / DRAWS))
    mean, low, high = whole[1]
    np.testing.assert_allclose(blocks[1], whole[1], atol=0.1 * float(high - low))
    self.assertTrue(low < mean < high)

  def test_bootstrap_approaches_normal_theory(self):
    sums = normal(40, seed=7)
    d, cluster = np.append(sums, sums[:20]), np.append(np.arange(40), np.arange(20))
    found = clusters(d, cluster)[1]
    # Linearised: a cluster's residual is its sum less its count times the mean.
    residual = (sums - found.mean) * np.where(np.arange(40) < 20, 2, 1)
    half = stats.norm.ppf(0.95) * residual.std() * np.sqrt(40) / 60
    mean = d.mean()
    np.testing.assert_allclose(found, (mean, mean - half, mean + half), atol=0.1 * half)

  def test_sign_flips_and_the_bootstrap_of_little(self):
    d, cluster = np.ones(1, np.float32), np.array([2])
    flips, interval = clusters(d[:0], cluster[:0])
    self.assertEqual(tuple(map(float, flips)), (1.0, 1.0))
    self.assertTrue(np.isnan(interval).all())
    np.testing.assert_array_equal(clusters(d, cluster)[1], [1.0, np.nan, np.nan])

  def test_refuses(self):
    d, cluster = np.ones(3, np.float32), np.arange(3)
    for bad, message in (
      ((d, cluster, 2), 'got 0 to 2'),
      ((d, cluster - 1, 3), 'got -1 to 1'),
      ((d, cluster, 0), 'at least one cluster'),
      ((d, cluster[:2], 3), 'shape'),
      ((d, d, 3), 'integers'),
      ((d[None], cluster, 3), 'vector'),
    ):
      with self.assertRaisesRegex(ValueError, message):
        hypotheses.cluster_sums(*bad)
      with self.assertRaisesRegex(ValueError, message):
        hypotheses.sign_flip_test(KEY, *bad, 9)
    for f in (hypotheses.sign_flip_test, hypotheses.cluster_bootstrap):
      with self.assertRaisesRegex(ValueError, 'num_draws=0'):
        f(KEY, d, cluster, 3, 0)
    with self.assertRaisesRegex(ValueError, 'level=95'):
      hypotheses.cluster_bootstrap(KEY, d, cluster, 3, 9, 95)
