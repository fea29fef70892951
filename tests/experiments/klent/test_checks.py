"""Tests of what is refused before a run begins."""

import chex
from absl.testing import parameterized

from configs.klent import full, normal_form, quick, table, tune
from experiments.klent import checks, theory

REFUSED = (
  ('game', 'chess960', 'config.game must be one of .*connect_four'),
  ('methods', (), 'config.methods is empty'),
  ('methods', ('sarsa',), "config.methods must be one of .*'sarsa'"),
  ('evaluations', 0, 'config.evaluations must be positive, got 0'),
  ('play.games', -1, 'config.play.games must be positive'),
  ('agent.alpha', -0.1, 'config.agent.alpha must be zero or more'),
  ('agent.lambda_', 1.5, r'config.agent.lambda_ must be in \[0, 1\]'),
  ('network.kind', 'transformer', "config.network.kind must be .*'transformer'"),
  ('network.hidden', (256, 0), 'config.network.hidden must be of widths above 0'),
  ('optimizer.batch_size', 10**6, 'config.optimizer.batch_size must be at most the 32768 moves'),
  ('eval.opponents', {'stockfish': 2}, "config.eval.opponents: no player 'stockfish'"),
  ('eval.opponents', {'mcts_0': 2}, "no player 'mcts_0'"),
  ('eval.opponents', {'random': 3}, 'config.eval.opponents.random must be even'),
  ('tournament.known', ('mcts_x',), "config.tournament.known: no player 'mcts_x'"),
  ('tournament.known', ('pgx',), "config.eval.pgx_model must be the path .*'pgx' .*, got None"),
  ('eval.opponents', {'pgx': 2}, 'config.eval.pgx_model must be the path'),
  ('eval.pgx_model', 'a.npz', 'config.eval.pgx_model must be the path .* nothing elsewhere, got a'),
  ('tournament.games', 3, 'config.tournament.games must be even'),
  ('eval.opponents', {}, 'config.eval.opponents must be one player at least'),
  ('at_least', (('klnt', 'score_random', 0.5),), "config.at_least must be of .*'klnt'"),
  ('at_least', (('klent', 'score_randm', 0.5),), "config.at_least must be .*'score_randm'"),
  ('claims', (('klent', 'klent', 'wit', 0.0),), "config.claims must be of .*'wit'"),
)


class ChecksTest(chex.TestCase):
  @parameterized.parameters(
    (quick, ()),
    *((full, (game,)) for game in full.BUDGETS),
    *((table, (game,)) for game in table.GAMES),
    *((tune, (method,)) for method in tune.TRIES),
  )
  def test_every_config_passes(self, module, arguments):
    checks.check(module.get_config(*arguments))

  def test_the_study_passes_and_unknown_games_are_named(self):
    theory.check(normal_form.get_config())
    for module in (full, table, tune):
      with self.assertRaisesRegex(ValueError, "'go_fish'"):
        module.get_config('go_fish')

  @parameterized.parameters(*REFUSED)
  def test_refuses(self, name, value, pattern):
    config = quick.get_config()
    with config.unlocked():
      if name == 'eval.opponents':
        config.eval.opponents = value
      else:
        config.update_from_flattened_dict({name: value})
    with self.assertRaisesRegex(ValueError, pattern):
      checks.check(config)

  def test_a_tournament_needs_a_player_that_was_met_while_learning(self):
    config = quick.get_config()
    config.tournament.games = 2
    config.tournament.known = ('one_ply',)
    with self.assertRaisesRegex(
      ValueError, 'config.tournament.known must be one of eval.opponents'
    ):
      checks.check(config)

  def test_no_regularisation_at_all_is_refused_and_variants_are_checked(self):
    config = quick.get_config()
    config.agent.update({'alpha': 0.0, 'beta': 0.0})
    with self.assertRaisesRegex(ValueError, 'agent.alpha must be above 0 where beta is 0'):
      checks.check(config)
    for variant, pattern in (
      ({'method': 'klent', 'agent': {'lambda_': 2.0}}, 'variants.bad: config.agent.lambda_'),
      ({'method': 'klent', 'agent': {'gamma': 2.0}}, 'variants.bad'),
      ({'method': 'klent', 'game': 'othello'}, 'variants.bad: game is the same'),
      ({'method': 'nothing'}, "variants.bad.method must be one of .*'nothing'"),
    ):
      config = quick.get_config()
      config.variants = {'bad': variant}
      with self.assertRaisesRegex(ValueError, pattern):
        checks.check(config)
