"""Host. Oriented simplicial complexes from the cells of triangle and tetrahedral meshes.

Edges point from their lower vertex to their higher one. The faces of a surface and the tetrahedra
of a volume keep the order and the orientation of the input, which must agree between neighbours;
the faces of a volume are oriented by sorted vertices. Nothing is repaired: what is not an oriented
manifold, perhaps with boundary, is refused, and the message names the first cell that is wrong.
"""

from typing import NamedTuple

import chex
import numpy as np
from scipy import sparse

# A table of cofaces may be this many times as long as the list of its entries. Where single cells
# have far more cofaces than others (the pole of a globe), sums over lists take its place.
_MAX_PADDING = 4

TET_EDGES = ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))


class Cofaces(NamedTuple):
  """For n cells, the cells of one dimension more that they bound: the transpose of d, padded.

  Attributes:
    index: (D, n) int32, D the most cofaces a cell has; past its last one, its first one again.
      D = 0 where the table would be mostly padding.
    sign: (D, n) int8, the coface's entry in d; 0 past the last one.
  """

  index: chex.Array
  sign: chex.Array


class Complex(NamedTuple):
  """N vertices, E edges, F faces and T tetrahedra (none on a surface), with their incidence.

  Attributes:
    sizes: (4,) int32, how many vertices, edges, faces and tetrahedra are no padding.
    edges: (E, 2) int32, the lower vertex first, in lexicographic order.
    faces: (F, 3) int32.
    tets: (T, 4) int32.
    face_edges: (F, 3) int32, the edges (0, 1), (1, 2), (2, 0) of the face's vertices.
    face_signs: (F, 3) int8, 1 where the face runs along the edge and -1 where against it.
    tet_edges: (T, 6) int32, the edges of the tetrahedron's vertices in the order of `TET_EDGES`.
    tet_faces: (T, 4) int32, the faces opposite to the tetrahedron's vertices.
    tet_signs: (T, 4) int8, 1 where the tetrahedron induces the face's orientation, else -1.
    vertex_edges: the edges at each vertex; sign 1 where they come in.
    edge_faces: the faces at each edge.
    face_tets: the tetrahedra at each face.
  """

  sizes: chex.Array
  edges: chex.Array
  faces: chex.Array
  tets: chex.Array
  face_edges: chex.Array
  face_signs: chex.Array
  tet_edges: chex.Array
  tet_faces: chex.Array
  tet_signs: chex.Array
  vertex_edges: Cofaces
  edge_faces: Cofaces
  face_tets: Cofaces


def tri_complex(faces: chex.Array, num_vertices: int) -> Complex:
  """The complex of a triangle mesh: an oriented surface, with or without boundary.

  Args:
    faces: (F, 3) integers, the vertices of each face; neighbours run against each other along the
      edge they share.
    num_vertices: N; each vertex has a face.

  Returns:
    The complex, of NumPy arrays.

  Raises:
    ValueError: if a vertex is out of range or without face, a face has a vertex twice or is there
      twice, an edge has more than two faces or two that run along it in the same direction, or
      the faces at a vertex are not connected through edges at it. The message names the cell.
  """
  faces = _checked(faces, 3, num_vertices, 'face')
  pairs = faces[:, [[0, 1], [1, 2], [2, 0]]]
  edges, face_edges = _unique_edges(pairs, num_vertices)
  face_signs = np.where(pairs[..., 0] < pairs[..., 1], 1, -1)
  _check_sides(face_edges, face_signs, edges, 'edge', 'faces')
  broken = _disconnected(faces, num_vertices, *_shared(face_edges), pairs)
  if broken is not None:
    raise ValueError(f'The faces at vertex {broken} are not connected through edges at it.')
  return _assemble(num_vertices, edges, faces, face_edges, face_signs)


