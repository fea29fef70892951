"""Host. NumPy archives: written atomically, read as if a stranger had made them."""

import math
import os
import zipfile
from collections.abc import Mapping

import numpy as np

from lib.io import files

_NUMERIC_KINDS = 'biuf'  # bool, int, uint, float
_DEFLATE_RATIO = 1032  # the most bytes that one compressed byte can stand for


def save_npz(
  path: str | os.PathLike, arrays: Mapping[str, np.ndarray], compress: bool = False
) -> None:
  """Writes arrays as one `.npz`, whole or not at all; equal arrays give equal bytes.

  Args:
    path: the file to write.
    arrays: numeric arrays by name.
    compress: deflate them.

  Raises:
    OSError: if the file cannot be written.
  """
  with files.replacing(path) as stream:
    (np.savez_compressed if compress else np.savez)(stream, **arrays)  # type: ignore[arg-type]


def load_npz(path: str | os.PathLike, max_bytes: int = 2**36) -> dict[str, np.ndarray]:
  """Reads every array of an `.npz`, trusting nothing in it.

  A header is believed only where the archive's directory agrees with it, and the directory only
  as far as its compressed bytes could expand, so nothing is allocated that the file cannot fill.

  Args:
    path: the file to read.
    max_bytes: the most that its arrays together may take in memory.

  Returns:
    Arrays by name, in native byte order.

  Raises:
    OSError: if the file cannot be opened.
    ValueError: naming the file, and the array and its offset where one is at fault: the file is
      truncated or corrupt, an array holds objects, text or records, or a header lies.
  """
  with open(path, 'rb') as stream:
    size = os.fstat(stream.fileno()).st_size
    try:
      archive = zipfile.ZipFile(stream)
    except Exception as error:  # a hostile directory can fail in many ways
      raise ValueError(
        f'{path}: not a whole npz file, at byte {size} of {size}: {error}'
      ) from error
    with archive:
      members = archive.infolist()
      if len({member.filename for member in members}) < len(members):
        raise ValueError(f'{path}: two arrays have the same name.')
      total = sum(member.file_size for member in members)
      if total > max_bytes:
        raise ValueError(f'{path}: claims {total} bytes of arrays, more than {max_bytes}.')
      arrays = {}
      for member in members:
        name = member.filename.removesuffix('.npy')
        try:
          arrays[name] = _read_array(archive, member)
        except Exception as error:  # likewise
          raise ValueError(
            f'{path}: array {name!r} at byte {member.header_offset}: {error}'
          ) from error
      return arrays


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
  if member.file_size > _DEFLATE_RATIO * member.compress_size:
    raise ValueError(f'claims {member.file_size} bytes out of {member.compress_size} compressed.')
  with archive.open(member) as stream:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
      shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
      shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
    else:
      raise ValueError(f'npy version {version} holds records, which are not read.')
    if dtype.kind not in _NUMERIC_KINDS:
      raise ValueError(f'dtype {dtype} is not numeric.')
    claimed = math.prod(shape) * dtype.itemsize
    held = member.file_size - stream.tell()
    if min(shape, default=0) < 0 or claimed != held:
      raise ValueError(f'shape {shape} of {dtype} takes {claimed} bytes, the file holds {held}.')
    raw = stream.read()  # to the end, where zipfile compares the checksum
  if len(raw) != claimed:
    raise ValueError(f'ends after {len(raw)} of {claimed} bytes.')
  array = np.frombuffer(raw, dtype).reshape(shape, order='F' if fortran else 'C')
  return array.astype(dtype.newbyteorder('='), order='C')
