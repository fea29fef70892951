"""Tests of what one iteration of self-play and learning does, on tic-tac-toe."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

from configs.klent import quick
from experiments.klent import games, methods, networks
from experiments.klent.methods import learner
from lib.games import returns, selfplay

GAME = games.make('tic_tac_toe')
GAMES, MOVES = 8, 20


def tiny(**changes):
  config = quick.get_config()
  config.game = 'tic_tac_toe'
  config.play.update({'games': GAMES, 'moves': MOVES})
  config.network.hidden = (16,)
  config.optimizer.batch_size = 80
  config.agent.update({'simulations': 3, 'replay': 500})
  config.update_from_flattened_dict(changes)
  return config


@functools.cache
def first_update(name, **changes):
  method = methods.make(tiny(**changes), name, GAME)
  state = method.init(jax.random.key(0))
  return method, state, *jax.jit(method.update)(state, jax.random.key(1))


def positions(seed=0, num_moves=3):
  """Positions of unfinished games after some random moves."""
  states = selfplay.first_states(GAME.env, jax.random.key(seed), 32)
  for key in jax.random.split(jax.random.key(seed + 1), num_moves):
    states = jax.vmap(GAME.env.step)(states, selfplay.random_actions(key, states))
  return states


class UpdateTest(chex.TestCase):
  @parameterized.parameters(*methods.METHODS)
  def test_moves_what_it_should_and_says_what_it_did(self, name):
    method, before, after, metrics = first_update(name)
    chex.assert_trees_all_equal_shapes_and_dtypes(before, after)
    chex.assert_tree_all_finite(after.variables)
    chex.assert_shape(list(metrics.values()), ())
    chex.assert_tree_all_finite(metrics)
    moved = jax.tree.map(lambda a, b: bool((a != b).any()), before.variables, after.variables)
    # The heads at least: behind them nothing has a gradient while they are zero.
    self.assertTrue(any(jax.tree.leaves(moved)))
    self.assertFalse(selfplay.over(after.games).any())
    self.assertGreater(float(metrics['ended']), 1 / 9 - 0.03)  # a game has at most nine moves
    self.assertLess(float(metrics['ended']), 1 / 5 + 0.03)  # and at least five
    searches = 3 if 'alphazero' in name else 0
    self.assertEqual(method.evaluations, GAMES * MOVES * (1 + searches))

  @parameterized.parameters(*methods.METHODS)
  def test_values_are_those_of_the_mover_and_bounded(self, name):
    method, _, after, _ = first_update(name)
    preferences, values = method.evaluate(after.variables, positions())
    chex.assert_shape(preferences, (32, 9))
    chex.assert_shape(values, (32,))
    self.assertLessEqual(np.abs(values).max(), 1.0)

  @parameterized.parameters('klent', 'ppo', 'gumbel_alphazero', 'alphazero')
  def test_the_first_policy_is_uniform_and_its_loss_known(self, name):
    method, before, _, metrics = first_update(name, **{'optimizer.batch_size': GAMES * MOVES})
    preferences, values = method.evaluate(before.variables, positions())
    legal = np.asarray(positions().legal_action_mask)
    uniform = jax.nn.softmax(np.where(legal, preferences, -np.inf))
    np.testing.assert_allclose(uniform, legal / legal.sum(-1, keepdims=True), rtol=1e-6)
    np.testing.assert_array_equal(values, 0.0)
    if name != 'ppo':
      # One batch: the cross-entropy of any target to uniform logits over all nine.
      self.assertAlmostEqual(float(metrics['policy_loss']), np.log(9), places=5)

  def test_klent_starts_from_uniform_play_and_the_mean_square_of_returns(self):
    config = {'optimizer.batch_size': GAMES * MOVES, 'agent.lambda_': 1.0}
    _, _, _, metrics = first_update('klent', **config)
    # Nothing improves a uniform policy where all values are zero; results are -1, 0, 1.
    self.assertAlmostEqual(float(metrics['kl']), 0.0, places=6)
    self.assertAlmostEqual(float(metrics['gain']), 0.0, places=6)
    self.assertLessEqual(float(metrics['value_loss']), 1.0)
    self.assertGreater(float(metrics['value_loss']), 0.5)  # most random games are won by somebody

  def test_bootstrapped_windows_keep_every_move(self):
    self.assertEqual(float(first_update('klent', **{'agent.bootstrap': True})[3]['kept']), 1.0)
    self.assertLess(float(first_update('klent')[3]['kept']), 1.0)

  @parameterized.parameters(True, False)
  def test_games_go_on_or_begin_anew(self, carry):
    # Nobody has won after four moves; the next four end games or, begun anew, come to four again.
    method, _, after, _ = first_update('klent', **{'play.carry': carry, 'play.moves': 4})
    again, _ = jax.jit(method.update)(after, jax.random.key(2))
    moves = np.asarray(again.games._step_count)
    self.assertEqual(set(moves.tolist()) == {4}, not carry)

  def test_dqn_explores_less_and_remembers_what_was_played(self):
    _, _, after, metrics = first_update('dqn')
    buffer = after.extra['buffer']
    self.assertEqual(int(buffer.size), GAMES * (MOVES - 1))
    rows = jax.tree.map(lambda x: np.asarray(x)[: int(buffer.size)], buffer.rows)
    # The cell of the action was free, and is the opponent's to see unless the game ended there.
    cell = rows['action'] // 3, rows['action'] % 3
    index = np.arange(len(rows['action']))
    self.assertFalse(rows['observation'][index, cell[0], cell[1]].any())
    goes_on = ~rows['ended']
    self.assertTrue(rows['next_observation'][index, cell[0], cell[1], 1][goes_on].all())
    self.assertTrue((rows['reward'][goes_on] == 0).all())
    self.assertLess(float(metrics['epsilon']), 1.0)


class LearnerTest(chex.TestCase):
  def test_returns_of_batches_are_those_of_each_game(self):
    rng = np.random.default_rng(0)
    shape = 7, 3
    rewards, ended = jnp.asarray(rng.normal(size=shape)), jnp.asarray(rng.random(shape) < 0.3)
    window = selfplay.Window(None, None, None, rewards, ended, None)
    values, last = rng.normal(size=shape), rng.normal(size=3)
    found, valid = learner.returns_of(window, jnp.asarray(values), 0.7, jnp.asarray(last))
    for game in range(3):
      expected, there = returns.negamax_lambda_returns(
        window.reward[:, game], jnp.asarray(values[:, game]), window.ended[:, game], 0.7,
        jnp.asarray(last[game]),
      )  # fmt: skip
      np.testing.assert_allclose(found[:, game], expected, rtol=1e-6)
      np.testing.assert_array_equal(valid[:, game], there)

  def test_every_sample_is_seen_once_a_pass(self):
    config = tiny(**{'optimizer.batch_size': 5})
    network = networks.make(config.network, (2,), 3, ('policy',))
    problem = learner.Problem(
      None, (2,), lambda x: x, 3, 1, config.play, config.network, config.optimizer, config.agent
    )
    parts = learner.make(problem, ('policy',))
    variables = network.init(jax.random.key(0))
    state = learner.State(variables, parts.optimizer.init(variables['params']), None, ())
    samples = {'observation': jnp.zeros((20, 2)), 'number': jnp.arange(20.0)}

    def loss(outputs, batch):
      number = batch['number']
      return outputs[0].sum() * 0.0, {'total': number.sum(), 'sq': jnp.sum(number**2)}

    _, metrics = learner.fit(parts, loss, state, samples, jax.random.key(1), config.optimizer, 2)
    self.assertEqual(float(metrics['total']), 190 / 4)
    self.assertEqual(float(metrics['sq']), float(np.sum(np.arange(20.0) ** 2)) / 4)


class NetworkTest(chex.TestCase):
  def resnet(self):
    config = quick.get_config().network
    config.update({'kind': 'resnet', 'channels': 8, 'blocks': 1})
    return networks.make(config, (3, 3, 2), 9, ('policy', 'q', 'value'))

  def test_heads_begin_at_zero_and_batches_move_the_statistics_alone(self):
    network = self.resnet()
    variables = network.init(jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (6, 3, 3, 2))
    for outputs in (network.apply(variables, x), network.train(variables, x)[0]):
      logits, q, value = outputs
      for found, shape in ((logits, (6, 9)), (q, (6, 9)), (value, (6,))):
        np.testing.assert_array_equal(found, np.zeros(shape))
    _, after = network.train(variables, x)
    chex.assert_trees_all_equal(after['params'], variables['params'])
    means = [x for x in jax.tree.leaves(after['batch_stats']) if (x != 0).any()]
    self.assertNotEmpty(means)

  def test_training_on_one_batch_again_and_again_is_playing_on_it(self):
    network = self.resnet()
    variables = network.init(jax.random.key(0))
    rng = np.random.default_rng(0)
    noisy = lambda p: p + 0.3 * rng.normal(size=p.shape).astype('f')
    variables |= {'params': jax.tree.map(noisy, variables['params'])}
    x = jax.random.normal(jax.random.key(1), (64, 3, 3, 2))
    train = jax.jit(network.train)
    for _ in range(1500):  # 0.99^1500 of the first statistics is left
      outputs, variables = train(variables, x)
    chex.assert_trees_all_close(network.apply(variables, x), outputs, atol=2e-3)

  def test_refuses_what_is_no_board(self):
    config = quick.get_config().network
    config.kind = 'resnet'
    with self.assertRaisesRegex(ValueError, 'network.kind must be mlp'):
      networks.make(config, (5,), 3, ('policy',))
