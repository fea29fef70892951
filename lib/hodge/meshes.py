"""Host. Small meshes of known topology: points and oriented cells."""

from collections.abc import Sequence

import numpy as np

Mesh = tuple[np.ndarray, np.ndarray]


def icosphere(subdivisions: int) -> Mesh:
  """The unit sphere: an icosahedron whose faces are split in four, the new vertices pushed out.

  Args:
    subdivisions: how often, >= 0; there are 10 · 4^subdivisions + 2 vertices.

  Returns:
    Points (N, 3), and faces (F, 3) that turn left seen from outside.
  """
  golden = (1 + np.sqrt(5)) / 2
  rectangle = np.array([[0, a, b * golden] for a in (-1, 1) for b in (-1, 1)])
  points = np.concatenate([np.roll(rectangle, i, axis=1) for i in range(3)])
  near = np.linalg.norm(points[:, None] - points, axis=-1) < 2.5
  triples = np.stack(np.meshgrid(*[np.arange(12)] * 3, indexing='ij'), axis=-1).reshape(-1, 3)
  i, j, k = triples.T
  faces = triples[(i < j) & (j < k) & near[i, j] & near[j, k] & near[i, k]]
  inside = np.linalg.det(points[faces]) < 0
  faces[inside] = faces[inside, ::-1]
  for _ in range(subdivisions):
    pairs = np.sort(faces[:, [[0, 1], [1, 2], [2, 0]]], axis=-1)
    edges, middle = np.unique(pairs.reshape(-1, 2), axis=0, return_inverse=True)
    i, j, k = faces.T
    ij, jk, ki = middle.reshape(-1, 3).T + len(points)
    points = np.concatenate([points, points[edges].mean(axis=1)])
    corners = np.array([[i, ij, ki], [j, jk, ij], [k, ki, jk], [ij, jk, ki]])
    faces = corners.transpose(2, 0, 1).reshape(-1, 3)
  return points / np.linalg.norm(points, axis=1, keepdims=True), faces


def torus(num_around: int, num_across: int, radius: float = 1.0, tube: float = 0.4) -> Mesh:
  """A torus of revolution about z.

  Args:
    num_around: vertices around the axis, >= 3.
    num_across: vertices around the tube, even and >= 4.
    radius: of the tube's centre.
    tube: radius of the tube, below `radius`.

  Returns:
    Points (N, 3), and faces (F, 3) that turn left seen from outside.

  Raises:
    ValueError: if there are too few vertices or `num_across` is odd.
  """
  angles, faces = _staggered(num_around, num_across, True)
  u, v = 2 * np.pi * angles.T
  ring = radius + tube * np.cos(v)
  return np.stack([ring * np.cos(u), ring * np.sin(u), tube * np.sin(v)], axis=-1), faces


def flat_torus(num_x: int, num_y: int, period: Sequence[float] = (2 * np.pi, 2 * np.pi)) -> Mesh:
  """The plane modulo two periods, which lies flat in no three-dimensional space.

  Lengths of its edges are those of `stars.periodic_edge_lengths`.

  Args:
    num_x: vertices of a row, >= 3.
    num_y: rows, even and >= 4; every second one is shifted by half a step.
    period: of x and y.

  Returns:
    Points (N, 2), and faces (F, 3) that turn left.

  Raises:
    ValueError: if there are too few vertices or `num_y` is odd.
  """
  points, faces = _staggered(num_x, num_y, True)
  return points * np.asarray(period), faces


def annulus(num_around: int, num_rings: int, inner: float = 0.5, outer: float = 1.0) -> Mesh:
  """The plane region between two circles.

  Args:
    num_around: vertices of a ring, >= 3.
    num_rings: rings of vertices, >= 2.
    inner: radius of the hole.
    outer: radius of the rim.

  Returns:
    Points (N, 2), and faces (F, 3) that turn left.

  Raises:
    ValueError: if there are too few vertices.
  """
  angles, faces = _staggered(num_around, num_rings, False)
  u, height = angles.T
  u = 2 * np.pi * u
  ring = inner + (outer - inner) * height
  return np.stack([ring * np.cos(u), ring * np.sin(u)], axis=-1), faces[:, ::-1]


