"""Traced. Exterior derivatives, codifferentials and Hodge Laplacians, without matrices.

A k-cochain is an array (..., n_k) with a number for each k-cell. d_k and its transpose are gathers
and signs, whose derivatives are one another rather than the scatters that jax would make. Hodge
stars are diagonal, a tuple of ⋆_k (n_k,); a star of zero marks a cell that is padding or where
relative boundary conditions hold the cochains at zero, and its inverse counts as zero.
"""

import functools
from collections.abc import Callable, Sequence

import chex
import jax
import jax.numpy as jnp
from jax.experimental import xla_metadata

from lib.hodge.complexes import Cofaces, Complex


def num_cells(c: Complex) -> tuple[int, int, int, int]:
  """How many vertices, edges, faces and tetrahedra the arrays hold, padding included."""
  vertices, edges, faces = (
    table.index.shape[-1] for table in (c.vertex_edges, c.edge_faces, c.face_tets)
  )
  return vertices, edges, faces, c.tets.shape[-2]


def masks(c: Complex) -> tuple[chex.Array, ...]:
  """Which vertices, edges, faces and tetrahedra are no padding, bool (n_k,) each."""
  return tuple(jnp.arange(n) < c.sizes[k] for k, n in enumerate(num_cells(c)))


def d0(c: Complex, u: chex.Array) -> chex.Array:
  """(d0 u)(i, j) = u_j - u_i on edges (..., E), of values u (..., N) at vertices: differences."""
  return derivative(c, 0, u)


def d1(c: Complex, w: chex.Array) -> chex.Array:
  """(d1 w)(f) = Σ_e ±w_e on faces (..., F), of w (..., E) on edges: circulations."""
  return derivative(c, 1, w)


def d2(c: Complex, w: chex.Array) -> chex.Array:
  """(d2 w)(t) = Σ_f ±w_f on tetrahedra (..., T), of w (..., F) on faces: net fluxes."""
  return derivative(c, 2, w)


@functools.partial(jax.jit, static_argnums=1)
def derivative(c: Complex, k: int, w: chex.Array) -> chex.Array:
  """d_k w (..., n_{k+1}) of a k-cochain w (..., n_k); d_{k+1} d_k = 0.

  Args:
    c: the complex.
    k: degree, 0, 1 or 2.
    w: the cochain; integers become floating-point numbers.

  Raises:
    ValueError: if the degree is another one.
  """
  forward, back = _pair(c, k)
  sizes = num_cells(c)
  return _with_transpose(forward, back, w, sizes[k], sizes[k + 1])


@functools.partial(jax.jit, static_argnums=1)
def transpose(c: Complex, k: int, w: chex.Array) -> chex.Array:
  """d_kᵀ w (..., n_k) of a (k+1)-cochain w (..., n_{k+1}): the boundary of a chain.

  Args:
    c: the complex.
    k: degree of the derivative, 0, 1 or 2.
    w: the cochain; integers become floating-point numbers.

  Raises:
    ValueError: if the degree is another one.
  """
  forward, back = _pair(c, k)
  sizes = num_cells(c)
  return _with_transpose(back, forward, w, sizes[k + 1], sizes[k])


def derivative_abs(c: Complex, k: int, w: chex.Array) -> chex.Array:
  """|d_k| w (..., n_{k+1}), without the signs: for the diagonal of d_k W d_kᵀ."""
  cells = (c.edges, c.face_edges, c.tet_faces)[k]
  there = masks(c)[k + 1]
  return jnp.where(there, sum(w[..., cells[:, i]] for i in range(cells.shape[1])), 0)


def transpose_abs(c: Complex, k: int, w: chex.Array) -> chex.Array:
  """|d_k|ᵀ w (..., n_k), without the signs: for the diagonal of d_kᵀ W d_k."""
  w = jnp.where(masks(c)[k + 1], w, 0)
  cells = (c.edges, c.face_edges, c.tet_faces)[k]
  zeros = jnp.zeros((*w.shape[:-1], num_cells(c)[k]), w.dtype)
  return zeros.at[..., cells].add(w[..., None])


def codifferential(c: Complex, stars: Sequence[chex.Array], k: int, w: chex.Array) -> chex.Array:
  """δ_k w = ⋆_{k-1}⁻¹ d_{k-1}ᵀ ⋆_k w (..., n_{k-1}), the adjoint of d_{k-1} in the ⋆ products.

  Args:
    c: the complex.
    stars: diagonals ⋆0, ⋆1, ...
    k: degree, from 1 to the dimension.
    w: a k-cochain (..., n_k).
  """
  return inverse(stars[k - 1]) * transpose(c, k - 1, stars[k] * w)


def laplacian(c: Complex, stars: Sequence[chex.Array], k: int, w: chex.Array) -> chex.Array:
  """The Hodge Laplacian Δ_k w = δ_{k+1} d_k w + d_{k-1} δ_k w (..., n_k), with eigenvalues >= 0.

  ⋆_k Δ_k is the symmetric weak form of `matrices.laplacian`.

  Args:
    c: the complex.
    stars: diagonals ⋆0, ⋆1, ...; their number less one is the dimension.
    k: degree, from 0 to the dimension.
    w: a k-cochain (..., n_k), zero where ⋆_k is.
  """
  total = jnp.zeros((), jnp.result_type(w, float))
  if k + 1 < len(stars):
    total += codifferential(c, stars, k + 1, derivative(c, k, w))
  if k > 0:
    total += derivative(c, k - 1, codifferential(c, stars, k, w))
  return total


