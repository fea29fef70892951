"""Tests on Nim with one heap, small enough to be known whole."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

from lib.games import finite_length, selfplay, trees

HEAP = 7


@chex.dataclass(frozen=True)
class Heap:
  """Whoever takes the last of the stones, one or two at a time, wins."""

  stones: chex.Array
  observation: chex.Array
  legal_action_mask: chex.Array
  current_player: chex.Array
  rewards: chex.Array
  terminated: chex.Array
  truncated: chex.Array


def heap(stones, player, rewards):
  return Heap(
    stones=stones,
    observation=stones[None] * 1.0,
    legal_action_mask=(jnp.arange(2) < stones) | (stones <= 0),
    current_player=player,
    rewards=rewards,
    terminated=stones <= 0,
    truncated=jnp.asarray(False),
  )


class Nim:
  def init(self, key):
    return heap(jnp.int32(HEAP), jax.random.bernoulli(key).astype(jnp.int32), jnp.zeros(2))

  def step(self, state, action):
    left = state.stones - 1 - action
    won = jnp.where(jnp.arange(2) == state.current_player, 1.0, -1.0)
    rewards = jnp.where((left <= 0) & ~state.terminated, won, 0.0)
    return heap(jnp.maximum(left, 0), 1 - state.current_player, rewards)


def perfect(key, states):
  """Leaves a multiple of three, which wins from 7."""
  return jnp.where(states.stones % 3 == 2, 1, 0)


class CollectTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_every_game_is_whole_and_its_last_mover_won(self):
    steps, games = 30, 16
    states = selfplay.first_states(Nim(), jax.random.key(0), games)
    policy = lambda key, states: (selfplay.random_actions(key, states), states.stones)
    collect = self.variant(lambda states, key: selfplay.collect(Nim(), policy, states, key, steps))
    after, window = collect(states, jax.random.key(1))
    chex.assert_shape(window.action, (steps, games))
    chex.assert_shape(window.legal, (steps, games, 2))
    np.testing.assert_array_equal(window.observation[..., 0], window.info)
    self.assertTrue((np.asarray(window.reward) == np.asarray(window.ended)).all())
    self.assertGreater(window.ended.sum(), games)
    taken = np.zeros(games, int)
    for t in range(steps):
      np.testing.assert_array_equal(window.info[t], HEAP - taken)
      taken += np.asarray(window.action[t]) + 1
      np.testing.assert_array_equal(window.ended[t], taken == HEAP)
      taken[taken == HEAP] = 0
    np.testing.assert_array_equal(after.stones, HEAP - taken)
    self.assertFalse(after.terminated.any())

  def test_a_window_goes_on_where_the_last_one_stopped(self):
    policy = lambda key, states: (selfplay.random_actions(key, states), ())
    states = selfplay.first_states(Nim(), jax.random.key(0), 4)
    middle, _ = selfplay.collect(Nim(), policy, states, jax.random.key(1), 2)
    _, window = selfplay.collect(Nim(), policy, middle, jax.random.key(2), 1)
    chex.assert_trees_all_equal(window.observation[0], middle.observation)


class MatchTest(chex.TestCase):
  def play(self, first, second, games=512, **changes):
    run = jax.jit(lambda key: selfplay.match(Nim(), first, second, key, games, HEAP, **changes))
    return jax.tree.map(float, run(jax.random.key(0)))

  def test_a_policy_against_itself_scores_one_half(self):
    found = self.play(lambda k, s: selfplay.random_actions(k, s), selfplay.random_actions)
    self.assertEqual(found.wins + found.draws + found.losses, 512)
    self.assertAlmostEqual((found.wins + found.draws / 2) / 512, 0.5, delta=4 * 0.5 / 512**0.5)
    # Seven stones is won by whoever starts: perfect play halves the games by seats alone.
    found = self.play(perfect, perfect)
    self.assertEqual((found.wins, found.losses), (256, 256))

  def test_the_better_player_wins_from_either_seat(self):
    found = self.play(perfect, selfplay.random_actions)
    self.assertGreater(found.wins, 0.7 * 512)
    back = self.play(selfplay.random_actions, perfect)
    self.assertLess(back.wins, 0.3 * 512)

  def test_what_lasts_too_long_is_a_draw(self):
    run = lambda key: selfplay.match(Nim(), perfect, perfect, key, 8, max_moves=2)
    self.assertEqual(run(jax.random.key(0)).draws, 8)

  def test_openings_are_drawn(self):
    # With six random moves nothing is left to play well.
    found = self.play(perfect, selfplay.random_actions, opening_moves=HEAP)
    self.assertAlmostEqual(found.wins / 512, 0.5, delta=4 * 0.5 / 512**0.5)

  @parameterized.parameters(0, 3)
  def test_refuses_what_cannot_be_halved(self, games):
    with self.assertRaisesRegex(ValueError, 'even'):
      selfplay.match(Nim(), perfect, perfect, jax.random.key(0), games, 3)


class EnumerateTest(chex.TestCase):
  def test_nim_has_a_state_for_each_heap_and_its_known_theory(self):
    game, observations = trees.enumerate_game(Nim(), jax.random.key(0), 10, block=3)
    stones = observations[:, 0].astype(int)
    self.assertEqual(sorted(stones), list(range(1, HEAP + 1)))
    self.assertEqual(stones[0], HEAP)
    np.testing.assert_array_equal(game.height, stones)
    np.testing.assert_array_equal(game.legal.sum(1), np.minimum(stones, 2))
    policy = finite_length.equilibrium(jax.tree.map(jnp.asarray, game), 1e-3, HEAP)
    values = finite_length.state_values(jax.tree.map(jnp.asarray, game), policy, HEAP)
    np.testing.assert_allclose(values, np.where(stones % 3 == 0, -1.0, 1.0), atol=1e-4)

  def test_refuses_more_positions_than_asked_for(self):
    with self.assertRaisesRegex(ValueError, 'more than 3'):
      trees.enumerate_game(Nim(), jax.random.key(0), 3)

  def test_refuses_games_without_turns_or_end(self):
    class Again(Nim):
      def step(self, state, action):
        return super().step(state, action).replace(current_player=state.current_player)

    class Forever(Nim):
      def step(self, state, action):
        left = 1 + state.stones % 3
        return heap(left, 1 - state.current_player, jnp.zeros(2))

    with self.assertRaisesRegex(ValueError, 'moves twice'):
      trees.enumerate_game(Again(), jax.random.key(0), 10)
    with self.assertRaisesRegex(ValueError, 'for ever'):
      trees.enumerate_game(Forever(), jax.random.key(0), 10)


class WhereTest(chex.TestCase):
  def test_takes_rows_of_any_rank(self):
    x = {'a': jnp.ones((2, 3)), 'b': jnp.ones(2, int)}
    y = jax.tree.map(jnp.zeros_like, x)
    found = selfplay.where(jnp.array([True, False]), x, y)
    np.testing.assert_array_equal(found['a'], [[1] * 3, [0] * 3])
    np.testing.assert_array_equal(found['b'], [1, 0])


class UniformTest(chex.TestCase):
  def test_random_actions_are_legal_and_uniform(self):
    states = jax.vmap(lambda n: heap(n, jnp.int32(0), jnp.zeros(2)))(
      jnp.repeat(jnp.array([1, 2]), 4000)
    )
    actions = np.asarray(selfplay.random_actions(jax.random.key(0), states))
    self.assertTrue((actions[:4000] == 0).all())
    self.assertAlmostEqual(actions[4000:].mean(), 0.5, delta=4 * 0.5 / 4000**0.5)
