"""Traced. Whitney forms: fields of cochains, cochains of fields, and mass matrices.

The Whitney form of the edge (i, j) is W_ij = λ_i ∇λ_j - λ_j ∇λ_i with barycentric coordinates λ;
its line integral is 1 along its own edge and 0 along the others. Whitney, Geometric Integration
Theory (1957). Meshes that are batched with padding have fields of zero there.
"""

from collections.abc import Callable
from typing import NamedTuple

import chex
import jax.numpy as jnp
import numpy as np

from lib.hodge import operators, stars
from lib.hodge.complexes import TET_EDGES, Complex

_FACE_EDGES = ((0, 1), (1, 2), (2, 0))


class Mass(NamedTuple):
  """A symmetric matrix assembled from those of triangles or tetrahedra.

  Attributes:
    cells: (C, m) int32, the rows and columns that each of them adds to.
    local: (C, m, m).
  """

  cells: chex.Array
  local: chex.Array


def face_gradients(c: Complex, points: chex.Array) -> chex.Array:
  """∇λ (F, 3, D) of the corners of each face, tangent to it, of points (N, D); 0 at padding."""
  x = points[c.faces]
  a, b = x[:, 1] - x[:, 0], x[:, 2] - x[:, 0]
  dot = lambda u, v: jnp.sum(u * v, axis=-1, keepdims=True)
  determinant = dot(a, a) * dot(b, b) - dot(a, b) ** 2
  there = operators.masks(c)[2][:, None]
  inverse = jnp.where(there, 1 / jnp.where(there, determinant, 1), 0)
  of_b = (dot(a, a) * b - dot(a, b) * a) * inverse
  of_a = (dot(b, b) * a - dot(a, b) * b) * inverse
  return jnp.stack([-of_a - of_b, of_a, of_b], axis=1)


def tet_gradients(c: Complex, points: chex.Array) -> chex.Array:
  """∇λ (T, 4, 3) of the corners of each tetrahedron, of points (N, 3); 0 at padding."""
  x = points[c.tets]
  a, b, d = (x[:, i] - x[:, 0] for i in (1, 2, 3))
  there = operators.masks(c)[3][:, None]
  determinant = jnp.sum(jnp.cross(a, b) * d, axis=-1, keepdims=True)
  inverse = jnp.where(there, 1 / jnp.where(there, determinant, 1), 0)
  gradients = [jnp.cross(b, d) * inverse, jnp.cross(d, a) * inverse, jnp.cross(a, b) * inverse]
  return jnp.stack([-sum(gradients), *gradients], axis=1)


def face_fields(c: Complex, points: chex.Array, w: chex.Array) -> chex.Array:
  """The tangent field Σ_e w_e W_e at the middle of each face.

  Exact where w holds the line integrals of a constant field and the face is in its plane.

  Args:
    c: a surface.
    points: (N, D).
    w: 1-cochain (..., E).

  Returns:
    Vectors (..., F, D).
  """
  gradients = face_gradients(c, points)
  forms = jnp.stack([(gradients[:, b] - gradients[:, a]) / 3 for a, b in _FACE_EDGES], axis=1)
  return jnp.einsum('...fe,fed->...fd', w[..., c.face_edges] * c.face_signs, forms)


def tet_fields(c: Complex, points: chex.Array, w: chex.Array) -> chex.Array:
  """The field Σ_e w_e W_e (..., T, 3) at the middle of each tetrahedron, of w (..., E).

  Exact where w holds the line integrals of a constant field.
  """
  gradients = tet_gradients(c, points)
  forms = jnp.stack([(gradients[:, b] - gradients[:, a]) / 4 for a, b in TET_EDGES], axis=1)
  return jnp.einsum('...te,ted->...td', w[..., c.tet_edges] * _tet_edge_signs(c), forms)


