"""Tests on tic-tac-toe, whose every position is known."""

import functools

import chex
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import mctx
import numpy as np
import pgx
import scipy.optimize
from absl.testing import parameterized

from lib.games import finite_length, regularized, search, selfplay, trees

ENV = pgx.make('tic_tac_toe')
GAMES, SIMULATIONS = 16, 128
STEP = jax.jit(jax.vmap(ENV.step))
NAMES = ('gumbel_alphazero', 'alphazero', 'monte_carlo', 'regularized_search')


def evaluate(params, key, states):
  """Any logits and values, and nothing sensible where they do not count."""
  logits, values = params
  hostile = jnp.where(states.legal_action_mask, logits, jnp.nan)
  return hostile, jnp.where(selfplay.over(states), jnp.nan, values)


@functools.cache
def compiled(name):
  """`run(params, key, states)` of a search, compiled once for all tests."""
  wrapped = {
    'gumbel_alphazero': functools.partial(search.gumbel_alphazero, gumbel_scale=0.0),
    'alphazero': functools.partial(search.alphazero, temperature=0.0),
    'regularized_search': functools.partial(search.regularized_search, dirichlet_fraction=0.0),
  }
  if name == 'monte_carlo':
    return jax.jit(lambda params, key, states: search.monte_carlo(ENV, key, states, SIMULATIONS, 9))
  return jax.jit(
    lambda params, key, states: wrapped[name](ENV, evaluate, params, key, states, SIMULATIONS)
  )


def nothing_known():
  return jnp.zeros((GAMES, 9)), jnp.zeros(GAMES)


def played(games):
  """States after lists of moves, all of one length."""
  states = selfplay.first_states(ENV, jax.random.key(0), len(games))
  for actions in np.transpose(games):
    states = STEP(states, jnp.asarray(actions))
  return states


def symmetric(square):
  """Where the eight symmetries of the board put a square."""
  board = np.arange(9).reshape(3, 3)
  turned = [np.rot90(x, k) for x in (board, board.T) for k in range(4)]
  return [int(np.flatnonzero(x.ravel() == square)[0]) for x in turned]


@functools.cache
def known():
  """All positions as a game, minimax values (S, A), and the number of each observation."""
  game, observations = trees.enumerate_game(ENV, jax.random.key(0), 4520)
  game = jax.tree.map(jnp.asarray, game)
  values = finite_length.state_values(game, finite_length.equilibrium(game, 1e-3, 9), 9)
  q = np.where(game.legal, finite_length.backed_up(game, values), -np.inf)
  return game, q.round(3), {x.tobytes(): i for i, x in enumerate(observations)}


def number(states):
  return [known()[2][np.asarray(x).tobytes()] for x in states.observation]


@jax.jit
def random_positions(key, num_moves):
  """Positions (GAMES,) of unfinished games, after as many random moves each or fewer."""

  def move(states, xs):
    key, left = xs
    after = jax.vmap(ENV.step)(states, selfplay.random_actions(key, states))
    return selfplay.where(~selfplay.over(after) & (left < num_moves), after, states), None

  states = selfplay.first_states(ENV, key, GAMES)
  return jax.lax.scan(move, states, (jax.random.split(key, 8), jnp.arange(8)))[0]


