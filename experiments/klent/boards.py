"""Boards as text, and moves by name, from what pgx shows the player to move."""

from collections.abc import Callable
from typing import Any

import numpy as np

PIECES = {  # in the order of the planes, of the player to move and then of the other
  'animal_shogi': 'PBRKG',
  'gardner_chess': 'PNBRQK',
}
# How the board turns for the other player: these axes are reversed.
TURNED = {'animal_shogi': (0, 1), 'gardner_chess': (0,)}
HANDS = 'PBR'  # of Animal Shogi
EXTRA = {'othello': 'pass', 'go_9x9': 'pass', 'hex': 'swap'}  # the last action
STONES = 'XO'


def draw(name: str, state: Any, second: bool) -> str:
  """Draws the board as the player to move sees it.

  Args:
    name: of the game.
    state: pgx's, of one game.
    second: whether the player to move is the one who did not begin. The first has X or capital
      letters, the second O or small ones.
  """
  cells = _cells(name, np.asarray(state.observation), second)
  letters = [chr(ord('a') + column) for column in range(cells.shape[1])]
  indent = ' ' if name == 'hex' else ''
  lines = ['   ' + ' '.join(letters)]
  for row, line in enumerate(cells):
    lines.append(indent * row + f'{row + 1:2} ' + ' '.join(line))
  if name == 'animal_shogi':
    mine, theirs = _hands(np.asarray(state.observation))
    lines.append(f"in hand: yours {mine or 'none'}, the other side's {theirs or 'none'}")
  return '\n'.join(lines)


def moves(name: str, state: Any, step: Callable[[Any, int], Any]) -> dict[int, str]:
  """Names the legal moves of the player to move, each once.

  Args:
    name: of the game.
    state: pgx's, of one game that goes on.
    step: of the simulator.

  Returns:
    Names by action. A cell is its column's letter and its row's number, as `draw` shows them.
  """
  legal = np.flatnonzero(np.asarray(state.legal_action_mask))
  width = np.asarray(state.observation).shape[1]
  if name in PIECES:
    return _of_pieces(name, state, legal, step)
  if name == 'connect_four':
    return {int(a): chr(ord('a') + a) for a in legal}
  last = len(np.asarray(state.legal_action_mask)) - 1
  return {
    int(a): EXTRA[name] if name in EXTRA and a == last else cell(a // width, a % width)
    for a in legal
  }


def cell(row: int, column: int) -> str:
  """The name of a cell."""
  return f'{chr(ord("a") + column)}{row + 1}'


def _of_pieces(name: str, state: Any, legal: np.ndarray, step: Callable) -> dict[int, str]:
  """Names moves of pieces by what they change: from, to, and the piece that came to be there."""
  before = _cells(name, np.asarray(state.observation), False)
  found: dict[int, str] = {}
  for action in legal:
    after = np.asarray(step(state, int(action)).observation)
    turned = np.flip(_cells(name, after, True), TURNED[name])
    (to,) = np.argwhere((before != turned) & np.char.isupper(turned))
    gone = np.argwhere((before != turned) & np.char.isupper(before) & (turned == '.'))
    piece = turned[tuple(to)]
    if not len(gone):
      found[int(action)] = f'{piece.lower()}@{cell(*to)}'
      continue
    promoted = f'={piece.lower()}' if piece != before[tuple(gone[0])] else ''
    found[int(action)] = cell(*gone[0]) + cell(*to) + promoted
  return found


def _cells(name: str, observation: np.ndarray, second: bool) -> np.ndarray:
  """The board (H, W) as characters; the mover's are capitals or X unless it is the second."""
  kinds = PIECES.get(name)
  count = len(kinds) if kinds else 1
  sides = [kinds, kinds.lower()] if kinds else list(STONES)
  cells = np.full(observation.shape[:2], '.')
  for side, glyphs in enumerate(reversed(sides) if second else sides):
    for piece in range(count):
      cells[observation[..., side * count + piece] > 0] = glyphs[piece]
  return cells


def _hands(observation: np.ndarray) -> tuple[str, str]:
  """Pieces of Animal Shogi in hand: of each kind a plane for one or more, and one for two."""
  counts = observation[0, 0, 10:22].reshape(2, 3, 2).sum(-1).astype(int)
  mine, theirs = (
    ' '.join(HANDS[kind] for kind in range(3) for _ in range(side[kind])) for side in counts
  )
  return mine, theirs
