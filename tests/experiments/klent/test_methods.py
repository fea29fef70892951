"""Tests of what self-play and learning do, in a game of nine positions, and in tic-tac-toe."""

import functools
import types
from unittest import mock

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl.testing import parameterized

from configs.klent import quick
from experiments.klent import evaluate, games, methods, networks, players
from experiments.klent.methods import learner, searched
from lib.games import returns, selfplay, trees
from lib.rl import replay
from tests.experiments.klent import toys

GAMES, MOVES, ITERATIONS, SIMULATIONS = 32, 8, 100, 4
PILES = np.arange(1, toys.PILES + 1)
LEGAL = PILES[:, None] >= [1, 2]


def tiny(**changes):
  config = quick.get_config()
  config.evaluations = 20_000
  config.play.update({'games': GAMES, 'moves': MOVES})
  config.network.hidden = (32,)
  config.optimizer.update({'learning_rate': 1e-2, 'batch_size': GAMES * MOVES})
  config.agent.update({
    'alpha': 0.1,
    'bootstrap': False,
    'simulations': SIMULATIONS,
    'rescale_values': False,
    'entropy_bonus': 0.03,
    'replay': 2000,
    'target_rate': 0.1,
  })  # fmt: skip
  config.update_from_flattened_dict(changes)
  return config


@functools.cache
def learned(name):
  """The method, what it began with and came to, and metrics by iteration."""
  method = methods.make(tiny(), name, toys.game())

  @jax.jit
  def learn(key):
    state = method.init(key)
    keys = jax.random.split(jax.random.key(1), ITERATIONS)
    return state, *jax.lax.scan(method.update, state, keys)

  return method, *learn(jax.random.key(0))


class LearnTest(chex.TestCase):
  @parameterized.parameters(*methods.METHODS)
  def test_finds_the_moves_and_values_of_the_mover(self, name):
    method, _, after, _ = learned(name)
    preferences, values = method.evaluate(after.variables, toys.states(PILES))
    chex.assert_shape((preferences, values), ((toys.PILES, 2), (toys.PILES,)))
    chosen = np.where(LEGAL, preferences, -np.inf).argmax(-1)
    self.assertEqual({pile: chosen[pile - 1] for pile in toys.BEST}, toys.BEST)
    self.assertGreater((values * toys.VALUES).min(), 0.3)
    self.assertLessEqual(np.abs(values).max(), 1.0)
    self.assertGreater(values[0], 0.8)  # where the one legal move wins

  @parameterized.parameters(*methods.METHODS)
  def test_says_what_it_did(self, name):
    method, before, after, metrics = learned(name)
    chex.assert_trees_all_equal_shapes_and_dtypes(before, after)
    chex.assert_tree_all_finite((after.variables, metrics))
    chex.assert_shape(list(metrics.values()), (ITERATIONS,))
    self.assertFalse(selfplay.over(after.games).any())
    # Piles of five stones on average, of which a move takes one or two.
    self.assertBetween(metrics['ended'].mean(), 1 / 5, 1 / 2)
    searches = SIMULATIONS if 'alphazero' in name else 0
    self.assertEqual(method.evaluations, GAMES * MOVES * (1 + searches))

  @parameterized.parameters('klent', 'ppo', 'gumbel_alphazero', 'alphazero')
  def test_the_first_policy_is_uniform_and_its_loss_known(self, name):
    method, before, _, metrics = learned(name)
    preferences, values = method.evaluate(before.variables, toys.states(PILES))
    uniform = jax.nn.softmax(np.where(LEGAL, preferences, -np.inf))
    np.testing.assert_allclose(uniform, LEGAL / LEGAL.sum(-1, keepdims=True), rtol=1e-6)
    np.testing.assert_array_equal(values, 0.0)
    if name != 'ppo':
      # One batch: the cross-entropy of any target to uniform logits over both actions.
      self.assertAlmostEqual(metrics['policy_loss'][0], np.log(2), places=5)
    if name == 'klent':
      # Nothing improves a uniform policy where all values are zero; results are -1 and 1.
      self.assertAlmostEqual(metrics['kl'][0], 0.0, places=6)
      self.assertAlmostEqual(metrics['gain'][0], 0.0, places=6)
      self.assertBetween(metrics['value_loss'][0], 0.5, 1.0)

  def test_dqn_explores_less_and_less(self):
    epsilon = learned('dqn')[3]['epsilon']
    config = tiny()
    first, last = config.agent.first_epsilon, config.agent.last_epsilon
    share = GAMES * MOVES / (config.agent.exploration_fraction * config.evaluations)
    np.testing.assert_allclose(epsilon[0], first + share * (last - first), rtol=1e-5)
    np.testing.assert_allclose(epsilon[-1], last, rtol=1e-5)
    self.assertTrue((np.diff(epsilon) <= 0).all())

  @parameterized.parameters(True, False)
  def test_games_go_on_or_begin_anew(self, carry):
    game = toys.game(toys.PILES)
    problem = methods.problem(tiny(**{'play.carry': carry, 'play.moves': 2}), 'klent', game)
    policy = lambda key, states: (selfplay.random_actions(key, states), ())
    states = selfplay.first_states(game.env, jax.random.key(0), GAMES)
    state = learner.State(None, None, states, ())
    for key in jax.random.split(jax.random.key(1)):
      state = state._replace(games=learner.play(problem, state, policy, key)[0])
    # Two moves take from two stones to four, four moves from four to eight.
    self.assertEqual(state.games.pile.max() <= 5, carry)
    self.assertEqual(state.games.pile.min() < 5, carry)


