"""Traced. Scores of probabilistic forecasts: how sharp they are, and how well calibrated.

Samples (S, ...) stand before what came true (...), and all but `energy_score` score each number by
itself. Lower is better throughout.
"""

import math

import chex
import jax
import jax.numpy as jnp

from lib.stats import distances


def crps_samples(samples: chex.Array, y: chex.Array, fair: bool = True) -> chex.Array:
  """The continuous ranked probability score E|X - y| - ½ E|X - X'| of a forecast by samples.

    1/S Σ_i |x_i - y| - Σ_i (2i - S - 1) x_(i) / (S (S - 1))

  with x_(1) <= ... <= x_(S). It is unbiased for the score of the law that independent samples come
  from (Ferro, 2014). Over S² instead, not fair, it is the score of the empirical law itself, which
  is larger by E|X - X'| / 2S on average. It has the unit of y.

  Args:
    samples: x (S, ...). One is a point forecast, whose score is |x - y|.
    y: what came true (...).
    fair: whether to divide by S (S - 1).

  Returns:
    Scores (...).

  Raises:
    ValueError: if there is no sample.
  """
  _check_samples(samples, y)
  size = len(samples)
  # Sorted before y is taken off, so that one sort serves other scores of the same samples too.
  gaps = jnp.sort(samples, axis=0) - y
  ranks = 2.0 * jnp.arange(1, size + 1, dtype=gaps.dtype) - size - 1
  spread = jnp.tensordot(ranks, gaps, 1, precision='highest')
  return jnp.abs(gaps).mean(axis=0) - spread / _pairs(size, fair)


def crps_gaussian(mean: chex.Array, std: chex.Array, y: chex.Array) -> chex.Array:
  """The score of N(μ, σ²), σ (z (2 Φ(z) - 1) + 2 φ(z) - 1/√π) with z = (y - μ)/σ.

  Gneiting & Raftery (2007), equation 21.

  Args:
    mean: μ, an array or a number that broadcasts.
    std: σ > 0, likewise.
    y: what came true, likewise.

  Returns:
    Scores, of the broadcast shape.
  """
  z = (y - mean) / std
  density = jnp.exp(-0.5 * z**2) * math.sqrt(2 / math.pi)
  return std * (z * jax.scipy.special.erf(z / math.sqrt(2)) + density - 1 / math.sqrt(math.pi))


def pinball(quantiles: chex.Array, y: chex.Array, levels: chex.Array) -> chex.Array:
  """The quantile loss max(τ (y - q), (τ - 1)(y - q)), least in the mean where P(y <= q) = τ.

  Args:
    quantiles: q (Q, ...).
    y: what came true (...).
    levels: τ (Q,), in (0, 1).

  Returns:
    Losses (Q, ...).
  """
  _check_samples(quantiles, y)
  chex.assert_shape(levels, (len(quantiles),))
  gaps, levels = y - quantiles, _column(levels, quantiles)
  return jnp.maximum(levels * gaps, (levels - 1.0) * gaps)


def crps_quantiles(quantiles: chex.Array, y: chex.Array, levels: chex.Array) -> chex.Array:
  """Twice the mean `pinball`, the integral over all levels as a sum over some.

  At the levels (i - ½)/Q it is the score of the empirical law of the Q numbers: `crps_samples`,
  not fair.

  Args:
    quantiles: q (Q, ...), in any order.
    y: what came true (...).
    levels: τ (Q,), in (0, 1), evenly spaced.

  Returns:
    Scores (...).
  """
  return 2.0 * pinball(quantiles, y, levels).mean(axis=0)


def normal_scores(x: chex.Array, quantiles: chex.Array, levels: chex.Array) -> chex.Array:
  """Normal scores z = Φ⁻¹(F(x)) of the law F that some quantiles stand for.

  Piecewise linear from the quantiles q_i to the scores Φ⁻¹(τ_i), and flat beyond the outermost. Of
  x ~ F it is standard normal, up to that: the margins of a Gaussian copula (Salinas et al., 2019,
  arXiv:1910.03002).

  Args:
    x: numbers (...).
    quantiles: q (Q, ...), increasing along the first axis.
    levels: τ (Q,), in (0, 1), increasing.

  Returns:
    Scores (...), between Φ⁻¹(τ_1) and Φ⁻¹(τ_Q).
  """
  _check_samples(quantiles, x)
  scores = _column(jax.scipy.stats.norm.ppf(levels), quantiles)
  return _piecewise_linear(x, quantiles, scores)


def from_normal_scores(z: chex.Array, quantiles: chex.Array, levels: chex.Array) -> chex.Array:
  """The inverse of `normal_scores`: numbers (...) whose scores are z (...).

  Beyond the outermost scores it is flat, so that numbers lie between the outermost quantiles.
  """
  _check_samples(quantiles, z)
  scores = _column(jax.scipy.stats.norm.ppf(levels), quantiles)
  return _piecewise_linear(z, scores, quantiles)


