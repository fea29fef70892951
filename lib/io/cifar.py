"""Host. CIFAR-10 as published, its binary and its Python version, from the archive or unpacked.

The Python version is made of pickles. They are never unpickled: a small reader knows what a pickled
dictionary of bytes, lists and one array looks like, calls nothing, and refuses all else.
The format: https://www.cs.toronto.edu/~kriz/cifar.html
"""

import enum
import gzip
import math
import os
import pathlib
import pickletools
import posixpath
import tarfile
from typing import Any

import numpy as np

from lib.io.images import DEFLATE_RATIO, Images, from_planes

_ROW = 3 * 32 * 32
_RECORD = 1 + _ROW
_CLASSES = 10
_MAX_OPCODES = 2**20  # of a pickle; a published one has about forty thousand
_SUFFIX = '.bin'  # of the binary version's files
_BLOCK = 512  # of a tar archive
_SOURCE = 'cifar-10-python.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html'


class _Known(enum.Enum):
  """Everything that a pickle may name; where it calls one, that is only noted."""

  RECONSTRUCT = enum.auto()
  NDARRAY = enum.auto()
  DTYPE = enum.auto()
  UINT8 = enum.auto()


class _Array:
  """A pickled array, which has no values until its state has been read."""

  values: np.ndarray | None = None


_GLOBALS = {
  'numpy.core.multiarray _reconstruct': _Known.RECONSTRUCT,
  'numpy._core.multiarray _reconstruct': _Known.RECONSTRUCT,
  'numpy ndarray': _Known.NDARRAY,
  'numpy dtype': _Known.DTYPE,
}
_CONSTANTS = {'NONE': None, 'NEWTRUE': True, 'NEWFALSE': False, 'EMPTY_TUPLE': ()}
_UINT8_STATE = (3, b'|', None, None, None, -1, -1, 0)


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
  batch = _unpickle(place, content)
  if type(batch) is not dict:
    raise ValueError(f'{place}: pickles a {type(batch).__name__}, expected a dict.')
  rows, labels = (batch.get(key) for key in ('data', 'labels'))
  if not isinstance(rows, _Array) or rows.values is None:
    raise ValueError(f"{place}: 'data' is no array.")
  shape = rows.values.shape
  if shape[1] != _ROW or not shape[0]:
    raise ValueError(f"{place}: 'data' has shape {shape}, expected (n, {_ROW}).")
  if type(labels) is not list or len(labels) != shape[0]:
    raise ValueError(f"{place}: 'labels' is no list of {shape[0]}.")
  for i, label in enumerate(labels):
    if type(label) is not int or not 0 <= label < _CLASSES:
      raise ValueError(f"{place}: 'labels' holds something else than 0 to 9 at {i}.")
  return rows.values, np.array(labels, np.int32)


def _unpickle(place: str, content: bytes) -> Any:
  """Reads plain data out of a pickle; keys of dictionaries become texts."""
  stacks: list[list[Any]] = [[]]  # a mark begins a new one
  memo: dict[int, Any] = {}
  offset: int | None = 0
  try:
    for count, (opcode, argument, start) in enumerate(pickletools.genops(content)):
      offset = start
      if count >= _MAX_OPCODES:
        raise ValueError(f'more than {_MAX_OPCODES} opcodes')
      if opcode.name == 'STOP':
        return _pop(stacks)
      _step(opcode.name, argument, stacks, memo)
    raise ValueError('no end')
  except Exception as error:  # genops fails in many ways; messages show nothing nested
    raise ValueError(f'{place}: pickle near byte {offset}: {error}.') from error


