"""What the cases of `hodge` do, by SciPy's sparse matrices in float32, on one core."""

import functools
from collections.abc import Callable, Iterator

import jax
import ml_collections
import numpy as np
from scipy import sparse
from scipy.sparse import linalg

from experiments.bench import yardsticks
from experiments.bench.case import Case
from lib.hodge import matrices
from lib.hodge.complexes import Complex

_ROUNDING = 1e-5  # of a product, relative to its largest entry
_DISTANCE = 30.0  # of parts from ours, relative to the cochain's norm, in tolerances


def matrix(name: str, c: Complex, stars: tuple[np.ndarray, ...]) -> sparse.csr_array:
  """One of `hodge.OPERATORS` as one matrix, float32."""
  inverse = [sparse.diags_array(1 / star.astype(np.float64)) for star in stars]
  d0, d1 = (matrices.incidence(c, k) for k in (0, 1))
  made: dict[str, Callable[[], sparse.sparray]] = {
    'd0': lambda: d0,
    'd0_transpose': lambda: d0.T,
    'd1': lambda: d1,
    'd1_transpose': lambda: d1.T,
    'codifferential1': lambda: inverse[0] @ d0.T @ sparse.diags_array(stars[1]),
    'laplacian0': lambda: inverse[0] @ matrices.laplacian(c, stars, 0),
    'laplacian1': lambda: inverse[1] @ matrices.laplacian(c, stars, 1),
  }
  return _compact(made[name]())


def product(name: str, config: ml_collections.ConfigDict, ours: Case) -> yardsticks.Task:
  """The product of `matrix` and our case's cochain."""
  c, stars, w = _host(ours)
  a = matrix(name, c, stars)
  assert ours.work is not None
  return yardsticks.Task(lambda: a @ w, ours.work)


def check_product(config: ml_collections.ConfigDict, ours: np.ndarray, theirs: np.ndarray) -> None:
  """Asserts that two products agree up to rounding."""
  np.testing.assert_allclose(ours, theirs, rtol=0, atol=_ROUNDING * abs(theirs).max())


def systems(
  c: Complex, stars: tuple[np.ndarray, ...]
) -> Iterator[tuple[sparse.csr_array, sparse.csr_array, sparse.csr_array]]:
  """B, Bᵀ ⋆1 and A = Bᵀ ⋆1 B of the exact and of the coexact part of 1-cochains.

  The part of ω is B x with A x = Bᵀ ⋆1 ω: with B = d0, and with B = ⋆1⁻¹ d1ᵀ.
  """
  star = sparse.diags_array(stars[1])
  for b in (
    matrices.incidence(c, 0),
    sparse.diags_array(1 / stars[1]) @ matrices.incidence(c, 1).T,
  ):
    adjoint = b.T @ star
    yield _compact(b), _compact(adjoint), _compact(adjoint @ b)


def conjugate_gradients(config: ml_collections.ConfigDict, ours: Case) -> yardsticks.Task:
  """Both parts of one cochain after the other, by our method, scaling and tolerance."""
  c, stars, w = _host(ours)
  made = [(b, adjoint, a, _jacobi(a)) for b, adjoint, a in systems(c, stars)]
  tol = config.hodge.tol

  def part(b, adjoint, a, scaling):
    sides = (adjoint @ w.T).T
    found = [linalg.cg(a, side, rtol=tol, atol=0.0, M=scaling)[0] for side in sides]
    return (b @ np.stack(found, axis=1)).T

  assert ours.work is not None
  return yardsticks.Task(lambda: [part(*system) for system in made], ours.work)


def factorized(
  config: ml_collections.ConfigDict, ours: Case, before: bool = False
) -> yardsticks.Task:
  """Both parts of all cochains by sparse LU, with the first unknown held at zero.

  Args:
    config: of the benchmark.
    ours: our case.
    before: whether the factorisations are made once, and a call only solves.
  """
  c, stars, w = _host(ours)
  made = [(b, adjoint, a[1:, 1:].tocsc()) for b, adjoint, a in systems(c, stars)]
  factors = [matrices.factor(a) for _, _, a in made] if before else None

  def call():
    found = []
    for i, (b, adjoint, a) in enumerate(made):
      x = np.zeros((b.shape[1], len(w)), np.float32)
      x[1:] = (factors[i] if factors else matrices.factor(a)).solve((adjoint @ w.T)[1:])
      found.append((b @ x).T)
    return found

  assert ours.work is not None
  return yardsticks.Task(call, ours.work)


def check_parts(config: ml_collections.ConfigDict, ours, theirs: list[np.ndarray]) -> None:
  """Asserts that the exact and the coexact parts agree as far as the tolerance lets them."""
  size = np.linalg.norm(ours.exact + ours.coexact + ours.harmonic, axis=1)
  for own, other in zip((ours.exact, ours.coexact), theirs, strict=True):
    gaps = np.linalg.norm(own - other, axis=1) / size
    np.testing.assert_allclose(gaps, 0, rtol=0, atol=_DISTANCE * config.hodge.tol)


# Peers of `hodge.decompose`.
DECOMPOSE: dict[str, Callable[[ml_collections.ConfigDict, Case], yardsticks.Task]] = {
  'cg': conjugate_gradients,
  'splu': factorized,
  'splu_solves': functools.partial(factorized, before=True),
}


def _host(ours: Case) -> tuple[Complex, tuple[np.ndarray, ...], np.ndarray]:
  """The arguments of our case as NumPy arrays."""
  return jax.device_get(ours.args)


def _jacobi(a: sparse.csr_array) -> linalg.LinearOperator:
  scale = 1 / a.diagonal()
  return linalg.LinearOperator(a.shape, lambda x: scale * x, dtype=a.dtype)


def _compact(a: sparse.sparray) -> sparse.csr_array:
  """In float32, with indices of 32 bits."""
  a = a.tocsr(copy=True)
  a.sum_duplicates()
  return sparse.csr_array(
    (a.data.astype(np.float32), a.indices.astype(np.int32), a.indptr.astype(np.int32)), a.shape
  )
