"""Traced. Tests of means, of two samples' laws, and of data that come in clusters.

All take vectors (n,) and, where cells of different sizes are to share one `vmap`, a mask of the
entries that count. What the mask hides may be anything, NaN included; a NaN or an infinity among
the entries that count makes the p-values NaN.

Pairs that share something, such as the question they are about, are not independent: a t test on
them rejects too often. `sign_flip_test` and `cluster_bootstrap` take whole clusters instead.
"""

import math
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

# Blocks of draws hold about this many numbers (4 MiB in float32), which a core's cache keeps.
_BLOCK_NUMBERS = 2**20

# Sums that differ by fewer roundings of the sum of absolute values than this are ties.
_TIE_ROUNDINGS = 16


class PairedTest(NamedTuple):
  """Student's test of the hypothesis that differences have mean zero.

  Attributes:
    n: how many differences count.
    mean: their mean; NaN if n = 0.
    std: their standard deviation (with n - 1); NaN if n < 2.
    t: mean / (std / √n).
    p_two: p-value against a mean other than zero; NaN, like the next two, if n < 2.
    p_greater: against a positive mean.
    p_less: against a negative mean.
  """

  n: chex.Array
  mean: chex.Array
  std: chex.Array
  t: chex.Array
  p_two: chex.Array
  p_greater: chex.Array
  p_less: chex.Array


class TwoSampleTest(NamedTuple):
  """A statistic of two samples, and the p-value of the hypothesis that they have one law."""

  statistic: chex.Array
  p: chex.Array


class SignFlipTest(NamedTuple):
  """P-values against a positive sum, and against a sum other than zero."""

  p_greater: chex.Array
  p_two: chex.Array


class ClusterMean(NamedTuple):
  """A mean and the bounds of its confidence interval."""

  mean: chex.Array
  low: chex.Array
  high: chex.Array


def t_sf(t: chex.Array, df: chex.Array) -> chex.Array:
  """Upper tail P(T > t) of Student's law.

    P(T > t) = ½ I_{df / (df + t²)}(df/2, ½),   t >= 0

  by the incomplete beta function for few degrees of freedom, and by Hill's normal deviate (1970,
  Algorithm 395) for many, where the beta function's normaliser loses its digits.

  Args:
    t: any shape; ±∞ gives 0 and 1.
    df: degrees of freedom, > 0, a number or an array that broadcasts.

  Returns:
    The tail, relative error about 1e-4 in float32 and 1e-9 in float64, however small it is.
    Below zero it is one minus the opposite tail, so t_sf(t) + t_sf(-t) = 1.
  """
  t = _real(t)
  df = jnp.asarray(df, t.dtype)
  # Few degrees of freedom; near zero by I_x(a, b) = 1 - I_{1-x}(b, a), where 1 - x has more digits.
  few = 20.0 if t.dtype == jnp.float32 else 300.0
  nu, square = jnp.minimum(df, few), t * t
  near = square < 1
  half = jnp.full_like(nu, 0.5)
  a, b = jnp.where(near, half, nu / 2), jnp.where(near, nu / 2, half)
  # With t² infinite the ratio is 0, as it should be; ∞/∞ is on the side not taken.
  x = jnp.where(near, jnp.where(near, square, 0.0), nu) / (nu + square)
  beta = jax.scipy.special.betainc(a, b, x) / 2
  exact = jnp.where(near, 0.5 - beta, beta)
  # Many: t as a normal deviate z. Beyond z = 50 nothing is left.
  c = jnp.maximum(df, few) - 0.5
  z = jnp.minimum(jnp.sqrt(c * jnp.log1p(square / (c + 0.5))), 50.0)
  d = 48 * c * c
  second = (4 * z**7 + 33 * z**5 + 240 * z**3 + 855 * z) / (10 * d * (d + 0.8 * z**4 + 100))
  z = z + (z**3 + 3 * z) / d - second
  tail = jnp.where(df > few, jax.scipy.special.erfc(z / math.sqrt(2)) / 2, exact)
  return jnp.where(t < 0, 1 - tail, tail)


