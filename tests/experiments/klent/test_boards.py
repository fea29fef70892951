"""Tests of boards as text and moves by name, in games played at random."""

import functools
import re

import chex
import jax
import numpy as np
import pytest
from absl.testing import parameterized

from experiments.klent import boards, games

FAST = [name for name in games.MAX_MOVES if name != 'gardner_chess']  # to compile


@functools.cache
def compiled(name):
  env = games.make(name).env
  return jax.jit(env.init), jax.jit(env.step)


@functools.cache
def played(name, num_moves=10):
  """A random game: positions, whether the second player moves, names, the action, what follows."""
  (begin, step), rng = compiled(name), np.random.default_rng(5)
  state, found = begin(jax.random.key(5)), []
  first = int(state.current_player)
  while len(found) < num_moves and not bool(state.terminated):
    names = boards.moves(name, state, step)
    action = int(rng.choice(list(names)))
    after = step(state, action)
    found.append((state, int(state.current_player) != first, names, action, after))
    state = after
  return found


class MovesTest(chex.TestCase):
  def check_names(self, name):
    for state, _, names, *_ in played(name):
      self.assertEqual(sorted(names), np.flatnonzero(state.legal_action_mask).tolist())
      self.assertLen(set(names.values()), len(names))
      for text in names.values():
        self.assertRegex(text, r'^([a-k](\d{1,2})?|pass|swap|[pbr]@\w\d|[a-e]\d[a-e]\d(=\w)?)$')

  @parameterized.parameters(*FAST)
  def test_each_legal_move_has_a_name_of_its_own(self, name):
    self.check_names(name)

  def test_a_piece_leaves_its_cell(self):
    self.check_pieces('animal_shogi')

  @pytest.mark.slow
  def test_chess(self):
    self.check_names('gardner_chess')
    self.check_pieces('gardner_chess')

  @parameterized.parameters('tic_tac_toe', 'othello', 'go_9x9', 'hex')
  def test_a_stone_comes_to_lie_on_the_cell(self, name):
    for _, second, names, action, after in played(name):
      place = re.fullmatch(r'([a-k])(\d+)', names[action])
      if place is None:
        continue
      lines = boards.draw(name, after, not second).splitlines()
      row = lines[int(place[2])].split()
      self.assertEqual(row[1 + ord(place[1]) - ord('a')], boards.STONES[second])

  def check_pieces(self, name):
    for state, second, names, action, after in played(name):
      before = boards._cells(name, np.asarray(state.observation), second)
      now = boards._cells(name, np.asarray(after.observation), not second)
      now = np.flip(now, boards.TURNED[name])
      own = str.islower if second else str.isupper
      place = lambda text: (int(text[1]) - 1, ord(text[0]) - ord('a'))
      text = names[action].split('=')[0]
      self.assertTrue(own(str(now[place(text[-2:])])))
      if '@' not in text:
        self.assertTrue(own(str(before[place(text)])))
        self.assertEqual(now[place(text)], '.')


class DrawTest(chex.TestCase):
  def test_the_first_boards(self):
    first = {name: played(name)[0][0] for name in ('animal_shogi', 'othello')}
    first['gardner_chess'] = compiled('gardner_chess')[0](jax.random.key(0))
    self.assertEqual(
      boards.draw('gardner_chess', first['gardner_chess'], False).splitlines()[1:],
      [' 1 r n b q k', ' 2 p p p p p', ' 3 . . . . .', ' 4 P P P P P', ' 5 R N B Q K'],
    )
    shogi = boards.draw('animal_shogi', first['animal_shogi'], False)
    self.assertIn(' 1 r k b\n 2 . p .\n 3 . P .\n 4 B K R', shogi)
    othello = boards.draw('othello', first['othello'], False)
    self.assertEqual((othello.count('X'), othello.count('O')), (2, 2))

  def test_pieces_in_hand(self):
    for state, _, names, action, after in played('animal_shogi', 60):
      mine, _ = boards._hands(np.asarray(state.observation))
      _, now_mine = boards._hands(np.asarray(after.observation))
      if '@' in names[action]:
        self.assertEqual(len(now_mine.split()), len(mine.split()) - 1)
        return
    self.fail('no piece was dropped')
