"""Traced. How two samples cover one another, by the distances to nearest neighbours."""

from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

# Differences are taken in blocks of about this many numbers (16 MiB in float32), or of one row.
_BLOCK_NUMBERS = 2**22


class PRDC(NamedTuple):
  """How well generated points stand for real ones; see `prdc`.

  Attributes:
    precision: share of generated points near some real point: quality.
    recall: share of real points near some generated point: coverage.
    density: mean number of real neighbourhoods that hold a generated point, over k; may exceed 1.
    coverage: share of real neighbourhoods that hold a generated point.
  """

  precision: chex.Array
  recall: chex.Array
  density: chex.Array
  coverage: chex.Array


def radii(x: chex.Array, k: int) -> chex.Array:
  """Distance of every point to the k-th nearest other point of its set.

  Copies of a point are other points, at distance zero. A point that is not finite is infinitely
  far from all others.

  Args:
    x: (N, D) points.
    k: which neighbour, in 1 .. N - 1.

  Returns:
    Euclidean distances (N,).

  Raises:
    ValueError: unless 1 <= k < N.
  """
  chex.assert_rank(x, 2)
  _check_k(k, len(x))
  return jnp.sqrt(_squared_radii(_real(x), k))


def prdc(real: chex.Array, fake: chex.Array, k: int = 5) -> PRDC:
  """Precision, recall, density and coverage of N generated points F for M real points R.

  With r_k(x) of `radii`, each within its own set, and open balls:

    precision = 1/N Σ_j 1[∃ i: |F_j - R_i| < r_k(R_i)]
    recall    = 1/M Σ_i 1[∃ j: |R_i - F_j| < r_k(F_j)]
    density   = 1/(kN) Σ_ij 1[|F_j - R_i| < r_k(R_i)]
    coverage  = 1/M Σ_i 1[min_j |R_i - F_j| < r_k(R_i)]

  Precision and recall are of Kynkäänniemi et al. (2019), arXiv:1904.06991, with k = 3 there (and
  closed balls; the open ones are those of the paper below), density and coverage of Naeem et al.
  (2020), arXiv:2002.09797, with k = 5. All four are unchanged by rotation, translation and scaling
  of both samples at once. A set without k + 1 copies of one point has precision, recall and
  coverage 1 to itself, exactly, and density 1 but for ties in distance. Where the two laws are
  equal, the expected coverage is 1 - Π_{l=1..k} (M - l)/(N + M - l), close to 1 - 2^{-k} for M = N.

  Distances are of differences, not of the expansion |x|² + |y|² - 2 x·y, which loses small ones to
  rounding. Time is O((N + M)² D), memory O((N + M) D). A point that is not
  finite lies in no ball and its ball holds no point.

  Args:
    real: (M, D) real points, or their features.
    fake: (N, D) generated points, or their features.
    k: which neighbour gives the radius, at least 1 and below N and M.

  Returns:
    The four numbers.

  Raises:
    ValueError: unless 1 <= k < min(M, N).
  """
  chex.assert_rank([real, fake], 2)
  chex.assert_equal_shape_suffix([real, fake], 1)
  _check_k(k, min(len(real), len(fake)))
  real, fake = _real(real), _real(fake)
  # A set with fewer than k + 1 finite points has no radius: its balls are empty, not all of space.
  real_sq, fake_sq = (
    jnp.where(jnp.isinf(square), 0.0, square)
    for square in (_squared_radii(real, k), _squared_radii(fake, k))
  )

  def real_balls_around(point: chex.Array) -> chex.Array:
    return jnp.sum(_squared_distances(point, real) < real_sq)

  def recalled_and_covered(point_and_square: tuple[chex.Array, chex.Array]):
    point, square = point_and_square
    squares = _squared_distances(point, fake)
    return jnp.any(squares < fake_sq), jnp.any(squares < square)

  counts = _map(real_balls_around, fake, real)
  recalled, covered = _map(recalled_and_covered, (real, real_sq), fake)
  return PRDC(
    precision=_ratio(counts > 0, len(fake)),
    recall=_ratio(recalled, len(real)),
    density=_ratio(counts, k * len(fake)),
    coverage=_ratio(covered, len(real)),
  )


def _squared_radii(x: chex.Array, k: int) -> chex.Array:
  n = len(x)

  def row(point_and_index: tuple[chex.Array, chex.Array]) -> chex.Array:
    point, index = point_and_index
    # The point itself is left out by its place, for its copies count.
    squares = jnp.where(jnp.arange(n) == index, jnp.inf, _squared_distances(point, x))
    # The least, for XLA makes a full sort of the last.
    return -jnp.min(jax.lax.top_k(-squares, k)[0])

  return _map(row, (x, jnp.arange(n)), x)


def _squared_distances(point: chex.Array, points: chex.Array) -> chex.Array:
  """|point - points_j|², the same to the last bit with the two exchanged; inf for NaN."""
  squares = jnp.sum((point - points) ** 2, axis=-1)
  return jnp.where(jnp.isnan(squares), jnp.inf, squares)


def _map(row: Callable, rows: chex.ArrayTree, points: chex.Array) -> chex.ArrayTree:
  """Maps `row`, which compares one point with `points`, in blocks of rows."""
  return jax.lax.map(row, rows, batch_size=max(1, _BLOCK_NUMBERS // max(1, points.size)))


def _ratio(values: chex.Array, whole: int) -> chex.Array:
  """Σ values / whole, which is 1 to the last bit where the two are equal."""
  # XLA would multiply with the rounded inverse of a number that it knows.
  return jnp.sum(values, dtype=float) / jax.lax.optimization_barrier(jnp.asarray(whole, float))


def _real(x: chex.Array) -> chex.Array:
  """Casts integers, whose differences may wrap around, and short floats to float32."""
  return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def _check_k(k: int, size: int) -> None:
  if not 1 <= k < size:
    raise ValueError(f'The k-th of {size - 1} other points needs k in 1 .. {size - 1}, got {k=}.')