def rectangle(
  num_x: int,
  num_y: int,
  size: Sequence[float] = (1.0, 1.0),
  holes: Sequence[tuple[int, int, int, int]] = (),
) -> Mesh:
  """A rectangle of squares, each cut along a diagonal, from which blocks of squares are missing.

  The diagonals' direction alternates like the colours of a chessboard.

  Args:
    num_x: squares in x.
    num_y: squares in y.
    size: of the rectangle.
    holes: blocks (x0, x1, y0, y1) of squares with x0 <= x < x1 and y0 <= y < y1. Where they touch
      the rim or one another in a corner alone, `tri_complex` refuses the mesh.

  Returns:
    Points (N, 2), and faces (F, 3) that turn left.
  """
  x, y = (axis.ravel() for axis in np.meshgrid(np.arange(num_x), np.arange(num_y), indexing='ij'))
  keep = np.ones(x.shape, bool)
  for x0, x1, y0, y1 in holes:
    keep &= ~((x >= x0) & (x < x1) & (y >= y0) & (y < y1))
  x, y = x[keep], y[keep]
  corner = lambda i, j: (x + i) * (num_y + 1) + y + j
  a, b, c, d = corner(0, 0), corner(1, 0), corner(1, 1), corner(0, 1)
  even = ((x + y) % 2 == 0)[:, None]
  first = np.where(even, np.column_stack([a, b, c]), np.column_stack([a, b, d]))
  second = np.where(even, np.column_stack([a, c, d]), np.column_stack([b, c, d]))
  grid = np.indices((num_x + 1, num_y + 1)).reshape(2, -1).T
  return _compact(grid * np.asarray(size) / (num_x, num_y), np.concatenate([first, second]))


def cube(num: int, holes: Sequence[tuple[int, int, int, int, int, int]] = ()) -> Mesh:
  """The unit cube of num³ small cubes, each cut in six tetrahedra, from which blocks are missing.

  Args:
    num: small cubes along an axis.
    holes: blocks (x0, x1, y0, y1, z0, z1) of small cubes with x0 <= x < x1 and so on.

  Returns:
    Points (N, 3) and tetrahedra (T, 4) of positive volume.
  """
  cells = np.indices((num,) * 3).reshape(3, -1).T
  for hole in holes:
    low, high = np.reshape(hole, (3, 2)).T
    cells = cells[~((cells >= low) & (cells < high)).all(axis=1)]
  number = lambda x: (x[..., 0] * (num + 1) + x[..., 1]) * (num + 1) + x[..., 2]
  tets = []
  for axes in ((0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 2, 1), (2, 1, 0), (1, 0, 2)):
    # From corner to opposite corner along one axis after the other.
    path = np.concatenate([np.zeros((1, 3), int), np.cumsum(np.eye(3, dtype=int)[list(axes)], 0)])
    vertices = number(cells[:, None] + path)
    tets.append(vertices if np.linalg.det(path[1:]) > 0 else vertices[:, [1, 0, 2, 3]])
  grid = np.indices((num + 1,) * 3).reshape(3, -1).T
  return _compact(grid / num, np.concatenate(tets))


def _staggered(num_x: int, num_y: int, closed: bool) -> Mesh:
  """Rows of vertices in the unit square, periodic in x, every second one shifted by half a step.

  Where y is not periodic (`closed` is false), the last row lies at y = 1.
  """
  if num_x < 3 or num_y < (4 if closed else 2) or (closed and num_y % 2):
    raise ValueError(f'The mesh needs more vertices, or an even number, got {num_x} by {num_y}.')
  x, y = (axis.ravel() for axis in np.indices((num_x, num_y)))
  points = np.stack([(x + y % 2 / 2) / num_x, y / (num_y if closed else num_y - 1)], axis=-1)
  number = lambda i, j: (i % num_x) * num_y + j % num_y
  lower = y < (num_y if closed else num_y - 1)
  x, y = x[lower], y[lower]
  odd = y % 2
  a, b = number(x, y), number(x + 1, y)
  c, d = number(x + odd, y + 1), number(x + odd + 1, y + 1)
  # An even row's triangle up ends above the middle of its base, at c; an odd row's as well.
  faces = np.concatenate([np.column_stack([a, b, c]), np.column_stack([b, d, c])])
  return points, faces


def _compact(points: np.ndarray, cells: np.ndarray) -> Mesh:
  """Leaves out the points of no cell."""
  used, cells = np.unique(cells, return_inverse=True)
  return points[used], cells.reshape(-1, points.shape[1] + 1)
