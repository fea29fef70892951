"""The whole experiment on tic-tac-toe: it ends, goes on where it stopped, and plays."""

import json
import pathlib
import shutil
import tempfile
from unittest import mock

import chex
import jax
import numpy as np
import pytest

from experiments.klent import evaluate, play, records, tournament, train
from lib.train import app

CONFIG = """
from configs.klent import quick

def get_config():
  config = quick.get_config()
  config.game = 'tic_tac_toe'
  config.num_seeds = 2
  config.methods = ('klent', 'no_entropy')
  config.variants = {'no_entropy': {'method': 'klent', 'agent': {'alpha': 0.0}}}
  config.claims = (('klent', 'no_entropy', 'score_random', 0.0),)
  config.at_least = (('klent', 'score_random', 0.0),)
  config.evaluations = 960
  config.scores = 2
  config.chunks_per_score = 1
  config.play.update({'games': 16, 'moves': 12})
  config.network.hidden = (16,)
  config.optimizer.batch_size = 96
  config.eval.opponents = {'random': 20}
  config.tournament.update({'games': 10, 'known': ('random', 'one_ply')})
  return config
"""


class TrainTest(chex.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.directory = pathlib.Path(tempfile.mkdtemp())
    cls.addClassCleanup(shutil.rmtree, cls.directory)
    cls.config = cls.directory / 'tiny.py'
    cls.config.write_text(CONFIG)
    cls.workdir = cls.directory / 'run'
    cls.code = cls.run_main()

  @classmethod
  def run_main(cls, *more, workdir=None):
    argv = ['main', f'--config={cls.config}', f'--workdir={workdir or cls.workdir}', *more]
    return app.main(argv, train.prepare, train.train)

  def rows(self, workdir=None):
    return json.loads(((workdir or self.workdir) / 'results.json').read_text())['rows']

  def test_ends_with_results_that_are_consistent(self):
    self.assertEqual(self.code, 0)
    by = {(row['method'], row['metric']): row for row in self.rows()}
    for name in ('klent', 'no_entropy'):
      self.assertTrue(0 <= by[name, 'score_random']['mean'] <= 1)
    self.assertEqual(by['random', 'elo']['mean'], 0.0)
    self.assertTrue(by['klent', 'score_random, bound']['passed'])
    self.assertIn(('klent against no_entropy', 'gain in score_random'), by)
    text = (self.workdir / 'report.md').read_text()
    for picture in self.workdir.glob('figures/*'):
      self.assertIn(f'![](figures/{picture.name})', text)
    self.assertLen(list(self.workdir.glob('figures/*.png')), 3)
    self.assertTrue((self.workdir / 'figures/game.svg').read_text().startswith('<?xml'))

  def test_all_games_of_the_round_robin_are_counted(self):
    found = dict(np.load(self.workdir / 'tournament.npz'))
    self.assertLen(found, 6)
    for pair, counts in found.items():
      seeds = 1 if pair == 'one_ply random' else 2
      self.assertEqual(counts.sum(-1).tolist(), [10.0] * seeds, pair)

  def test_again_it_trains_nothing_and_says_the_same(self):
    before = (self.workdir / 'results.json').read_bytes()
    with mock.patch('lib.train.loop.chunks', side_effect=AssertionError):
      self.assertEqual(self.run_main(), 0)
    self.assertEqual((self.workdir / 'results.json').read_bytes(), before)

  @pytest.mark.slow
  def test_stopped_in_the_middle_it_ends_alike(self):
    other = self.directory / 'stopped'
    seen = []

    def stop(*args):
      seen.append(args)
      if len(seen) == 3:  # of six examinations of the first method
        raise KeyboardInterrupt
      return original(*args)

    original = evaluate.Examiner.__call__
    with (
      mock.patch.object(evaluate.Examiner, '__call__', stop),
      self.assertRaises(KeyboardInterrupt),
    ):
      self.run_main(workdir=other)
    self.assertEqual(self.run_main(workdir=other), 0)
    pick = lambda rows: [
      (r['method'], r['metric'], r['mean']) for r in rows if 'per_second' not in r['metric']
    ]
    self.assertEqual(pick(self.rows(other)), pick(self.rows()))

  def test_a_person_plays_the_agent(self):
    config, game, act = play.load(str(self.workdir), None, 1)
    self.assertEqual(config.game, 'tic_tac_toe')
    answers = ['nonsense', 'b2', *[f'{c}{r}' for c in 'abc' for r in '123'] * 3]
    said = []
    with (
      mock.patch('builtins.input', side_effect=answers),
      mock.patch('builtins.print', lambda *args, **kwargs: said.append(' '.join(map(str, args)))),
    ):
      play.play('tic_tac_toe', game, act, True, jax.random.key(0), self.workdir / 'play.svg')
    self.assertIn(said[-1], ('You win.', 'You lose.', 'A draw.'))
    self.assertTrue(any('The agent plays' in line for line in said))
    self.assertIn('Not a move now: nonsense', said)
    self.assertIn('<svg', (self.workdir / 'play.svg').read_text())

  def test_play_refuses_what_is_not_there(self):
    for arguments, pattern in (
      ((str(self.directory), None, 0), 'no trained method'),
      ((str(self.workdir), None, 2), '--seed must be from 0 to 1'),
      ((str(self.workdir), 'dqn', 0), "--method must be one of .*'dqn'"),
    ):
      with self.assertRaisesRegex(ValueError, pattern):
        play.load(*arguments)


class EloTest(chex.TestCase):
  def test_one_more_player_is_rated_as_in_the_table(self):
    rng = np.random.default_rng(0)
    counts = np.zeros((2, 3, 3, 3))
    for i in range(3):
      for j in range(i):
        counts[:, i, j] = rng.integers(1, 40, (2, 3))
        counts[:, j, i] = counts[:, i, j, ::-1]
    counts[1, :2, :2] = counts[0, :2, :2]  # known players met once
    table = tournament.Table(['random', 'one_ply', 'klent'], counts, 2)
    against = {'random': counts[:, 2, 0], 'one_ply': counts[:, 2, 1]}
    found = tournament.elo_of(table, against, 'random')
    np.testing.assert_allclose(found, tournament.elo(table, 'random')['klent'], atol=1e-3)
    # All games together tell more than those of one seed, and no game is counted twice.
    one = tournament.Table(table.names, counts.sum(0, keepdims=True), 2)
    one.counts[0, :2, :2] = counts[0, :2, :2]
    expected = tournament.elo(one, 'random')
    fit = tournament.pooled(table, 'random')
    np.testing.assert_allclose(fit.elo, [expected[n][0] for n in table.names], atol=1e-6)

  def test_time_is_the_sum_of_chunks(self):
    series = {'steps_per_second': {4: np.array(2.0), 8: np.array(4.0), 9: np.array(1.0)}}
    with mock.patch('lib.train.metrics.series', return_value=series):
      found = records.seconds(app.Run(None, '', '', pathlib.Path()), 'klent')
    self.assertEqual(found, {0: 0.0, 4: 2.0, 8: 3.0, 9: 4.0})
