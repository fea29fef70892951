"""Meshes that the tests share, and a way to run jax in double precision."""

import functools

import jax
import numpy as np

from lib.hodge import complexes, meshes, stars

SURFACES = {
  'sphere': (lambda: meshes.icosphere(1), (1, 0, 1)),
  'torus': (lambda: meshes.torus(12, 8), (1, 2, 1)),
  'flat torus': (lambda: meshes.flat_torus(8, 6), (1, 2, 1)),
  'annulus': (lambda: meshes.annulus(12, 4), (1, 1, 0)),
  'two holes': (lambda: meshes.rectangle(7, 5, holes=[(1, 3, 1, 4), (4, 6, 2, 3)]), (1, 2, 0)),
  'sphere and disc': (lambda: union(meshes.icosphere(0), disc()), (2, 0, 1)),
}
VOLUMES = {
  'ball': (lambda: meshes.cube(2), (1, 0, 0, 0)),
  'shell': (lambda: meshes.cube(3, [(1, 2, 1, 2, 1, 2)]), (1, 0, 1, 0)),
  'solid torus': (lambda: meshes.cube(3, [(1, 2, 1, 2, 0, 3)]), (1, 1, 0, 0)),
  'torus with cavities': (
    lambda: meshes.cube(5, [(1, 2, 1, 2, 0, 5), (3, 4, 1, 2, 1, 2), (3, 4, 3, 4, 3, 4)]),
    (1, 1, 2, 0),
  ),
  'three-torus': (lambda: three_torus(4), (1, 3, 3, 1)),
}


KINDS = (stars.barycentric, stars.circumcentric, stars.cotan)


@functools.cache
def surface(name):
  """Points and complex."""
  points, faces = SURFACES[name][0]()
  return points, complexes.tri_complex(faces, len(points))


@functools.cache
def volume(name):
  """Points and complex."""
  points, tets = VOLUMES[name][0]()
  return points, complexes.tet_complex(tets, len(points))


def disc():
  points, faces = meshes.rectangle(2, 2)
  return np.pad(points, ((0, 0), (0, 1))) + 3, faces


def union(*parts):
  offsets = np.cumsum([0] + [len(points) for points, _ in parts])
  cells = [cells + offset for (_, cells), offset in zip(parts, offsets, strict=False)]
  return np.concatenate([points for points, _ in parts]), np.concatenate(cells)


def three_torus(num):
  """The cube with opposite sides glued."""
  points, tets = meshes.cube(num)
  grid = np.rint(points * num).astype(int) % num
  number = np.ravel_multi_index(tuple(grid.T), (num,) * 3)
  return np.indices((num,) * 3).reshape(3, -1).T / num, number[tets]


def relabelled(points, cells, seed=0):
  """The same mesh with vertices numbered, and cells listed, in another order."""
  rng = np.random.default_rng(seed)
  order = rng.permutation(len(points))
  moved = np.empty_like(points)
  moved[order] = points
  cells = order[cells][rng.permutation(len(cells))]
  # Turned, which keeps the orientation.
  turn = [1, 2, 0] if cells.shape[1] == 3 else [1, 2, 0, 3]
  cells[::2] = cells[::2][:, turn]
  return moved, cells, order


def exact(f, **options):
  """Runs f jitted and in double precision, from NumPy to NumPy."""
  jitted = jax.jit(f, **options)

  @functools.wraps(f)
  def run(*args):
    with jax.enable_x64(True):
      return jax.device_get(jitted(*args))

  return run


def random_stars(c, seed=0):
  rng = np.random.default_rng(seed)
  return tuple(rng.uniform(0.5, 2, n) for n in c.sizes[: 4 if c.sizes[3] else 3])


@exact
def surface_stars(c, points):
  """All kinds of stars at once, which compiles once, and the lengths of edges."""
  lengths = stars.edge_lengths(c, points)
  kinds = {kind.__name__: kind(c, lengths) for kind in KINDS}
  return kinds | {'lengths': lengths}
