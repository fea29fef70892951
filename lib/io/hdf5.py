"""Host. HDF5 in D4RL's layout, read as if a stranger had made it."""

import os

import h5py
import numpy as np

from lib.io import checks

_SHAPES = {
  'observations': ('n', 'o'),
  'actions': ('n', 'a'),
  'rewards': ('n',),
  'terminals': ('n',),
  'timeouts': ('n',),
}
_DEFLATE_RATIO = 1032  # the most bytes that one compressed byte can stand for


def load_d4rl(path: str | os.PathLike, max_bytes: int = 2**36) -> dict[str, np.ndarray]:
  """Reads the arrays of a D4RL data set (Fu et al., arXiv 2004.07219).

  Args:
    path: the file to read.
    max_bytes: the most that its arrays together may take in memory.

  Returns:
    `observations` (n, o), `actions` (n, a) and `rewards` (n,), float32; `terminals` (n,), where
    the environment ended the episode, and `timeouts` (n,), where the clock did, bool.

  Raises:
    OSError: if the file cannot be opened.
    ValueError: naming the file and the array at fault: truncated, corrupt, missing, of another
      shape or kind, kept outside the file, larger than the file can hold, or not finite.
  """
  with open(path, 'rb') as stream:
    size = os.fstat(stream.fileno()).st_size
    try:
      file = h5py.File(stream, 'r')
    except Exception as error:  # a hostile header can fail in many ways
      raise ValueError(f'{path}: not a whole HDF5 file of {size} bytes: {error}') from error
    with file:
      arrays = {}
      for name in _SHAPES:
        try:
          arrays[name] = _read_array(file, name, min(max_bytes, _DEFLATE_RATIO * size))
        except Exception as error:  # likewise
          raise ValueError(f'{path}: array {name!r}: {error}') from error
  checks.check_shapes(path, arrays, _SHAPES)
  checks.check_finite(path, arrays)
  return arrays


def _read_array(file: h5py.File, name: str, max_bytes: int) -> np.ndarray:
  if name not in file:
    raise ValueError(f'is missing; there are {sorted(file)[:20]}.')
  # Links and external storage would read other files of this machine.
  if not isinstance(file.get(name, getlink=True), h5py.HardLink):
    raise ValueError('is a link.')
  dataset = file[name]
  if not isinstance(dataset, h5py.Dataset):
    raise ValueError('is a group.')
  if dataset.external or dataset.is_virtual:
    raise ValueError('is kept in other files.')
  if dataset.dtype.kind not in 'biuf':
    raise ValueError(f'dtype {dataset.dtype} is not numeric.')
  if dataset.shape is None or dataset.nbytes > max_bytes:
    raise ValueError(
      f'claims shape {dataset.shape} of {dataset.dtype}, more than {max_bytes} bytes.'
    )
  dtype = np.bool_ if name in ('terminals', 'timeouts') else np.float32
  return dataset[()].astype(dtype)
