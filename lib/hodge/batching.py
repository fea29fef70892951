"""Host. Complexes of different sizes as one batch, by cells that are none.

Padding comes last in each list and has zeros in d, so that `jax.vmap` maps all traced functions of
this room over the meshes. Padded cochains may hold anything there that is finite; stars are zero
there, and so are derivatives, codifferentials and Laplacians.
"""

from collections.abc import Sequence

import jax
import numpy as np

from lib.hodge.complexes import Cofaces, Complex


def pad(c: Complex, sizes: Sequence[int], widths: Sequence[int] | None = None) -> Complex:
  """Adds cells that are none.

  Args:
    c: a complex without padding.
    sizes: numbers of vertices, edges, faces and tetrahedra to reach.
    widths: how many cofaces the tables of vertices, edges and faces have room for, 0 for no table;
      None for those of `c`.

  Returns:
    The padded complex, whose `sizes` are still those of `c`.

  Raises:
    ValueError: if `c` is larger, or a table is asked for that it does not have.
  """
  tables = c.vertex_edges, c.edge_faces, c.face_tets
  if widths is None:
    widths = [len(table.index) for table in tables]
  # A complex that has cofaces but no table of them cannot get one here.
  needed = [
    len(table.index) or (np.inf if len(cells) else 0)
    for table, cells in zip(tables, (c.edges, c.faces, c.tets), strict=True)
  ]
  small = any(0 < width < least for width, least in zip(widths, needed, strict=True))
  if small or (np.asarray(sizes) < c.sizes).any():
    raise ValueError(f'A complex of {c.sizes} cells has no room in {sizes}, widths {widths}.')
  num_vertices, num_edges, num_faces, num_tets = sizes
  longer = lambda x, size: np.pad(x, ((0, size - len(x)), (0, 0)))
  return Complex(
    sizes=c.sizes,
    edges=longer(c.edges, num_edges),
    faces=longer(c.faces, num_faces),
    tets=longer(c.tets, num_tets),
    face_edges=longer(c.face_edges, num_faces),
    face_signs=longer(c.face_signs, num_faces),
    tet_edges=longer(c.tet_edges, num_tets),
    tet_faces=longer(c.tet_faces, num_tets),
    tet_signs=longer(c.tet_signs, num_tets),
    vertex_edges=_wider(c.vertex_edges, widths[0], num_vertices),
    edge_faces=_wider(c.edge_faces, widths[1], num_edges),
    face_tets=_wider(c.face_tets, widths[2], num_faces),
  )


def stack(complexes: Sequence[Complex]) -> Complex:
  """One complex with a leading axis, each padded to the largest.

  Raises:
    ValueError: if there are none.
  """
  if not complexes:
    raise ValueError('A batch needs at least one complex.')
  sizes = np.max([c.sizes for c in complexes], axis=0)
  widths: list[int] = []
  for table, cells in (('vertex_edges', 'edges'), ('edge_faces', 'faces'), ('face_tets', 'tets')):
    needed = [len(getattr(c, table).index) for c in complexes if len(getattr(c, cells))]
    widths.append(max(needed, default=0) if all(needed) else 0)
  padded = [pad(c, sizes, widths) for c in complexes]
  return jax.tree.map(lambda *leaves: np.stack(leaves), *padded)


def pad_cochains(cochains: Sequence[np.ndarray]) -> np.ndarray:
  """Cochains (..., n_i) of one degree on complexes i as (B, ..., max n), with zeros."""
  size = max(np.shape(w)[-1] for w in cochains)
  longer = lambda w: np.pad(w, [(0, 0)] * (np.ndim(w) - 1) + [(0, size - np.shape(w)[-1])])
  return np.stack([longer(w) for w in cochains])


def _wider(table: Cofaces, width: int, size: int) -> Cofaces:
  if not width:
    return Cofaces(np.zeros((0, size), np.int32), np.zeros((0, size), np.int8))
  index, sign = table
  more = width - len(index), size - index.shape[1]
  sign = np.pad(sign, ((0, more[0]), (0, more[1])))
  if not len(index):
    return Cofaces(np.zeros(sign.shape, np.int32), sign)
  # A cell's own first coface, so that a bad number there touches no other cell.
  index = np.concatenate([index, np.broadcast_to(index[:1], (more[0], index.shape[1]))])
  return Cofaces(np.pad(index, ((0, 0), (0, more[1]))), sign)