def paired_t(d: chex.Array, mask: chex.Array | None = None) -> PairedTest:
  """Student's one-sample t test of differences, t = mean / (std / √n) with n - 1 degrees.

  The differences must be independent. Repeating each m times multiplies t by about √m.

  Args:
    d: (n,) differences.
    mask: (n,) booleans, which of them count; all by default.

  Returns:
    The test. Differences that are all zero have t = 0 and all p-values 1; equal ones other than
    zero have t = ±∞.

  Raises:
    ValueError: if the shapes are not those of vectors of one length.
  """
  d, keep = _vectors(mask, d=d)
  n = keep.sum()
  mean, std = _moments(d, keep)
  flat = (std == 0) & (mean == 0)
  t = jnp.where(flat, 0.0, mean * jnp.sqrt(n) / std)
  tail = t_sf(jnp.abs(t), jnp.maximum(n - 1, 1))
  upper, lower = jnp.where(t >= 0, tail, 1 - tail), jnp.where(t >= 0, 1 - tail, tail)
  defined = (n > 1) & ~jnp.isnan(t)
  p_two, p_greater, p_less = (
    jnp.where(defined, jnp.where(flat, 1.0, p), jnp.nan) for p in (2 * tail, upper, lower)
  )
  return PairedTest(n, mean, std, jnp.where(n > 1, t, jnp.nan), p_two, p_greater, p_less)


def ks_2samp(
  x: chex.Array,
  y: chex.Array,
  x_mask: chex.Array | None = None,
  y_mask: chex.Array | None = None,
) -> TwoSampleTest:
  """Two-sample Kolmogorov–Smirnov test, D = sup_v |F_x(v) - F_y(v)|, two-sided.

  The p-value is Kolmogorov's limit at Stephens' (1970) effective size,

    p = Q((√e + 0.12 + 0.11/√e) D),   e = nm/(n + m),   Q(λ) = 2 Σ_k (-1)^{k-1} exp(-2 k² λ²)

  For e >= 4 it is within 0.03 of the one-sample law of size e, which `scipy.stats.ks_2samp` takes
  for method='asymp', and within 0.003 where p < 0.1. For continuous laws; ties make it
  conservative. Pairing and clusters are ignored. SciPy's function has the exact p-value too.

  Args:
    x: (n,) first sample.
    y: (m,) second sample.
    x_mask: (n,) booleans, which values of x count; all by default.
    y_mask: (m,) booleans, for y.

  Returns:
    D and p; NaN where a sample is empty or not finite.

  Raises:
    ValueError: if the shapes are not those of vectors, each with its mask.
  """
  x, x_keep = _vectors(x_mask, x=x)
  y, y_keep = _vectors(y_mask, y=y)
  finite = jnp.all(jnp.isfinite(x) | ~x_keep) & jnp.all(jnp.isfinite(y) | ~y_keep)
  x, y = (jnp.sort(jnp.where(k, v, jnp.inf)) for k, v in ((x_keep, x), (y_keep, y)))
  n, m = x_keep.sum(), y_keep.sum()
  at = jnp.concatenate([x, y])
  # The infinities that stand for hidden values count for nobody.
  f_x, f_y = (
    jnp.minimum(jnp.searchsorted(v, at, side='right', method='sort'), k) / k
    for v, k in ((x, n), (y, m))
  )
  sound = (n > 0) & (m > 0) & finite
  statistic = jnp.where(sound, jnp.max(jnp.abs(f_x - f_y)), jnp.nan)
  effective = jnp.sqrt(n * (m / (n + m)))
  p = _kolmogorov_sf((effective + 0.12 + 0.11 / effective) * statistic)
  return TwoSampleTest(statistic, p)


def cohens_dz(d: chex.Array, mask: chex.Array | None = None) -> chex.Array:
  """Cohen's d of pairs, mean(d) / std(d) with n - 1.

  Args:
    d: (n,) differences.
    mask: (n,) booleans, which of them count; all by default.

  Returns:
    A scalar: 0 if all differences are zero, ±∞ if they are equal otherwise, NaN if n < 2.

  Raises:
    ValueError: as `paired_t`.
  """
  d, keep = _vectors(mask, d=d)
  mean, std = _moments(d, keep)
  return jnp.where((mean == 0) & (std == 0), 0.0, mean / std)


