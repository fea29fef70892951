"""Host. JSON lines, one object each, read as if a stranger had made them.

Unlike `jsonl`, which reads a file that its own writer may have left unfinished, this takes no part
of a line for a line.
"""

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

_MAX_LINE = 2**26  # bytes


def read(path: str | os.PathLike, max_bytes: int = 2**32) -> Iterator[tuple[str, dict[str, Any]]]:
  """Reads objects one by one; lines of white space are passed over.

  Args:
    path: the file, UTF-8.
    max_bytes: the most that it may take.

  Yields:
    Where the line is, as 'path:number', for messages; and its object.

  Raises:
    OSError: if the file cannot be opened.
    ValueError: naming the file and the line: it is too long or nested too deep, not UTF-8, not
      JSON, no object, or gives a key twice; or there is none, or the file is too large.
  """
  with open(path, 'rb') as stream:
    size = os.fstat(stream.fileno()).st_size
    if size > max_bytes:
      raise ValueError(f'{path}: takes {size} bytes, more than {max_bytes}.')
    found, number, left = False, 0, max_bytes
    while line := stream.readline(_MAX_LINE + 1):
      number, left = number + 1, left - len(line)
      place = f'{path}:{number}'
      if len(line) > _MAX_LINE or left < 0:  # the size of what is no plain file is not known before
        raise ValueError(f'{place}: is longer than {min(_MAX_LINE, max_bytes)} bytes.')
      if line.strip():
        found = True
        yield place, _parse(place, line)
  if not found:
    raise ValueError(f'{path}: is empty.')


def field(place: str, record: Mapping[str, Any], name: str, *kinds: type) -> Any:
  """Takes a field of an object.

  Args:
    place: where the object came from, for the message.
    record: the object.
    name: the field.
    *kinds: the types that it may have; a boolean is no integer, and a text must have a UTF-8 form.

  Raises:
    ValueError: naming the place and the field that is missing or of another type.
  """
  if name not in record:
    raise ValueError(f'{place}: field {name!r} is missing; there are {sorted(record)[:20]}.')
  value = record[name]
  if type(value) not in kinds:
    wanted = ' or '.join(kind.__name__ for kind in kinds)
    raise ValueError(f'{place}: field {name!r} is {type(value).__name__}, expected {wanted}.')
  if isinstance(value, str):
    check_text(place, name, value)
  return value


def check_text(place: str, name: str, text: str) -> None:
  """Refuses a text that cannot be written again, naming the place and the field."""
  try:
    text.encode()
  except UnicodeEncodeError as error:
    raise ValueError(f'{place}: field {name!r} has a lone surrogate at {error.start}.') from error


def _parse(place: str, line: bytes) -> dict[str, Any]:
  try:
    record = json.loads(line.decode(), object_pairs_hook=_unambiguous)
  except UnicodeDecodeError as error:
    raise ValueError(f'{place}: not UTF-8 at byte {error.start} of the line.') from error
  except (ValueError, RecursionError) as error:
    raise ValueError(f'{place}: not JSON: {error}.') from error
  if not isinstance(record, dict):
    raise ValueError(f'{place}: holds a {type(record).__name__} and no object.')
  return record


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  record = dict(pairs)
  if len(record) < len(pairs):
    raise ValueError('a key is given twice')
  return record