def flux_fields(c: Complex, points: chex.Array, w: chex.Array) -> chex.Array:
  """The field Σ_f w_f W_f (..., T, 3) at the middle of each tetrahedron, of fluxes w (..., F).

  The form of the face opposite to the vertex l is (x - x_l)/(3V), up to its sign. Exact where w
  holds the fluxes of a constant field.
  """
  return jnp.einsum('...tf,tfd->...td', w[..., c.tet_faces] * c.tet_signs, _flux_forms(c, points))


def to_vertices(cells: chex.Array, sizes: chex.Array, fields: chex.Array, num: int) -> chex.Array:
  """Averages fields over the cells at each vertex, weighted by their areas or volumes.

  Args:
    cells: (C, m), the vertices of each cell, `c.faces` or `c.tets`.
    sizes: (C,), >= 0; 0 at padding.
    fields: (..., C, D).
    num: how many vertices there are.

  Returns:
    Vectors (..., num, D).
  """
  spread = lambda x: jnp.zeros((*x.shape[:-2], num, x.shape[-1]), x.dtype).at[
    ..., cells, :
  ].add(x[..., None, :])  # fmt: skip
  return spread(fields * sizes[:, None]) * operators.inverse(spread(sizes[:, None]))


def line_integrals(
  c: Complex, points: chex.Array, field: Callable[[chex.Array], chex.Array], order: int = 3
) -> chex.Array:
  """The de Rham map of a field: ∫ field · dx along each edge (E,), by Gauss's rule.

  Args:
    c: the complex.
    points: (N, D).
    field: from positions (..., D) to vectors (..., D).
    order: nodes per edge; exact for polynomials of degree 2 · order - 1.
  """
  nodes, weights = np.polynomial.legendre.leggauss(order)
  start, step = points[c.edges[:, 0]], operators.d0(c, points.T).T
  places = start + (1 + nodes[:, None, None]) / 2 * step
  return jnp.einsum('n,nej,ej->e', weights / 2, field(places), step)


def vertex_line_integrals(c: Complex, points: chex.Array, vectors: chex.Array) -> chex.Array:
  """½ (u_i + u_j) · (x_j - x_i) (..., E), of vectors u (..., N, D): for fields linear on edges."""
  mean = (vectors[..., c.edges[:, 0], :] + vectors[..., c.edges[:, 1], :]) / 2
  return jnp.sum(mean * operators.d0(c, points.T).T, axis=-1)


def fluxes(c: Complex, points: chex.Array, field: Callable[[chex.Array], chex.Array]) -> chex.Array:
  """∫ field · n dA through each face (F,), of points (N, 3); exact for polynomials of degree 2."""
  x = points[c.faces]
  middles = (x + jnp.roll(x, -1, axis=1)) / 2
  return jnp.einsum('fmd,fd->f', field(middles), _normals(x)) / 3


def vertex_fluxes(c: Complex, points: chex.Array, vectors: chex.Array) -> chex.Array:
  """∫ u · n dA through each face (..., F), of vectors u (..., N, 3) that are linear on faces."""
  mean = vectors[..., c.faces, :].mean(axis=-2)
  return jnp.sum(mean * _normals(points[c.faces]), axis=-1)


def surface_masses(c: Complex, lengths: chex.Array) -> tuple[Mass, Mass]:
  """M0[i, j] = ∫ λ_i λ_j and M1[e, e'] = ∫ W_e · W_e' of a surface.

  Both are positive definite on every mesh, and d0ᵀ M1 d0 is the stiffness matrix of linear
  elements. M2 is the diagonal 1/A of `stars.cotan`.

  Args:
    c: a surface.
    lengths: of edges (E,).
  """
  areas = stars.face_areas(c, lengths)
  there = areas > 0
  cotangents = stars.corner_cotangents(c, lengths)
  # ∇λ_i · ∇λ_j = -cot(corner k)/(2A).
  halves = cotangents / jnp.where(there, 2 * areas, 1)[:, None]
  i, j, k = np.array([0, 1, 2]), np.array([1, 2, 0]), np.array([2, 0, 1])
  gram = jnp.zeros((len(c.faces), 3, 3), halves.dtype)
  gram = gram.at[:, i, j].set(-halves[:, k]).at[:, j, i].set(-halves[:, k])
  gram = gram.at[:, i, i].set(halves[:, j] + halves[:, k])
  return Mass(c.faces, _products(areas, 3)), Mass(
    c.face_edges, _edge_products(areas, gram, _FACE_EDGES, c.face_signs)
  )


