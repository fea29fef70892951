"""Host. The operators of a complex as sparse matrices, for factorisations and eigen-solves.

These functions take a complex without padding.
"""

from collections.abc import Sequence

import numpy as np
from scipy import sparse
from scipy.sparse import linalg

from lib.hodge.complexes import Complex
from lib.hodge.whitney import Mass


def incidence(c: Complex, k: int) -> sparse.csr_array:
  """d_k, from k-cochains to (k+1)-cochains: entries 1, -1 and 0, int8.

  On a surface d2 has no rows.

  Raises:
    ValueError: if k is not 0, 1 or 2.
  """
  num_vertices, num_edges, num_faces, num_tets = c.sizes.tolist()
  if k == 0:
    ends = np.broadcast_to(np.array([-1, 1], np.int8), c.edges.shape)
    return _from_table(c.edges, ends, (num_edges, num_vertices))
  if k == 1:
    return _from_table(c.face_edges, c.face_signs, (num_faces, num_edges))
  if k == 2:
    return _from_table(c.tet_faces, c.tet_signs, (num_tets, num_faces))
  raise ValueError(f'A derivative has degree 0, 1 or 2, got {k}.')


def laplacian(c: Complex, stars: Sequence[np.ndarray], k: int) -> sparse.csr_array:
  """The weak Hodge Laplacian S_k = d_kᵀ ⋆_{k+1} d_k + ⋆_k d_{k-1} ⋆_{k-1}⁻¹ d_{k-1}ᵀ ⋆_k.

  Args:
    c: the complex.
    stars: diagonals ⋆0, ⋆1, ... of the Hodge stars. Where one is zero, as `stars.relative` makes
      it on the boundary, its inverse is zero too; the rows and columns of such k-cells are zero.
    k: degree, from 0 to the dimension.

  Returns:
    A symmetric matrix; the eigenproblem is S_k φ = λ ⋆_k φ.

  Raises:
    ValueError: if there is no star of degree k.
  """
  if not 0 <= k < len(stars):
    raise ValueError(f'There are stars of degrees 0 to {len(stars) - 1}, got {k}.')
  stars = [np.asarray(star, np.float64) for star in stars]
  held = sparse.diags_array((stars[k] != 0).astype(np.float64))
  total = sparse.csr_array((stars[k].size,) * 2)
  if k + 1 < len(stars):
    d = incidence(c, k) @ held
    total = total + d.T @ sparse.diags_array(stars[k + 1]) @ d
  if k > 0:
    below = stars[k - 1]
    inverse = np.divide(1.0, below, out=np.zeros_like(below), where=below != 0)
    flux = sparse.diags_array(stars[k]) @ incidence(c, k - 1)
    total = total + flux @ sparse.diags_array(inverse) @ flux.T
  return total.tocsr()


def factor(matrix: sparse.sparray) -> linalg.SuperLU:
  """The factors of a sparse, positive definite A: `factor(A).solve(b)` is x of A x = b.

  In an order for symmetric matrices, and without pivoting, which keeps them sparse.
  """
  return linalg.splu(
    matrix.tocsc(), 'MMD_AT_PLUS_A', diag_pivot_thresh=0.0, options={'SymmetricMode': True}
  )


def normalized(matrix: sparse.csr_array) -> sparse.csr_array:
  """D^-½ S D^-½ with D the diagonal of S, 0 where it is 0.

  It breaks the ties between degrees: unless the diagonals of the Laplacians are constant, its
  eigenvectors of degree 1 are mixtures of exact and coexact ones.
  """
  diagonal = matrix.diagonal()
  scale = np.divide(1.0, np.sqrt(diagonal), out=np.zeros_like(diagonal), where=diagonal > 0)
  scale = sparse.diags_array(scale)
  return (scale @ matrix @ scale).tocsr()


def mass(m: Mass, size: int) -> sparse.csr_array:
  """The matrix (n, n) of a mass, n = `size`."""
  cells = np.asarray(m.cells)
  rows = np.broadcast_to(cells[:, :, None], m.local.shape).ravel()
  columns = np.broadcast_to(cells[:, None, :], m.local.shape).ravel()
  entries = np.asarray(m.local, np.float64).ravel()
  return sparse.coo_array((entries, (rows, columns)), (size, size)).tocsr()


def _from_table(cells: np.ndarray, signs: np.ndarray, shape: tuple[int, int]) -> sparse.csr_array:
  """Rows of cells (C, m) with their signs."""
  ends = np.arange(0, cells.size + 1, cells.shape[1])
  return sparse.csr_array((np.ascontiguousarray(signs).ravel(), cells.ravel(), ends), shape)
