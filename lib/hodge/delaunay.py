"""Host. Intrinsic Delaunay triangulations of surfaces: no cotangent weight is negative.

An edge whose two opposite angles sum to more than π is flipped to the other diagonal of its two
triangles, unfolded, until there is none. The surface and its vertices stay as they are; edges then
are geodesics of it rather than straight lines in space. Bobenko and Springborn (2007),
arXiv:math/0503219.
"""

import math

import numpy as np

from lib.hodge.complexes import Complex, tri_complex

# Sums of cotangents above minus this count as zero: flipping a square's diagonal gains nothing.
_TIE = 1e-12


def intrinsic_delaunay(c: Complex, lengths: np.ndarray) -> tuple[Complex, np.ndarray]:
  """Flips edges until all cotangent weights are >= 0, up to rounding.

  They may be zero: a square has no better diagonal.

  Args:
    c: a surface, without padding.
    lengths: of its edges (E,).

  Returns:
    The complex after the flips, on the same vertices, and the lengths of its edges (E,).

  Raises:
    ValueError: if lengths are those of no triangle, or the flips would join two vertices twice (or
      one with itself), which a simplicial complex cannot hold. The message names the face or edge.
  """
  lengths = np.asarray(lengths, np.float64)
  faces = [tuple(face) for face in c.faces.tolist()]
  length = dict(zip(map(tuple, c.edges.tolist()), lengths.tolist(), strict=True))
  around: dict[tuple[int, int], list[int]] = {edge: [] for edge in length}
  for f, edges in enumerate(c.face_edges.tolist()):
    for e in edges:
      around[tuple(c.edges[e].tolist())].append(f)

  def weight(edge: tuple[int, int]) -> float:
    """Twice the cotangent weight; 1 at the boundary, where edges stay."""
    if len(around[edge]) < 2:
      return 1.0
    return sum(_cotangent(faces[f], edge, length) for f in around[edge])

  for f, face in enumerate(faces):
    sides = (_edge(face[i - 1], face[i]) for i in range(3))
    if not all(math.isfinite(_cotangent(face, side, length)) for side in sides):
      raise ValueError(f'The lengths at face {f} are those of no triangle, or of a flat one.')
  queue = [edge for edge in length if weight(edge) < -_TIE]
  blocked = set()
  while queue:
    edge = queue.pop()
    if edge not in length or weight(edge) >= -_TIE:
      continue
    f, g = around[edge]
    # f turns left around i, j, k and g around j, i, m.
    i, j, k = _turned(faces[f], edge)
    m = _third(faces[g], edge)
    diagonal = _edge(k, m)
    if diagonal in length or k == m:
      blocked.add(edge)
      continue
    length[diagonal] = _other_diagonal(i, j, k, m, length)
    del length[edge], around[edge]
    faces[f], faces[g] = (i, m, k), (m, j, k)
    around[diagonal] = [f, g]
    around[_edge(i, m)] = [f if x == g else x for x in around[_edge(i, m)]]
    around[_edge(j, k)] = [g if x == f else x for x in around[_edge(j, k)]]
    queue += [_edge(i, m), _edge(m, j), _edge(j, k), _edge(k, i), *blocked]
    blocked.clear()
  if blocked:
    raise ValueError(
      f'The other diagonal to edge {min(blocked)} joins vertices that have an edge, or one vertex '
      'with itself.'
    )
  flipped = tri_complex(np.array(faces), c.sizes[0])
  return flipped, np.array([length[tuple(edge)] for edge in flipped.edges.tolist()])


def _edge(i: int, j: int) -> tuple[int, int]:
  return (i, j) if i < j else (j, i)


def _third(face: tuple[int, ...], edge: tuple[int, int]) -> int:
  return next(vertex for vertex in face if vertex not in edge)


def _turned(face: tuple[int, ...], edge: tuple[int, int]) -> tuple[int, ...]:
  """The face's vertices in its own order, from the first of the edge's two."""
  start = (face.index(_third(face, edge)) + 1) % 3
  return face[start:] + face[:start]


def _cotangent(
  face: tuple[int, ...], edge: tuple[int, int], length: dict[tuple[int, int], float]
) -> float:
  """Of the angle opposite to the edge; NaN or infinite in no triangle or a flat one."""
  k = _third(face, edge)
  a, b, c = length[edge], length[_edge(edge[0], k)], length[_edge(edge[1], k)]
  area = _area(a, b, c)
  return (b * b + c * c - a * a) / (4 * area) if area > 0 else math.inf


def _area(a: float, b: float, c: float) -> float:
  """By Kahan's form of Heron's formula."""
  z, y, x = sorted((a, b, c))
  square = (x + (y + z)) * (z - (x - y)) * (z + (x - y)) * (x + (y - z))
  return math.sqrt(square) / 4 if square > 0 else 0.0


def _other_diagonal(i: int, j: int, k: int, m: int, length: dict[tuple[int, int], float]) -> float:
  """The distance of k and m, unfolded to both sides of the edge (i, j)."""
  base = length[_edge(i, j)]
  along, across = 0.0, 0.0
  for vertex, side in ((k, 1), (m, -1)):
    a, b = length[_edge(i, vertex)], length[_edge(j, vertex)]
    along += side * (base * base + a * a - b * b) / (2 * base)
    across += 2 * _area(base, a, b) / base
  return math.hypot(along, across)
