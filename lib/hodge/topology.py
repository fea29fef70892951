"""Host. What a complex has without a metric: boundary, components, Betti numbers, homology.

All of it is exact: counts, spanning trees and integers, no eigenvalues. These functions take a
complex without padding.
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from lib.hodge.complexes import Complex

# Ranks are taken modulo this prime.
_PRIME = 2**31 - 1


class Homology(NamedTuple):
  """A basis of the first homology of a surface and the dual one of its cohomology.

  Attributes:
    cycles: (b1, E) int8, closed curves: the coefficients of edges in {-1, 0, 1}.
    cocycles: (b1, E) int8, 1-cochains with d1 = 0 and `cocycles @ cycles.T` the identity.
  """

  cycles: np.ndarray
  cocycles: np.ndarray


def boundary(c: Complex) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
  """Which vertices (N,), edges (E,), faces (F,) and tetrahedra (T,) lie on the boundary, bool.

  The boundary of a surface is made of the edges with one face, that of a volume of the faces with
  one tetrahedron.
  """
  vertices = np.zeros(c.vertex_edges.index.shape[-1], bool)
  edges, faces, tets = (np.zeros(len(cells), bool) for cells in (c.edges, c.faces, c.tets))
  if len(tets):
    faces = np.bincount(c.tet_faces.ravel(), minlength=len(faces)) == 1
    edges[c.face_edges[faces]] = True
  else:
    edges = np.bincount(c.face_edges.ravel(), minlength=len(edges)) == 1
  vertices[c.edges[edges]] = True
  return vertices, edges, faces, tets


def components(c: Complex) -> np.ndarray:
  """The number (N,) of the connected component that each vertex is in, from 0 on."""
  return _labels(c.edges, c.vertex_edges.index.shape[-1])


def euler_characteristic(c: Complex) -> int:
  """χ = N - E + F - T = Σ_k (-1)^k b_k."""
  return int(c.sizes @ [1, -1, 1, -1])


def betti_numbers(c: Complex) -> tuple[int, ...]:
  """(b0, b1, b2) of a surface or (b0, b1, b2, b3) of a volume: components, handles, cavities.

  b0 counts components and the last one counts those without boundary, for all are oriented. On a
  surface χ gives b1. In a volume the rank of d1 does, taken modulo the prime 2³¹ - 1 by
  elimination: it is the rank over the rationals unless the prime divides the order of a torsion
  element of the homology, of which there is none in parts of space. By duality the k-th number
  relative to the boundary is b_{n-k}.
  """
  labels = components(c)
  b_first = int(labels.max()) + 1
  on_boundary = boundary(c)[0]
  b_last = b_first - len(np.unique(labels[on_boundary]))
  if not len(c.tets):
    return b_first, b_first + b_last - euler_characteristic(c), b_last
  num_vertices, num_edges, num_faces, num_tets = c.sizes.tolist()
  rank = _rank_of_d1(c)
  b1 = num_edges - (num_vertices - b_first) - rank
  b2 = num_faces - (num_tets - b_last) - rank
  return b_first, b1, b2, b_last


def homology(c: Complex) -> Homology:
  """A basis of the cycles of a surface that bound nothing, by a tree and a cotree.

  The edges that are neither in a spanning forest of the vertices nor cross one of the faces and
  the outside close one cycle each through the first, and carry one cocycle each through the
  second. Eppstein (2003), arXiv:cs/0207082.

  Raises:
    ValueError: if the complex has tetrahedra.
  """
  _check_surface(c)
  return _tree_cotree(c, np.zeros_like(boundary(c)[0]))


def relative_homology(c: Complex) -> Homology:
  """The same relative to the boundary: cycles may also run from boundary to boundary.

  The cocycles vanish on boundary edges.

  Raises:
    ValueError: if the complex has tetrahedra.
  """
  _check_surface(c)
  return _tree_cotree(c, boundary(c)[0])


def _check_surface(c: Complex) -> None:
  if len(c.tets):
    raise ValueError('Cycles are found on surfaces, got a complex with tetrahedra.')


def _tree_cotree(c: Complex, collapsed: np.ndarray) -> Homology:
  """The homology relative to the boundary, if its vertices are `collapsed`, or the absolute one."""
  on_boundary = boundary(c)[1]
  inner = ~on_boundary if collapsed.any() else np.ones_like(on_boundary)
  ends = np.where(collapsed[c.edges], len(collapsed), c.edges)
  # A face with sign 1 is where a link ends: closedness is then conservation along the dual graph.
  sides = np.full(c.edges.shape, len(c.faces))
  sides[c.face_edges, (c.face_signs > 0).astype(int)] = np.arange(len(c.faces))[:, None]

  tree, up = _spanning_forest(ends, inner, len(collapsed) + 1)
  cotree, dual_up = _spanning_forest(sides, inner & ~tree, len(c.faces) + 1)
  rest = np.flatnonzero(inner & ~tree & ~cotree)
  return Homology(_loops(ends, up, rest), _loops(sides, dual_up, rest))


def _labels(ends: np.ndarray, num_nodes: int) -> np.ndarray:
  graph = sparse.coo_array((np.ones(len(ends), np.int8), tuple(ends.T)), (num_nodes, num_nodes))
  return sparse.csgraph.connected_components(graph, directed=False)[1]


def _spanning_forest(
  ends: np.ndarray, usable: np.ndarray, num_nodes: int
) -> tuple[np.ndarray, np.ndarray]:
  """A breadth-first forest of a graph of links between nodes, which may be double or loops.

  Args:
    ends: (E, 2) nodes of each link.
    usable: (E,) bool, the links that the forest may use.
    num_nodes: M.

  Returns:
    Which links (E,) are in the forest, and the link (M,) towards the root, -1 at a root.
  """
  links = np.flatnonzero(usable)
  # In 64 bits, for keys are products of two of them.
  low, high = np.sort(ends[links].astype(np.int64), axis=1).T
  roots = np.unique(_labels(ends[links], num_nodes), return_index=True)[1]
  # One more node joins the roots.
  rows = np.concatenate([low, roots])
  columns = np.concatenate([high, np.full(len(roots), num_nodes)])
  graph = sparse.csr_array((np.ones(len(rows), np.int8), (rows, columns)), (num_nodes + 1,) * 2)
  _, parent = sparse.csgraph.breadth_first_order(graph, num_nodes, directed=False)
  parent = parent[:num_nodes]

  nodes = np.flatnonzero(parent < num_nodes)
  keys, first = np.unique(low * num_nodes + high, return_index=True)
  wanted = np.minimum(nodes, parent[nodes]) * num_nodes + np.maximum(nodes, parent[nodes])
  up = np.full(num_nodes, -1)
  up[nodes] = links[first[np.searchsorted(keys, wanted)]]
  chosen = np.zeros(len(ends), bool)
  chosen[up[nodes]] = True
  return chosen, up


def _loops(ends: np.ndarray, up: np.ndarray, rest: np.ndarray) -> np.ndarray:
  """The loops (b, E) that each of the links (b,) closes in a forest, which it runs along."""
  chains = np.zeros((len(rest), len(ends)), np.int8)
  for chain, link in zip(chains, rest, strict=True):
    chain[link] = 1
    for node, direction in zip(ends[link], (-1, 1), strict=True):
      while up[node] >= 0:
        along = int(ends[up[node], 0] == node)
        chain[up[node]] += direction * (2 * along - 1)
        node = ends[up[node], along]
  return chains


def _rank_of_d1(c: Complex) -> int:
  """The rank of d1 of a volume modulo a prime."""
  num_vertices, num_edges, num_faces, num_tets = c.sizes.tolist()
  every = lambda cells: np.ones(len(cells), bool)
  tree, _ = _spanning_forest(c.edges, every(c.edges), num_vertices)
  sides = np.full((num_faces, 2), num_tets)
  sides[c.tet_faces, (c.tet_signs > 0).astype(int)] = np.arange(num_tets)[:, None]
  cotree, _ = _spanning_forest(sides, every(c.faces), num_tets + 1)
  # d1 d0 = 0 gives the columns of a tree by the others, d2 d1 = 0 the rows of a cotree.
  rows = np.repeat(np.arange(num_faces), 3)
  entries = c.face_signs.ravel(), (rows, c.face_edges.ravel())
  d1 = sparse.csr_array(entries, (num_faces, num_edges))
  return _rank(d1[~cotree][:, ~tree])


def _rank(matrix: sparse.csr_array) -> int:
  """The rank of a sparse matrix of integers modulo the prime.

  Rows and columns with a single entry left, which fill nothing, are eliminated first.
  """
  pattern = abs(matrix).sign().astype(np.int64)
  turned = pattern.T.tocsr()
  rows, columns = (np.ones(n, np.int64) for n in matrix.shape)
  rank = 0
  while found := _peel(pattern, rows, columns) + _peel(turned, columns, rows):
    rank += found
  return rank + _eliminated(matrix[rows > 0][:, columns > 0].tocsr())


def _peel(pattern: sparse.csr_array, rows: np.ndarray, columns: np.ndarray) -> int:
  """Strikes out, in place, the rows with one entry left, with its column; returns how many."""
  single = np.flatnonzero(rows * (pattern @ columns) == 1)
  entry = pattern[single] @ (columns * np.arange(len(columns)))
  pivots, first = np.unique(entry, return_index=True)
  rows[single[first]] = 0
  columns[pivots] = 0
  return len(pivots)


def _eliminated(matrix: sparse.csr_array) -> int:
  """The rank modulo the prime, by elimination row by row, the shortest first."""
  echelon: dict[int, dict[int, int]] = {}
  for i in np.argsort(np.diff(matrix.indptr), kind='stable'):
    span = slice(matrix.indptr[i], matrix.indptr[i + 1])
    row = dict(zip(matrix.indices[span].tolist(), matrix.data[span].tolist(), strict=True))
    while row and (lead := max(row)) in echelon:
      factor = row[lead]
      for column, value in echelon[lead].items():
        row[column] = (row.get(column, 0) - factor * value) % _PRIME
        if not row[column]:
          del row[column]
    if row:
      inverse = pow(row[lead], -1, _PRIME)
      echelon[lead] = {column: value * inverse % _PRIME for column, value in row.items()}
  return len(echelon)
