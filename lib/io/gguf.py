"""Host. GGUF files: metadata and the index of tensors, and one tensor at a time, dequantised.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import math
import mmap
import os
import pathlib
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import gguf
import numpy as np
import numpy.typing as npt

_KINDS = (
  'F32', 'F16', 'BF16', 'Q8_0', 'Q4_0', 'Q4_1', 'Q5_0', 'Q5_1',
  'Q2_K', 'Q3_K', 'Q4_K', 'Q5_K', 'Q6_K',
)  # fmt: skip
_SCALARS = {
  0: '<u1', 1: '<i1', 2: '<u2', 3: '<i2', 4: '<u4', 5: '<i4', 6: '<f4', 7: '?',
  10: '<u8', 11: '<i8', 12: '<f8',
}  # fmt: skip
_BOOL, _STRING, _ARRAY = 7, 8, 9
_SMALLEST = {_STRING: 8, _ARRAY: 12} | {i: np.dtype(d).itemsize for i, d in _SCALARS.items()}
_MAX_NAME = 2**16  # bytes of a key
_MAX_DIMENSIONS = 4
_MAX_DEPTH = 4  # of arrays in arrays, which the format allows and no model has
_CHUNK = 2**19  # elements that are dequantised at once


class Tensor(NamedTuple):
  """Where a tensor lies in its file, and what it is.

  Attributes:
    shape: sizes in NumPy's order, so that of a linear map is (out, in).
    kind: ggml's name of how its numbers are stored, such as 'F16' or 'Q4_1'.
    offset: its first byte, from the start of the file.
    size: its bytes.
  """

  shape: tuple[int, ...]
  kind: str
  offset: int
  size: int


class File(NamedTuple):
  """A GGUF file.

  Attributes:
    path: where it is.
    metadata: values by key: numbers, bools and strings; arrays of numbers as NumPy arrays, other
      arrays as lists.
    tensors: the index, by name.
  """

  path: pathlib.Path
  metadata: dict[str, Any]
  tensors: dict[str, Tensor]


def open_gguf(path: str | os.PathLike, max_header_bytes: int = 2**26) -> File:
  """Reads the metadata and the index of a GGUF file of version 2 or 3, and no tensor.

  Every count and size is compared with the bytes that are left before anything is allocated.

  Args:
    path: the file.
    max_header_bytes: the most that metadata and index may take.

  Raises:
    OSError: if the file cannot be opened.
    ValueError: naming the file, the key or tensor at fault, and where it stands: truncated, of
      another version or byte order, malformed, repeated, or past the end of the file.
  """
  path = pathlib.Path(path)
  with open(path, 'rb') as stream:
    size = os.fstat(stream.fileno()).st_size
    try:
      with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _read_header(path, _Reader(data, min(size, max_header_bytes)), size)
    except ValueError as error:  # an empty file's too
      raise ValueError(f'{path}: {error}') from error


def read_tensor(
  file: File, name: str, dtype: npt.DTypeLike = np.float32, rows: slice | None = None
) -> np.ndarray:
  """Reads and dequantises a tensor, a part at a time.

  Args:
    file: from `open_gguf`.
    name: the tensor's name.
    dtype: floating type of the result.
    rows: which to read along the first axis, without a step; None for all.

  Returns:
    The tensor, or its rows.

  Raises:
    OSError: if the file cannot be opened.
    ValueError: naming the file and the tensor: there is none of that name, its kind is not read,
      the rows cut a block of quantised numbers, or the file has become shorter.
  """
  if name not in file.tensors:
    raise ValueError(f'{file.path}: there is no tensor {name!r}; there are {len(file.tensors)}.')
  shape, kind, offset, size = file.tensors[name]
  where = f'{file.path}: tensor {name!r}'
  if kind not in _KINDS:
    raise ValueError(f'{where} is stored as {kind}; only {", ".join(_KINDS)} are read.')
  ggml_kind = gguf.GGMLQuantizationType[kind]
  block, block_bytes = gguf.GGML_QUANT_SIZES[ggml_kind]
  first, last = 0, size // block_bytes  # counted in blocks
  if rows is not None:
    if not shape or rows.step not in (None, 1):
      raise ValueError(f'{where} of shape {shape} has no rows {rows}.')
    start, stop, _ = rows.indices(shape[0])
    per_row = math.prod(shape[1:])
    shape = (max(stop - start, 0), *shape[1:])
    if start * per_row % block or shape[0] * per_row % block:
      raise ValueError(f'{where}: rows {rows} cut a block of {block} numbers.')
    first, last = start * per_row // block, (start + shape[0]) * per_row // block
  out = np.empty(shape, dtype)
  flat = out.reshape(-1)
  with open(file.path, 'rb') as stream:
    stream.seek(offset + first * block_bytes)
    for begin in range(first, last, _CHUNK // block):
      count = min(_CHUNK // block, last - begin)
      raw = np.frombuffer(stream.read(count * block_bytes), np.uint8)
      if raw.size < count * block_bytes:
        raise ValueError(f'{where}: the file ends before byte {offset + size}.')
      with np.errstate(all='ignore'):  # infinite scales are the caller's to refuse
        numbers = gguf.quants.dequantize(raw[None], ggml_kind)  # one row: grouping rows is slow
        flat[(begin - first) * block :][: count * block] = numbers[0]
  return out


class _Reader:
  """Reads one value after another, none of them past `end`."""

  def __init__(self, data: mmap.mmap, end: int):
    self.data, self.end, self.at = data, end, 0

  def take(self, size: int) -> int:
    """Moves past `size` bytes and returns where they begin."""
    if size > self.end - self.at:
      raise ValueError(f'{size} bytes at byte {self.at} end past byte {self.end}.')
    self.at += size
    return self.at - size

  def number(self, code: str) -> int:
    return struct.unpack_from(code, self.data, self.take(struct.calcsize(code)))[0]

  def string(self, max_size: float = math.inf) -> str:
    size = self.number('<Q')
    if size > max_size:
      raise ValueError(f'a name before byte {self.at} claims {size} bytes.')
    begin = self.take(size)
    try:
      return self.data[begin : self.at].decode()
    except UnicodeDecodeError as error:
      raise ValueError(f'the string at byte {begin} is not UTF-8: {error.reason}.') from error

  def scalars(self, kind: int, count: int) -> np.ndarray:
    dtype = np.dtype(_SCALARS[kind])
    begin = self.take(count * dtype.itemsize)
    raw = self.data[begin : self.at]
    if kind == _BOOL and max(raw, default=0) > 1:
      raise ValueError(f'a bool at byte {begin} is neither 0 nor 1.')
    return np.frombuffer(raw, dtype)

  def value(self, kind: int, depth: int = 0) -> Any:
    if kind == _STRING:
      return self.string()
    if kind in _SCALARS:
      return self.scalars(kind, 1)[0].item()
    if kind != _ARRAY:
      raise ValueError(f'type {kind} before byte {self.at} is none of the format.')
    if depth == _MAX_DEPTH:
      raise ValueError(f'arrays are nested deeper than {_MAX_DEPTH} at byte {self.at}.')
    kind, count = self.number('<I'), self.number('<Q')
    if count > (self.end - self.at) // _SMALLEST.get(kind, 1):
      raise ValueError(f'an array claims {count} values at byte {self.at} of {self.end}.')
    if kind in _SCALARS:
      return self.scalars(kind, count)
    return [self.value(kind, depth + 1) for _ in range(count)]


def _read_header(path: pathlib.Path, reader: _Reader, size: int) -> File:
  if reader.data[reader.take(4) : 4] != b'GGUF':
    raise ValueError('does not begin with GGUF.')
  version = reader.number('<I')
  if version not in (2, 3):
    order = 'big-endian' if version & 0xFFFF == 0 else f'version {version}'
    raise ValueError(f'{order} is not read, only versions 2 and 3 in little-endian order.')
  num_tensors, num_values = reader.number('<Q'), reader.number('<Q')
  # The smallest value is a key's length, a type and a byte; the smallest entry has no name.
  if 13 * num_values + 24 * num_tensors > reader.end - reader.at:
    raise ValueError(
      f'claims {num_values} values and {num_tensors} tensors at byte {reader.at} of {reader.end}.'
    )
  metadata = _read_named(reader, 'key', num_values, lambda: reader.value(reader.number('<I')))
  alignment = metadata.get('general.alignment', 32)
  if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
    raise ValueError(f"key 'general.alignment': {alignment!r} is no power of two.")
  entries = _read_named(reader, 'tensor', num_tensors, lambda: _read_entry(reader, alignment))
  start = -(-reader.at // alignment) * alignment
  tensors = {name: t._replace(offset=start + t.offset) for name, t in entries.items()}
  _check_places(tensors, size)
  return File(path, metadata, tensors)


def _read_named(reader: _Reader, what: str, count: int, read: Callable[[], Any]) -> dict[str, Any]:
  result: dict[str, Any] = {}
  for _ in range(count):
    at = reader.at
    name = reader.string(_MAX_NAME)
    try:
      if name in result:
        raise ValueError(f'is repeated at byte {at}.')
      result[name] = read()
    except ValueError as error:
      raise ValueError(f'{what} {name!r}: {error}') from error
  return result


def _read_entry(reader: _Reader, alignment: int) -> Tensor:
  """Reads what the index says of a tensor; its offset counts from where the tensors begin."""
  at = reader.at
  num_dimensions = reader.number('<I')
  if num_dimensions > _MAX_DIMENSIONS:
    raise ValueError(f'{num_dimensions} dimensions at byte {at}, more than {_MAX_DIMENSIONS}.')
  shape = tuple(reader.number('<Q') for _ in range(num_dimensions))[::-1]
  kind, offset = reader.number('<I'), reader.number('<Q')
  try:
    ggml_kind = gguf.GGMLQuantizationType(kind)
  except ValueError as error:
    raise ValueError(f'type {kind} before byte {reader.at} is none of ggml.') from error
  name, (block, block_bytes) = ggml_kind.name, gguf.GGML_QUANT_SIZES[ggml_kind]
  row = shape[-1] if shape else 1
  if 0 in shape or row % block:
    raise ValueError(f'shape {shape} at byte {at} does not hold blocks of {block}, as {name} does.')
  if offset % alignment:
    raise ValueError(f'offset {offset} before byte {reader.at} is no multiple of {alignment}.')
  return Tensor(shape, name, offset, math.prod(shape) // block * block_bytes)


def _check_places(tensors: dict[str, Tensor], size: int) -> None:
  end, before = 0, ''
  for name, tensor in sorted(tensors.items(), key=lambda item: item[1].offset):
    if tensor.offset + tensor.size > size:
      raise ValueError(
        f'tensor {name!r}: {tensor.size} bytes at byte {tensor.offset} end past byte {size}.'
      )
    if tensor.offset < end:
      raise ValueError(f'tensor {name!r} at byte {tensor.offset} overlaps tensor {before!r}.')
    end, before = tensor.offset + tensor.size, name
