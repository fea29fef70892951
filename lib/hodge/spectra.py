"""Host. Eigenbases of Hodge Laplacians, cut and compared between clusters of eigenvalues.

Within a cluster of equal or nearly equal eigenvalues any rotation of the eigenvectors is as good,
and platforms and meshes choose different ones. So a basis never ends inside a cluster, and two
bases are compared after a rotation within each.
"""

from typing import NamedTuple

import numpy as np
import scipy
from scipy import sparse

from lib.hodge import matrices

# Below this size, and where most of the spectrum is wanted, all of it is computed.
_DENSE = 300


class Eigenbasis(NamedTuple):
  """The lowest modes of S φ = λ ⋆ φ.

  Attributes:
    values: λ (m,), ascending; those of the kernel are zero up to rounding.
    vectors: Φ (n, m), with Φᵀ ⋆ Φ = 1.
    clusters: (m,) int, the number of each mode's cluster, from 0 on.
  """

  values: np.ndarray
  vectors: np.ndarray
  clusters: np.ndarray


def eigenbasis(
  stiffness: sparse.sparray, star: np.ndarray | sparse.sparray, k: int, gap: float = 1e-2
) -> Eigenbasis:
  """The m <= k lowest modes, m the largest number that leaves no cluster in two.

  The signs are such that the first of the largest entries of each mode is positive. It runs in
  double precision, with Lanczos's method on (S + s ⋆)⁻¹ ⋆ for a small s > 0, as S is singular.

  Args:
    stiffness: S (n, n), symmetric and positive semidefinite.
    star: ⋆, as a positive diagonal (n,) or a positive definite matrix (n, n).
    k: the most modes to return, 1 <= k <= n.
    gap: relative distance that separates neighbouring eigenvalues of different clusters.

  Returns:
    The modes.

  Raises:
    ValueError: if the lowest cluster alone is larger than k, S is not finite, symmetric or positive
      semidefinite, or a diagonal ⋆ is not positive, naming the first entry.
  """
  stiffness, mass = _checked(stiffness, star)
  n = stiffness.shape[0]
  if not 1 <= k <= n:
    raise ValueError(f'There are 1 to {n} modes, got {k=}.')
  scale = stiffness.diagonal().sum() / mass.diagonal().sum()
  wanted = min(k + 1, n)
  if n <= _DENSE or 2 * wanted > n:
    values, vectors = scipy.linalg.eigh(
      stiffness.toarray(), mass.toarray(), subset_by_index=(0, wanted - 1)
    )
  else:
    shift = -1e-6 * max(scale, 1e-300)
    solve = matrices.factor(
      stiffness - shift * mass
    ).solve  # several times as sparse as eigsh's own
    values, vectors = sparse.linalg.eigsh(
      stiffness, wanted, mass, sigma=shift, v0=np.random.default_rng(0).normal(size=n),
      OPinv=sparse.linalg.LinearOperator((n, n), solve, dtype=np.float64),
    )  # fmt: skip
    order = np.argsort(values)
    values, vectors = values[order], vectors[:, order]
  if values[0] < -1e-9 * scale:
    raise ValueError(f'The operator is not positive semidefinite: an eigenvalue is {values[0]}.')
  labels = clusters(values, gap, floor=1e-9 * scale)
  # Of the cluster of mode k + 1 nothing stays.
  size = k if wanted == k else int((labels < labels[k]).sum())
  if not size:
    raise ValueError(f'The lowest {k} eigenvalues are in one larger cluster: {values}.')
  return Eigenbasis(values[:size], _signed(vectors[:, :size]), labels[:size])


def clusters(values: np.ndarray, gap: float, floor: float = 0.0) -> np.ndarray:
  """Numbers the clusters of ascending eigenvalues, from 0 on.

  A cluster ends where the next eigenvalue is larger by `gap` times itself; all up to `floor` in
  absolute value count as zero.
  """
  values = np.where(abs(values) <= floor, 0.0, values)
  return np.cumsum(np.diff(values, prepend=values[:1]) > gap * abs(values))


def align(basis: Eigenbasis, vectors: np.ndarray, star: np.ndarray | sparse.sparray) -> np.ndarray:
  """Rotates other modes within the clusters of a basis so that they come as close as can be.

  In each cluster, Φ' R with R orthogonal and |Φ' R - Φ|_⋆ least: R = U Vᵀ from the singular value
  decomposition of Φ'ᵀ ⋆ Φ (Procrustes).

  Args:
    basis: the modes Φ to come close to.
    vectors: Φ' (n, m), another basis with the same clusters on the same cells; for one on another
      mesh, resampled.
    star: ⋆, as in `eigenbasis`.

  Returns:
    Φ' R (n, m).
  """
  if vectors.shape != basis.vectors.shape:
    raise ValueError(f'Bases of different shapes: {vectors.shape}, {basis.vectors.shape}.')
  weighted = star[:, None] * basis.vectors if np.ndim(star) == 1 else star @ basis.vectors
  aligned = np.empty_like(basis.vectors)
  for label in np.unique(basis.clusters):
    members = basis.clusters == label
    left, _, right = np.linalg.svd(vectors[:, members].T @ weighted[:, members])
    aligned[:, members] = vectors[:, members] @ (left @ right)
  return aligned


def _checked(
  stiffness: sparse.sparray, star: np.ndarray | sparse.sparray
) -> tuple[sparse.csc_array, sparse.csc_array]:
  stiffness = sparse.csc_array(stiffness, dtype=np.float64)
  if not sparse.issparse(star):
    star = np.asarray(star, np.float64)
    wrong = ~((star > 0) & (star < np.inf))
    if wrong.any():
      i = wrong.argmax()
      raise ValueError(f'A star must be positive, but is {star[i]} at cell {i}.')
    star = sparse.diags_array(star)
  mass = sparse.csc_array(star, dtype=np.float64)
  if stiffness.shape != mass.shape:
    raise ValueError(f'The operator has shape {stiffness.shape}, the star {mass.shape}.')
  if not (np.isfinite(stiffness.data).all() and np.isfinite(mass.data).all()):
    raise ValueError('The operator and the star must be finite.')
  if abs(stiffness - stiffness.T).max() > 1e-9 * abs(stiffness).max():
    raise ValueError('The operator must be symmetric.')
  return stiffness, mass


def _signed(vectors: np.ndarray) -> np.ndarray:
  """Flips columns so that the first entry that is as large as the largest is positive."""
  size = abs(vectors)
  # Entries that are equal by symmetry differ by rounding.
  first = (size > (1 - 1e-6) * size.max(axis=0)).argmax(axis=0)
  return vectors * np.sign(vectors[first, np.arange(vectors.shape[1])])
