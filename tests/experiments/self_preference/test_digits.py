"""Tests of judges that cannot know whose answer they see."""

import functools

import chex
import numpy as np

from configs.self_preference import quick
from experiments.self_preference import cells, digits
from lib.judging import categories


@functools.cache
def trained():
  return digits.train(quick.get_config().digits, 0)


@functools.cache
def harmful(bonus, noise=0.0):
  return cells.harmful(digits.pairs(trained(), bonus, noise, 0))


class DigitsTest(chex.TestCase):
  def test_models_are_what_the_experiment_needs(self):
    accuracy = (trained().labels == trained().gold).mean(axis=1)
    self.assertTrue((accuracy > 0.5).all() and (accuracy < 0.8).all(), accuracy)
    np.testing.assert_allclose(np.exp(trained().log_p).sum(axis=-1), 1.0, atol=1e-9)

  def test_pairs_are_those_of_the_definition(self):
    pairs, labels, gold = digits.pairs(trained(), 0.3, 0.0, 0), trained().labels, trained().gold
    at = lambda author: labels[author, pairs.example]
    j, k, r = (at(a) == gold[pairs.example] for a in (pairs.judge, pairs.proxy, pairs.reference))
    np.testing.assert_array_equal(j, k)
    np.testing.assert_array_equal(j, ~r)
    np.testing.assert_array_equal(pairs.category == categories.HARMFUL, ~j)
    np.testing.assert_array_equal(pairs.same == 1, at(pairs.judge) == at(pairs.proxy))
    self.assertLen(cells.split(pairs, cells.LEVELS['triplet (J, K, R)'])[1], 8 * 7 * 6)
    row = np.random.default_rng(0).integers(len(j))
    log_p = trained().log_p[pairs.judge[row], pairs.example[row]]
    margin = log_p[at(pairs.judge)[row]] - log_p[at(pairs.reference)[row]] + 0.3
    self.assertAlmostEqual(float(pairs.s_judge[row]), 1 / (1 + np.exp(-margin)), places=5)

  def test_the_baseline_accuses_the_blind_and_the_filter_acquits_them(self):
    chosen = harmful(0.0)
    d, same = chosen.s_judge - chosen.s_proxy, chosen.same == 1
    self.assertGreater(chosen.s_judge.mean(), 0.6)
    self.assertGreater(d.mean(), 0.1)
    self.assertBetween(same.mean(), 0.2, 0.5)
    self.assertLessEqual(np.abs(d[same]).max(), 1e-12)

  def test_a_planted_bonus_shows_and_grows(self):
    means = []
    for bonus in (0.0, 0.1, 0.2, 0.4):
      chosen = harmful(bonus)
      d = (chosen.s_judge - chosen.s_proxy)[chosen.same == 1]
      self.assertTrue((d >= 0).all())
      means.append(d.mean())
    self.assertTrue((np.diff(means) > 0).all(), means)

  def test_wording_is_no_self_preference_but_makes_votes_differ(self):
    chosen = harmful(0.0, 1.0)
    d = (chosen.s_judge - chosen.s_proxy)[chosen.same == 1]
    self.assertGreater(d.std(), 0.05)
    self.assertLess(abs(d.mean()), 0.02)