def cohens_d_pooled(x: chex.Array, y: chex.Array, mask: chex.Array | None = None) -> chex.Array:
  """Cohen's d of two samples of one size, (mean(x) - mean(y)) / √((s_x² + s_y²) / 2).

  The variances here are those with n, not n - 1, as in the paper's code. It ignores the pairing;
  compare it with `cohens_dz` only with care.

  Args:
    x: (n,) first values of the pairs.
    y: (n,) second values.
    mask: (n,) booleans, which pairs count; all by default.

  Returns:
    A scalar: 0 if all values are one, ±∞ if the two samples are constants that differ, NaN if
    n < 2.

  Raises:
    ValueError: if the shapes are not those of vectors of one length.
  """
  x, y, keep = _vectors(mask, x=x, y=y)
  (mean_x, std_x), (mean_y, std_y) = _moments(x, keep), _moments(y, keep)
  n = keep.sum()
  difference = mean_x - mean_y
  pooled = jnp.sqrt((std_x**2 + std_y**2) / 2 * ((n - 1) / n))
  return jnp.where((difference == 0) & (pooled == 0), 0.0, difference / pooled)


def pearson(x: chex.Array, y: chex.Array, mask: chex.Array | None = None) -> chex.Array:
  """Pearson's correlation, S_xy / √(S_xx S_yy).

  Args:
    x: (n,) first values of the pairs.
    y: (n,) second values.
    mask: (n,) booleans, which pairs count; all by default.

  Returns:
    A scalar in [-1, 1]; NaN if x or y is constant.

  Raises:
    ValueError: if the shapes are not those of vectors of one length.
  """
  x, y, keep = _vectors(mask, x=x, y=y)
  (mean_x, std_x), (mean_y, std_y) = _moments(x, keep), _moments(y, keep)
  u, v = (jnp.where(keep, (a - m) / s, 0.0) for a, m, s in ((x, mean_x, std_x), (y, mean_y, std_y)))
  return jnp.clip(jnp.sum(u * v) / (keep.sum() - 1), -1.0, 1.0)


def cluster_sums(
  d: chex.Array, cluster_id: chex.Array, num_clusters: int, mask: chex.Array | None = None
) -> chex.Array:
  """The sum of each cluster's values.

  Args:
    d: (n,) values.
    cluster_id: (n,) integers in [0, num_clusters). Where traced, a value with another is dropped.
    num_clusters: number of clusters, > 0; some may be empty.
    mask: (n,) booleans, which values count; all by default.

  Returns:
    Sums (num_clusters,), 0 for an empty cluster.

  Raises:
    ValueError: if the shapes are not those of vectors of one length, `num_clusters` is not
      positive, or ids at hand are no integers of its range.
  """
  d, keep = _vectors(mask, d=d)
  _check_clusters(cluster_id, d.shape, num_clusters)
  return jax.ops.segment_sum(jnp.where(keep, d, 0.0), jnp.asarray(cluster_id), num_clusters)


