"""Traced. Hodge stars: the metric of a mesh as one weight for each cell.

⋆_k is the size of a k-cell's dual cell over its own. On surfaces everything follows from the
lengths of edges, so that a surface needs no points in space; in volumes from points. All are
differentiable in them. Where a complex is padded, stars are zero.

Circumcentric duals are orthogonal to their cells but may have negative size, barycentric ones are
always positive; `check_positive` tells. But barycentric ones are not consistent: unless a dual is
orthogonal to its cell, as in regular triangles, ⋆1 counts it too large, on fine meshes as on coarse
ones. Where numbers matter, use `cotan` after `delaunay.intrinsic_delaunay`, or Whitney's masses.
"""

from collections.abc import Sequence

import chex
import jax
import jax.numpy as jnp
import numpy as np

from lib.hodge import operators
from lib.hodge.complexes import TET_EDGES, Complex

_NAMES = ('vertex', 'edge', 'face', 'tetrahedron')


def edge_lengths(c: Complex, points: chex.Array) -> chex.Array:
  """|x_j - x_i| (E,), of points (N, D); 0 at padding."""
  return _norm(operators.d0(c, points.T).T)


def periodic_edge_lengths(c: Complex, points: chex.Array, period: Sequence[float]) -> chex.Array:
  """Lengths (E,) in space modulo periods (D,), each edge by the shortest way, of points (N, D)."""
  steps = operators.d0(c, points.T).T
  around = jnp.asarray(period)
  return _norm(steps - around * jnp.round(steps / around))


def combinatorial(c: Complex) -> tuple[chex.Array, ...]:
  """⋆ = 1: no metric. Four stars; on a surface the last one is empty."""
  return tuple(mask.astype(float) for mask in operators.masks(c))


def barycentric(c: Complex, lengths: chex.Array) -> tuple[chex.Array, chex.Array, chex.Array]:
  """The stars of a surface by duals that join the middles of edges and faces; all are positive.

    ⋆0(v) = Σ_f A_f/3    ⋆1(e) = Σ_f m_f(e)/(3 |e|)    ⋆2(f) = 1/A_f

  with the sums over faces at the cell, and m_f(e) the median of f that ends on e.

  Args:
    c: a surface.
    lengths: of edges (E,).

  Returns:
    ⋆0 (N,), ⋆1 (E,) and ⋆2 (F,).
  """
  sides = _sides(c, lengths)
  squares = sides**2
  medians = jnp.sqrt(
    (2 * jnp.roll(squares, 1, axis=-1) + 2 * jnp.roll(squares, -1, axis=-1) - squares) / 4
  )
  star1 = _sum_to(c.face_edges, medians / (3 * sides), len(lengths), _face_mask(c))
  return vertex_areas(c, lengths), star1, 1 / _areas(c, lengths)


def circumcentric(c: Complex, lengths: chex.Array) -> tuple[chex.Array, chex.Array, chex.Array]:
  """The stars of a surface by Voronoi duals, those of `cotan` but for

    ⋆0(v) = Σ_{e at v} |e|² ⋆1(e)/4

  the area of the Voronoi cell where the triangulation is Delaunay and has no obtuse angle at the
  boundary; its sum is the surface's area.

  Args:
    c: a surface.
    lengths: of edges (E,).

  Returns:
    ⋆0 (N,), ⋆1 (E,) and ⋆2 (F,), the first two positive or not.
  """
  _, star1, star2 = cotan(c, lengths)
  num_vertices = operators.num_cells(c)[0]
  quarter = jnp.broadcast_to((lengths**2 * star1 / 4)[:, None], c.edges.shape)
  return _sum_to(c.edges, quarter, num_vertices, operators.masks(c)[1]), star1, star2


def cotan(c: Complex, lengths: chex.Array) -> tuple[chex.Array, chex.Array, chex.Array]:
  """The stars of a surface whose weak Laplacian d0ᵀ ⋆1 d0 is that of piecewise linear elements.

    ⋆0(v) = Σ_f A_f/3    ⋆1(e) = ½ Σ_f cot α_f(e)    ⋆2(f) = 1/A_f

  with α_f(e) the angle of f opposite to e; ⋆1(e) <= 0 where the two sum to π or more.

  Args:
    c: a surface.
    lengths: of edges (E,).

  Returns:
    ⋆0 (N,), ⋆1 (E,), positive or not, and ⋆2 (F,).
  """
  cotangents = corner_cotangents(c, lengths)
  # The edge (0, 1) is opposite to corner 2, and so on.
  opposite = jnp.roll(cotangents, 1, axis=-1)
  star1 = _sum_to(c.face_edges, opposite / 2, len(lengths), _face_mask(c))
  return vertex_areas(c, lengths), star1, 1 / _areas(c, lengths)


