"""Host. The votes of judges, as JSON lines: who judged whose answer to what, and how likely.

A line is one game, in which a judge compares a target's answer with a reference's:

  example_id, judge, reference: texts (an id may be an integer)
  proxy: the author of the target's answer; the judge's own games have its name or null here
  game: 1 where the target's answer is shown as A, 2 where it is shown as B
  p_A, p_B, p_T: the probabilities of the verdicts A, B and tie
  category: 'LSP' (legitimate self-preference), 'ILSP' (harmful), or null where it is neither
  answer: the target's final answer, a text; may be left out
  same_error: whether judge and proxy failed alike; may be left out
"""

import os
from typing import Any, NamedTuple

import numpy as np

from lib.io import json_lines
from lib.judging import categories

_CATEGORIES = {'LSP': categories.LEGITIMATE, 'ILSP': categories.HARMFUL, None: categories.NEITHER}
_UNKNOWN = -1


class VoteRecords(NamedTuple):
  """Games, in the order of the file.

  Attributes:
    example: indices (n,) of `examples`, int32.
    judge: indices (n,) of `models`, int32.
    reference: likewise.
    target: likewise, the author of the answer that is compared with the reference's: the judge
      itself in its own games.
    game: 1 or 2 (n,), int8.
    probs: of A, B and T (n, 3), float64, as the file has them.
    category: as lib.judging.categories has it (n,), int8.
    answer: indices (n,) of `answers`, int32; -1 where there is none.
    same_error: 1, 0 or, where it is not given, -1 (n,), int8.
    examples: the ids of examples; an integer id is its decimal text.
    models: the names of judges, references and targets.
    answers: the final answers.
  """

  example: np.ndarray
  judge: np.ndarray
  reference: np.ndarray
  target: np.ndarray
  game: np.ndarray
  probs: np.ndarray
  category: np.ndarray
  answer: np.ndarray
  same_error: np.ndarray
  examples: tuple[str, ...]
  models: tuple[str, ...]
  answers: tuple[str, ...]


class GamePairs(NamedTuple):
  """Both games of a judge's own answer beside both of a proxy's, on one example and reference.

  Attributes:
    example: indices (m,) of the records' examples, int32.
    judge: indices (m,) of the records' models, int32.
    reference: likewise.
    proxy: likewise.
    judge_games: probabilities (m, 2, 3) of A, B and T in games 1 and 2 about the judge's answer.
    proxy_games: the same judge's, about the proxy's answer.
    category: (m,), int8, that of the proxy's games.
    same_error: (m,), int8: what the proxy's games say; else whether both answers are the same text;
      -1 where neither is known.
    num_dropped: examples, with judge, reference and proxy, of which a game is missing.
    num_unused: games that are in no pair.
  """

  example: np.ndarray
  judge: np.ndarray
  reference: np.ndarray
  proxy: np.ndarray
  judge_games: np.ndarray
  proxy_games: np.ndarray
  category: np.ndarray
  same_error: np.ndarray
  num_dropped: int
  num_unused: int


