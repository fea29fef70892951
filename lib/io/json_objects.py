"""Host. JSON files that hold one object, read as if a stranger had made them."""

import json
import os
from typing import Any


def read_object(path: str | os.PathLike, max_bytes: int = 2**26) -> dict[str, Any]:
  """Reads the object that a JSON file holds.

  Args:
    path: the file.
    max_bytes: the most that it may take.

  Raises:
    OSError: if the file cannot be opened.
    ValueError: naming the file: it is too large or nested too deep, is not JSON, holds something
      else than one object, or gives a key two values.
  """
  with open(path, 'rb') as stream:
    raw = stream.read(max_bytes + 1)
  if len(raw) > max_bytes:
    raise ValueError(f'{path}: is larger than {max_bytes} bytes.')
  try:
    value = json.loads(raw, object_pairs_hook=_unambiguous)
  except (ValueError, RecursionError) as error:
    raise ValueError(f'{path}: not JSON: {error}.') from error
  if not isinstance(value, dict):
    raise ValueError(f'{path}: holds a {type(value).__name__} and no object.')
  return value


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  value = dict(pairs)
  for key, other in pairs:
    if value[key] != other:
      raise ValueError(f'key {key!r} has two values')
  return value
