"""Host. Pools of answers that a language model gave to questions.

A pool is drawn once; policies of sampling are then compared on answers drawn from it.
"""

import itertools
import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from lib.io import json_lines

_REFERENCE_BYTES = 8  # the least that a row takes in memory


class Pools(NamedTuple):
  """Answers of Q questions, in the order of their first appearance.

  Attributes:
    questions: the ids, each once; an integer id is its decimal text.
    answers: by question, its answers as they were written; their numbers may differ, none is zero.
    golds: by question, the right answer as it was written, or None where no row gives one.
  """

  questions: tuple[str, ...]
  answers: tuple[tuple[str, ...], ...]
  golds: tuple[str | None, ...]


def read_jsonl(
  path: str | os.PathLike,
  question: str = 'question',
  answer: str = 'answer',
  gold: str = 'gold',
  max_bytes: int = 2**32,
) -> Pools:
  """Reads pools from JSON lines: one answer a line, or all answers to a question in a list.

  Args:
    path: the file.
    question: the field of the question's id, a text or an integer.
    answer: the field of the answer, a text (an empty one is an answer too), or of the list of them.
    gold: the field of the right answer, a text; lines may leave it out or have null there.
    max_bytes: the most that the file may take.

  Raises:
    OSError: if the file cannot be opened.
    ValueError: naming the file and the line: as `json_lines.read`; a field is missing, empty or of
      another type; a question has two golds; or, with lists, a question has two lines.
  """

  return _gather(json_lines.read(path, max_bytes), question, answer, gold)


def read_parquet(
  path: str | os.PathLike,
  question: str = 'question',
  answer: str = 'answer',
  gold: str = 'gold',
  max_bytes: int = 2**32,
) -> Pools:
  """Reads pools from Parquet, as `read_jsonl` does from JSON lines.

  Args:
    path: the file.
    question: the column of ids, texts or integers.
    answer: the column of answers, texts or lists of texts.
    gold: the column of right answers, texts; it may be missing, or null in places.
    max_bytes: the most that all its columns may claim to take once they are decompressed.

  Raises:
    OSError: if the file cannot be opened.
    ValueError: naming the file and the row, counted from 0: as `read_jsonl`; the file is no whole
      Parquet file, or claims more than `max_bytes`; or pyarrow, which reads it, is missing.
  """
  with open(path, 'rb') as stream:
    try:
      import pyarrow  # noqa: F401
    except ImportError as error:
      raise ValueError(
        f'{path}: Parquet needs a package: pip install "pyarrow>=18,<27" ({error})'
      ) from error
    try:
      columns = _parquet_columns(stream, (question, answer, gold), max_bytes)
    except Exception as error:  # a hostile file can fail in many ways
      raise ValueError(f'{path}: not such a Parquet file: {error}') from error
  if not columns[0]:
    raise ValueError(f'{path}: is empty.')
  names = question, answer, gold
  rows = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
  places = (f'{path}: row {i}' for i in itertools.count())
  return _gather(zip(places, rows, strict=False), question, answer, gold)


def _gather(
  records: Iterable[tuple[str, dict[str, Any]]], question: str, answer: str, gold: str
) -> Pools:
  """Checks records, each with its place, and joins those of each question."""
  pools: dict[str, list[str]] = {}
  golds: dict[str, str] = {}
  listed: bool | None = None
  for place, record in records:
    name = str(json_lines.field(place, record, question, str, int))
    if not name:
      raise ValueError(f'{place}: field {question!r} is empty.')
    value = json_lines.field(place, record, answer, str, list)
    is_list = isinstance(value, list)
    if listed is not None and is_list != listed:
      raise ValueError(f'{place}: field {answer!r} is a list in some rows and a text in others.')
    listed = is_list
    if is_list and name in pools:
      raise ValueError(f'{place}: question {name!r} has a list of answers already.')
    if is_list and not value:
      raise ValueError(f'{place}: field {answer!r} is empty.')
    for text in value if is_list else [value]:
      if not isinstance(text, str):
        raise ValueError(f'{place}: field {answer!r} holds {type(text).__name__}, expected str.')
      json_lines.check_text(place, answer, text)
    pools.setdefault(name, []).extend(value if is_list else [value])
    if record.get(gold) is not None:
      right = json_lines.field(place, record, gold, str)
      if golds.setdefault(name, right) != right:
        raise ValueError(
          f'{place}: question {name!r} has gold {right!r}, and {golds[name]!r} before.'
        )
  return Pools(tuple(pools), tuple(map(tuple, pools.values())), tuple(map(golds.get, pools)))


def _parquet_columns(stream: Any, names: tuple[str, str, str], max_bytes: int) -> list[list[Any]]:
  import pyarrow.parquet

  file = pyarrow.parquet.ParquetFile(stream)
  there = file.schema_arrow.names
  for name in names:
    if there.count(name) > 1 or (name not in there and name != names[2]):
      raise ValueError(f'there are {there.count(name)} columns {name!r} among {there[:20]}.')
  wanted = [name for name in names if name in there]
  paths = [file.metadata.schema.column(i).path for i in range(file.metadata.num_columns)]
  # Not the sizes of columns: where their statistics are damaged, asking ends the process.
  total = sum(
    file.metadata.row_group(group).total_byte_size for group in range(file.num_row_groups)
  )
  total = max(total, _REFERENCE_BYTES * file.metadata.num_rows)
  if total > max_bytes:
    raise ValueError(f'it claims {total} bytes, more than {max_bytes}.')
  # Texts that repeat stay one text each: a page of a few bytes can stand for a million long ones.
  file = pyarrow.parquet.ParquetFile(stream, read_dictionary=paths)
  columns: dict[str, list[Any]] = {name: [] for name in names}
  for group in range(file.num_row_groups):
    table = file.read_row_group(group, columns=wanted, use_threads=False)
    for name in names:
      if name in wanted:
        for chunk in table[name].chunks:
          columns[name] += _python_values(name, chunk)
      else:
        columns[name] += [None] * table.num_rows
  return list(columns.values())


def _python_values(name: str, array: Any) -> list[Any]:
  from pyarrow import types

  kind = array.type
  if types.is_dictionary(kind):
    words = _python_values(name, array.dictionary)
    return [None if i is None else words[i] for i in array.indices.to_pylist()]
  if types.is_list(kind) or types.is_large_list(kind):
    values, lists, start = _python_values(name, array.flatten()), [], 0
    for length in array.value_lengths().to_pylist():
      lists.append(None if length is None else values[start : start + length])
      start += length or 0
    return lists
  if not (types.is_string(kind) or types.is_large_string(kind) or types.is_integer(kind)):
    raise ValueError(f'column {name!r} has type {kind}.')
  return array.to_pylist()