def tables(config, heads, variables):
  """Outputs of a network for every pile, the first one's at 0."""
  network = networks.make(config.network, (toys.PILES,), 2, heads)
  return [np.asarray(x, float) for x in network.apply(variables, jnp.eye(toys.PILES))]


def noisy(variables, seed=0):
  rng = np.random.default_rng(seed)
  return jax.tree.map(lambda x: x + 0.5 * rng.normal(size=x.shape).astype('f'), variables)


def softmax(logits):
  weights = np.where(LEGAL, np.exp(logits), 0.0)
  return weights / weights.sum(-1, keepdims=True)


def random_look(prior, variables, key, states, num_simulations):
  action = selfplay.random_actions(key, states)
  return types.SimpleNamespace(action=action, action_weights=jax.nn.one_hot(action, 2))


class Sampled:
  """What a method gave to its fit after one window of play: samples (T, B, ...) and its loss."""

  def __init__(self, make, name, heads, **changes):
    self.config = tiny(**changes)
    method = make(methods.problem(self.config, name, toys.game()))

    def fit(parts, loss, state, samples, *rest):
      self.loss = loss
      return state, samples

    @jax.jit
    def play(state, key):
      after, samples = method.update(state, key)
      return after.games.pile, {k: v for k, v in samples.items() if v.ndim}

    state = jax.jit(method.init)(jax.random.key(0))
    state = state._replace(variables=noisy(state.variables))
    with mock.patch.object(learner, 'fit', fit):
      self.last, samples = jax.tree.map(np.asarray, play(state, jax.random.key(1)))
    self.samples = jax.tree.map(lambda x: x.reshape(MOVES, GAMES, *x.shape[1:]), samples)
    self.pile = self.samples['observation'].argmax(-1)  # less one, to look up with
    self.tables = tables(self.config, heads, state.variables)
    action = self.samples.get('action')
    self.action = self.samples['policy'].argmax(-1) if action is None else action

  def returns(self, values, lambda_, bootstrap):
    """The λ-returns of all games, NaN where there is none, of the values (PILES,) of movers."""
    found = np.full((MOVES, GAMES), np.nan)
    for game in range(GAMES):
      pile = self.last[game] - 1
      following = value = values[pile] if bootstrap else np.nan
      for time in reversed(range(MOVES)):
        pile, taken = self.pile[time, game], self.action[time, game] + 1
        # With no value after the window, moves of unfinished games have none.
        rest = -((1 - lambda_) * value + lambda_ * following)
        following = 1.0 if pile + 1 == taken else rest
        found[time, game], value = following, values[pile]
    return found


