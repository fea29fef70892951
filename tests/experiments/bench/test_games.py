"""Tests of the cases of self-play, at small sizes."""

import importlib.util
import sys
from unittest import mock

import chex
import jax
import numpy as np
import pytest
from absl.testing import parameterized

from configs.bench import games as games_config
from configs.bench import quick
from experiments.bench import cases, games, measure, yardsticks
from experiments.klent import games as boards
from tests.experiments.bench import toys

GAMES, MOVES, SEEDS, SIMULATIONS = 4, 6, 2, 2
STEPS = GAMES * MOVES
boards.make('tic_tac_toe')  # pgx imports a game's module when it is made, not within a trace


def tiny(**changes):
  config = quick.get_config()
  config.selfplay.update({'game': 'tic_tac_toe', 'num_seeds': SEEDS})
  config.selfplay.play.update({'games': GAMES, 'moves': MOVES})
  config.selfplay.network.hidden = (128, 128)
  config.selfplay.agent.simulations = SIMULATIONS
  config.selfplay.optimizer.batch_size = STEPS
  config.selfplay.update_from_flattened_dict(changes)
  return config


def operations():
  """Those of products for one position of tic-tac-toe and KLENT's heads, and for its gradient."""
  first, others = 18 * 128, 128 * 128 + 128 * (9 + 9)
  return 2 * (first + others), 2 * (2 * first + 3 * others)


