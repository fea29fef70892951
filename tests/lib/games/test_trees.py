"""Tests of enumeration on tic-tac-toe, whose numbers of positions are known."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pgx

from lib.games import finite_length, regularized, trees

ENV = pgx.make('tic_tac_toe')


@functools.cache
def enumerated():
  game, observations = trees.enumerate_game(ENV, jax.random.key(0), 4520)
  return jax.tree.map(jnp.asarray, game), observations


class EnumerateTicTacToeTest(chex.TestCase):
  def test_positions_are_as_many_as_known(self):
    game, observations = enumerated()
    # 5,478 boards can be reached, of which 958 end the game; the rest by number of stones:
    self.assertLen(np.unique(observations, axis=0), 4520)
    by_stones = [1, 9, 72, 252, 756, 1140, 1372, 696, 222]
    np.testing.assert_array_equal(np.bincount(observations.sum((1, 2, 3))), by_stones)
    ends = np.asarray(game.legal & (game.child < 0))
    boards = np.array(observations[..., 0] * 1 + observations[..., 1] * 2).reshape(-1, 9)
    rows, actions = np.nonzero(ends)
    last = boards[rows]
    last[np.arange(len(rows)), actions] = 1
    self.assertLen(np.unique(last, axis=0), 958)
    # The last mover wins or draws; the 255,168 games end with 46,080 draws.
    self.assertTrue(np.isin(game.reward[ends], [0.0, 1.0]).all())
    self.assertTrue((np.asarray(game.reward)[~ends] == 0).all())

  def test_games_are_as_many_as_known(self):
    game, _ = jax.tree.map(np.asarray, enumerated())

    @functools.cache
    def games_from(state):
      total = np.zeros(2, int)  # won by the last mover, and drawn
      for action in np.flatnonzero(game.legal[state]):
        child = game.child[state, action]
        total += (
          games_from(child)
          if child >= 0
          else np.eye(2, dtype=int)[int(game.reward[state, action] == 0)]
        )
      return total

    self.assertEqual(games_from(0).tolist(), [255_168 - 46_080, 46_080])

  def test_board_and_legal_actions_agree(self):
    game, observations = enumerated()
    np.testing.assert_array_equal(game.legal, ~observations.any(-1).reshape(-1, 9))
    # One stone more each move, and the views change sides.
    for state, action in np.argwhere(np.asarray(game.child) >= 0)[::97]:
      board = observations[state].reshape(9, 2).copy()
      board[action, 0] = True
      child = int(game.child[state, action])
      np.testing.assert_array_equal(observations[child].reshape(9, 2), board[:, ::-1])
      self.assertLess(game.height[child], game.height[state])
    self.assertEqual((int(game.height[0]), int(game.height.max())), (9, 9))

  def test_is_a_draw_of_which_chance_gives_much_away(self):
    game, _ = enumerated()
    best = finite_length.equilibrium(game, 1e-3, 9)
    self.assertAlmostEqual(finite_length.state_values(game, best, 9)[0], 0.0, places=4)
    self.assertBetween(float(finite_length.exploitability(game, best, 9)), -1e-6, 1e-3)
    uniform = regularized.log_softmax(jnp.zeros(game.legal.shape), game.legal)
    self.assertGreater(finite_length.exploitability(game, uniform, 9), 1.5)
    # 0.585 of random games are won by the first player and 0.288 by the second.
    value = finite_length.state_values(game, uniform, 9)[0]
    self.assertAlmostEqual(value, 0.585 - 0.288, delta=1e-3)

  def test_refuses_one_position_too_many(self):
    with self.assertRaisesRegex(ValueError, 'more than 4519 positions'):
      trees.enumerate_game(ENV, jax.random.key(0), 4519)

  def test_does_not_depend_on_blocks_or_the_first_player(self):
    game, observations = enumerated()
    other, views = trees.enumerate_game(ENV, jax.random.key(1), 4520, block=4096)
    chex.assert_trees_all_equal(jax.tree.map(np.asarray, game), jax.tree.map(np.asarray, other))
    np.testing.assert_array_equal(observations, views)
