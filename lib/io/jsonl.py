"""Host. Files of JSON lines that a process appends to until it ends, however that happens."""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any


class MalformedError(ValueError):
  """A line is not the record that it should be."""


def read(path: str | os.PathLike, fields: Mapping[str, type]) -> list[tuple[bytes, dict[str, Any]]]:
  """Reads the lines of a file; a last one that was left unfinished is none.

  Args:
    path: the file.
    fields: what every record must have, and of which type.

  Returns:
    Each line with its end, and the record that it holds.

  Raises:
    OSError: if the file cannot be read.
    MalformedError: naming the file and the first line that is not such a record.
  """
  records = []
  for number, line in enumerate(pathlib.Path(path).read_bytes().split(b'\n')[:-1], 1):
    try:
      record = json.loads(line)
      for name, kind in fields.items():
        if type(record[name]) is not kind:
          raise TypeError(f'{name} is {record[name]!r}')
    except (ValueError, KeyError, TypeError, RecursionError) as error:
      raise MalformedError(f'{path}:{number}: not such a record: {error!r}') from error
    records.append((line + b'\n', record))
  return records
