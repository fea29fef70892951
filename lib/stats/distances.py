"""Traced. Distances between two samples, and between laws that are fitted to them."""

import math

import chex
import jax
import jax.numpy as jnp
import optax
from jax.scipy import special

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
    2 * sum_of_distances(x, y) / (n * m)
    - sum_of_distances(x, x) / n**2
    - sum_of_distances(y, y) / m**2
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
    2 * sum_of_distances(x, y) / (n * m)
    - sum_of_distances(x, x) / (n * (n - 1))
    - sum_of_distances(y, y) / (m * (m - 1))
  )


def frechet_gaussian(
  mean0: chex.Array, cov0: chex.Array, mean1: chex.Array, cov1: chex.Array
) -> chex.Array:
  """Squared Fréchet (2-Wasserstein) distance between N(μ₀, Σ₀) and N(μ₁, Σ₁).

    |μ₀ - μ₁|² + tr(Σ₀ + Σ₁ - 2 (Σ₀^½ Σ₁ Σ₀^½)^½) = |μ₀ - μ₁|² + min_U ‖Σ₀^½ - U Σ₁^½‖²

  over orthogonal U (Bhatia, Jain & Lim, 2019, arXiv:1712.01504). The right side is computed: a sum
  of squares, which does not cancel where the laws are close, as the trace does. Covariances may be
  singular: eigenvalues within rounding of zero, beside the largest, count as zero. It has the unit
  of x².

  Args:
    mean0: (D,) mean μ₀.
    cov0: (D, D) covariance Σ₀, symmetric and positive semidefinite.
    mean1: (D,) mean μ₁.
    cov1: (D, D) covariance Σ₁.

  Returns:
    The squared distance, a scalar; NaN where a number is not finite. Its gradient is of no use: it
    is not finite where eigenvalues coincide.
  """
  chex.assert_rank([mean0, mean1], 1)
  chex.assert_equal_shape([mean0, mean1])
  chex.assert_shape([cov0, cov1], (*mean0.shape, *mean0.shape))
  root0, root1 = _square_root(cov0), _square_root(cov1)
  # The nearest orthogonal matrix to Σ₀^½ Σ₁^½, its polar factor, attains the minimum.
  left, _, right = jnp.linalg.svd(_product(root0, root1))
  gap = root0 - _product(_product(left, right), root1)
  return jnp.sum((mean0 - mean1) ** 2) + jnp.sum(gap**2)


def frechet_distance(x: chex.Array, y: chex.Array) -> chex.Array:
  """`frechet_gaussian` of the Gaussians fitted to two samples of features.

  Of the features of an Inception network this is the FID of Heusel et al. (2017), arXiv:1706.08500;
  of others it is not to be called so. Covariances are unbiased (over N - 1); the distance is
  biased upwards, the more the smaller the samples, so compare only those of equal sizes.

  Args:
    x: (N, D) features of the first sample, N > 1.
    y: (M, D) features of the second sample, M > 1.

  Returns:
    The squared distance, a scalar.

  Raises:
    ValueError: if a sample has fewer than two points.
  """
  _check_samples(x, y, min_size=2)
  return frechet_gaussian(*_moments(x), *_moments(y))


def class_shares(labels: chex.Array, num_classes: int, smoothing: float = 0.0) -> chex.Array:
  """Shares of K classes among N labels, (n_c + s) / (N + s K), with s added to every count.

  Args:
    labels: (N,) integers in [0, K); others count for no class, and not in N.
    num_classes: K, positive.
    smoothing: s, not negative; 1/2 is the posterior mean under Jeffreys' prior. Positive where no
      share may be zero.

  Returns:
    Shares (K,), of sum 1; NaN where nothing counts.

  Raises:
    ValueError: if a number is out of its range or labels are not integers.
  """
  chex.assert_rank(labels, 1)
  if num_classes < 1 or not 0 <= smoothing < math.inf:
    raise ValueError(
      f'Needs num_classes > 0 and a finite smoothing >= 0, got {num_classes=}, {smoothing=}.'
    )
  if not jnp.issubdtype(labels.dtype, jnp.integer):
    raise ValueError(f'Labels must be integers, got {labels.dtype}.')
  # Labels below zero would wrap around.
  counted = (labels >= 0) & (labels < num_classes)
  counts = jnp.zeros(num_classes).at[jnp.where(counted, labels, 0)].add(counted)
  return (counts + smoothing) / (counts.sum() + smoothing * num_classes)


def histogram_kl(p: chex.Array, q: chex.Array) -> chex.Array:
  """Kullback-Leibler divergence Σ_c p_c log(p_c / q_c) of two histograms, in nats.

  Both are normalised first, so counts will do. With p the classes of samples and q the true shares
  it punishes classes that are too frequent; with the two exchanged it is infinite where a class is
  missing, unless counts are smoothed (`class_shares`).

  Args:
    p: (..., K) counts or shares, not negative, of positive sum.
    q: (..., K) counts or shares, alike.

  Returns:
    Divergences (...), not negative but for rounding; inf where q_c = 0 < p_c or a sum is
    zero. A class that p lacks adds nothing.
  """
  chex.assert_equal_shape_suffix([p, q], 1)
  p, q = p / p.sum(-1, keepdims=True), q / q.sum(-1, keepdims=True)
  return special.rel_entr(p, q).sum(-1)


def sum_of_distances(x: chex.Array, y: chex.Array) -> chex.Array:
  """Sums |x_i - y_j| over all pairs, in blocks of rows of x."""

  # Rematerialised, for the backward pass would otherwise keep every block.
  @jax.checkpoint
  def row(point: chex.Array) -> chex.Array:
    return optax.safe_norm(point - y, 0.0, axis=-1).sum()

  return jax.lax.map(row, x, batch_size=max(1, _BLOCK_NUMBERS // max(1, y.size))).sum()


def _moments(x: chex.Array) -> tuple[chex.Array, chex.Array]:
  """Returns mean (D,) and unbiased covariance (D, D)."""
  mean = x.mean(axis=0)
  centred = x - mean
  return mean, _product(centred.T, centred) / (len(x) - 1)


def _square_root(cov: chex.Array) -> chex.Array:
  """The symmetric square root of a covariance."""
  values, vectors = jnp.linalg.eigh(cov)
  # The root of a rounding error, 3e-4 in float32, is none. NaN stays NaN.
  noise = 2.0 * jnp.finfo(values.dtype).eps * values[-1]
  return _product(vectors * jnp.sqrt(jnp.where(values < noise, 0.0, values)), vectors.T)


def _product(a: chex.Array, b: chex.Array) -> chex.Array:
  return jnp.matmul(a, b, precision='highest')


def _check_samples(x: chex.Array, y: chex.Array, min_size: int) -> None:
  chex.assert_rank([x, y], 2)
  chex.assert_equal_shape_suffix([x, y], 1)
  if min(len(x), len(y)) < min_size:
    raise ValueError(f'Samples need at least {min_size} points, got {len(x)} and {len(y)}.')
