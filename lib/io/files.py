"""Host. Files that appear whole or not at all."""

import contextlib
import fcntl
import glob
import json
import os
import pathlib
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[BinaryIO]:
  """Opens a temporary sibling of `path`, which takes its place when the block succeeds.

  Args:
    path: the file to write; its directory is made where it is missing.

  Yields:
    A binary stream. Readers see the old file or the new one, never a part.

  Raises:
    OSError: if the directory cannot be written or the disk is full; `path` is untouched.
  """
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_name(f'{path.name}.tmp-{os.getpid()}')
  try:
    with open(temporary, 'wb') as stream:
      yield stream
      stream.flush()
      os.fsync(stream.fileno())  # the rename must not reach the disk before the data
    os.replace(temporary, path)
  finally:
    temporary.unlink(missing_ok=True)


def write_json(path: str | os.PathLike, value: Any) -> None:
  """Writes a value as indented JSON, whole or not at all."""
  with replacing(path) as stream:
    stream.write((json.dumps(value, indent=2) + '\n').encode())


@contextlib.contextmanager
def locked(path: str | os.PathLike) -> Iterator[None]:
  """Lets one process at a time into the block; a lock goes with its process, however that ends.

  Args:
    path: the file that stands for the lock; it is made and stays.
  """
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  with open(path, 'wb') as stream:
    try:
      fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      print(f'Waiting for another process that holds {path}.', file=sys.stderr)
      fcntl.flock(stream, fcntl.LOCK_EX)
    yield


def sweep(directory: str | os.PathLike) -> None:
  """Removes what a killed `replacing` left behind in `directory`."""
  for leftover in glob.glob(os.path.join(glob.escape(os.fspath(directory)), '*.tmp-*')):
    os.unlink(leftover)
