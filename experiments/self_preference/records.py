"""Votes that a user brings."""

from typing import Any, NamedTuple

from lib.io import vote_records
from lib.judging import categories


class Loaded(NamedTuple):
  """Pairs of games, and the names of models."""

  games: vote_records.GamePairs
  names: tuple[str, ...]


def load(config: Any) -> Loaded:
  """Reads config.path.

  Raises:
    OSError: if there is no such file.
    ValueError: if it is not one of votes, or no pair of games is harmful.
  """
  if not config.path:
    raise ValueError(
      'config.path: name a JSONL file of votes; lib/io/vote_records.py lists fields.'
    )
  records = vote_records.read(config.path)
  games = vote_records.pair_games(records)
  if not (games.category == categories.HARMFUL).any():
    raise ValueError(
      f'{config.path}: no example has all four games of a harmful pair, those of a judge that was '
      'wrong like its proxy, against a reference that was right.'
    )
  return Loaded(games, records.models)
