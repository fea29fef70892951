"""Host. Pools of answers that a language model gave to questions, as texts and as integer codes.

A pool is drawn once; policies of sampling are then compared on answers drawn from it.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from lib.io import files, json_lines, json_objects
from lib.voting import answers as voting_answers

_VERSION = 1
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


class Codes(NamedTuple):
  """Answers of Q questions as integers.

  Attributes:
    questions: the ids, each once.
    encoded: their answers.
    source: what they were drawn from, for whoever checks that a cache is the right one.
  """

  questions: tuple[str, ...]
  encoded: voting_answers.Encoded
  source: str


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

  def rows() -> Iterator[tuple[str, Any, Any, Any]]:
    for place, record in json_lines.read(path, max_bytes):
      identity = json_lines.field(place, record, question, str, int)
      value = json_lines.field(place, record, answer, str, list)
      yield place, identity, value, record.get(gold)

  return _gather(rows(), question, answer, gold)


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
  places = (f'{path}: row {i}' for i in range(len(columns[0])))
  return _gather(zip(places, *columns, strict=True), question, answer, gold)


def write_codes(
  path: str | os.PathLike,
  questions: Sequence[str],
  encoded: voting_answers.Encoded,
  source: str = '',
) -> None:
  """Writes answers as integers to a JSON file, a line a question, whole or not at all.

  Args:
    path: the file.
    questions: the ids, each once.
    encoded: their answers.
    source: what they were drawn from, such as the model, the prompt and the temperature.

  Raises:
    OSError: if the file cannot be written.
    ValueError: if the ids are not one a question, or what is written could not be read again.
  """
  if not len(questions) == len(encoded.codes) == len(encoded.texts) == len(encoded.golds):
    raise ValueError(
      f'{len(questions)} ids for {len(encoded.codes)} questions with {len(encoded.texts)} lists of '
      f'texts and {len(encoded.golds)} golds.'
    )
  entries = [
    {
      'id': name,
      'gold': None if gold == voting_answers.NO_GOLD else int(gold),
      'texts': list(texts),
      'codes': np.asarray(codes).tolist(),
    }
    for name, gold, texts, codes in zip(
      questions, encoded.golds, encoded.texts, encoded.codes, strict=True
    )
  ]
  _parse_codes(path, {'version': _VERSION, 'source': source, 'questions': entries})
  lines = ',\n'.join(json.dumps(entry, separators=(',', ':')) for entry in entries)
  head = f'{{"version": {_VERSION}, "source": {json.dumps(source)}, "questions": [\n'
  with files.replacing(path) as stream:
    stream.write(f'{head}{lines}\n]}}\n'.encode())


def read_codes(path: str | os.PathLike, max_bytes: int = 2**28) -> Codes:
  """Reads what `write_codes` has written.

  Args:
    path: the file.
    max_bytes: the most that it may take.

  Raises:
    OSError: if the file cannot be opened.
    ValueError: naming the file and the question: as `json_objects.read_object`; another version; a
      field is missing or of another type; ids or texts repeat; a code or a gold has no text.
  """
  return _parse_codes(path, json_objects.read_object(path, max_bytes))


def _gather(
  rows: Iterable[tuple[str, Any, Any, Any]], question: str, answer: str, gold: str
) -> Pools:
  """Checks (place, id, answer or answers, gold) and joins the rows of each question."""
  pools: dict[str, list[str]] = {}
  golds: dict[str, str] = {}
  listed: bool | None = None
  for place, identity, value, right in rows:
    record = {question: identity, answer: value, gold: right}
    name = str(json_lines.field(place, record, question, str, int))
    if not name:
      raise ValueError(f'{place}: field {question!r} is empty.')
    json_lines.field(place, record, answer, str, list)
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
    if right is not None:
      json_lines.field(place, record, gold, str)
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


def _parse_codes(path: str | os.PathLike, value: dict[str, Any]) -> Codes:
  version = json_lines.field(f'{path}', value, 'version', int)
  if version != _VERSION:
    raise ValueError(f'{path}: has version {version}, expected {_VERSION}.')
  source = json_lines.field(f'{path}', value, 'source', str)
  names: dict[str, None] = {}
  codes, texts, golds = [], [], []
  for i, entry in enumerate(json_lines.field(f'{path}', value, 'questions', list)):
    place = f'{path}: question {i}'
    if not isinstance(entry, dict):
      raise ValueError(f'{place}: holds a {type(entry).__name__} and no object.')
    name = json_lines.field(place, entry, 'id', str)
    if not name or name in names:
      raise ValueError(f"{place}: field 'id' is {name!r}, which is empty or not the first.")
    names[name] = None
    words = json_lines.field(place, entry, 'texts', list)
    if not all(word is None or type(word) is str for word in words):
      raise ValueError(f"{place}: field 'texts' holds something else than texts.")
    for word in words:
      json_lines.check_text(place, 'texts', word or '')
    if len(set(words)) < len(words):
      raise ValueError(f"{place}: field 'texts' has a text twice.")
    row = json_lines.field(place, entry, 'codes', list)
    for code in row:
      if type(code) is not int or not voting_answers.UNPARSEABLE <= code < len(words):
        raise ValueError(
          f"{place}: field 'codes' holds {code!r}, and there are {len(words)} texts."
        )
    gold = json_lines.field(place, entry, 'gold', int, type(None))
    if gold is not None and not 0 <= gold < len(words):
      raise ValueError(f"{place}: field 'gold' is {gold}, and there are {len(words)} texts.")
    codes.append(np.array(row, np.int32))
    texts.append(tuple(words))
    golds.append(voting_answers.NO_GOLD if gold is None else gold)
  if not names:
    raise ValueError(f'{path}: has no questions.')
  encoded = voting_answers.Encoded(tuple(codes), tuple(texts), np.array(golds, np.int32))
  return Codes(tuple(names), encoded, source)
