"""The meshes of the tasks, with the numbers of their geometry and the cycles on them."""

import importlib.util
import pathlib
import signal
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy import sparse

from lib.hodge import complexes, delaunay, matrices, meshes, stars, topology
from lib.io import meshes as mesh_files

# Centres and radii of holes in the unit square.
HOLES = {
  1: ((0.45, 0.55, 0.18),),
  2: ((0.3, 0.35, 0.13), (0.68, 0.66, 0.15)),
  3: ((0.28, 0.3, 0.11), (0.72, 0.38, 0.12), (0.45, 0.74, 0.12)),
}
SURFACES = ('torus', 'nut')
_ATTEMPTS = 6
_FINER = 1.6  # how much closer points lie on refined meshes that are made anew


class Surface(NamedTuple):
  """The geometry of a closed, connected surface of genus g.

  Attributes:
    complex: its mesh.
    points: (N, 3).
    stars: positive ⋆0, ⋆1 and ⋆2, by cotangents.
    weights: (F, 3), half the cotangents opposite to each face's edges, whose sums are ⋆1.
    cycles: (2g, E), a basis of the first homology, of the same curves on a refined mesh.
    harmonic: (2g, E), the harmonic 1-cochains whose periods are the identity.
  """

  complex: complexes.Complex
  points: np.ndarray
  stars: tuple[np.ndarray, ...]
  weights: np.ndarray
  cycles: np.ndarray
  harmonic: np.ndarray


class Plane(NamedTuple):
  """The geometry of a plane domain: fields of `Surface`, with points (N, 2)."""

  complex: complexes.Complex
  points: np.ndarray
  stars: tuple[np.ndarray, ...]
  weights: np.ndarray


def exact(function: Callable, *args: Any) -> Any:
  """The values of a traced function in double precision, on the CPU, as NumPy arrays."""
  with jax.enable_x64(True), jax.default_device(jax.devices('cpu')[0]):
    return jax.device_get(jax.jit(function)(*args))


def plane_with_holes(holes: int, size: int, refine: int) -> Plane:
  """The unit square without one to three discs, by gmsh.

  Args:
    holes: how many, a key of `HOLES`.
    size: edges along a side of the square; a few more if some star is not positive with these.
    refine: 1 for the finer mesh.

  Returns:
    The mesh; faces turn left.

  Raises:
    ModuleNotFoundError: if gmsh is not installed.
    ValueError: if some star is not positive with more edges either.
  """

  def draw(occ):
    square = occ.addRectangle(0, 0, 0, 1, 1)
    discs = [(2, occ.addDisk(x, y, 0, radius, radius)) for x, y, radius in HOLES[holes]]
    occ.cut([(2, square)], discs)

  spacing = 1 / (size * (_FINER if refine else 1))
  for attempt in range(_ATTEMPTS):
    points, faces = _gmsh(draw, spacing * 0.97**attempt, 2)
    c = complexes.tri_complex(faces, len(points))
    try:
      return Plane(c, points[:, :2], *cotan_geometry(c, points))
    except ValueError as error:
      last = error
  raise last


def shell(inner: float, outer: float, size: int, refine: int) -> tuple[np.ndarray, np.ndarray]:
  """The space between two spheres around the origin, by gmsh.

  Args:
    inner: radius.
    outer: radius.
    size: edges from one sphere to the other.
    refine: 1 for the finer mesh.

  Returns:
    Points (N, 3) and tetrahedra (T, 4) of positive volume.

  Raises:
    ModuleNotFoundError: if gmsh is not installed.
  """

  def draw(occ):
    balls = [occ.addSphere(0, 0, 0, radius) for radius in (outer, inner)]
    occ.cut([(3, balls[0])], [(3, balls[1])])

  return _gmsh(draw, (outer - inner) / (size * (_FINER if refine else 1)), 3)