def sign_flip_test(
  key: chex.PRNGKey,
  d: chex.Array,
  cluster_id: chex.Array,
  num_clusters: int,
  num_draws: int,
  mask: chex.Array | None = None,
) -> SignFlipTest:
  """Tests Σ d = 0 by flipping the signs of whole clusters at random.

    p = (1 + #{draws: Σ_c ε_c S_c >= Σ_c S_c}) / (1 + draws),   S_c the cluster's sum, ε_c = ±1

  It never rejects more often than it says if clusters are independent and each S_c has a law
  symmetric about zero, whatever goes on inside a cluster; otherwise nearly so, with many clusters.
  Copies of all pairs change nothing. Sums that are equal but for rounding count as equal.

  Memory stays at some MiB for any number of draws, but `vmap` over cells multiplies it by their
  number: `lax.map` with a `batch_size` does not.

  Args:
    key: typed PRNG key.
    d: (n,) differences.
    cluster_id: (n,) integers in [0, num_clusters), such as the item of each pair.
    num_clusters: number of clusters, > 0; some may be empty.
    num_draws: sign patterns drawn, > 0. P-values are multiples of 1/(1 + num_draws).
    mask: (n,) booleans, which differences count; all by default.

  Returns:
    P-values against a positive sum and against a sum other than zero; both 1 if nothing counts.

  Raises:
    ValueError: as `cluster_sums`, or if `num_draws` is not positive.
  """
  _check_draws(num_draws)
  sums = cluster_sums(d, cluster_id, num_clusters, mask)
  observed, scale = sums.sum(), jnp.abs(sums).sum()
  tie = _TIE_ROUNDINGS * float(jnp.finfo(sums.dtype).eps) * scale
  words = -(-num_clusters // 32)
  padded = jnp.pad(sums, (0, 32 * words - num_clusters))
  block, keys, counted = _blocks(key, num_draws, num_clusters)

  def count(arguments):
    block_key, valid = arguments
    bits = jax.random.bits(block_key, (block, words, 1), jnp.uint32)
    ones = (bits >> jnp.arange(32, dtype=jnp.uint32)) & 1
    signs = 2 * ones.astype(sums.dtype).reshape(block, -1) - 1
    flipped = jnp.matmul(signs, padded, precision='highest')
    greater = valid & (flipped >= observed - tie)
    either = valid & (jnp.abs(flipped) >= jnp.abs(observed) - tie)
    return greater.sum(), either.sum()

  counts = (c.sum() for c in jax.lax.map(count, (keys, counted)))
  p_greater, p_two = ((1 + c) / (1 + num_draws) for c in counts)
  # Comparisons with NaN are false, which would look like a discovery.
  bad = jnp.where(jnp.isfinite(scale), 0.0, jnp.nan)
  return SignFlipTest((p_greater + bad).astype(sums.dtype), (p_two + bad).astype(sums.dtype))


def cluster_bootstrap(
  key: chex.PRNGKey,
  d: chex.Array,
  cluster_id: chex.Array,
  num_clusters: int,
  num_draws: int,
  level: float = 0.95,
  mask: chex.Array | None = None,
) -> ClusterMean:
  """Percentile interval of a mean, from clusters drawn with replacement.

  A draw takes as many clusters as are not empty, each with all its values, and its mean is the sum
  of their sums over the sum of their counts. With few clusters (below some 30) the interval is too
  narrow, as percentile intervals are. Copies of all values change nothing.

  Args:
    key: typed PRNG key.
    d: (n,) values.
    cluster_id: (n,) integers in [0, num_clusters).
    num_clusters: number of clusters, > 0; some may be empty.
    num_draws: number of draws, > 0.
    level: coverage, in (0, 1).
    mask: (n,) booleans, which values count; all by default.

  Returns:
    The mean of all values and its bounds. The bounds are NaN with fewer than two clusters, which
    have no spread to estimate.

  Raises:
    ValueError: as `cluster_sums`, or if `num_draws` is not positive or `level` not in (0, 1).
  """
  _check_draws(num_draws)
  if not 0 < level < 1:
    raise ValueError(f'A confidence level must lie in (0, 1), got {level=}.')
  sums = cluster_sums(d, cluster_id, num_clusters, mask)
  counts = cluster_sums(jnp.ones(jnp.shape(d), sums.dtype), cluster_id, num_clusters, mask)
  present = (counts > 0).sum()
  order = jnp.argsort(counts == 0, stable=True)  # empty clusters last
  values = jnp.stack([sums, counts], axis=-1)[order]
  drawn = jnp.arange(num_clusters) < present
  block, keys, _ = _blocks(key, num_draws, num_clusters)

  def ratios(block_key):
    picked = jax.random.randint(block_key, (block, num_clusters), 0, jnp.maximum(present, 1))
    totals = jnp.sum(jnp.where(drawn[:, None], values[picked], 0.0), axis=1)
    return totals[:, 0] / totals[:, 1]

  means = jax.lax.map(ratios, keys).reshape(-1)[:num_draws]
  bounds = jnp.quantile(means, jnp.array([(1 - level) / 2, (1 + level) / 2], sums.dtype))
  low, high = jnp.where(present > 1, bounds, jnp.nan)
  return ClusterMean(sums.sum() / counts.sum(), low, high)


def _kolmogorov_sf(value: chex.Array) -> chex.Array:
  """Q(λ), the upper tail of Kolmogorov's limit law; Jacobi's other series near zero."""
  k = jnp.arange(1, 6, dtype=value.dtype)
  small = jnp.clip(value, 0.05, 1.0)[..., None]
  odd = jnp.exp(-(((2 * k - 1) * math.pi / small) ** 2) / 8)
  below = 1 - math.sqrt(2 * math.pi) / small[..., 0] * odd.sum(-1)
  signs = jnp.where(k % 2 == 1, 2.0, -2.0)
  above = (signs * jnp.exp(-2 * (k * value[..., None]) ** 2)).sum(-1)
  return jnp.clip(jnp.where(value < 1, below, above), 0.0, 1.0)


def _moments(d: chex.Array, keep: chex.Array) -> tuple[chex.Array, chex.Array]:
  """Mean, and standard deviation with n - 1, of the entries kept; both exact for equal ones."""
  n = keep.sum()
  low, high = jnp.where(keep, d, jnp.inf).min(), jnp.where(keep, d, -jnp.inf).max()
  # Rounding would give equal values a small spread, and an enormous t.
  equal = (n > 0) & (high - low == 0)
  mean = jnp.where(equal, low, jnp.where(keep, d, 0.0).sum() / n)
  scale = jnp.maximum(high - mean, mean - low)  # whose squares might vanish
  squares = jnp.where(keep, ((d - mean) / scale) ** 2, 0.0).sum()
  std = jnp.where(equal, 0.0, scale * jnp.sqrt(squares / (n - 1)))
  return mean, jnp.where(n > 1, std, jnp.nan)


def _blocks(key: chex.PRNGKey, num_draws: int, num_clusters: int):
  """Draws a block, a key for each block, and which of its draws count (blocks, draws)."""
  block = min(max(_BLOCK_NUMBERS // num_clusters, 1), num_draws)
  blocks = -(-num_draws // block)
  counted = np.arange(blocks * block).reshape(blocks, block) < num_draws
  return block, jax.random.split(key, blocks), jnp.asarray(counted)


def _real(x: chex.Array) -> chex.Array:
  """x as float32, or float64 where it is that."""
  x = jnp.asarray(x)
  return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def _vectors(mask: chex.Array | None, **named: chex.Array) -> list[chex.Array]:
  """Checks that arrays and the mask are vectors of one length; returns them, floating, and it."""
  shape = np.shape(next(iter(named.values())))
  for name, value in named.items():
    if len(shape) != 1 or np.shape(value) != shape:
      raise ValueError(f'{name} must be a vector (n,) like the others, got {np.shape(value)}.')
  if shape[0] == 0:
    raise ValueError(f'{next(iter(named))} must not be empty.')
  if mask is None:
    mask = np.ones(shape, bool)
  if np.shape(mask) != shape:
    raise ValueError(f'The mask must have shape {shape}, got {np.shape(mask)}.')
  return [*(_real(value) for value in named.values()), jnp.asarray(mask, bool)]


def _check_clusters(cluster_id: chex.Array, shape: tuple[int, ...], num_clusters: int) -> None:
  if num_clusters < 1:
    raise ValueError(f'There must be at least one cluster, got {num_clusters=}.')
  if np.shape(cluster_id) != shape:
    raise ValueError(f'Clusters must have shape {shape}, got {np.shape(cluster_id)}.')
  if not jnp.issubdtype(jnp.result_type(cluster_id), jnp.integer):
    raise ValueError(f'Clusters must be integers, got {jnp.result_type(cluster_id)}.')
  if not isinstance(cluster_id, jax.core.Tracer):
    ids = np.asarray(cluster_id)
    if not ((ids >= 0) & (ids < num_clusters)).all():
      raise ValueError(f'Clusters must lie in [0, {num_clusters}), got {ids.min()} to {ids.max()}.')


def _check_draws(num_draws: int) -> None:
  if num_draws < 1:
    raise ValueError(f'There must be at least one draw, got {num_draws=}.')