@functools.cache
def sampled(name, bootstrap):
  if name == 'searched':
    make = functools.partial(searched.make, look=random_look)
    return Sampled(make, 'alphazero', ('policy', 'value'), **{'agent.bootstrap': bootstrap})
  heads = ('policy', 'q' if name == 'klent' else 'value')
  return Sampled(methods.METHODS[name], name, heads, **{'agent.bootstrap': bootstrap})


class TargetsTest(chex.TestCase):
  """What is learnt from a window, by a network that values positions at random."""

  def check(self, found, expected, bootstrap):
    there = ~np.isnan(expected)
    self.assertEqual(there.all(), bootstrap)
    np.testing.assert_array_equal(found.samples['valid'], there)
    np.testing.assert_allclose(found.samples['target'][there], expected[there], atol=1e-5)

  @parameterized.parameters(True, False)
  def test_klent(self, bootstrap):
    found = sampled('klent', bootstrap)
    logits, q = found.tables
    agent = found.config.agent
    improved = softmax((agent.beta * logits + q) / (agent.alpha + agent.beta))
    np.testing.assert_allclose(found.samples['policy'], improved[found.pile], atol=1e-5)
    values = np.sum(improved * q, axis=-1)
    self.check(found, found.returns(values, agent.lambda_, bootstrap), bootstrap)

  @parameterized.parameters(True, False)
  def test_searches(self, bootstrap):
    found = sampled('searched', bootstrap)
    self.assertTrue((found.samples['policy'].sum(-1) == 1).all())
    self.check(found, found.returns(found.tables[1], 1.0, bootstrap), bootstrap)

  def test_ppo(self):
    found = sampled('ppo', False)  # it needs the last value always
    logits, values = found.tables
    target = found.returns(values, found.config.agent.gae_lambda, True)
    np.testing.assert_allclose(found.samples['target'], target, atol=1e-5)
    advantage = target - values[found.pile]
    advantage = (advantage - advantage.mean()) / advantage.std()
    np.testing.assert_allclose(found.samples['advantage'], advantage, atol=1e-4)
    policy = softmax(logits)[found.pile, found.action]
    np.testing.assert_allclose(np.exp(found.samples['log_prob']), policy, atol=1e-5)

  def test_dqn(self):
    config = tiny(**{
      'optimizer.batch_size': GAMES * (MOVES - 1),
      'agent.first_epsilon': 0.0,
      'agent.last_epsilon': 0.0,
    })  # fmt: skip
    method = methods.make(config, 'dqn', toys.game())
    state = jax.jit(method.init)(jax.random.key(0))
    online, target = noisy(state.variables), noisy(state.variables, 1)
    state = state._replace(variables=online, extra=state.extra | {'target': target})
    every = lambda buffer, key, count: jax.tree.map(lambda x: x[:count], buffer.rows)
    with mock.patch.object(replay, 'sample', every):
      after, metrics = jax.jit(method.update)(state, jax.random.key(1))
    buffer = after.extra['buffer']
    self.assertEqual(buffer.size, GAMES * (MOVES - 1))
    rows = jax.tree.map(lambda x: np.asarray(x)[: int(buffer.size)], buffer.rows)

    (q,), (their_q,) = (tables(config, ('q',), v) for v in (online, target))
    pile, taken = rows['observation'].argmax(-1) + 1, rows['action'] + 1
    greedy = np.where(LEGAL, q, -np.inf).argmax(-1)
    np.testing.assert_array_equal(rows['action'], greedy[pile - 1])
    np.testing.assert_array_equal(rows['ended'], pile == taken)
    np.testing.assert_array_equal(rows['reward'], pile == taken)
    goes_on = ~rows['ended']
    self.assertTrue(goes_on.any() and rows['ended'].any())
    rest = (pile - taken)[goes_on]
    np.testing.assert_array_equal(rows['next_observation'][goes_on].argmax(-1) + 1, rest)

    goal = np.ones(len(pile))
    goal[goes_on] = -np.where(LEGAL, their_q, -np.inf).max(-1)[rest - 1]
    error = np.abs(q[pile - 1, taken - 1] - goal)
    loss = np.where(error <= 1, 0.5 * error**2, error - 0.5).mean()
    self.assertAlmostEqual(metrics['loss'], loss, places=5)

    rate = config.agent.target_rate
    moved = jax.tree.map(lambda old, new: old + rate * (new - old), target, after.variables)
    chex.assert_trees_all_close(after.extra['target'], moved, rtol=1e-5)
    self.assertGreater(jax.tree.reduce(max, jax.tree.map(
      lambda a, b: float(np.abs(a - b).max()), online, after.variables)), 1e-3)  # fmt: skip