def surface(kind: str, path: str, size: int, refine: int) -> Surface:
  """A closed surface around the origin.

  Args:
    kind: 'torus', of radii 1 and 0.4 about z; or 'nut', a CAD part of genus 1 that comes with
      pyvista, about z and at mean distance 1 from the origin.
    path: of a mesh of triangles to take instead, moved and scaled like the nut; '' for none.
    size: vertices around the torus; other meshes have their own.
    refine: 1 for a mesh 1.5 (torus) or 2 times as fine.

  Returns:
    The surface.

  Raises:
    OSError: if the file cannot be opened.
    ModuleNotFoundError: if pyvista or meshio is needed and not installed.
    ValueError: naming the file: it is no mesh; or its surface is not closed, oriented and
      connected, or has a star that is not positive.
  """
  if kind == 'torus' and not path:
    return _torus(size, refine)
  points, cells = mesh_files.load_mesh(path or _nut_path(), merge=True)
  if not path:
    points = points[:, [2, 0, 1]]  # its hole runs along y in the file
  try:
    if cells.shape[1] != 3 or points.shape[1] != 3:
      raise ValueError('It is no surface in space.')
    return _from_mesh(points, cells, refine)
  except ValueError as error:
    raise ValueError(f'{path or kind}: {error}') from error


