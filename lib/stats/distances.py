"""Traced. Distances between two samples."""

import chex
import jax
import optax

# Pairs are visited in blocks of about this many numbers (16 MiB in float32), so that memory stays
# flat in the number of points.
_BLOCK_NUMBERS = 2**22


def energy_distance(x: chex.Array, y: chex.Array) -> chex.Array:
  """Squared energy distance between the empirical laws of x and y (Székely & Rizzo, 2013).

    D²(x, y) = 2/(NM) Σ_ij |x_i - y_j| - 1/N² Σ_ij |x_i - x_j| - 1/M² Σ_ij |y_i - y_j|

  with Euclidean norms. It is never negative but for rounding, and zero only where the two empirical
  laws are equal. As an estimate of the distance between the laws that the points were drawn from
  it is biased upwards, by E|x - x'|/N + E|y - y'|/M; `energy_distance_unbiased` is not. In one
  dimension it is the square of `scipy.stats.energy_distance`. It has the unit of x.

  Args:
    x: (N, d) points of the first sample.
    y: (M, d) points of the second sample.

  Returns:
    The squared distance, a scalar. Its gradient is finite where points coincide.

  Raises:
    ValueError: if a sample is empty.
  """
  _check_samples(x, y, min_size=1)
  n, m = len(x), len(y)
  return (
    2 * _sum_of_distances(x, y) / (n * m)
    - _sum_of_distances(x, x) / n**2
    - _sum_of_distances(y, y) / m**2
  )


def energy_distance_unbiased(x: chex.Array, y: chex.Array) -> chex.Array:
  """Unbiased estimate of the squared energy distance between the laws behind x and y.

    D²(x, y) = 2/(NM) Σ_ij |x_i - y_j|
               - 1/(N(N-1)) Σ_ij |x_i - x_j| - 1/(M(M-1)) Σ_ij |y_i - y_j|

  `energy_distance` without the zero distance of each point to itself: the U-statistic. Its mean
  over samples is the distance of the laws, so it is slightly negative half of the time where they
  are equal.

  Args:
    x: (N, d) independent points of the first law, N > 1.
    y: (M, d) independent points of the second law, M > 1.

  Returns:
    The estimate, a scalar. Its gradient is finite where points coincide.

  Raises:
    ValueError: if a sample has fewer than two points.
  """
  _check_samples(x, y, min_size=2)
  n, m = len(x), len(y)
  return (
    2 * _sum_of_distances(x, y) / (n * m)
    - _sum_of_distances(x, x) / (n * (n - 1))
    - _sum_of_distances(y, y) / (m * (m - 1))
  )


def _sum_of_distances(x: chex.Array, y: chex.Array) -> chex.Array:
  """Sums |x_i - y_j| over all pairs, in blocks of rows of x."""

  # Rematerialised, for the backward pass would otherwise keep every block.
  @jax.checkpoint
  def row(point: chex.Array) -> chex.Array:
    return optax.safe_norm(point - y, 0.0, axis=-1).sum()

  return jax.lax.map(row, x, batch_size=max(1, _BLOCK_NUMBERS // max(1, y.size))).sum()


def _check_samples(x: chex.Array, y: chex.Array, min_size: int) -> None:
  chex.assert_rank([x, y], 2)
  chex.assert_equal_shape_suffix([x, y], 1)
  if min(len(x), len(y)) < min_size:
    raise ValueError(f'Samples need at least {min_size} points, got {len(x)} and {len(y)}.')