class LossesTest(chex.TestCase):
  """Losses of outputs (2, 2), (2,) on a batch of two moves."""

  LOGITS = np.array([[2.0, -1.0], [0.5, 0.0]])

  def ppo(self, **changes):
    batch = {
      'legal': np.ones((2, 2), bool),
      'action': np.array([0, 1]),
      'log_prob': jax.nn.log_softmax(self.LOGITS)[np.arange(2), [0, 1]],
      'advantage': np.zeros(2),
      'target': np.zeros(2),
    }
    loss = sampled('ppo', False).loss
    return jax.jit(lambda logits, values: loss((logits, values), batch | changes)[0])

  def test_ppo_pays_for_entropy(self):
    loss = self.ppo()
    entropy = lambda p: -(p * np.log(p)).sum(-1).mean()
    for logits in (self.LOGITS, np.zeros((2, 2))):
      bonus = tiny().agent.entropy_bonus * entropy(np.asarray(jax.nn.softmax(logits)))
      self.assertAlmostEqual(loss(logits, np.zeros(2)), -bonus, places=5)

  def test_ppo_makes_likelier_what_went_better(self):
    advantage = np.array([1.0, -1.0])
    slope = jax.jit(jax.grad(self.ppo(advantage=advantage)))(self.LOGITS, np.zeros(2))
    # Downhill: action 0 of the first state rises, action 1 of the second falls.
    self.assertLess(slope[0, 0], -0.01)
    self.assertGreater(slope[1, 1], 0.01)

  def test_ppo_fits_values_to_targets(self):
    loss = self.ppo(target=np.array([1.0, -0.5]))
    least = loss(self.LOGITS, np.array([1.0, -0.5]))
    self.assertAlmostEqual(loss(self.LOGITS, np.array([0.0, 0.5])) - least, 0.5, places=5)

  def test_klent_and_searches_fit_policies_and_what_has_a_target(self):
    batch = {'policy': np.array([[0.3, 0.7], [1.0, 0.0]]), 'target': np.array([0.5, 9.0])}
    batch |= {'action': np.array([1, 0]), 'valid': np.array([True, False])}
    entropies = -np.sum(batch['policy'] * jax.nn.log_softmax(self.LOGITS), -1)
    losses = sampled('klent', False).loss, sampled('searched', False).loss
    q, values = np.array([[5.0, -0.5], [5.0, 5.0]]), np.array([-0.5, 5.0])
    for loss, outputs, policy, value in (
      (losses[0], (self.LOGITS, q), entropies[0], 1.0),
      (losses[1], (self.LOGITS, values), entropies.mean(), 0.5),
    ):
      total, metrics = loss(outputs, batch)
      self.assertAlmostEqual(metrics['policy_loss'], policy, places=5)
      self.assertAlmostEqual(metrics['value_loss'], value, places=5)
      self.assertAlmostEqual(total, policy + value, places=5)


