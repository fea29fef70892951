"""A task's mesh as the networks see it: metric, spectral bases, and fields read off cochains."""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from scipy import interpolate

from experiments.hsd.tasks import record
from lib.hodge import complexes, matrices, projections, spectra, stars, whitney

_NEIGHBORS = 8  # between which fields are interpolated on another mesh


class Mesh(NamedTuple):
  """What fields need of a mesh, as `Space` has it."""

  complex: complexes.Complex
  points: chex.Array
  stars: tuple[chex.Array, ...]


class Space(NamedTuple):
  """Arrays of one mesh, of single precision.

  Attributes:
    complex: of the mesh.
    points: vertices (N, D).
    places: vertices (N, D) in the unit cube, a margin away from its faces.
    stars: ⋆0, ⋆1, ... of the task, which measure errors and carry fields.
    weights: the stars of the bases, those or ones.
    bases: Φ_k (n_k, m_k) of each degree, orthonormal by `weights`.
    values: their eigenvalues (m_k,).
    derivatives: M_d (m_{k+1}, m_k) of each degree but the last.
    kernel: (m,), whether a mode of the output's degree is harmonic.
  """

  complex: complexes.Complex
  points: chex.Array
  places: chex.Array
  stars: tuple[chex.Array, ...]
  weights: tuple[chex.Array, ...]
  bases: tuple[chex.Array, ...]
  values: tuple[chex.Array, ...]
  derivatives: tuple[chex.Array, ...]
  kernel: chex.Array


def build(
  task: record.Task,
  modes: int,
  gap: float,
  kind: str,
  normalize: bool,
  like: tuple[record.Task, Space] | None = None,
) -> Space:
  """Makes the space of a task.

  Args:
    task: the task.
    modes: the most in each degree's basis, where no cluster is cut.
    gap: relative distance between eigenvalues of different clusters.
    kind: 'metric', for bases of the task's stars; or 'combinatorial', of ones.
    normalize: divide the Laplacians by their diagonals, as the released code does, by which the
      bases are orthonormal without stars.
    like: the same task on another mesh and its space, with whose modes these are to agree in
      number and, within clusters, in sign and rotation.

  Returns:
    The space.
  """
  c, dimension = task.complex, len(task.stars) - 1
  weights = task.stars if kind == 'metric' else stars.combinatorial(c)[: dimension + 1]
  weights = [np.asarray(star, np.float64) for star in weights]
  operators = [matrices.laplacian(c, weights, k) for k in range(dimension + 1)]
  if normalize:
    operators = [matrices.normalized(operator) for operator in operators]
    weights = [np.ones_like(star) for star in weights]
  found = []
  # Below these eigenvalues are zero up to rounding.
  floors = [1e-9 * op.trace() / star.sum() for op, star in zip(operators, weights, strict=True)]
  for k, (operator, star) in enumerate(zip(operators, weights, strict=True)):
    count = min(modes, len(star)) if like is None else like[1].bases[k].shape[1]
    # As many as the other mesh has, wherever this cuts: each mode is a cluster.
    basis = spectra.eigenbasis(operator, star, count, gap if like is None else -1.0)
    found.append(basis if like is None else _aligned(task, basis, star, k, *like, gap, floors[k]))
  derivative = jax.jit(projections.spectral_derivative, static_argnums=2)
  with jax.enable_x64(True):
    derivatives = [
      np.asarray(derivative(c, weights, k, found[k].vectors, found[k + 1].vectors))
      for k in range(dimension)
    ]
  values = found[task.output.degree].values
  around = task.points if like is None else like[0].points
  low, high = around.min(axis=0), around.max(axis=0)
  span = 1.1 * (high - low).max()
  space = Space(
    complex=c,
    points=task.points,
    places=0.5 + (task.points - (low + high) / 2) / span,
    stars=task.stars,
    weights=tuple(weights),
    bases=tuple(basis.vectors for basis in found),
    values=tuple(basis.values for basis in found),
    derivatives=tuple(derivatives),
    kernel=values < floors[task.output.degree],
  )
  return jax.tree.map(_single, space)


def _aligned(
  task: record.Task,
  basis: spectra.Eigenbasis,
  star: np.ndarray,
  degree: int,
  other: record.Task,
  space: Space,
  gap: float,
  floor: float,
) -> spectra.Eigenbasis:
  """Modes rotated within the clusters of those of another mesh, which are resampled for that."""
  fields = on_host(to_vertices, other, degree, space.bases[degree].T)
  resample = interpolate.RBFInterpolator(
    other.points, fields.swapaxes(0, 1).reshape(len(other.points), -1), _NEIGHBORS, kernel='linear'
  )
  fields = resample(task.points).reshape(len(task.points), *fields.shape[::2]).swapaxes(0, 1)
  theirs = on_host(to_cochains, task, degree, fields).T
  values = np.asarray(space.values[degree], np.float64)
  labels = spectra.clusters(values, gap, floor)
  near = spectra.Eigenbasis(values, theirs, labels)
  return spectra.Eigenbasis(basis.values, spectra.align(near, basis.vectors, star), labels)


def channels(task: record.Task, degree: int) -> int:
  """How many numbers a field of cochains has at a vertex: a scalar's, or a vector's."""
  return 1 if degree in (0, len(task.stars) - 1) else task.points.shape[1]


def to_vertices(space: Space | Mesh, degree: int, w: chex.Array) -> chex.Array:
  """Whitney's field of cochains (..., n), averaged at vertices (..., N, C)."""
  c, num = space.complex, len(space.points)
  if degree == 0:
    return w[..., None]
  volume = len(space.stars) == 4
  cells, sizes = (c.tets, 1 / space.stars[3]) if volume else (c.faces, 1 / space.stars[2])
  if degree == len(space.stars) - 1:
    fields = (w / sizes)[..., None]
  elif volume:
    fields = (whitney.tet_fields, whitney.flux_fields)[degree - 1](c, space.points, w)
  else:
    fields = whitney.face_fields(c, space.points, w)
  return whitney.to_vertices(cells, sizes, fields, num)


def to_cochains(space: Space | Mesh, degree: int, fields: chex.Array) -> chex.Array:
  """The cochains (..., n) of a field at vertices (..., N, C), linear between them."""
  if degree == 0:
    return fields[..., 0]
  if degree == 1:
    return whitney.vertex_line_integrals(space.complex, space.points, fields)
  if degree == 2 and len(space.stars) == 4:
    return whitney.vertex_fluxes(space.complex, space.points, fields)
  cells = space.complex.tets if len(space.stars) == 4 else space.complex.faces
  return fields[..., cells, 0].mean(axis=-1) / space.stars[degree]


def on_host(function: Callable, task: record.Task, degree: int, w: chex.Array) -> np.ndarray:
  """What `to_vertices` or `to_cochains` gives on a task's mesh, in single precision."""
  mesh = jax.tree.map(_single, Mesh(task.complex, task.points, task.stars))
  compiled = jax.jit(function, static_argnums=1)
  return np.asarray(compiled(mesh, degree, jnp.asarray(w, jnp.float32)))


def norm(star: chex.Array, w: chex.Array) -> chex.Array:
  """|w|_⋆ of cochains (..., n)."""
  return jnp.sqrt(jnp.sum(star * w * w, axis=-1))


def _single(x: Any) -> Any:
  x = np.asarray(x)
  return jnp.asarray(x.astype(np.float32) if x.dtype == np.float64 else x)