class SearchTest(chex.TestCase):
  @parameterized.parameters(*NAMES)
  def test_wins_at_once_and_blocks(self, name):
    squares = [symmetric(square) for square in range(9)]
    turn = lambda moves: [[squares[move][i] for move in moves] for i in range(8)]
    # X has 0 and 1 and wins by 2; X has 0 and 8 and must hold 5, as O has 3 and 4.
    states = played(turn([0, 3, 1, 4]) + turn([0, 3, 8, 4]))
    found = compiled(name)(nothing_known(), jax.random.key(0), states)
    wanted = squares[2] + squares[5]
    np.testing.assert_array_equal(found.action_weights.argmax(-1), wanted)
    if name != 'regularized_search':  # which draws its action
      np.testing.assert_array_equal(found.action, wanted)
    summary = found.search_tree.summary()
    np.testing.assert_array_equal(summary.qvalues[np.arange(8), wanted[:8]], 1.0)
    self.assertLess(summary.value[8:].max(), 0.3)

  @parameterized.parameters(*NAMES)
  def test_comes_to_minimax(self, name):
    states = random_positions(jax.random.key(7), 5 + np.arange(GAMES) % 2)
    found = compiled(name)(nothing_known(), jax.random.key(1), states)
    exact = known()[1][number(states)]
    self.assertLen(np.unique(exact.max(-1)), 3)  # some are won, some drawn, some lost
    best = np.asarray(found.action_weights.argmax(-1))
    rows = np.arange(GAMES)
    np.testing.assert_array_equal(exact[rows, best], exact.max(-1))
    values = found.search_tree.summary().qvalues[rows, best]
    np.testing.assert_allclose(values, exact.max(-1), atol=0.4)  # means of all that was tried

  @hypothesis.settings(max_examples=4, deadline=None)
  @hypothesis.given(
    seed=st.integers(0, 99),
    num_moves=st.lists(st.integers(0, 8), min_size=GAMES, max_size=GAMES),
    scale=st.sampled_from([0.0, 1.0, 1e3, 1e30]),
  )
  def test_never_plays_what_is_illegal(self, seed, num_moves, scale):
    states = random_positions(jax.random.key(seed), np.array(num_moves))
    legal = np.asarray(states.legal_action_mask)
    logits_key, value_key, key = jax.random.split(jax.random.key(seed), 3)
    params = (
      scale * jax.random.normal(logits_key, legal.shape),
      jax.random.uniform(value_key, (GAMES,), minval=-1.0),
    )
    for name in NAMES:
      found = compiled(name)(params, key, states)
      self.assertTrue(legal[np.arange(GAMES), found.action].all(), name)
      np.testing.assert_array_equal(np.where(legal, 0.0, found.action_weights), 0.0)
      np.testing.assert_allclose(found.action_weights.sum(-1), 1.0, rtol=1e-5)

  def test_monte_carlo_beats_chance(self):
    states = selfplay.first_states(ENV, jax.random.key(0), GAMES)
    choose = jax.jit(selfplay.random_actions)
    mine = states.current_player ^ (np.arange(GAMES) % 2)
    total = np.zeros(GAMES)
    for key in jax.random.split(jax.random.key(1), 9):
      chance = choose(key, states)
      thought = compiled('monte_carlo')(nothing_known(), key, states).action
      states = STEP(states, jnp.where(states.current_player == mine, thought, chance))
      total += selfplay.of_player(states.rewards, mine)
    self.assertTrue(selfplay.over(states).all())
    # Chance against itself wins as often as it loses, and every eighth game is drawn.
    self.assertGreaterEqual(total.sum(), 0.75 * GAMES)

  def test_values_of_random_games_are_those_of_uniform_play(self):
    game, _, _ = known()
    uniform = regularized.log_softmax(jnp.zeros(game.legal.shape), game.legal)
    exact = np.asarray(finite_length.state_values(game, uniform, 9))
    count = 1024  # of each place
    run = jax.jit(lambda key, states: search.rollouts(ENV, 9)(None, key, states)[1])
    places = [[0, 3, 1], [4, 0, 1], [0, 1, 3], [2, 0, 5]]
    few = played(places * 4)
    # Some of them end before others.
    several = jax.tree.map(lambda x: jnp.tile(x, (count // 4,) + (1,) * (x.ndim - 1)), few)
    values = np.asarray(run(jax.random.key(3), several)).reshape(count, len(places))
    for mean, place in zip(values.mean(0), number(few)[:4], strict=True):
      self.assertAlmostEqual(mean, exact[place], delta=4 / count**0.5)

  def test_regularized_search_solves_its_maximisation_with_completed_values(self):
    logits = jnp.zeros((GAMES, 9)).at[: GAMES // 2, 4].set(30.0)  # there little else is tried
    states = selfplay.first_states(ENV, jax.random.key(0), GAMES)
    found = compiled('regularized_search')(
      (logits, jnp.full(GAMES, 0.25)), jax.random.key(0), states
    )
    tree = found.search_tree
    visits = tree.children_visits[:, 0]
    self.assertTrue((visits[: GAMES // 2] == 0).any() and (visits[GAMES // 2 :] > 0).all())
    scaled = functools.partial(
      mctx.qtransform_completed_by_mix_value, value_scale=1.0, maxvisit_init=0.0,
      rescale_values=False,
    )  # fmt: skip
    q = jax.vmap(scaled, (0, None))(tree, 0) / visits.max(-1, keepdims=True)
    weight = 1.25 * SIMULATIONS**0.5 / (9 + SIMULATIONS)
    prior = jax.nn.softmax(logits)
    expected = search.regularized_policy(prior, q, weight)
    np.testing.assert_allclose(found.action_weights, expected, rtol=1e-3, atol=1e-6)

  def test_refuses_searches_of_nothing(self):
    states = selfplay.first_states(ENV, jax.random.key(0), GAMES)
    args = ENV, evaluate, nothing_known(), jax.random.key(0), states
    for run in (search.gumbel_alphazero, search.alphazero, search.regularized_search):
      with self.assertRaisesRegex(ValueError, 'num_simulations=0'):
        run(*args, 0)
    with self.assertRaisesRegex(ValueError, 'max_considered=0'):
      search.gumbel_alphazero(*args, 8, max_considered=0)


solve = jax.jit(search.regularized_policy)


class RegularizedPolicyTest(chex.TestCase):
  @hypothesis.settings(max_examples=30, deadline=None)
  @hypothesis.given(
    logits=st.lists(st.floats(-40, 40, width=32), min_size=5, max_size=5),
    q=st.lists(st.floats(-1e4, 1e4, width=32), min_size=5, max_size=5),
    weight=st.sampled_from([1e-30, 1e-6, 1e-2, 1.0, 1e6, 1e30]),
    legal=st.lists(st.booleans(), min_size=5, max_size=5).filter(any),
  )
  def test_is_a_policy_that_no_action_improves(self, logits, q, weight, legal):
    legal, q = np.array(legal), np.array(q, np.float32)
    prior = np.exp(regularized.log_softmax(jnp.array(logits), legal))
    policy = np.asarray(solve(prior, np.where(legal, q, np.nan), weight))
    self.assertTrue((policy >= 0).all() and (policy[~legal] == 0).all())
    self.assertAlmostEqual(policy.sum(), 1.0, places=5)
    # q + λ π/π̄, the gain of each action's mass, is the same number for all.
    there = policy > 1e-30
    gains = np.float64(weight) * prior[there] / np.float64(policy[there]) + q[there]
    np.testing.assert_allclose(gains, gains[0], rtol=1e-3, atol=1e-3)

  @chex.variants(with_jit=True, without_jit=True)
  def test_attains_what_a_solver_attains(self):
    rng = np.random.default_rng(0)
    weights = np.array([0.03, 0.3, 3.0])
    prior, q = rng.dirichlet(np.ones(4), 3), rng.uniform(-1.0, 1.0, (3, 4))
    policies = self.variant(search.regularized_policy)(prior, q, weights)
    for weight, p, values, policy in zip(weights, prior, q, policies, strict=True):
      cost = lambda x, w=weight, p=p, v=values: -(x @ v - w * np.sum(p * np.log(p / x)))
      best = scipy.optimize.minimize(
        cost, p, method='SLSQP', bounds=[(1e-9, 1.0)] * 4, tol=1e-12,
        constraints={'type': 'eq', 'fun': lambda x: x.sum() - 1.0},
      )  # fmt: skip
      self.assertAlmostEqual(cost(np.asarray(policy)), best.fun, places=5)
      np.testing.assert_allclose(policy, best.x, atol=2e-3)

  def test_limits(self):
    prior, q = jnp.array([0.5, 0.3, 0.2, 0.0]), jnp.array([-0.5, 0.1, 0.3, 9.0])
    np.testing.assert_allclose(solve(prior, q, 1e9), prior, rtol=1e-6)
    np.testing.assert_allclose(solve(prior, q, 1e-9), [0.0, 0.0, 1.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(solve(prior, jnp.full(4, 7.0), 0.1), prior, rtol=1e-6)

  def test_ignores_what_all_actions_have(self):
    prior, q = jnp.array([0.5, 0.3, 0.2]), jnp.array([-0.5, 0.25, 0.5])
    np.testing.assert_allclose(solve(prior, q + 512, 0.1), solve(prior, q, 0.1), rtol=1e-5)
    np.testing.assert_allclose(solve(prior, 8 * q, 0.8), solve(prior, q, 0.1), rtol=1e-5)

  def test_passes_no_gradient(self):
    total = lambda q: solve(jnp.array([0.5, 0.5]), q, 1.0)[0]
    np.testing.assert_array_equal(jax.grad(total)(jnp.array([0.0, 1.0])), 0.0)