class Opened:
  """Tic-tac-toe from up to four random moves on: self-play sees positions of all kinds."""

  def __init__(self, env):
    self.step, self._init = env.step, env.init

  def init(self, key):
    number_key, move_key, init_key = jax.random.split(key, 3)

    def move(number, state):
      logits = jnp.where(state.legal_action_mask, 0.0, -jnp.inf)
      return self.step(state, jax.random.categorical(jax.random.fold_in(move_key, number), logits))

    number = jax.random.randint(number_key, (), 0, 5)
    return jax.lax.fori_loop(0, number, move, self._init(init_key))


class TicTacToeTest(chex.TestCase):
  @staticmethod
  @functools.cache
  def positions():
    """All positions, and their values for the mover between perfect players."""
    game, observation = trees.enumerate_game(games.make('tic_tac_toe').env, jax.random.key(0), 5000)
    values = np.zeros(len(observation))
    for _ in range(9):
      following = np.where(game.child >= 0, values[game.child], 0.0)
      values = np.where(game.legal, game.reward - following, -np.inf).max(-1)
    states = {'observation': jnp.asarray(observation), 'legal_action_mask': jnp.asarray(game.legal)}
    return types.SimpleNamespace(**states), values

  @parameterized.parameters(*methods.METHODS)
  @pytest.mark.slow  # innermost: absl's decorator would lose the mark
  def test_learns_to_beat_chance_and_what_positions_are_worth(self, name):
    config = tiny(**{
      'evaluations': 60_000,
      'play.games': 64,
      'play.moves': 16,
      'network.hidden': (128,),
      'optimizer.batch_size': 64,
      'optimizer.learning_rate': 2e-3,
      'agent.alpha': 0.2,
      'agent.simulations': 8,
      'agent.entropy_bonus': 0.1,
      'agent.replay': 20_000,
      'agent.replay_ratio': 4,
      'agent.target_rate': 0.05,
    })  # fmt: skip
    game = games.make('tic_tac_toe')
    method = methods.make(config, name, game._replace(env=Opened(game.env)))
    state, update = jax.jit(method.init)(jax.random.key(0)), jax.jit(method.update)
    for key in jax.random.split(jax.random.key(1), 60 if 'alphazero' in name else 90):
      state, _ = update(state, key)
    own, random = evaluate.agents(config, game, name), players.known(game, 'random')
    play = evaluate.matches(config, game, own, random, 200, 0)
    wins, draws, _ = play(state.variables, players.NOBODY, jax.random.key(2))
    self.assertGreaterEqual((wins + draws / 2) / 200, 0.75)
    states, exact = self.positions()
    _, values = method.evaluate(state.variables, states)
    self.assertGreater(np.corrcoef(values, exact)[0, 1], 0.3)


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
  @staticmethod
  @functools.cache
  def resnet():
    config = quick.get_config().network
    config.update({'kind': 'resnet', 'channels': 8, 'blocks': 1})
    network = networks.make(config, (3, 3, 2), 9, ('policy', 'q', 'value'))
    return network._replace(apply=jax.jit(network.apply), train=jax.jit(network.train))

  def test_heads_begin_at_zero_and_batches_move_the_statistics_alone(self):
    network = self.resnet()
    variables = network.init(jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (64, 3, 3, 2))
    for outputs in (network.apply(variables, x), network.train(variables, x)[0]):
      logits, q, value = outputs
      for found, shape in ((logits, (64, 9)), (q, (64, 9)), (value, (64,))):
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
    for _ in range(1500):  # 0.99^1500 of the first statistics is left
      outputs, variables = network.train(variables, x)
    chex.assert_trees_all_close(network.apply(variables, x), outputs, atol=2e-3)

  def test_refuses_what_is_no_board(self):
    config = quick.get_config().network
    config.kind = 'resnet'
    with self.assertRaisesRegex(ValueError, 'network.kind must be mlp'):
      networks.make(config, (5,), 3, ('policy',))
