"""Tests of the baseline: what a judge without self-preference gets, and what one with it."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

from lib.judging import aggregate, baseline, simulate
from lib.stats import hypotheses

ITEMS, PROXIES, DRAWS, DATASETS, ALPHA = 32, 5, 99, 2000, 0.05
KEY = jax.random.key(0)


def analyses(key, num_proxies, self_bonus):
  """The one-sided and two-sided p-values of one simulated data set, by several tests."""
  votes_key, flip_key, recommended_key = jax.random.split(key, 3)
  votes = simulate.simulate_votes(votes_key, ITEMS, PROXIES, self_bonus=self_bonus)
  mask = jnp.broadcast_to(jnp.arange(PROXIES)[:, None] < num_proxies, votes.proxy.shape)
  pairs = aggregate.concat_pairs(*votes, mask)
  d = baseline.excess(pairs.s_judge, pairs.s_proxy)
  found = baseline.recommended(
    recommended_key, pairs.s_judge, pairs.s_proxy, pairs.item, ITEMS, DRAWS, pairs.mask
  )
  t = hypotheses.paired_t(d, pairs.mask)
  flip = hypotheses.sign_flip_test(flip_key, d, pairs.item, ITEMS, DRAWS, pairs.mask)
  return {
    't': (t.p_greater, t.p_two),
    'flip': (flip.p_greater, flip.p_two),
    'recommended': (found.p_greater, found.p_two),
  }


@functools.cache
def rejections():
  """How often each test rejects (one-sided, two-sided): with 1 proxy, with 5, and with a bonus."""
  counts = np.repeat([1, PROXIES, PROXIES], DATASETS)[: 2 * DATASETS + 200]
  bonus = np.where(np.arange(len(counts)) < 2 * DATASETS, 0.0, 0.5)
  run = jax.jit(lambda *a: jax.lax.map(lambda one: analyses(*one), a, batch_size=40))
  found = jax.device_get(run(jax.random.split(KEY, len(counts)), counts, bonus))
  rate = lambda p: [(part <= ALPHA).mean() for part in np.split(p, [DATASETS, 2 * DATASETS])]
  rates = {name: np.array([rate(p) for p in several]).T for name, several in found.items()}
  return [{name: rate[i] for name, rate in rates.items()} for i in range(3)]


class CalibrationTest(chex.TestCase):
  ERROR = np.sqrt(ALPHA * (1 - ALPHA) / DATASETS)

  @parameterized.parameters('flip', 'recommended')
  def test_rejects_a_true_null_as_often_as_it_says(self, name):
    one_proxy, five_proxies, _ = rejections()
    np.testing.assert_allclose(one_proxy[name], ALPHA, rtol=0, atol=3 * self.ERROR)
    np.testing.assert_allclose(five_proxies[name], ALPHA, rtol=0, atol=3 * self.ERROR)

  def test_copies_of_the_judges_vote_fool_the_t_test(self):
    one_proxy, five_proxies, _ = rejections()
    np.testing.assert_allclose(one_proxy['t'], ALPHA, rtol=0, atol=3 * self.ERROR)
    self.assertTrue((five_proxies['t'] > 2 * ALPHA).all())

  def test_finds_a_self_bonus(self):
    self.assertTrue((rejections()[2]['recommended'] > 0.99).all())

  def test_the_excess_grows_with_the_bonus(self):
    votes = jax.jit(
      jax.vmap(
        lambda b: simulate.simulate_votes(KEY, 400, 3, self_bonus=b),
      )
    )(np.float32([0, 0.2, 0.5]))
    d = votes.judge[:, None] - votes.proxy
    np.testing.assert_allclose(d.mean((1, 2)), [0, 0.042, 0.105], atol=0.012)
    t = lambda d: d.mean(-1) / d.std(-1) * np.sqrt(400)
    self.assertTrue((t(d[1:, 0]) > 4).all())
    # Without a baseline, the null's votes look like a preference against a fixed 0.3.
    self.assertGreater(t(votes.judge[0] - 0.3), 10)


@jax.jit
def cells(s_judge, s_proxy, mask):
  item = jnp.broadcast_to(jnp.arange(80) // 2, s_judge.shape)
  return baseline.cell_table(KEY, s_judge, s_proxy, item, 40, DRAWS, mask)


def cell(s_judge, s_proxy, mask):
  found = cells(*(np.stack([a, a]) for a in (s_judge, s_proxy, mask)))
  return jax.tree.map(lambda leaf: leaf[0], found)


@jax.jit
def analysis(s_judge, s_proxy, item, same_error):
  return baseline.recommended(KEY, s_judge, s_proxy, item, 40, DRAWS, same_error)


def pairs(n=80, seed=0):
  return np.random.default_rng(seed).uniform(size=(2, n)).astype(np.float32)


ALL = np.ones(80, bool)


class EvaluateCellTest(chex.TestCase):
  def test_a_proxy_that_is_the_judge(self):
    own, _ = pairs()
    found = cell(own, own, ALL)
    self.assertEqual((found.paired.mean, found.paired.t, found.effect_dz), (0, 0, 0))
    for p in (*found.paired[4:], found.ks.p, found.p_paper, *found.sign_flip):
      self.assertEqual(p, 1)
    np.testing.assert_allclose(found.correlation, 1, rtol=1e-5)

  def test_exchanging_judge_and_proxy(self):
    own, other = pairs()
    found, swapped = cell(own, other, ALL), cell(other, own, ALL)
    for a, b in zip(
      (found.paired.mean, found.paired.t, found.effect_dz, found.effect_pooled),
      (swapped.paired.mean, swapped.paired.t, swapped.effect_dz, swapped.effect_pooled),
      strict=True,
    ):
      np.testing.assert_allclose(a, -b, rtol=1e-6)
    self.assertEqual(found.sign_flip.p_two, swapped.sign_flip.p_two)
    self.assertEqual(found.ks, swapped.ks)
    self.assertEqual(found.judge_std, swapped.proxy_std)

  def test_the_small_case_and_the_papers_decision(self):
    own, other = (
      np.resize(np.float32(v), 80) for v in ((0.6, 0.7, 0.2, 0.9), (0.5, 0.6, 0.4, 0.7))
    )
    found = cell(own, other, np.arange(80) < 4)
    self.assertEqual(found.paired.n, 4)
    np.testing.assert_allclose(
      [found.paired.t, found.ks.statistic, found.effect_dz, found.effect_pooled],
      [0.5773502692, 0.25, 0.2886751346, 0.2540002540],
      rtol=1e-5,
    )
    self.assertEqual(found.p_paper, max(found.paired.p_greater, found.ks.p))
    # A small, sure excess of a wide range: t sees it, the paired-blind KS does not.
    own, _ = pairs()
    sure = cell(own + np.float32(0.01), own, ALL)
    self.assertLess(sure.paired.p_greater, 1e-6)
    self.assertGreater(sure.p_paper, 0.5)
    # A negative excess may be significant for KS; never for the paper.
    self.assertGreater(cell(own - np.float32(0.5), own, ALL).p_paper, 0.99)

  def test_a_table_is_its_cells(self):
    own, other = pairs(), pairs(seed=1)
    masks = np.stack([ALL, np.arange(80) < 30])
    found, turned = cells(own, other, masks), cells(own[::-1], other[::-1], masks[::-1])
    rows = [jax.tree.map(lambda leaf, i=i: leaf[i], found) for i in range(2)]
    chex.assert_trees_all_equal(rows[0], cell(own[0], other[0], masks[0]))
    alone = jax.tree.map(lambda leaf: leaf[0], turned)
    chex.assert_trees_all_equal(rows[1]._replace(sign_flip=()), alone._replace(sign_flip=()))
    # Not the same flips.
    self.assertAlmostEqual(float(rows[1].sign_flip.p_two), float(alone.sign_flip.p_two), delta=0.15)
    self.assertEqual(found.paired.n.tolist(), [80, 30])
    with self.assertRaisesRegex(ValueError, 'one shape'):
      baseline.cell_table(KEY, own, other, np.arange(80), 40, 9, masks)


class RecommendedTest(chex.TestCase):
  def test_copies_of_a_proxy_change_nothing(self):
    own, other = pairs(40)
    item = np.arange(40)
    none = np.zeros(40, bool)
    once = analysis(
      np.tile(own, 3), np.tile(other, 3), np.tile(item, 3), np.concatenate([~none, none, none])
    )
    copied = analysis(np.tile(own, 3), np.tile(other, 3), np.tile(item, 3), np.tile(~none, 3))
    self.assertEqual((int(copied.pairs), int(once.pairs)), (120, 40))
    chex.assert_trees_all_close(copied[1:], once[1:], rtol=1e-5)
    np.testing.assert_allclose(once.excess, (own - other).mean(), rtol=1e-5)
    np.testing.assert_allclose(once.judge_mean, own.mean(), rtol=1e-5)

  def test_an_item_counts_once(self):
    own, other = np.zeros((2, 120), np.float32)
    own[100:] = 1.0  # item 0, twenty times
    item = np.concatenate([np.arange(100) % 39 + 1, np.zeros(20, int)])
    found = analysis(own, other, item, np.ones(120, bool))
    np.testing.assert_allclose(found.excess, 1 / 40, rtol=1e-6)
    self.assertGreater(found.p_greater, 0.4)

  def test_equal_votes_and_no_pairs(self):
    own, _ = pairs(120)
    item = np.arange(120) % 40
    same = analysis(own, own, item, np.ones(120, bool))
    self.assertEqual(tuple(map(float, same[3:])), (0, 0, 0, 1, 1))
    empty = analysis(own, own, item, np.zeros(120, bool))
    self.assertEqual((int(empty.pairs), int(empty.items)), (0, 0))
    self.assertTrue(np.isnan(empty[2:6]).all())
    self.assertEqual((empty.p_greater, empty.p_two), (1, 1))


class SimulateTest(chex.TestCase):
  def test_refuses(self):
    with self.assertRaisesRegex(ValueError, 'num_items=0'):
      simulate.simulate_votes(KEY, 0, 1)
    with self.assertRaisesRegex(ValueError, 'num_proxies=0'):
      simulate.simulate_votes(KEY, 1, 0)