def read(path: str | os.PathLike, tolerance: float = 1e-3, max_bytes: int = 2**32) -> VoteRecords:
  """Reads votes; fields other than those of this file's head are passed over.

  Args:
    path: the file.
    tolerance: how far from one the three probabilities may sum, for they may be rounded; >= 0.
    max_bytes: the most that the file may take.

  Raises:
    OSError: if the file cannot be opened.
    ValueError: naming the file, the line and the field: as `json_lines.read`; a field is missing,
      empty, of another type or out of its range; probabilities do not sum to one; a game appears
      twice; the two games of a target differ in category, answer or same_error; or an example is
      LSP with one target of a judge and reference and ILSP with another, though either says which
      of these two was right.
  """
  if not tolerance >= 0:
    raise ValueError(f'A tolerance must not be negative, got {tolerance=}.')
  examples: dict[str, int] = {}
  models: dict[str, int] = {}
  answers: dict[str, int] = {}
  games: dict[tuple[int, ...], str] = {}
  facts: dict[tuple[int, ...], tuple[tuple[int, ...], str]] = {}
  sides: dict[tuple[int, ...], tuple[int, str]] = {}
  rows, probs = [], []
  for place, record in json_lines.read(path, max_bytes):
    example = _code(examples, place, record, 'example_id', str, int)
    judge = _code(models, place, record, 'judge', str)
    reference = _code(models, place, record, 'reference', str)
    target = _code(models, place, record, 'proxy', str, type(None))
    target = judge if target == _UNKNOWN else target
    game = json_lines.field(place, record, 'game', int)
    if game not in (1, 2):
      raise ValueError(f"{place}: field 'game' is {game}, expected 1 or 2.")
    category = _category(place, record)
    answer = same_error = _UNKNOWN
    if record.get('answer') not in (None, ''):
      answer = _code(answers, place, record, 'answer', str)
    if record.get('same_error') is not None:
      same_error = int(json_lines.field(place, record, 'same_error', bool))
    key = (example, judge, reference, target)
    first = games.setdefault((*key, game), place)
    if first is not place:
      raise ValueError(f"{place}: field 'game': this game is at {first} already.")
    fact = (category, answer, same_error)
    known, first = facts.setdefault(key, (fact, place))
    for name, old, new in zip(('category', 'answer', 'same_error'), known, fact, strict=True):
      if old != new:
        raise ValueError(f'{place}: field {name!r} differs from the other game, at {first}.')
    if category != categories.NEITHER:
      side, first = sides.setdefault(key[:3], (category, place))
      if side != category:
        raise ValueError(f"{place}: field 'category' contradicts {first}, of the same judge.")
    rows.append((*key, game, *fact))
    probs.append(_probs(place, record, tolerance))
  columns = np.array(rows, np.int32).T
  return VoteRecords(
    example=columns[0],
    judge=columns[1],
    reference=columns[2],
    target=columns[3],
    game=columns[4].astype(np.int8),
    probs=np.array(probs, np.float64),
    category=columns[5].astype(np.int8),
    answer=columns[6],
    same_error=columns[7].astype(np.int8),
    examples=tuple(examples),
    models=tuple(models),
    answers=tuple(answers),
  )


def pair_games(records: VoteRecords) -> GamePairs:
  """Joins games 1 and 2 of judge and proxy.

  A pair is an example, a judge, a reference and a proxy other than the judge, of which all four
  games are there; pairs are in the order of the proxy's first game.
  """
  index: dict[tuple[int, ...], list[int | None]] = {}
  keys = zip(records.example, records.judge, records.reference, records.target, strict=True)
  for row, (key, game) in enumerate(zip(keys, records.game, strict=True)):
    index.setdefault(tuple(map(int, key)), [None, None])[int(game) - 1] = row
  pairs, dropped = [], 0
  for (example, judge, reference, target), proxy_rows in index.items():
    if target != judge:
      rows = index.get((example, judge, reference, judge), [None, None]) + proxy_rows
      if None in rows:
        dropped += 1
      else:
        pairs.append(rows)
  joined = np.array(pairs, np.int64).reshape(-1, 4)
  own, other = joined[:, 0], joined[:, 2]
  answer, other_answer = records.answer[own], records.answer[other]
  both = (answer != _UNKNOWN) & (other_answer != _UNKNOWN)
  same = np.where(both, answer == other_answer, _UNKNOWN).astype(np.int8)
  given = records.same_error[other]
  return GamePairs(
    example=records.example[other],
    judge=records.judge[other],
    reference=records.reference[other],
    proxy=records.target[other],
    judge_games=records.probs[joined[:, :2]],
    proxy_games=records.probs[joined[:, 2:]],
    category=records.category[other],
    same_error=np.where(given == _UNKNOWN, same, given),
    num_dropped=dropped,
    num_unused=len(records.game) - len(np.unique(joined)),
  )


def _code(
  table: dict[str, int], place: str, record: dict[str, Any], name: str, *kinds: type
) -> int:
  value = json_lines.field(place, record, name, *kinds)
  if value is None:
    return _UNKNOWN
  if value == '':
    raise ValueError(f'{place}: field {name!r} is empty.')
  return table.setdefault(str(value), len(table))


def _category(place: str, record: dict[str, Any]) -> int:
  category = json_lines.field(place, record, 'category', str, type(None))
  if category not in _CATEGORIES:
    raise ValueError(f"{place}: field 'category' is {category!r}, expected 'LSP', 'ILSP' or null.")
  return _CATEGORIES[category]


def _probs(place: str, record: dict[str, Any], tolerance: float) -> list[float]:
  probs = []
  for name in ('p_A', 'p_B', 'p_T'):
    value = json_lines.field(place, record, name, float, int)
    if not 0 <= value <= 1:  # NaN neither
      raise ValueError(f'{place}: field {name!r} is {value}, expected a probability.')
    probs.append(float(value))
  if not abs(sum(probs) - 1) <= tolerance:
    raise ValueError(f"{place}: fields 'p_A', 'p_B' and 'p_T' sum to {sum(probs)}, not to one.")
  return probs
