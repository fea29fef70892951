"""Host. CIFAR-10 as published, its binary and its Python version, from the archive or unpacked.

The Python version is made of pickles, which are read as plain data and never unpickled.
The format: https://www.cs.toronto.edu/~kriz/cifar.html
"""

import gzip
import os
import pathlib
import posixpath
import tarfile

import numpy as np

from lib.io import pickles
from lib.io.images import DEFLATE_RATIO, Images, from_planes

_ROW = 3 * 32 * 32
_RECORD = 1 + _ROW
_CLASSES = 10
_SUFFIX = '.bin'  # of the binary version's files
_BLOCK = 512  # of a tar archive
_SOURCE = 'cifar-10-python.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html'


def cifar10(path: str | os.PathLike, train: bool = True, max_bytes: int = 2**30) -> Images:
  """Reads CIFAR-10's training or test images, of either version.

  Args:
    path: cifar-10-binary.tar.gz, cifar-10-python.tar.gz, or the directory of either's files.
    train: whether to read the five training batches, or else the test batch.
    max_bytes: the most that the batches may take, or the archive once it is unpacked.

  Returns:
    Images (N, 32, 32, 3) and classes 0 to 9.

  Raises:
    OSError: if a file cannot be opened; where one is missing, saying what to fetch.
    ValueError: naming the file, and the byte where that is known: truncated, corrupt, missing from
      the archive, too large, not whole records, a pickle of anything but plain data or of data of
      another shape, or a label out of range.
  """
  names = [f'data_batch_{i}' for i in range(1, 6)] if train else ['test_batch']
  try:
    read = _read_directory if os.path.isdir(path) else _read_archive
    binary, batches = read(path, names, max_bytes)
  except FileNotFoundError as error:
    raise FileNotFoundError(f'{error.filename}: is missing; fetch {_SOURCE}.') from error
  parse = _parse_records if binary else _parse_pickle
  parts = [parse(place, content) for place, content in batches]
  rows, labels = (np.concatenate(part) for part in zip(*parts, strict=True))
  return Images(from_planes(rows), labels)


def _read_directory(
  path: str | os.PathLike, names: list[str], max_bytes: int
) -> tuple[bool, list[tuple[str, bytes]]]:
  """Returns whether files are binary, and each with its place for messages."""
  binary = pathlib.Path(path, names[0] + _SUFFIX).exists()
  batches, left = [], max_bytes
  for name in names:
    file = pathlib.Path(path, name + _SUFFIX * binary)
    with open(file, 'rb') as stream:
      size = os.fstat(stream.fileno()).st_size
      if size > left:
        raise ValueError(f'{file}: takes {size} bytes; together more than {max_bytes}.')
      batches.append((str(file), stream.read(size)))
    left -= size
  return binary, batches


def _read_archive(
  path: str | os.PathLike, names: list[str], max_bytes: int
) -> tuple[bool, list[tuple[str, bytes]]]:
  """Does as `_read_directory` from a `.tar.gz`, of which nothing is extracted.

  Headers are walked one by one rather than by `tarfile.open`, which follows what they say about
  other members, links and sparse files.
  """
  wanted = {*names, *(name + _SUFFIX for name in names)}
  found: dict[str, bytes] = {}
  offset = 0
  with open(path, 'rb') as file:
    limit = min(max_bytes, DEFLATE_RATIO * os.fstat(file.fileno()).st_size)
    try:
      with gzip.GzipFile(fileobj=file) as stream:
        while (header := stream.read(_BLOCK)).strip(b'\0'):
          member = tarfile.TarInfo.frombuf(header, 'utf-8', 'surrogateescape')
          padded = -(-member.size // _BLOCK) * _BLOCK
          if member.size < 0 or padded > limit - offset - _BLOCK:
            raise ValueError(
              f'claims {member.size} bytes, more than the file can hold or than {max_bytes}'
            )
          content = stream.read(padded)
          if len(content) < padded:
            raise ValueError('ends too early')
          name = posixpath.basename(member.name)
          if name in wanted and member.type in (tarfile.REGTYPE, tarfile.AREGTYPE):
            if name in found:
              raise ValueError(f'is another {name}')
            found[name] = content[: member.size]
          offset += _BLOCK + padded
        if len(header) < _BLOCK:
          raise ValueError('ends without a mark')
        while stream.read(2**16):  # to the end, where gzip compares the checksum
          if stream.tell() > limit:
            raise ValueError(f'goes on for more than {limit} bytes')
    except Exception as error:  # damaged compression and headers fail in many ways
      raise ValueError(f'{path}: member at byte {offset}, unpacked: {error}.') from error
  binary = names[0] + _SUFFIX in found
  members = [name + _SUFFIX * binary for name in names]
  for name in members:
    if name not in found:
      raise ValueError(f'{path}: holds no {name}; it ends at byte {offset}, unpacked.')
  return binary, [(f'{path}: {name}', found[name]) for name in members]


def _parse_records(place: str, content: bytes) -> tuple[np.ndarray, np.ndarray]:
  """Returns rows (N, 3072), whole planes of red, green and blue, and labels (N,) of a batch."""
  if not content or len(content) % _RECORD:
    raise ValueError(
      f'{place}: ends at byte {len(content)}, which is not the end of a record of {_RECORD}.'
    )
  records = np.frombuffer(content, np.uint8).reshape(-1, _RECORD)
  wrong = records[:, 0] >= _CLASSES
  if wrong.any():
    i = int(wrong.argmax())
    raise ValueError(f'{place}: at byte {i * _RECORD}: label {records[i, 0]} is not in 0 to 9.')
  return records[:, 1:], records[:, 0].astype(np.int32)


def _parse_pickle(place: str, content: bytes) -> tuple[np.ndarray, np.ndarray]:
  """Does as `_parse_records` for the Python version."""
  batch = pickles.loads(place, content)
  if type(batch) is not dict:
    raise ValueError(f'{place}: pickles a {type(batch).__name__}, expected a dict.')
  rows, labels = (batch.get(key) for key in ('data', 'labels'))
  if not isinstance(rows, np.ndarray):
    raise ValueError(f"{place}: 'data' is no array.")
  shape = rows.shape
  if rows.dtype != np.uint8:
    raise ValueError(f"{place}: 'data' is of {rows.dtype}, expected uint8.")
  if len(shape) != 2 or shape[1] != _ROW or not shape[0]:
    raise ValueError(f"{place}: 'data' has shape {shape}, expected (n, {_ROW}).")
  if type(labels) is not list or len(labels) != shape[0]:
    raise ValueError(f"{place}: 'labels' is no list of {shape[0]}.")
  for i, label in enumerate(labels):
    if type(label) is not int or not 0 <= label < _CLASSES:
      raise ValueError(f"{place}: 'labels' holds something else than 0 to 9 at {i}.")
  return rows, np.array(labels, np.int32)