def _step(name: str, argument: Any, stacks: list[list[Any]], memo: dict[int, Any]) -> None:
  """Follows one opcode."""
  match name:
    case 'PROTO':
      return
    case 'MARK':
      stacks.append([])
      return
    case 'BINPUT' | 'LONG_BINPUT':
      memo[argument] = _top(stacks)
      return
    case 'APPEND' | 'APPENDS' | 'SETITEM' | 'SETITEMS':
      single = {'APPEND': 1, 'SETITEM': 2}.get(name)
      items = _above_mark(stacks) if single is None else _pop_many(stacks, single)
      (_extend if name.startswith('APPEND') else _update)(_top(stacks), items)
      return
    case 'BUILD':
      state = _pop(stacks)
      _build(_top(stacks), state)
      return
    case 'NONE' | 'NEWTRUE' | 'NEWFALSE' | 'EMPTY_TUPLE':
      value: Any = _CONSTANTS[name]
    case 'BININT' | 'BININT1' | 'BININT2' | 'BINUNICODE' | 'SHORT_BINBYTES' | 'BINBYTES':
      value = argument
    case 'BINSTRING' | 'SHORT_BINSTRING':
      value = argument.encode('latin-1')  # Python 2 had only bytes
    case 'EMPTY_DICT':
      value = {}
    case 'EMPTY_LIST':
      value = []
    case 'TUPLE':
      value = tuple(_above_mark(stacks))
    case 'TUPLE1' | 'TUPLE2' | 'TUPLE3':
      value = tuple(_pop_many(stacks, int(name[-1])))
    case 'BINGET' | 'LONG_BINGET':
      if argument not in memo:
        raise ValueError(f'nothing was noted as {argument}')
      value = memo[argument]
    case 'GLOBAL':
      if argument not in _GLOBALS:
        raise ValueError(f'names {argument[:80]!r}, which no plain data need')
      value = _GLOBALS[argument]
    case 'REDUCE':
      arguments = _pop(stacks)
      value = _reduce(_pop(stacks), arguments)
    case _:
      raise ValueError(f'opcode {name} is not read')
  stacks[-1].append(value)


def _reduce(function: Any, arguments: Any) -> Any:
  """What a call would have made, of the two that are known."""
  if function is _Known.RECONSTRUCT and arguments == (_Known.NDARRAY, (0,), b'b'):
    return _Array()
  if function is _Known.DTYPE and arguments in ((b'u1', 0, 1), ('u1', 0, 1)):
    return _Known.UINT8
  raise ValueError('calls something else than what makes an array of uint8')


def _build(target: Any, state: Any) -> None:
  if target is _Known.UINT8 and state in (_UINT8_STATE, (3, '|', *_UINT8_STATE[2:])):
    return
  if not isinstance(target, _Array) or type(state) is not tuple or len(state) != 5:
    raise ValueError('sets the state of something else than an array of uint8')
  version, shape, dtype, fortran, raw = state
  if version != 1 or dtype is not _Known.UINT8 or type(fortran) not in (bool, int):
    raise ValueError('the state of an array is not one of uint8')
  if type(shape) is not tuple or len(shape) != 2 or any(type(n) is not int for n in shape):
    raise ValueError('an array has not two dimensions')
  if type(raw) is not bytes or min(shape) < 0 or math.prod(shape) != len(raw):
    raise ValueError(f'an array of shape {shape} does not take the bytes that it has')
  target.values = np.frombuffer(raw, np.uint8).reshape(shape, order='F' if fortran else 'C')


def _extend(target: Any, items: list[Any]) -> None:
  if type(target) is not list:
    raise ValueError('appends to what is no list')
  target.extend(items)


def _update(target: Any, items: list[Any]) -> None:
  if type(target) is not dict or len(items) % 2:
    raise ValueError('sets items of what is no dict, or a key without a value')
  for key, value in zip(items[::2], items[1::2], strict=True):
    if type(key) not in (bytes, str):
      raise ValueError('a key is no text')
    text = key.decode('latin-1') if isinstance(key, bytes) else key
    if text in target:
      raise ValueError(f'key {text[:80]!r} is given twice')
    target[text] = value


def _top(stacks: list[list[Any]]) -> Any:
  if not stacks[-1]:
    raise ValueError('the stack is empty')
  return stacks[-1][-1]


def _pop(stacks: list[list[Any]]) -> Any:
  value = _top(stacks)
  stacks[-1].pop()
  return value


def _pop_many(stacks: list[list[Any]], count: int) -> list[Any]:
  return [_pop(stacks) for _ in range(count)][::-1]


def _above_mark(stacks: list[list[Any]]) -> list[Any]:
  if len(stacks) < 2:
    raise ValueError('there is no mark')
  return stacks.pop()
