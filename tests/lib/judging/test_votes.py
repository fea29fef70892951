"""Tests of votes, categories, entropies and label judges."""

import chex
import jax
import numpy as np
from absl.testing import parameterized
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lib.judging import categories, entropy, judges, votes

IDS = np.array([[0, 3, -1], [1, 4, -1], [2, 5, 6]])
label_probs = jax.jit(lambda log_probs: votes.label_probs(log_probs, IDS))
entropy_gap = jax.jit(entropy.entropy_gap)
bits_of = jax.jit(entropy.binary_entropy_bits)

POLICIES = (votes.keep_ties, votes.drop_ties, votes.split_ties)


def games(n=50, seed=0):
  return np.random.default_rng(seed).dirichlet(np.ones(3), (2, n)).astype(np.float32)


class LabelProbsTest(chex.TestCase):
  @chex.variants(with_jit=True)
  def test_sums_spellings_and_renormalises(self):
    p = np.random.default_rng(0).dirichlet(np.ones(9), (4, 5))
    probs, found = self.variant(votes.label_probs)(np.log(p).astype(np.float32), IDS)
    sums = np.stack([p[..., [0, 3]], p[..., [1, 4]]], axis=-2).sum(-1)
    sums = np.concatenate([sums, p[..., [2, 5, 6]].sum(-1, keepdims=True)], axis=-1)
    np.testing.assert_allclose(probs, sums / sums.sum(-1, keepdims=True), rtol=1e-5)
    self.assertTrue(found.all())

  @chex.variants(with_jit=True)
  def test_unlisted_tokens(self):
    log_probs = np.full((3, 9), -np.inf, np.float32)
    log_probs[0, 8] = 0.0  # some other word
    log_probs[1, [4, 8]] = -700.0, 0.0  # B, far below what exp can show
    log_probs[2, [0, 6]] = np.log([0.1, 0.3])
    probs, found = self.variant(votes.label_probs)(log_probs, IDS)
    np.testing.assert_array_equal(found, [False, True, True])
    np.testing.assert_allclose(probs, [[1 / 3] * 3, [0, 1, 0], [0.25, 0, 0.75]], rtol=1e-6)

  def test_the_last_token_is_no_filler(self):
    log_probs = np.full(9, -np.inf, np.float32)
    log_probs[8] = 0.0
    probs, found = label_probs(log_probs)
    self.assertFalse(found)
    np.testing.assert_allclose(probs, 1 / 3)

  def test_nan_is_seen(self):
    probs, _ = label_probs(np.full(9, np.nan, np.float32))
    self.assertTrue(np.isnan(probs).all())

  @parameterized.parameters(
    ([[0], [1]], r'\(3, m\)'),
    ([0, 1, 2], r'\(3, m\)'),
    ([[0], [1], [9]], r'\[-1, 9\)'),
    ([[0], [1], [-2]], r'\[-1, 9\)'),
    ([[0, 3], [1, 3], [2, -1]], 'one label, once'),
    ([[0, 0], [1, -1], [2, -1]], 'one label, once'),
    ([[0], [1], [-1]], 'needs a spelling'),
  )
  def test_refuses(self, ids, message):
    with self.assertRaisesRegex(ValueError, message):
      votes.label_probs(np.zeros(9), np.array(ids))


class PositionTest(chex.TestCase):
  @chex.variants(with_jit=True)
  def test_votes_and_ties_sum_to_one(self):
    for policy in POLICIES:
      game1, game2 = self.variant(policy)(games())
      own, other = votes.position_average(game1, game2), votes.position_average(game2, game1)
      tie = (game1[..., 2] + game2[..., 2]) / 2
      np.testing.assert_allclose(own + other + tie, 1.0, rtol=1e-6)
      if policy is not votes.keep_ties:
        np.testing.assert_array_equal(tie, 0)

  def test_policies_by_hand(self):
    probs = np.array([0.5, 0.3, 0.2])
    for policy, expected in zip(
      POLICIES, ([0.5, 0.3, 0.2], [0.625, 0.375, 0], [0.6, 0.4, 0]), strict=True
    ):
      np.testing.assert_allclose(policy(probs), expected, rtol=1e-6)
      np.testing.assert_array_equal(policy(np.array([0.0, 1.0, 0.0])), [0, 1, 0])
    np.testing.assert_array_equal(votes.drop_ties(np.array([0.0, 0.0, 1.0])), [0.5, 0.5, 0])
    np.testing.assert_array_equal(votes.split_ties(np.array([0.0, 0.0, 1.0])), [0.5, 0.5, 0])
    gradient = jax.jit(jax.jacobian(votes.drop_ties))(np.float32([0, 0, 1]))
    chex.assert_tree_all_finite(gradient)

  @parameterized.parameters(0.0, 0.3, 1.0)
  def test_a_positional_judge(self, c):
    # It says A with probability c, whatever it reads.
    for tie in (0.0, (1 - c) / 2):
      game = np.array([c, 1 - c - tie, tie])
      np.testing.assert_allclose(votes.position_average(game, game), (c + game[1]) / 2)
    for policy in (votes.drop_ties, votes.split_ties):
      decided = policy(game)
      np.testing.assert_allclose(votes.position_average(decided, decided), 0.5)
    self.assertEqual(bool(votes.swap_consistent(game, game)), False)

  def test_a_judge_of_content_is_consistent(self):
    first = np.array([[0.7, 0.2, 0.1], [0.1, 0.5, 0.4], [0.2, 0.2, 0.6]])
    self.assertTrue(votes.swap_consistent(first, first[:, [1, 0, 2]]).all())
    np.testing.assert_array_equal(votes.swap_consistent(first, first), [False, False, True])

  def test_refuses(self):
    for policy in POLICIES:
      with self.assertRaisesRegex(ValueError, '3'):
        policy(np.ones(2))
    for f in (votes.position_average, votes.swap_consistent):
      with self.assertRaisesRegex(ValueError, 'pairs'):
        f(np.ones((4, 3)), np.ones(3))


class CategoriesTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_all_eight_cases(self):
    j, k, r = np.indices((2, 2, 2), bool)
    found = np.asarray(self.variant(categories.categorize)(j, k, r))
    self.assertEqual(found.dtype, np.int8)
    self.assertEqual(found[1, 1, 0], categories.LEGITIMATE)
    self.assertEqual(found[0, 0, 1], categories.HARMFUL)
    self.assertEqual((found == categories.NEITHER).sum(), 6)
    np.testing.assert_array_equal(found, np.swapaxes(found, 0, 1))  # J and K exchanged

  def test_same_errors(self):
    found = categories.same_error_mask(np.array([0, 1, -1, 2]), np.array([0, 2, -1, -1]))
    np.testing.assert_array_equal(found, [True, False, False, False])


class EntropyTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_by_hand(self):
    bits = self.variant(entropy.binary_entropy_bits)(np.float32([0.5, 0.9, 0.3]))
    np.testing.assert_allclose(bits, [1, 0.4689956, 0.8812909], rtol=1e-6)
    np.testing.assert_allclose(bits.mean(), 0.7834288, rtol=1e-6)

  @settings(max_examples=30)
  @given(hnp.arrays(np.float32, 5, elements=st.floats(0, 1, width=32)))
  def test_is_symmetric_and_at_most_one_bit(self, p):
    p = np.append(p, np.float32([0, 1]))
    bits = np.asarray(bits_of(p))
    self.assertTrue(((bits >= 0) & (bits <= 1)).all())
    np.testing.assert_allclose(bits, bits_of(1 - p), atol=1e-6)
    np.testing.assert_allclose(bits[-2:], 0, atol=1e-6)

  def test_slope_is_finite_at_the_ends(self):
    slopes = jax.jit(jax.vmap(jax.grad(entropy.binary_entropy_bits)))(np.float32([0, 0.5, 1]))
    chex.assert_tree_all_finite(slopes)

  def test_gap(self):
    s = np.float32([0.5, 0.5, 0.9, 1.0, 0.2])
    category = np.int8([2, 2, 1, 1, 0])
    expected = 1 - 0.4689956 / 2
    np.testing.assert_allclose(entropy_gap(s, category), expected, rtol=1e-6)
    np.testing.assert_allclose(entropy_gap(1 - s, category), expected, rtol=1e-6)
    self.assertTrue(np.isnan(entropy_gap(s, 0 * category)))
    with self.assertRaisesRegex(ValueError, 'one shape'):
      entropy.entropy_gap(s, category[:2])


class LabelMarginJudgeTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_is_the_odds_of_two_labels(self):
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(10), (2, 6)).astype(np.float32)
    x, r = rng.integers(0, 10, (2, 2, 6))
    vote = self.variant(judges.label_margin_judge)
    of_x, of_r = (np.take_along_axis(p, i[..., None], -1)[..., 0] for i in (x, r))
    np.testing.assert_allclose(vote(np.log(p), x, r), of_x / (of_x + of_r), rtol=1e-4)
    np.testing.assert_allclose(vote(np.log(p), x, r) + vote(np.log(p), r, x), 1, rtol=1e-6)
    np.testing.assert_allclose(vote(np.log(p) + 7, x, r), vote(np.log(p), x, r), rtol=1e-4)

  def test_same_errors_have_no_excess_but_for_a_bonus(self):
    rng = np.random.default_rng(1)
    log_p = np.log(rng.dirichlet(np.ones(10), 300)).astype(np.float32)
    j, k, r = log_p.argmax(-1), rng.integers(0, 10, 300), rng.integers(0, 10, 300)
    same = np.asarray(categories.same_error_mask(j, k))
    self.assertGreater(same.sum(), 10)
    of_k = judges.label_margin_judge(log_p, k, r)
    excess = [np.asarray(judges.label_margin_judge(log_p, j, r, b) - of_k) for b in (0.0, 0.2, 0.5)]
    np.testing.assert_array_equal(excess[0][same], 0)
    self.assertGreater(excess[0].mean(), 0.1)  # it believes what it says, whoever says it
    self.assertLess(0, excess[1][same].mean())
    self.assertLess(excess[1][same].mean(), excess[2][same].mean())

  def test_refuses(self):
    log_p, label = np.zeros((4, 3), np.float32), np.zeros(4, int)
    with self.assertRaisesRegex(ValueError, 'candidate has shape'):
      judges.label_margin_judge(log_p, label[:3], label)
    with self.assertRaisesRegex(ValueError, 'reference must be integers'):
      judges.label_margin_judge(log_p, label, np.zeros(4))
    self.assertTrue(np.isnan(judges.label_margin_judge(log_p, label + 3, label)).all())
