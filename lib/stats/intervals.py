"""Host. Confidence intervals for means, paired differences, standard deviations and proportions.

Seeds are the independent unit of an experiment: give these functions one value a seed (the mean
over that seed's episodes), not one value an episode.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

# Below this many values the bootstrap's intervals are too narrow: it resamples the few values it
# has, while the t interval pays for the unknown variance.
BOOTSTRAP_FROM = 10

# The bootstrap draws this many numbers at a time, so that large samples do not exhaust memory.
_BATCH_NUMBERS = 2**20


class Interval(NamedTuple):
  """An estimate with its confidence interval.

  Attributes:
    mean: the estimate.
    low: lower bound, NaN where the values cannot give one.
    high: upper bound, NaN where the values cannot give one.
    method: how the bounds were found, for the reader of a table.
  """

  mean: float
  low: float
  high: float
  method: str


def t_interval(values: ArrayLike, level: float = 0.95) -> Interval:
  """Student's interval, x̄ ± t_{n-1}((1 + level)/2) · s/√n.

  Exact for independent normal values; the choice for a few seeds.

  Args:
    values: (n,) independent values, such as one mean a seed.
    level: coverage, in (0, 1).

  Returns:
    The interval. One value has no spread to estimate: its bounds are NaN.

  Raises:
    ValueError: if `values` is empty, not a vector or not finite, or `level` is not in (0, 1).
  """
  x = _finite_vector('values', values)
  _check_level(level)
  mean = float(x.mean())
  if x.size == 1:
    return Interval(mean, np.nan, np.nan, 't')
  half = float(stats.t.ppf((1 + level) / 2, x.size - 1) * stats.sem(x))
  return Interval(mean, mean - half, mean + half, 't')


def bootstrap_interval(
  values: ArrayLike, level: float = 0.95, num_resamples: int = 9999, seed: int = 0
) -> Interval:
  """Bias-corrected and accelerated (BCa) bootstrap interval of the mean (Efron, 1987).

  BCa rather than percentile: both stay inside the range of the values, as a success rate must, but
  BCa corrects for skewness, so its coverage error falls as 1/n instead of 1/√n, and rates near 0 or
  1 are skewed.

  Args:
    values: (n,) independent values.
    level: coverage, in (0, 1).
    num_resamples: bootstrap samples, > 0.
    seed: seed of the resampling, >= 0; equal arguments give equal intervals.

  Returns:
    The interval. One value has NaN bounds, as in `t_interval`. Equal values have an interval of
    width zero: every resample is the sample itself.

  Raises:
    ValueError: if `values` is empty, not a vector or not finite, `level` is not in (0, 1),
      `num_resamples` is not positive or `seed` is negative.
  """
  x = _finite_vector('values', values)
  _check_level(level)
  if num_resamples <= 0:
    raise ValueError(f'The bootstrap needs at least one resample, got {num_resamples=}.')
  if seed < 0:
    raise ValueError(f'A seed must not be negative, got {seed=}.')
  mean = float(x.mean())
  if x.size == 1:
    return Interval(mean, np.nan, np.nan, 'bootstrap')
  largest = np.abs(x).max()
  # Values that differ by rounding alone leave BCa's acceleration at 0/0.
  if np.ptp(x) <= x.size * np.finfo(x.dtype).eps * largest:
    return Interval(mean, mean, mean, 'bootstrap')
  # A power of two keeps the ties of means exact, and the cubes in the acceleration in range.
  exponent = np.frexp(largest)[1]
  bounds = stats.bootstrap(
    (np.ldexp(x, -exponent),),
    np.mean,
    n_resamples=num_resamples,
    batch=max(1, _BATCH_NUMBERS // x.size),
    confidence_level=level,
    method='BCa',
    rng=np.random.default_rng(seed),
  ).confidence_interval
  low, high = np.ldexp(bounds, exponent)
  return Interval(mean, float(low), float(high), 'bootstrap')


def mean_interval(values: ArrayLike, level: float = 0.95) -> Interval:
  """The house's interval of a mean: Student's t below ten values, the BCa bootstrap from there.

  Args:
    values: (n,) independent values, such as one mean a seed.
    level: coverage, in (0, 1).

  Returns:
    The interval, with method 't' or 'bootstrap'.

  Raises:
    ValueError: as `t_interval`.
  """
  if np.size(values) < BOOTSTRAP_FROM:
    return t_interval(values, level)
  return bootstrap_interval(values, level)


def paired_interval(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> Interval:
  """Interval of the mean difference a - b of pairs, such as two methods on the same seeds.

  What a pair shares cancels in its difference, so the interval is narrower than that of two
  independent means wherever the pairs correlate.

  Args:
    a: (n,) values of the first kind.
    b: (n,) values of the second kind, in the order of `a`.
    level: coverage, in (0, 1).

  Returns:
    The interval of mean(a - b), with method 'paired t' or 'paired bootstrap', as `mean_interval`
    chooses.

  Raises:
    ValueError: as `mean_interval`, or if `a` and `b` differ in length.
  """
  first, second = _finite_vector('a', a), _finite_vector('b', b)
  if first.size != second.size:
    raise ValueError(f'Pairs need equal lengths, got {first.size} and {second.size} values.')
  interval = mean_interval(first - second, level)
  return interval._replace(method=f'paired {interval.method}')


def std_interval(values: ArrayLike, level: float = 0.95) -> Interval:
  """Interval of a standard deviation, s √((n - 1) / χ²), exact for independent normal values.

  Args:
    values: (n,) independent values.
    level: coverage, in (0, 1).

  Returns:
    The sample standard deviation (with n - 1) and its interval; all NaN for one value.

  Raises:
    ValueError: as `t_interval`.
  """
  x = _finite_vector('values', values)
  _check_level(level)
  if x.size == 1:
    return Interval(np.nan, np.nan, np.nan, 'chi-square')
  std, free = float(x.std(ddof=1)), x.size - 1
  upper, lower = stats.chi2.ppf([(1 + level) / 2, (1 - level) / 2], free)
  low, high = std * np.sqrt(free / upper), std * np.sqrt(free / lower)
  return Interval(std, float(low), float(high), 'chi-square')


def proportion_interval(successes: int, trials: int, level: float = 0.95) -> Interval:
  """Wilson's score interval of a success rate (Wilson, 1927).

  For the episodes of one policy, which are independent trials. Episodes of several seeds are not:
  those of one seed share its policy. There, use `mean_interval` over the seeds' rates.

  Args:
    successes: number of successes, in [0, trials].
    trials: number of trials, > 0.
    level: coverage, in (0, 1).

  Returns:
    The interval, inside [0, 1] and of positive width even at rates 0 and 1.

  Raises:
    ValueError: if the counts or `level` are out of their ranges.
  """
  if trials <= 0:
    raise ValueError(f'A rate needs at least one trial, got {trials=}.')
  if not 0 <= successes <= trials:
    raise ValueError(f'Successes must lie in [0, {trials}], got {successes=}.')
  _check_level(level)
  low, high = stats.binomtest(successes, trials).proportion_ci(level, method='wilson')
  return Interval(successes / trials, float(low), float(high), 'wilson')


def _finite_vector(name: str, values: ArrayLike) -> np.ndarray:
  """Returns `values` as a float64 vector, or raises a ValueError that names it."""
  x = np.asarray(values, np.float64)
  if x.ndim != 1 or x.size == 0:
    raise ValueError(f'{name} must be a vector of at least one number, got shape {x.shape}.')
  if not np.isfinite(x).all():
    first = int(np.flatnonzero(~np.isfinite(x))[0])
    raise ValueError(f'{name} must be finite, got {name}[{first}] = {x[first]}.')
  return x


def _check_level(level: float) -> None:
  if not 0 < level < 1:
    raise ValueError(f'A confidence level must lie in (0, 1), got {level=}.')