def tet_masses(c: Complex, points: chex.Array) -> tuple[Mass, Mass, Mass]:
  """M0, M1 and M2 of a volume: ∫ λ_i λ_j, ∫ W_e · W_e' and ∫ W_f · W_f'; M3 is the diagonal 1/V.

  Args:
    c: a volume.
    points: (N, 3).
  """
  volumes = abs(stars.tet_volumes(c, points))
  gradients = tet_gradients(c, points)
  gram = jnp.einsum('tid,tjd->tij', gradients, gradients)
  # ∫ (x - x_l) · (x - x_m)/V is its value at the middle and the spread around it.
  x = points[c.tets]
  spread = jnp.sum((x - x.mean(axis=1, keepdims=True)) ** 2, axis=(1, 2)) / 20
  forms = _flux_forms(c, points)
  flux_gram = jnp.einsum('tid,tjd->tij', forms, forms)
  flux_gram += (spread * operators.inverse(9 * volumes**2))[:, None, None]
  flux_gram *= c.tet_signs[:, :, None] * c.tet_signs[:, None, :]
  return (
    Mass(c.tets, _products(volumes, 4)),
    Mass(c.tet_edges, _edge_products(volumes, gram, TET_EDGES, _tet_edge_signs(c))),
    Mass(c.tet_faces, volumes[:, None, None] * flux_gram),
  )


def apply_mass(mass: Mass, w: chex.Array) -> chex.Array:
  """M w (..., n), of a cochain w (..., n)."""
  parts = jnp.einsum('cij,...cj->...ci', mass.local, w[..., mass.cells])
  return jnp.zeros(w.shape, parts.dtype).at[..., mass.cells].add(parts)


def _normals(corners: chex.Array) -> chex.Array:
  """Normals (F, 3) as long as the areas of faces with the corners (F, 3, 3)."""
  return jnp.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]) / 2


def _flux_forms(c: Complex, points: chex.Array) -> chex.Array:
  """(m - x_l)/(3V) (T, 4, 3) at the middles m; 0 at padding."""
  x = points[c.tets]
  inverse = operators.inverse(3 * stars.tet_volumes(c, points))
  return (x.mean(axis=1, keepdims=True) - x) * inverse[:, None, None]


def _tet_edge_signs(c: Complex) -> chex.Array:
  """(T, 6), 1 where the tetrahedron lists the edge's lower vertex first."""
  a, b = np.array(TET_EDGES).T
  return jnp.sign(c.tets[:, b] - c.tets[:, a])


def _products(sizes: chex.Array, corners: int) -> chex.Array:
  """∫ λ_i λ_j (C, m, m) over simplices with m corners."""
  return sizes[:, None, None] * (1 + np.eye(corners)) / (corners * (corners + 1))


def _edge_products(
  sizes: chex.Array,
  gram: chex.Array,
  pairs: tuple[tuple[int, int], ...],
  signs: chex.Array,
) -> chex.Array:
  """∫ W_ab · W_cd (C, m, m), of ∇λ_i · ∇λ_j (C, n, n)."""
  mass = _products(sizes, gram.shape[-1])
  a, b = np.array(pairs).T[:, :, None]
  c, d = np.array(pairs).T[:, None, :]
  local = (
    mass[:, a, c] * gram[:, b, d]
    - mass[:, a, d] * gram[:, b, c]
    - mass[:, b, c] * gram[:, a, d]
    + mass[:, b, d] * gram[:, a, c]
  )
  return local * signs[:, :, None] * signs[:, None, :]