def tet_complex(tets: chex.Array, num_vertices: int) -> Complex:
  """The complex of a tetrahedral mesh: an oriented three-manifold, with or without boundary.

  Args:
    tets: (T, 4) integers, the vertices of each tetrahedron; neighbours induce opposite
      orientations on the face they share, as those of positive volume do.
    num_vertices: N; each vertex has a tetrahedron.

  Returns:
    The complex, of NumPy arrays.

  Raises:
    ValueError: if a vertex is out of range or without tetrahedron, a tetrahedron has a vertex
      twice or is there twice, a face has more than two tetrahedra or two that lie on the same side
      of it, or the tetrahedra around an edge or a vertex do not form a ball or half of one. The
      message names the cell.
  """
  tets = _checked(tets, 4, num_vertices, 'tetrahedron')
  edges, tet_edges = _unique_edges(tets[:, TET_EDGES], num_vertices)
  edge_keys = edges[:, 0] * num_vertices + edges[:, 1]
  edge_of = lambda low, high: np.searchsorted(edge_keys, low * num_vertices + high)

  triples = tets[:, [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]]
  x, y, z = np.moveaxis(triples, -1, 0)
  odd = (x > y) ^ (x > z) ^ (y > z)
  tet_signs = np.where(odd, -1, 1) * np.array([1, -1, 1, -1])
  low, middle, high = np.moveaxis(np.sort(triples, axis=-1), -1, 0)
  keys, tet_faces = np.unique(edge_of(low, middle) * num_vertices + high, return_inverse=True)
  tet_faces = tet_faces.reshape(-1, 4)
  faces = np.column_stack([edges[keys // num_vertices], keys % num_vertices])
  _check_sides(tet_faces, tet_signs, faces, 'face', 'tetrahedra')

  face_edges = np.column_stack([edge_of(*faces[:, pair].T) for pair in ([0, 1], [1, 2], [0, 2])])
  face_signs = np.broadcast_to([1, 1, -1], faces.shape)
  first, second = _shared(tet_faces)
  broken = _disconnected(tet_edges, len(edges), first, second, face_edges[tet_faces])
  if broken is not None:
    i, j = edges[broken]
    raise ValueError(f'The tetrahedra at edge ({i}, {j}) are not connected through faces at it.')
  broken = _disconnected(tets, num_vertices, first, second, triples)
  if broken is not None:
    raise ValueError(f'The tetrahedra at vertex {broken} are not connected through faces at it.')
  _check_links(num_vertices, edges, faces, tets, tet_faces)
  return _assemble(num_vertices, edges, faces, face_edges, face_signs, tets, tet_edges, tet_faces,
                   tet_signs)  # fmt: skip


def _checked(cells: chex.Array, width: int, num_vertices: int, name: str) -> np.ndarray:
  """The cells as int64, after the checks that need no neighbours."""
  cells = np.asarray(cells)
  if cells.ndim != 2 or cells.shape[1] != width or not len(cells):
    raise ValueError(f'A mesh is a list of (C, {width}) vertices, C > 0, got {cells.shape}.')
  if not np.issubdtype(cells.dtype, np.integer):
    raise ValueError(f'Vertices are numbered by integers, got {cells.dtype}.')
  outside = ((cells < 0) | (cells >= num_vertices)).any(axis=1)
  cells = cells.astype(np.int64)
  if outside.any():
    i = outside.argmax()
    raise ValueError(f'A vertex of {name} {i}, {cells[i]}, is not in 0 .. {num_vertices - 1}.')
  ordered = np.sort(cells, axis=1)
  degenerate = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
  if degenerate.any():
    i = degenerate.argmax()
    raise ValueError(f'The {name} {i} has a vertex twice: {cells[i]}.')
  order = np.lexsort(ordered.T)
  same = (ordered[order[1:]] == ordered[order[:-1]]).all(axis=1)
  if same.any():
    i = same.argmax()
    raise ValueError(f'The {name} {order[i]} is there again as {order[i + 1]}: {cells[order[i]]}.')
  unused = np.bincount(cells.ravel(), minlength=num_vertices) == 0
  if unused.any():
    raise ValueError(f'Vertex {unused.argmax()} has no {name}.')
  return cells


def _unique_edges(pairs: np.ndarray, num_vertices: int) -> tuple[np.ndarray, np.ndarray]:
  """The edges (E, 2) among the pairs (C, m, 2), and each pair's edge (C, m)."""
  keys = pairs.min(axis=-1) * num_vertices + pairs.max(axis=-1)
  unique, inverse = np.unique(keys, return_inverse=True)
  return np.column_stack(np.divmod(unique, num_vertices)), inverse.reshape(keys.shape)


def _check_sides(
  facets: np.ndarray, signs: np.ndarray, corners: np.ndarray, name: str, cells: str
) -> None:
  """Raises unless each facet bounds at most two cells, which lie on different sides of it."""
  counts = np.bincount(facets.ravel())
  if (counts > 2).any():
    i = (counts > 2).argmax()
    owners = np.flatnonzero((facets == i).any(axis=1))
    raise ValueError(f'The {name} {_tuple(corners[i])} has more than two {cells}: {owners}.')
  twice = abs(np.bincount(facets.ravel(), signs.ravel())) > 1
  if twice.any():
    i = twice.argmax()
    first, second = np.flatnonzero((facets == i).any(axis=1))
    raise ValueError(
      f'The {cells} {first} and {second} are not oriented alike: '
      f'the {name} {_tuple(corners[i])} has the same sign in both.'
    )


def _tuple(vertices: np.ndarray) -> tuple[int, ...]:
  return tuple(vertices.tolist())


def _shared(facets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Positions in the ravelled table at which the facets between two cells stand."""
  order = np.argsort(facets, axis=None, kind='stable')
  again = np.flatnonzero(np.diff(facets.ravel()[order]) == 0)
  return order[again], order[again + 1]


def _disconnected(
  corners: np.ndarray, num: int, first: np.ndarray, second: np.ndarray, on_facet: np.ndarray
) -> int | None:
  """The first of `num` small cells whose large cells are not connected through facets at it.

  Args:
    corners: (C, a), the small cells of each large cell.
    num: how many small cells there are.
    first: positions of facets in the ravelled (C, m) table of the large cells' facets.
    second: positions of the same facets, seen from their other cells.
    on_facet: (C, m, b), the small cells on each facet of each large cell.

  Returns:
    The small cell's number, or None.
  """
  keys = np.arange(len(corners))[:, None] * num + corners
  order = np.argsort(keys, axis=None)
  width = on_facet.shape[1]
  # Both sides list the small cells of a facet, not always in the same order.
  small = on_facet.reshape(-1, on_facet.shape[2])[first]
  find = lambda cell: np.searchsorted(keys.ravel(), (cell[:, None] * num + small).ravel(),
                                      sorter=order)  # fmt: skip
  links = find(first // width), find(second // width)
  graph = sparse.coo_array((np.ones(links[0].size, np.int8), links), shape=(keys.size, keys.size))
  count, labels = sparse.csgraph.connected_components(graph, directed=False)
  if count == num:
    return None
  owner = np.zeros(count, np.int64)
  owner[labels] = corners.ravel()[order]
  return int((np.bincount(owner, minlength=num) > 1).argmax())


def _check_links(
  num_vertices: int, edges: np.ndarray, faces: np.ndarray, tets: np.ndarray, tet_faces: np.ndarray
) -> None:
  """Raises unless the link of each vertex, a connected surface, is a sphere or a disc."""
  count = lambda cells: np.bincount(cells.ravel(), minlength=num_vertices)
  euler = count(edges) - count(faces) + count(tets)
  on_boundary = np.zeros(num_vertices, bool)
  on_boundary[faces[np.bincount(tet_faces.ravel()) == 1]] = True
  wrong = euler != np.where(on_boundary, 1, 2)
  if wrong.any():
    raise ValueError(
      f'The tetrahedra at vertex {wrong.argmax()} do not form a ball, nor half of one.'
    )


def _cofaces(cells: np.ndarray, signs: np.ndarray, num: int) -> Cofaces:
  """The transpose of a table (C, m) of the cells, of `num`, that bound others."""
  flat = cells.ravel()
  counts = np.bincount(flat, minlength=num)
  width = counts.max(initial=0)
  if width * num > _MAX_PADDING * flat.size:
    width = 0
  index = np.zeros((width, num), np.int32)
  sign = np.zeros((width, num), np.int8)
  if width:
    order = np.argsort(flat, kind='stable')
    slot = np.arange(flat.size) - np.repeat(np.cumsum(counts) - counts, counts)
    index[:] = order[np.cumsum(counts) - counts] // cells.shape[1]
    index[slot, flat[order]] = order // cells.shape[1]
    sign[slot, flat[order]] = signs.ravel()[order]
  return Cofaces(index, sign)


def _assemble(
  num_vertices: int,
  edges: np.ndarray,
  faces: np.ndarray,
  face_edges: np.ndarray,
  face_signs: np.ndarray,
  tets: np.ndarray | None = None,
  tet_edges: np.ndarray | None = None,
  tet_faces: np.ndarray | None = None,
  tet_signs: np.ndarray | None = None,
) -> Complex:
  as_index = lambda cells, width: (
    np.zeros((0, width), np.int32) if cells is None else np.ascontiguousarray(cells, np.int32)
  )
  tet_faces = as_index(tet_faces, 4)
  tet_signs = np.zeros((0, 4), np.int8) if tet_signs is None else tet_signs.astype(np.int8)
  edge_signs = np.broadcast_to([-1, 1], edges.shape)
  return Complex(
    sizes=np.array([num_vertices, len(edges), len(faces), len(tet_faces)], np.int32),
    edges=as_index(edges, 2),
    faces=as_index(faces, 3),
    tets=as_index(tets, 4),
    face_edges=as_index(face_edges, 3),
    face_signs=face_signs.astype(np.int8),
    tet_edges=as_index(tet_edges, 6),
    tet_faces=tet_faces,
    tet_signs=tet_signs,
    vertex_edges=_cofaces(edges, edge_signs, num_vertices),
    edge_faces=_cofaces(face_edges, face_signs, len(edges)),
    face_tets=_cofaces(tet_faces, tet_signs, len(faces)),
  )
