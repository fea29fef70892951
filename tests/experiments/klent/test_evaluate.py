"""Tests of matches, of who plays them, and of the round robin, in a game of nine positions."""

import functools
import pathlib
import tempfile
from unittest import mock

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

from configs.klent import quick
from experiments.klent import evaluate, methods, players, tournament
from lib.train import app
from tests.experiments.klent import toys

NIM = toys.game()
GAMES = 400
PILES = range(1, toys.PILES + 1)
RANDOM = {pile: [0.5, 0.5] if pile > 1 else [1.0] for pile in PILES}
ONE_PLY = RANDOM | {2: [0.0, 1.0]}
PERFECT = RANDOM | {pile: [1.0 - action, action] for pile, action in toys.BEST.items()}
POLICIES = {'random': RANDOM, 'one_ply': ONE_PLY, 'perfect': PERFECT}


def act_perfectly(variables, key, states):
  return jnp.where(states.pile % 3 == 2, 1, 0)  # leaves a multiple of three where it can


def player(name):
  return act_perfectly if name == 'perfect' else players.known(NIM, name)


@functools.cache
def counts(first, second):
  play = evaluate.matches(quick.get_config(), NIM, player(first), player(second), GAMES, 0)
  return np.asarray(play(players.NOBODY, players.NOBODY, jax.random.key(0)), float)


def chance(mover, other, pile):
  """That the player to move wins."""
  return sum(
    weight * (1.0 if pile == action + 1 else 1.0 - chance(other, mover, pile - action - 1))
    for action, weight in enumerate(POLICIES[mover][pile])
    if weight
  )


def expected(first, second):
  """Chance that the first player wins a game that either begins, from any pile."""
  begun = [(chance(first, second, p) + 1.0 - chance(second, first, p)) / 2 for p in PILES]
  return np.mean(begun)


class MatchesTest(chex.TestCase):
  @parameterized.parameters(
    ('one_ply', 'random'),
    ('random', 'one_ply'),
    ('perfect', 'one_ply'),
    ('one_ply', 'perfect'),
    ('random', 'random'),
  )
  def test_wins_are_as_likely_as_they_should_be(self, first, second):
    wins, draws, losses = counts(first, second)
    self.assertEqual((wins + losses, draws), (GAMES, 0))
    share = expected(first, second)
    self.assertAlmostEqual(wins / GAMES, share, delta=4 * np.sqrt(share * (1 - share) / GAMES))

  def test_the_better_player_wins_more_on_either_side(self):
    for better, worse in (('one_ply', 'random'), ('perfect', 'one_ply')):
      wins, _, losses = counts(better, worse)
      self.assertGreater(wins, losses + 3 * GAMES**0.5)
      wins, _, losses = counts(worse, better)
      self.assertGreater(losses, wins + 3 * GAMES**0.5)

  def test_what_is_examined_has_the_names_of_what_it_counts(self):
    config = quick.get_config()
    config.num_seeds = 2
    config.eval.opponents = {'random': GAMES}
    with mock.patch.object(evaluate, 'agents', return_value=player('one_ply')):
      found = evaluate.Examiner(config, NIM, 'klent')(players.NOBODY, 0)
    self.assertEqual(sorted(found), ['draws_random', 'losses_random', 'wins_random'])
    for seed in range(2):
      wins, draws, losses = (found[f'{kind}_random'][seed] for kind in ('wins', 'draws', 'losses'))
      self.assertEqual((wins + losses, draws), (GAMES, 0))
      share = expected('one_ply', 'random')
      self.assertAlmostEqual(wins / GAMES, share, delta=4 * np.sqrt(share * (1 - share) / GAMES))


class PlayersTest(chex.TestCase):
  def test_one_ply_wins_where_it_can(self):
    act = jax.jit(functools.partial(players.known(NIM, 'one_ply'), players.NOBODY))
    piles = np.repeat([1, 2, 3], 40)
    for mover in (0, 1):
      actions = np.asarray(act(jax.random.key(0), toys.states(piles, mover)))
      self.assertTrue((actions[piles == 1] == 0).all())
      self.assertTrue((actions[piles == 2] == 1).all())
      self.assertEqual(set(actions[piles == 3]), {0, 1})

  @parameterized.parameters(0, 4)
  def test_an_agent_plays_what_it_likes_best_of_what_is_legal(self, num_simulations):
    # It likes two stones, and knows no values: only a search sees that the pile of one is left.
    fond = lambda variables, states: (
      jnp.broadcast_to(variables, (len(states.pile), 2)),
      jnp.zeros(len(states.pile)),
    )
    method = methods.learner.Method(None, None, fond, 1)
    act = jax.jit(players.agent(NIM, method, num_simulations))
    play = lambda likes, piles: act(
      jnp.array(likes), jax.random.key(0), toys.states(piles)
    ).tolist()
    for likes, best in (([0.0, 1.0], 1), ([1.0, 0.0], 0)):
      self.assertEqual(play(likes, [1, 1]), [0, 0])  # of one stone one takes no two
      win, far = play(likes, [2, 9])
      self.assertEqual(win, 1 if num_simulations else best)
      if not num_simulations:
        self.assertEqual(far, best)


class TournamentTest(chex.TestCase):
  def played(self):
    config = quick.get_config()
    config.num_seeds = 2
    config.methods = ()
    config.tournament.update({'games': GAMES, 'opening_moves': 0, 'known': ('random', 'one_ply')})
    with tempfile.TemporaryDirectory() as directory:
      run = app.Run(config, 'klent', '', pathlib.Path(directory))
      first = tournament.play(run, NIM)
      # What has been played is kept, and stands where it stood.
      with mock.patch.object(evaluate, 'matches', side_effect=AssertionError):
        again = tournament.play(run, NIM)
    np.testing.assert_array_equal(first.counts, again.counts)
    return first

  def test_who_won_is_who_the_other_lost_to(self):
    table = self.played()
    self.assertEqual(table.names, ['random', 'one_ply'])
    for seed in range(2):
      wins, draws, losses = table.counts[seed, 1, 0]
      self.assertGreater(wins, losses + 3 * GAMES**0.5)
      self.assertEqual(table.counts[seed, 0, 1].tolist(), [losses, draws, wins])
      self.assertEqual(table.counts[seed, [0, 1], [0, 1]].sum(), 0)
    elo = tournament.elo(table, 'random')
    share = expected('one_ply', 'random')
    np.testing.assert_allclose(elo['one_ply'], 400 * np.log10(share / (1 - share)), atol=80)
    np.testing.assert_array_equal(elo['random'], 0.0)
    self.assertGreater(tournament.pooled(table, 'random').elo[1], 20)

  def test_draws_stay_draws(self):
    matches = lambda *players: lambda *variables: np.array([7, 2, 1])
    with mock.patch.object(evaluate, 'matches', matches):
      table = self.played()
    self.assertEqual(table.counts[0, 1, 0].tolist(), [7, 2, 1])
    self.assertEqual(table.counts[0, 0, 1].tolist(), [1, 2, 7])