def energy_score(samples: chex.Array, y: chex.Array) -> chex.Array:
  """The fair energy score 1/S Σ_i |x_i - y| - Σ_ij |x_i - x_j| / (2 S (S - 1)) of a joint forecast.

  Gneiting & Raftery (2007), section 4.3, with Euclidean norms. Unlike the mean score of the entries
  it sees their dependence. It compares all pairs of samples: take many series one after another.

  Args:
    samples: x (S, H). One is a point forecast, whose score is |x - y|.
    y: what came true (H,).

  Returns:
    The score, a scalar; for H = 1 it is `crps_samples`. Its gradient is finite where points
    coincide.

  Raises:
    ValueError: if there is no sample.
  """
  chex.assert_rank(y, 1)
  _check_samples(samples, y)
  size = len(samples)
  to_truth = distances.sum_of_distances(samples, y[None]) / size
  return to_truth - distances.sum_of_distances(samples, samples) / (2 * _pairs(size, fair=True))


def pit(samples: chex.Array, y: chex.Array, key: chex.PRNGKey | None = None) -> chex.Array:
  """The probability integral transform of y, (#{x_i < y} + u (#{x_i = y} + 1)) / (S + 1).

  With u ~ U(0, 1), and y and the samples of one law, it is exactly uniform for any S and whatever
  the ties (Czado, Gneiting & Held, 2009, section 2). With u = ½ it is the middle rank.

  Args:
    samples: x (S, ...).
    y: what came true (...).
    key: typed PRNG key of u; u = ½ without one.

  Returns:
    Transforms (...) in (0, 1), without a gradient.

  Raises:
    ValueError: if there is no sample.
  """
  _check_samples(samples, y)
  below, level = jnp.sum(samples < y, axis=0), jnp.sum(samples == y, axis=0)
  u = 0.5 if key is None else jax.random.uniform(key, y.shape)
  return (below + u * (level + 1)) / (len(samples) + 1)


def central_intervals(samples: chex.Array, levels: chex.Array) -> tuple[chex.Array, chex.Array]:
  """The intervals between the quantiles (1 - c)/2 and (1 + c)/2 of samples.

  The quantile p lies at rank p (S + 1), between order statistics linearly, for a draw from the law
  of the samples lies below x_(k) with probability k/(S + 1). The common rank 1 + p (S - 1) gives
  intervals that are too narrow, of coverage 0.81 for c = 0.9 and S = 20.

  Args:
    samples: x (S, ...), or a head's quantiles at the levels i/(S + 1).
    levels: c (K,), in (0, 1); beyond (S - 1)/(S + 1) the interval is the range of the samples.

  Returns:
    Lower and upper bounds (K, ...).
  """
  chex.assert_rank(levels, 1)
  ordered = jnp.sort(samples, axis=0)

  def quantile(p: chex.Array) -> chex.Array:
    rank = jnp.clip(p * (len(samples) + 1) - 1, 0.0, len(samples) - 1.0)
    low = jnp.floor(rank).astype(jnp.int32)
    high = jnp.minimum(low + 1, len(samples) - 1)
    share = _column(rank - low, ordered)
    return (1.0 - share) * ordered[low] + share * ordered[high]

  return quantile((1.0 - levels) / 2), quantile((1.0 + levels) / 2)


def coverage(samples: chex.Array, y: chex.Array, levels: chex.Array) -> chex.Array:
  """Whether y lies within each of the `central_intervals`, their ends included.

  Args:
    samples: x (S, ...).
    y: what came true (...).
    levels: c (K,), in (0, 1).

  Returns:
    Booleans (K, ...); their mean over what is to be averaged is the coverage.

  Raises:
    ValueError: if there is no sample.
  """
  _check_samples(samples, y)
  low, high = central_intervals(samples, levels)
  return (low <= y) & (y <= high)


def width(samples: chex.Array, levels: chex.Array) -> chex.Array:
  """The widths (K, ...) of the `central_intervals`, in the unit of the samples: sharpness."""
  low, high = central_intervals(samples, levels)
  return high - low


def calibration_error(covered: chex.Array, levels: chex.Array) -> chex.Array:
  """The mean over levels of |covered - c|.

  Args:
    covered: shares (K, ...), means of `coverage`.
    levels: c (K,).

  Returns:
    Errors (...), in [0, 1].
  """
  chex.assert_equal_shape_prefix([covered, levels], 1)
  return jnp.abs(covered - _column(levels, covered)).mean(axis=0)


def _pairs(size: int, fair: bool) -> int:
  return max(1, size * (size - 1)) if fair else size**2


def _piecewise_linear(x: chex.Array, knots: chex.Array, values: chex.Array) -> chex.Array:
  """Interpolates between increasing knots (K, ...), that broadcast to the values (K, ...)."""
  gaps = jnp.diff(knots, axis=0)
  share = (x - knots[:-1]) / jnp.where(gaps > 0, gaps, 1.0)
  share = jnp.where(gaps > 0, jnp.clip(share, 0.0, 1.0), x >= knots[1:])
  return values[0] + jnp.sum(share * jnp.diff(values, axis=0), axis=0)


def _column(x: chex.Array, beside: chex.Array) -> chex.Array:
  """A vector as the first axis of what broadcasts to `beside`."""
  return jnp.reshape(x, (-1, *[1] * (beside.ndim - 1)))


def _check_samples(samples: chex.Array, y: chex.Array) -> None:
  chex.assert_shape(y, samples.shape[1:])
  if not len(samples):
    raise ValueError('A forecast needs at least one sample.')
