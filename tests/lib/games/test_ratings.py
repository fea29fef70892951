import chex
import numpy as np
from absl.testing import parameterized

from lib.games import ratings


def played(elo, tie, num_games, seed=0):
  rng = np.random.default_rng(seed)
  num = len(elo)
  wins, draws = np.zeros((num, num)), np.zeros((num, num))
  strength = 10.0 ** (np.asarray(elo) / 400)
  for i in range(num):
    for j in range(i + 1, num):
      parts = np.array([strength[i], strength[j], tie * np.sqrt(strength[i] * strength[j])])
      won, lost, drawn = rng.multinomial(num_games, parts / parts.sum())
      wins[i, j], wins[j, i], draws[i, j], draws[j, i] = won, lost, drawn, drawn
  return wins, draws


class BradleyTerryTest(chex.TestCase):
  @parameterized.parameters(0.0, 0.6)
  def test_finds_the_strengths_that_made_the_games(self, tie):
    truth = np.array([0.0, 120.0, -80.0, 300.0])
    wins, draws = played(truth, tie, 20_000)
    fit = ratings.bradley_terry(wins, draws, prior=0.0)
    errors = (fit.elo - truth)[1:] / np.sqrt(np.diag(fit.covariance)[1:])
    self.assertLess(np.abs(errors).max(), 4.0)
    if tie:
      self.assertAlmostEqual(np.exp(fit.tie), tie, delta=0.02)
    else:
      self.assertEqual(fit.tie, -np.inf)

  def test_intervals_cover_as_they_say(self):
    truth, hits = np.array([0.0, 100.0, -50.0]), []
    for seed in range(300):
      fit = ratings.bradley_terry(*played(truth, 0.4, 100, seed), prior=0.0)
      half = 1.96 * np.sqrt(np.diag(fit.covariance)[1:])
      hits.append(np.abs(fit.elo - truth)[1:] <= half)
    self.assertAlmostEqual(np.mean(hits), 0.95, delta=0.04)

  def test_two_players_in_closed_form(self):
    fit = ratings.bradley_terry(np.array([[0, 30], [10, 0]]), prior=0.0)
    self.assertAlmostEqual(fit.elo[1], -400 * np.log10(3), places=4)
    # The variance of the log-odds is 1/30 + 1/10.
    self.assertAlmostEqual(
      fit.covariance[1, 1], (400 / np.log(10)) ** 2 * (1 / 30 + 1 / 10), delta=1e-3
    )
    drawn = ratings.bradley_terry(np.array([[0, 7], [7, 0]]), np.array([[0, 6], [6, 0]]), prior=0.0)
    np.testing.assert_allclose(drawn.elo, 0.0, atol=1e-6)
    self.assertAlmostEqual(np.exp(drawn.tie), 6 / 7, places=5)

  def test_anchor_shifts_all(self):
    wins, draws = played([0.0, 50.0, 200.0], 0.3, 500)
    first, last = (ratings.bradley_terry(wins, draws, anchor) for anchor in (0, 2))
    np.testing.assert_allclose(first.elo - first.elo[2], last.elo, atol=1e-3)
    self.assertEqual(last.covariance[2, 2], 0.0)

  def test_who_never_lost_is_finite_by_the_prior(self):
    fit = ratings.bradley_terry(np.array([[0, 0], [50, 0]]))
    self.assertAlmostEqual(fit.elo[1], 400 * np.log10(50.05 / 0.05), places=2)

  def test_all_draws(self):
    draws = np.array([[0, 10], [10, 0]])
    np.testing.assert_allclose(ratings.bradley_terry(np.zeros((2, 2)), draws).elo, 0.0, atol=1e-3)

  @parameterized.parameters(
    ([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]], None, 0, 'never met'),
    ([[0, -1], [1, 0]], None, 0, 'negative'),
    ([[0, 1], [1, 0]], [[0, 1], [2, 0]], 0, 'symmetric'),
    ([[0, 1], [1, 0]], None, 2, 'anchor'),
    ([[0, 1, 1], [1, 0, 1]], None, 0, 'square'),
  )
  def test_refuses(self, wins, draws, anchor, pattern):
    with self.assertRaisesRegex(ValueError, pattern):
      ratings.bradley_terry(np.array(wins), None if draws is None else np.array(draws), anchor)


class ExpectedScoreTest(chex.TestCase):
  def test_is_the_logistic_of_elo_without_draws_and_flatter_with_them(self):
    gaps = np.array([-300.0, 0.0, 300.0])
    np.testing.assert_allclose(
      ratings.expected_score(gaps), 1 / (1 + 10 ** (-gaps / 400)), rtol=1e-12
    )
    flat = ratings.expected_score(gaps, tie=1.0)
    self.assertAlmostEqual(flat[1], 0.5)
    self.assertLess(flat[2], ratings.expected_score(300.0))
