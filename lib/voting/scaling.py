"""Host. Power laws of an error in the number of votes."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from lib.stats import regression


class PowerLaw(NamedTuple):
  """The law error = prefactor · x^exponent.

  Attributes:
    exponent: the slope in log-log coordinates, < 0 for a falling error.
    interval: (low, high), Student's interval of the exponent.
    prefactor: the law's error at x = 1.
    r_squared: share of the variance of log error that the law explains.
    n: number of points.
  """

  exponent: float
  interval: tuple[float, float]
  prefactor: float
  r_squared: float
  n: int


def power_law_fit(x: ArrayLike, error: ArrayLike, level: float = 0.95) -> PowerLaw:
  """Fits a power law by least squares of log error on log x.

  The interval takes the points' deviations as independent. Those of budgets on the same answers
  are not: there it tells how straight the curve is, not how far another set's curve may be.

  Args:
    x: (n,) votes a question, > 0, at least three and not all equal.
    error: (n,) errors, > 0. An error of 0 has no logarithm, and leaving it out would bend the law:
      end the range before it.
    level: coverage of the interval, in (0, 1).

  Returns:
    The law.

  Raises:
    ValueError: if `x` or `error` is not positive and finite, or as `linear_regression`.
  """
  x, error = np.asarray(x, np.float64), np.asarray(error, np.float64)
  for name, values in (('x', x), ('error', error)):
    bad = np.flatnonzero(~((values > 0) & np.isfinite(values)))
    if bad.size:
      first = int(bad[0])
      raise ValueError(
        f'A power law needs positive numbers, got {name}[{first}] = {values.flat[first]}.'
      )
  line = regression.linear_regression(np.log(x), np.log(error), level)
  prefactor = float(np.exp(line.intercept))
  return PowerLaw(line.slope, line.slope_interval, prefactor, line.r_squared, line.n)


def invert_curve(x: ArrayLike, error: ArrayLike, wanted: float) -> float:
  """The x at which a falling curve reaches an error, by interpolation in log-log coordinates.

  Rises, which sampling noise makes, are flattened to the lowest error so far.

  Args:
    x: (n,) > 0, ascending.
    error: (n,) >= 0.
    wanted: the error to reach, > 0.

  Returns:
    x; NaN where the curve starts below the error, or ends above it.

  Raises:
    ValueError: if `x` is not positive and ascending, or a number is not finite or has a wrong sign.
  """
  x, error = np.asarray(x, np.float64), np.asarray(error, np.float64)
  if x.ndim != 1 or x.shape != error.shape or not x.size:
    raise ValueError(f'A curve has one error for each x, got {x.shape} and {error.shape}.')
  if not (np.isfinite(x).all() and (x > 0).all() and (np.diff(x) > 0).all()):
    raise ValueError('A curve needs positive and ascending x.')
  if not (np.isfinite(error).all() and (error >= 0).all() and 0 < wanted < np.inf):
    raise ValueError('A curve needs errors that are finite and not negative, and one to reach.')
  lowest = np.minimum.accumulate(error)
  if lowest[-1] > wanted or lowest[0] < wanted:
    return np.nan
  after = int(np.argmax(lowest <= wanted))  # the first that reaches it
  if after == 0 or lowest[after] == wanted:
    return float(x[after])
  tiny = np.finfo(np.float64).tiny
  high, low = np.log(lowest[after - 1]), np.log(max(lowest[after], tiny))
  share = (high - np.log(wanted)) / (high - low)
  return float(np.exp((1 - share) * np.log(x[after - 1]) + share * np.log(x[after])))


def efficiency_ratio(x: float, error: float, sc_x: ArrayLike, sc_error: ArrayLike) -> float:
  """How many times the budget plain self-consistency needs for the same error, n_SC(error) / x.

  Args:
    x: the mean samples a question that the method used, > 0.
    error: its error; 0 has no ratio.
    sc_x: (n,) samples of self-consistency.
    sc_error: (n,) its errors.

  Returns:
    The ratio; NaN where self-consistency's curve does not reach the error, or the error is 0.
  """
  return invert_curve(sc_x, sc_error, error) / x if error > 0 else np.nan