def refined(points: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Splits each face of a surface in four, in its plane: the same surface, half the spacing.

  Edges are cut near, but not at their middles, by which no weight of an edge is zero: the middles
  of a right-angled face's sides and its corner lie on one circle. Then edges inside faces are
  flipped where Delaunay's criterion asks for it.

  Args:
    points: (N, D).
    faces: (F, 3).

  Returns:
    Points (N + E, D), the first of which are the old ones, the E others on the edges of
    `tri_complex` in their order; faces (4F, 3); and the halves (E, 2) of the old edges among the
    new ones, the first of which runs along the old edge and the second one against it.

  Raises:
    ValueError: if an old edge would have to be flipped.
  """
  c = complexes.tri_complex(faces, len(points))
  share = np.random.default_rng(0).uniform(0.495, 0.505, (len(c.edges), 1))
  low, high = points[c.edges].transpose(1, 0, 2)
  points = np.concatenate([points, low + share * (high - low)])
  i, j, k = np.asarray(c.faces).T
  ij, jk, ki = c.face_edges.T + c.sizes[0]
  corners = np.array([[i, ij, ki], [j, jk, ij], [k, ki, jk], [ij, jk, ki]])
  fine = complexes.tri_complex(corners.transpose(2, 0, 1).reshape(-1, 3), len(points))
  lengths = exact(stars.edge_lengths, fine, points)
  flipped, flat_lengths = delaunay.intrinsic_delaunay(fine, lengths)
  keys = flipped.edges @ [len(points), 1]
  # New vertices have higher numbers than old ones.
  middles = np.arange(len(c.edges))[:, None] + c.sizes[0]
  wanted = c.edges.astype(np.int64) * len(points) + middles
  halves = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
  straight = np.linalg.norm(points[flipped.edges[:, 1]] - points[flipped.edges[:, 0]], axis=1)
  if (keys[halves] != wanted).any() or not np.allclose(straight, flat_lengths):
    raise ValueError('The refined surface is no Delaunay triangulation, as its edges are not.')
  return points, np.asarray(flipped.faces, np.int64), halves


def boundary_loops(c: complexes.Complex, points: np.ndarray) -> np.ndarray:
  """The chains (b, n) of the boundary's parts but the outermost, seen from the holes.

  The integral of a flux over a chain is what flows out of the hole.

  Args:
    c: a surface (n edges) or a volume (n faces).
    points: (N, D).

  Returns:
    Chains with coefficients 1 and -1.
  """
  if len(c.tets):
    on_boundary, cells, signs = topology.boundary(c)[2], c.tet_faces, c.tet_signs
    facets = c.faces[on_boundary]
  else:
    on_boundary, cells, signs = topology.boundary(c)[1], c.face_edges, c.face_signs
    facets = c.edges[on_boundary]
  numbers = np.flatnonzero(on_boundary)
  pairs = np.concatenate([facets[:, [0, i]] for i in range(1, facets.shape[1])])
  graph = sparse.coo_array((np.ones(len(pairs)), tuple(pairs.T)), (len(points),) * 2)
  labels = sparse.csgraph.connected_components(graph, directed=False)[1][facets[:, 0]]
  parts = list(dict.fromkeys(labels.tolist()))
  extent = lambda part: np.ptp(points[facets[labels == part].ravel()], axis=0).max()
  parts.remove(max(parts, key=extent))
  outward = np.zeros(len(on_boundary))
  outward[cells.ravel()] = signs.ravel()  # a facet of the boundary has one cell
  chains = np.zeros((len(parts), len(on_boundary)))
  for chain, part in zip(chains, parts, strict=True):
    chosen = numbers[labels == part]
    chain[chosen] = -outward[chosen]
  return chains


def particular_flux(
  c: complexes.Complex, k: int, star: np.ndarray, chains: np.ndarray
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
  """The solver for one flux that leaves cells and holes by given amounts.

    d_k w = a    the integral of w over each chain = b    Σ ⋆ w² is the least

  Args:
    c: a surface (k = 1) or a volume (k = 2) with boundary.
    k: degree of w.
    star: positive ⋆_k (n,).
    chains: (h, n).

  Returns:
    `solve(a, b) -> w`, of a (n_{k+1},) and b (h,).
  """
  rows = sparse.vstack([matrices.incidence(c, k).astype(float), sparse.csr_array(chains)])
  lift = sparse.diags_array(1 / star) @ rows.T
  solve = matrices.factor(rows @ lift).solve
  return lambda a, b: lift @ solve(np.concatenate([a, b]))


def grounded(matrix: sparse.csr_array) -> Callable[[np.ndarray], np.ndarray]:
  """The solver of A x = b with x_0 = 0, for A >= 0 whose kernel is constants and Σ b = 0."""
  solve = matrices.factor(matrix[1:, 1:]).solve
  return lambda b: np.concatenate([np.zeros((1, *b.shape[1:])), solve(b[1:])])


def stiffness(c: complexes.Complex, star1: np.ndarray) -> sparse.csr_array:
  """d0ᵀ ⋆1 d0."""
  d0 = matrices.incidence(c, 0).astype(float)
  return (d0.T @ sparse.diags_array(star1) @ d0).tocsr()


def edge_sums(c: complexes.Complex, weights: np.ndarray) -> np.ndarray:
  """Sums (E,) of the faces' weights (F, 3) of their edges."""
  return np.bincount(c.face_edges.ravel(), weights.ravel(), minlength=len(c.edges))


def cotan_geometry(
  c: complexes.Complex, points: np.ndarray
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
  """The stars of a surface by cotangents, and the `weights` of `Surface`.

  Raises:
    ValueError: if a star is not positive.
  """

  def compute(points):
    lengths = stars.edge_lengths(c, points)
    # The edge (0, 1) is opposite to corner 2, and so on.
    opposite = jax.numpy.roll(stars.corner_cotangents(c, lengths), 1, axis=-1)
    return stars.cotan(c, lengths), opposite / 2

  diagonals, weights = exact(compute, points)
  stars.check_positive(diagonals)
  return diagonals, weights


def _torus(size: int, refine: int) -> Surface:
  # Rows are even in number, and edges about as long in both directions.
  around = round(size * (1.5 if refine else 1))
  points, faces = meshes.torus(around, 2 * round(0.2 * around * 2 / np.sqrt(3)))
  c = complexes.tri_complex(faces, len(points))
  x, y, z = points.T
  angles = np.stack([np.arctan2(y, x), np.arctan2(z, np.hypot(x, y) - 1)])
  turns = np.diff(angles[:, c.edges], axis=-1)[..., 0] / (2 * np.pi)
  cocycles = turns - np.round(turns)
  cycles = topology.homology(c).cycles.astype(float)
  cycles = np.round(np.linalg.solve(np.round(cycles @ cocycles.T), cycles))
  return _surface(c, points, cycles, cocycles)


def _nut_path() -> pathlib.Path:
  found = importlib.util.find_spec('pyvista')
  if found is None or not found.submodule_search_locations:
    raise ModuleNotFoundError('The nut comes with pyvista, which is not installed.')
  return pathlib.Path(found.submodule_search_locations[0]) / 'examples' / 'nut.ply'


def _from_mesh(points: np.ndarray, faces: np.ndarray, refine: int) -> Surface:
  c = complexes.tri_complex(faces, len(points))
  if topology.boundary(c)[1].any():
    edge = c.edges[topology.boundary(c)[1].argmax()].tolist()
    raise ValueError(f'The surface is not closed: the edge {edge} has one face.')
  if topology.components(c).any():
    raise ValueError(f'The surface has {topology.components(c).max() + 1} components.')
  points = points - points.mean(axis=0)
  points = points / np.linalg.norm(points, axis=1).mean()
  cycles = topology.homology(c).cycles.astype(float)
  if refine:
    points, faces, halves = refined(points, faces)
    c = complexes.tri_complex(faces, len(points))
    coarse, cycles = cycles, np.zeros((len(cycles), len(c.edges)))
    cycles[:, halves[:, 0]] = coarse
    cycles[:, halves[:, 1]] = -coarse
  cocycles = topology.homology(c).cocycles.astype(float)
  cocycles = np.linalg.solve(cocycles @ cycles.T, cocycles)
  return _surface(c, points, cycles, cocycles)


def _surface(
  c: complexes.Complex, points: np.ndarray, cycles: np.ndarray, cocycles: np.ndarray
) -> Surface:
  """The surface, of a basis of its cycles and the dual one of its cocycles."""
  diagonals, weights = cotan_geometry(c, points)
  d0 = matrices.incidence(c, 0).astype(float)
  potentials = grounded(stiffness(c, diagonals[1]))(d0.T @ (diagonals[1] * cocycles).T)
  return Surface(c, points, diagonals, weights, cycles, cocycles - (d0 @ potentials).T)


def _gmsh(
  draw: Callable[[Any], None], spacing: float, dimension: int
) -> tuple[np.ndarray, np.ndarray]:
  """Points and positively oriented simplices of a shape that `draw` makes of gmsh's kernel."""
  import gmsh  # only its meshes need it

  on_pipe = signal.getsignal(signal.SIGPIPE)  # gmsh makes writing to a closed pipe fatal
  gmsh.initialize(interruptible=False)
  if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGPIPE, on_pipe)
  try:
    for option, value in {
      'General.Terminal': 0,
      'General.NumThreads': 1,
      'Mesh.RandomSeed': 1,
      'Mesh.MeshSizeMin': spacing,
      'Mesh.MeshSizeMax': spacing,
    }.items():
      gmsh.option.setNumber(option, value)
    gmsh.model.add('shape')
    draw(gmsh.model.occ)
    gmsh.model.occ.synchronize()
    gmsh.model.mesh.generate(dimension)
    tags, coordinates, _ = gmsh.model.mesh.getNodes()
    _, cells = gmsh.model.mesh.getElementsByType(2 if dimension == 2 else 4)
  finally:
    gmsh.finalize()
  order = np.argsort(tags)
  cells = order[np.searchsorted(tags[order], cells)].reshape(-1, dimension + 1)
  used, cells = np.unique(cells, return_inverse=True)
  points, cells = np.reshape(coordinates, (-1, 3))[used], cells.reshape(-1, dimension + 1)
  steps = (points[cells[:, 1:]] - points[cells[:, :1]])[..., :dimension]
  turned = np.linalg.det(steps) < 0
  cells[turned, :2] = cells[turned, 1::-1]
  return points, cells