def inverse(star: chex.Array) -> chex.Array:
  """1/⋆, and 0 where ⋆ = 0, with derivatives that are finite."""
  there = star != 0
  return jnp.where(there, 1 / jnp.where(there, star, 1), 0)


def relative(stars: Sequence[chex.Array], boundary: Sequence[chex.Array]) -> tuple:
  """The stars for relative (Dirichlet) boundary conditions: cochains vanish on the boundary.

  Those of the complex itself stand for absolute (Neumann) ones.

  Args:
    stars: diagonals ⋆0, ⋆1, ...
    boundary: masks of the cells on the boundary, of `topology.boundary`.

  Returns:
    The stars with zeros on the boundary.
  """
  return tuple(jnp.where(m, 0, star) for star, m in zip(stars, boundary, strict=False))


def _pair(c: Complex, k: int) -> tuple[Callable, Callable]:
  """d_k and d_kᵀ as functions of arrays."""
  if k == 0:
    forward = lambda u: _take(u, c.edges[..., 1]) - _take(u, c.edges[..., 0])
    # Padding is an edge from a vertex to itself.
    there = c.edges[..., 0] < c.edges[..., 1]
    signs = jnp.stack([-1 * there, 1 * there], axis=-1)
    return forward, lambda w: _sum_cofaces(c.vertex_edges, c.edges, signs, w)
  if k == 1:
    cells, signs, table = c.face_edges, c.face_signs, c.edge_faces
  elif k == 2:
    cells, signs, table = c.tet_faces, c.tet_signs, c.face_tets
  else:
    raise ValueError(f'A derivative has degree 0, 1 or 2, got {k}.')
  return (
    lambda w: _signed_sum(w, jnp.moveaxis(cells, -1, 0), jnp.moveaxis(signs, -1, 0)),
    lambda w: _sum_cofaces(table, cells, signs, w),
  )


def _sum_cofaces(table: Cofaces, cells: chex.Array, signs: chex.Array, w: chex.Array) -> chex.Array:
  """The transpose of the sum over `cells` (C, m) with `signs`, of w (..., C)."""
  if len(table.index):
    return _signed_sum(w, table.index, table.sign)
  # No table, for it would be padding mostly.
  zeros = jnp.zeros((*w.shape[:-1], table.index.shape[-1]), w.dtype)
  return zeros.at[..., cells].add(w[..., None] * signs.astype(w.dtype))


def _signed_sum(w: chex.Array, index: chex.Array, sign: chex.Array) -> chex.Array:
  """Σ_j sign_j w[index_j] (..., n), of tables (m, n)."""
  # Term by term: XLA makes one loop of it on CPUs, several times as fast as a reduction.
  total = jnp.zeros((*w.shape[:-1], index.shape[-1]), w.dtype)
  for i, s in zip(index, sign, strict=True):
    total += _take(w, i) * s.astype(w.dtype)
  return total


def _take(w: chex.Array, index: chex.Array) -> chex.Array:
  return w.at[..., index].get(mode='promise_in_bounds', wrap_negative_indices=False)


def _with_transpose(forward: Callable, back: Callable, w: chex.Array, n: int, m: int) -> chex.Array:
  """forward(w), a linear map from (..., n) to (..., m), with `back` for its transpose.

  It is written as the solution of a linear system, which is where jax takes a transpose, together
  with forward-mode derivatives and batching: of the square system with the matrix
  [[0, 0], [forward, 0]] in place of an inverse.
  """
  w = jnp.asarray(w)
  chex.assert_axis_dimension(w, -1, n)
  w = w.astype(jnp.promote_types(w.dtype, jnp.float32))
  if not (n and m):
    return jnp.zeros((*w.shape[:-1], m), w.dtype)
  pad = lambda x, before, after: jnp.concatenate(
    [jnp.zeros((*x.shape[:-1], before), x.dtype), x, jnp.zeros((*x.shape[:-1], after), x.dtype)],
    axis=-1,
  )
  solution = jax.lax.custom_linear_solve(
    lambda x: x,
    pad(w, 0, m),
    solve=lambda _, x: pad(_apart(forward, x[..., :n]), n, 0),
    transpose_solve=lambda _, x: pad(_apart(back, x[..., n:]), 0, m),
  )
  return solution[..., n:]


def _apart(function: Callable, x: chex.Array) -> chex.Array:
  """function(x), which CPUs compile by itself.

  XLA would fuse there what computes x into the gathers, and compute x anew for each of them: a
  Laplacian would take ten times as long.
  """

  def apart(x: chex.Array) -> chex.Array:
    with xla_metadata.set_xla_metadata(inlineable='false'):
      return jax.jit(function)(x)

  return jax.lax.platform_dependent(x, cpu=apart, default=function)
