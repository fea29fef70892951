"""Host. IDX files, MNIST's format, read as if a stranger had made them."""

import gzip
import math
import os
import struct
from typing import BinaryIO

import numpy as np

from lib.io.images import DEFLATE_RATIO, Images

_UINT8 = 0x08  # the code of the only type that images and their labels have
_GZIP = b'\x1f\x8b'


def read(
  images: str | os.PathLike, labels: str | os.PathLike | None = None, max_bytes: int = 2**32
) -> Images:
  """Reads grey images, and their labels, from IDX files, plain or compressed with gzip.

  The format: a big-endian word 0x0000TTDD of the type TT and the number of dimensions DD, a word
  for each dimension, and the numbers, the last dimension running fastest.

  Args:
    images: the file of images, such as train-images-idx3-ubyte.gz.
    labels: the file of their labels, such as train-labels-idx1-ubyte.gz; None for none.
    max_bytes: the most that either may take in memory.

  Returns:
    Images (N, H, W, 1), and labels 0 to 255.

  Raises:
    OSError: if a file cannot be opened.
    ValueError: naming the file and the byte: truncated, corrupt, too long, empty, of another
      type or number of dimensions; or there are not as many labels as images.
  """
  pixels = _read_array(images, 3, max_bytes)[..., None]
  if labels is None:
    return Images(pixels, None)
  classes = _read_array(labels, 1, max_bytes)
  if len(classes) != len(pixels):
    raise ValueError(
      f'{labels}: at byte 4: has {len(classes)} labels, {images} has {len(pixels)} images.'
    )
  return Images(pixels, classes.astype(np.int32))


def _read_array(path: str | os.PathLike, num_dims: int, max_bytes: int) -> np.ndarray:
  with open(path, 'rb') as file:
    size = os.fstat(file.fileno()).st_size
    zipped = file.read(len(_GZIP)) == _GZIP
    file.seek(0)
    try:
      if not zipped:
        return _parse(file, num_dims, size, max_bytes)
      with gzip.GzipFile(fileobj=file) as stream:
        return _parse(stream, num_dims, DEFLATE_RATIO * size, max_bytes)
    except Exception as error:  # damaged compression fails in many ways
      raise ValueError(f'{path}: {error}') from error


def _parse(
  stream: BinaryIO | gzip.GzipFile, num_dims: int, held: int, max_bytes: int
) -> np.ndarray:
  """Reads an array; `held` is the most bytes that the stream can give."""
  expected, start = bytes([0, 0, _UINT8, num_dims]), 4 * (1 + num_dims)
  header = stream.read(start)
  if header[:4] != expected[: len(header)]:
    raise ValueError(
      f'at byte 0: begins with {header[:4].hex()}, expected {expected.hex()}: '
      f'{num_dims} dimensions of unsigned bytes.'
    )
  if len(header) < start:
    raise ValueError(f'at byte {len(header)}: ends in the header of {start} bytes.')
  shape = struct.unpack(f'>{num_dims}I', header[4:])
  claimed = math.prod(shape)
  if not 0 < claimed <= min(held - start, max_bytes):
    raise ValueError(
      f'at byte 4: shape {shape} takes {claimed} bytes; it is empty, more than the file can hold '
      f'or more than {max_bytes}.'
    )
  raw = stream.read(claimed)
  if len(raw) < claimed:
    raise ValueError(f'at byte {start + len(raw)}: ends, {claimed - len(raw)} bytes too early.')
  if stream.read(1):  # at the end gzip compares its checksum
    raise ValueError(f'at byte {start + claimed}: goes on after its {claimed} bytes.')
  return np.frombuffer(bytearray(raw), np.uint8).reshape(shape)