def barycentric_tets(c: Complex, points: chex.Array) -> tuple[chex.Array, ...]:
  """The stars of a volume by duals that join the middles of edges, faces and tetrahedra.

    ⋆0(v) = Σ_t V_t/4    ⋆1(e) = Σ_t |dual(e) ∩ t|/|e|    ⋆2(f) = Σ_t |m_t - m_f|/A_f    ⋆3 = 1/V_t

  All are positive, but not consistent: d0ᵀ ⋆1 d0 is not the stiffness matrix of linear elements,
  and the energy of a constant field comes out too large.

  Args:
    c: a volume.
    points: (N, 3).

  Returns:
    ⋆0 (N,), ⋆1 (E,), ⋆2 (F,) and ⋆3 (T,).
  """
  x = points[c.tets]
  num_vertices, num_edges, num_faces, _ = operators.num_cells(c)
  volumes = tet_volumes(c, points)
  there = operators.masks(c)[3]
  quarter = jnp.broadcast_to(volumes[:, None] / 4, c.tets.shape)

  # An edge's dual in a tetrahedron is a flat quadrangle with |(x - m) × (y - m)|/12 for its area, m
  # the edge's middle and x, y the other two vertices.
  pairs = np.array(TET_EDGES)
  middle = x[:, pairs].mean(axis=2)
  first, second = x[:, pairs[::-1, 0]], x[:, pairs[::-1, 1]]
  duals = _norm(jnp.cross(first - middle, second - middle)) / 12
  star1 = _sum_to(c.tet_edges, duals, num_edges, there)
  star1 *= operators.inverse(edge_lengths(c, points))

  corners = points[c.faces]
  normals = jnp.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
  # The middles of a face and its tetrahedron lie on a line to the vertex that is opposite.
  steps = _norm(x - corners.mean(axis=1)[c.tet_faces]) / 4
  star2 = _sum_to(c.tet_faces, steps, num_faces, there) * operators.inverse(_norm(normals) / 2)
  star0 = _sum_to(c.tets, quarter, num_vertices, there)
  return star0, star1, star2, operators.inverse(volumes)


def face_areas(c: Complex, lengths: chex.Array) -> chex.Array:
  """Areas (F,) by Kahan's form of Heron's formula, which is accurate for needles; 0 at padding.

  NaN where the lengths are those of no triangle.
  """
  return jnp.where(_face_mask(c), _heron(_sides(c, lengths)), 0)


def vertex_areas(c: Complex, lengths: chex.Array) -> chex.Array:
  """A third of the faces at each vertex (N,)."""
  third = jnp.broadcast_to(face_areas(c, lengths)[:, None] / 3, c.faces.shape)
  return _sum_to(c.faces, third, operators.num_cells(c)[0], _face_mask(c))


def corner_cotangents(c: Complex, lengths: chex.Array) -> chex.Array:
  """cot of the angle at each corner of each face (F, 3), (b² + c² - a²)/(4A); 1/√3 at padding."""
  sides = _sides(c, lengths)
  squares = sides**2
  # Corner i lies between side i, which starts there, and side i - 1; side i + 1 is opposite.
  opposite = jnp.roll(squares, -1, axis=-1)
  return (squares.sum(axis=-1, keepdims=True) - 2 * opposite) / (4 * _heron(sides)[:, None])


def tet_volumes(c: Complex, points: chex.Array) -> chex.Array:
  """Volumes (T,), positive if the tetrahedra are positively oriented; 0 at padding."""
  x = points[c.tets]
  a, b, d = (x[:, i] - x[:, 0] for i in (1, 2, 3))
  return jnp.sum(jnp.cross(a, b) * d, axis=-1) / 6


def check_positive(stars: Sequence[chex.Array]) -> None:
  """Checks the stars of a complex without padding, before boundary conditions.

  Raises:
    ValueError: if one is not positive and finite; it names the first such cell.
  """
  for name, star in zip(_NAMES, stars, strict=False):
    values = np.asarray(star)
    wrong = ~((values > 0) & (values < np.inf))
    if wrong.any():
      i = wrong.argmax()
      raise ValueError(
        f'{wrong.sum()} of {values.size} stars of degree {_NAMES.index(name)} are not positive; '
        f'the first is {values[i]} at {name} {i}.'
      )


def _face_mask(c: Complex) -> chex.Array:
  return operators.masks(c)[2]


def _sides(c: Complex, lengths: chex.Array) -> chex.Array:
  """Lengths (F, 3) of the sides from corner 0 to 1, 1 to 2 and 2 to 0; 1 at padding."""
  return jnp.where(_face_mask(c)[:, None], lengths[c.face_edges], 1)


def _areas(c: Complex, lengths: chex.Array) -> chex.Array:
  """Areas (F,), ∞ at padding."""
  return jnp.where(_face_mask(c), _heron(_sides(c, lengths)), jnp.inf)


def _heron(sides: chex.Array) -> chex.Array:
  z, y, x = jnp.moveaxis(jnp.sort(sides, axis=-1), -1, 0)
  # The parentheses must stay.
  return jnp.sqrt((x + (y + z)) * (z - (x - y)) * (z + (x - y)) * (x + (y - z))) / 4


def _sum_to(cells: chex.Array, values: chex.Array, num: int, mask: chex.Array) -> chex.Array:
  """Σ of values (C, m) over equal entries of `cells` (C, m), as (num,)."""
  values = jnp.where(mask[:, None], values, 0)
  return jax.ops.segment_sum(values.ravel(), cells.ravel(), num)


def _norm(x: chex.Array) -> chex.Array:
  """|x| along the last axis, with derivative 0 at 0."""
  square = jnp.sum(x**2, axis=-1)
  there = square > 0
  return jnp.where(there, jnp.sqrt(jnp.where(there, square, 1)), 0)
