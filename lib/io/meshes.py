"""Host. Meshes of triangles or tetrahedra from files of PLY, OBJ, STL, VTK and MSH.

The package meshio knows the formats, but it believes its files: they can make it allocate without
bound or never return. So it runs as a process of its own, with little memory and time.
"""

import os
import pathlib
import resource
import subprocess
import sys
import tempfile
from typing import BinaryIO

import numpy as np

FORMATS = ('ply', 'obj', 'stl', 'vtk', 'msh')
_MODULES = {'msh': 'gmsh'}
_CORNERS = {'triangle': 3, 'tetra': 4}
_LOWER = ('vertex', 'line')  # what files say of corners and creases besides
_MEMORY = 2**31  # of the process, and 200 bytes for each byte of the file
_MAX_MESSAGE = 300
_ENDS = {'stl': b'endsolid', 'msh': b'$end'}  # last lines of texts that meshio does without


def load_mesh(
  path: str | os.PathLike,
  merge: bool = False,
  max_bytes: int = 2**30,
  seconds: int = 600,
) -> tuple[np.ndarray, np.ndarray]:
  """Reads a mesh; nothing of it is repaired. OBJ files do not say whether they are whole.

  Args:
    path: a file whose suffix is one of `FORMATS`, large or small.
    merge: make one vertex of those with equal coordinates, as is done with STL files in any case,
      for their triangles have no vertices in common.
    max_bytes: the most that the file may take.
    seconds: of processor time, after which reading is given up.

  Returns:
    Points (N, D) float64, and the vertices of cells (C, 4) int64 of tetrahedra where the file has
    some, of triangles (C, 3) else.

  Raises:
    OSError: if the file cannot be opened.
    ModuleNotFoundError: if meshio is not installed.
    ValueError: naming the file: it is of another format, too large, truncated or corrupt, has cells
      of another kind or none, a vertex that is out of range, or a coordinate that is not finite.
  """
  path = pathlib.Path(path)
  suffix = path.suffix.lower().removeprefix('.')
  if suffix not in FORMATS:
    raise ValueError(f'{path}: the format must be one of {", ".join(FORMATS)}.')
  with open(path, 'rb') as stream:
    size = os.fstat(stream.fileno()).st_size
    if size > max_bytes:
      raise ValueError(f'{path}: takes {size} bytes, more than {max_bytes}.')
    _check_end(path, suffix, stream, size)
  with tempfile.TemporaryDirectory() as directory:
    arrays = _read_apart(path, suffix, pathlib.Path(directory), size, seconds)
  points, cells = _chosen(path, arrays)
  if merge:
    points, inverse = np.unique(points + 0.0, axis=0, return_inverse=True)  # -0.0 becomes 0.0
    cells = inverse.ravel()[cells]
  return points, cells


def _check_end(path: pathlib.Path, suffix: str, stream: BinaryIO, size: int) -> None:
  """Raises if a text lacks its last line, by which alone one knows that it is whole."""
  head = stream.read(84)
  binary_stl = len(head) == 84 and size == 84 + 50 * int.from_bytes(head[80:], 'little')
  if suffix in _ENDS and not (suffix == 'stl' and binary_stl):
    stream.seek(max(0, size - 4096))
    last = stream.read().strip().rsplit(b'\n', 1)[-1].strip().lower()
    if not last.startswith(_ENDS[suffix]):
      raise ValueError(f'{path}: not a whole {suffix} file: it ends early, at byte {size}.')


def _read_apart(
  path: pathlib.Path, suffix: str, directory: pathlib.Path, size: int, seconds: int
) -> dict[str, np.ndarray]:
  """The arrays that meshio makes of a file, `points` and one for each kind of cells."""
  output = directory / 'arrays.npz'
  memory = _MEMORY + 200 * size
  command = [sys.executable, '-I', __file__, str(path.absolute()), suffix, str(output)]
  command += [str(memory), str(seconds)]
  environment = {**os.environ, 'OPENBLAS_NUM_THREADS': '1', 'OMP_NUM_THREADS': '1'}
  run = subprocess.run(command, capture_output=True, env=environment, check=False)
  if run.returncode == 3:
    raise ModuleNotFoundError(f'{path}: meshes are read by meshio, which is not installed.')
  if run.returncode or not output.exists():
    told = run.stderr.decode(errors='replace').strip().splitlines()
    if run.returncode < 0:
      told = [f'reading took more than {seconds} s, or failed by signal {-run.returncode}']
    reason = (told or ['no reason given'])[-1][:_MAX_MESSAGE]
    raise ValueError(f'{path}: not a whole {suffix} file of {size} bytes: {reason}')
  try:
    with np.load(output, allow_pickle=False) as arrays:
      return dict(arrays)
  except ValueError as error:
    raise ValueError(f'{path}: holds what are no numbers: {error}') from error


def _chosen(path: pathlib.Path, arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
  """The points and the cells of the highest dimension, checked."""
  points = arrays.pop('points')
  others = set(arrays) - set(_CORNERS) - set(_LOWER)
  if others:
    raise ValueError(
      f'{path}: has cells of kind {sorted(others)[0]!r}; only triangles and tetrahedra are read.'
    )
  kind = 'tetra' if len(arrays.get('tetra', ())) else 'triangle'
  cells = arrays.get(kind, np.zeros(0))
  if cells.ndim != 2 or not len(cells) or cells.shape[1] != _CORNERS[kind]:
    raise ValueError(f'{path}: has neither triangles nor tetrahedra.')
  if not np.issubdtype(cells.dtype, np.integer):
    raise ValueError(f'{path}: numbers vertices by {cells.dtype}.')
  if points.ndim != 2 or points.shape[1] not in (2, 3) or points.dtype.kind not in 'iuf':
    raise ValueError(f'{path}: points of {points.dtype} have shape {points.shape}, not (N, 3).')
  finite = np.isfinite(points).all(axis=1)
  if not finite.all():
    i = finite.argmin()
    raise ValueError(f'{path}: vertex {i} is at {points[i].tolist()}.')
  outside = (cells < 0) | (cells >= len(points))
  if outside.any():
    i, j = np.argwhere(outside)[0]
    raise ValueError(f'{path}: {kind} {i} has vertex {cells[i, j]}, but there are {len(points)}.')
  return points.astype(np.float64), cells.astype(np.int64)


def _main(path: str, suffix: str, output: str, memory: str, seconds: str) -> None:
  """What the process does."""
  resource.setrlimit(resource.RLIMIT_AS, (int(memory),) * 2)
  resource.setrlimit(resource.RLIMIT_CPU, (int(seconds),) * 2)
  resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
  import importlib

  try:
    reader = importlib.import_module(f'meshio.{_MODULES.get(suffix, suffix)}')
  except ModuleNotFoundError:
    sys.exit(3)
  try:
    mesh = reader.read(path)
    arrays: dict[str, list[np.ndarray]] = {}
    for block in mesh.cells:
      if len(block.data):
        arrays.setdefault(block.type, []).append(np.asarray(block.data))
    joined = {kind: np.concatenate(blocks) for kind, blocks in arrays.items()}
    np.savez(output, points=np.asarray(mesh.points), **joined)  # type: ignore[arg-type]
  except BaseException as error:  # whatever it is, the parent names the file
    text = ' '.join(str(error).split())
    print(f'{type(error).__name__}: {text}', file=sys.stderr)
    sys.exit(1)


if __name__ == '__main__':
  _main(*sys.argv[1:])