class BuildTest(chex.TestCase):
  @parameterized.parameters(*games.PARTS)
  def test_counts_moves_and_carries_what_seeds_learn(self, part):
    case = toys.abstract(f'selfplay_{part}', tiny())
    self.assertEqual((case.updates, case.seeds, case.unit), (STEPS, SEEDS, 'step'))
    searches = part == 'search' or 'alphazero' in part
    evaluations = float(STEPS * (1 + SIMULATIONS * searches))
    plain = part in ('random', 'forward', 'fit')
    self.assertEqual(case.counts, None if plain else {'evaluations': evaluations})
    out = jax.eval_shape(case.fn, *case.args)
    if part in ('random', 'network', 'search'):
      chex.assert_shape(out[1].action, (SEEDS, MOVES, GAMES))
    elif part == 'forward':
      chex.assert_shape(out, (SEEDS, MOVES, GAMES, 9))
    else:
      chex.assert_trees_all_equal_shapes_and_dtypes(out[0], case.args[0])
      chex.assert_shape(list(out[1].values()), (SEEDS,))

  @parameterized.parameters('random', 'network')
  def test_plays_games(self, part):
    self.play(part)

  @pytest.mark.slow
  def test_plays_games_by_search(self):
    self.play('search')

  def play(self, part):
    case = cases.build(tiny(), f'selfplay_{part}')
    states, window = jax.jit(case.fn)(*case.args)
    self.assertTrue(np.take_along_axis(window.legal, window.action[..., None], -1).all())
    # Nobody's game is over after four moves: each has ended once at most.
    moves, ended = np.asarray(states._step_count), window.ended.any(axis=1)
    self.assertTrue((moves[~ended] == MOVES).all())
    self.assertTrue((moves[ended] < MOVES - 4).all())
    self.assertTrue((window.action[0] != window.action[1]).any())  # seeds differ

  def test_fits_in_batches(self):
    self.fit('fit')

  @parameterized.parameters('klent', 'alphazero', 'gumbel_alphazero')
  @pytest.mark.slow
  def test_plays_and_fits(self, part):
    self.fit(part)

  def fit(self, part):
    case = cases.build(tiny(**{'optimizer.batch_size': STEPS // 2}), f'selfplay_{part}')
    state, metrics = jax.jit(case.fn)(*case.args)
    chex.assert_tree_all_finite((state.variables, metrics))
    self.assertEqual(np.asarray(state.opt_state[0].count).tolist(), [2] * SEEDS)

  def test_work_is_that_of_the_network(self):
    position, gradient = operations()
    found = {}
    for part in games.PARTS:
      case = toys.abstract(f'selfplay_{part}', tiny())
      work = yardsticks.flops(case.fn, *case.args) if case.work is None else case.work
      found[part] = work / STEPS / SEEDS
    searched = (1 + SIMULATIONS) * position
    expected = {
      'forward': position,
      'network': position,
      'klent': position + gradient,
      'search': searched,  # whose second head has one number instead of nine
      'alphazero': searched + gradient,
      'gumbel_alphazero': searched + gradient,
    }
    for part, work in expected.items():
      self.assertAlmostEqual(found[part] / work, 1.0, delta=0.08, msg=part)
    # Adam, of one batch of few rows, and what orders the samples.
    self.assertBetween(found['fit'] / gradient, 1.0, 2.0)
    self.assertEqual(found['random'], 1.0)

  def test_a_case_of_plays_is_a_part_with_other_sizes(self):
    config = tiny()
    sizes = {'game': 'connect_four', 'play': {'games': 8}, 'num_seeds': 1}
    config.plays = {'more': {'part': 'random', **sizes}}
    case = cases.build(config, 'more')
    self.assertEqual((case.updates, case.seeds, case.work), (8 * MOVES, 1, 8.0 * MOVES))
    chex.assert_shape(case.args[0].legal_action_mask, (1, 8, 7))
    self.assertEqual(config.selfplay.play.games, GAMES)

  def test_a_residual_network_costs_what_its_convolutions_do(self):
    changes = {'network.kind': 'resnet', 'network.channels': 16, 'network.blocks': 1}
    case = toys.abstract('selfplay_network', tiny(**changes))
    # Of 3 x 3 cells, each with as many neighbours as lie on the board: (2 + 3 + 2)² of 81.
    products = 2 * 49 * (2 * 16 + 2 * 16 * 16)
    self.assertBetween(case.work / STEPS / SEEDS / products, 1.0, 1.3)


class CompareTest(chex.TestCase):
  def test_evaluations_a_second_are_of_each_seed(self):
    case = cases.Case(None, (), 10, 2, 'step', counts={'evaluations': 30.0})
    rates = {name: np.array([8e9, 8e9]) for name in ('matmul', 'triad', 'search')}
    rows = measure.compare(rates, {'search': case}, {'search': 4e9})
    found = {row['metric']: row['mean'] for row in rows if row['method'] == 'search'}
    self.assertAlmostEqual(found['steps_per_s'], 20.0)
    self.assertAlmostEqual(found['evaluations_per_s'], 60.0)


class CheckTest(parameterized.TestCase):
  def test_the_config_passes_and_compares_what_it_measures(self):
    config = games_config.get_config()
    measure.prepare(config)
    for name in config.cases:
      sizes = games.sizes_of(config, name)
      self.assertEqual(sizes.play.games * sizes.play.moves % sizes.optimizer.batch_size, 0)

  @parameterized.parameters(
    ({'selfplay': {'play': {'games': 0}}}, r'config\.selfplay: .*play\.games must be positive'),
    ({'selfplay': {'num_seeds': 0}}, r'config\.selfplay: .*num_seeds'),
    ({'selfplay': {'network': {'hidden': (8, 0)}}}, r'config\.selfplay: .*hidden'),
    ({'selfplay': {'network': {'kind': 'cnn'}}}, r"config\.selfplay: .*kind .*'cnn'"),
    ({'selfplay': {'optimizer': {'batch_size': 8193}}}, r'config\.selfplay: .*batch_size .*8192'),
    ({'selfplay': {'game': 'chess'}, 'cases': ('selfplay_fit',)}, r"config\.selfplay: .*'chess'"),
    ({'plays': {'new': {'part': 'sac'}}}, r"config\.plays\.new: .*part .*'sac'"),
    ({'plays': {'new': {'part': 'fit', 'rows': 3}}}, r'config\.plays\.new: .*rows'),
    ({'plays': {'new': {'part': 'fit', 'num_seeds': 0}}}, r'config\.plays\.new: .*num_seeds'),
  )
  def test_names_the_bad_field(self, changes, message):
    config = quick.get_config()
    config.update({'cases': ('pql_update',), 'ratios': (), **changes})
    with self.assertRaisesRegex(ValueError, message):
      measure.prepare(config)

  def test_only_self_play_needs_the_simulator(self):
    gone = {'pgx': None, 'mctx': None}
    find = importlib.util.find_spec
    absent = lambda name: None if name in gone else find(name)
    with mock.patch.dict(sys.modules, gone), mock.patch.object(importlib.util, 'find_spec', absent):
      for name in list(sys.modules):
        if name.startswith(('experiments.bench', 'experiments.klent', 'lib.games.search')):
          del sys.modules[name]
      fresh = importlib.import_module('experiments.bench.measure')
      fresh.prepare(quick.get_config())
      with self.assertRaisesRegex(ValueError, r'config\.cases: pgx is not installed'):
        fresh.prepare(games_config.get_config())
