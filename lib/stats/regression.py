"""Host. Straight lines through points, by least squares, with their uncertainty."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats


class Regression(NamedTuple):
  """The line y = intercept + slope · x.

  Attributes:
    slope: the slope b.
    intercept: the value at x = 0.
    slope_interval: (low, high), Student's interval of the slope.
    r_squared: the share of y's variance that the line explains; 0 for constant y.
    p_value: two-sided, of the hypothesis that the slope is zero.
    slope_stderr: the slope's standard error.
    n: number of points.
  """

  slope: float
  intercept: float
  slope_interval: tuple[float, float]
  r_squared: float
  p_value: float
  slope_stderr: float
  n: int


def linear_regression(x: ArrayLike, y: ArrayLike, level: float = 0.95) -> Regression:
  """Ordinary least squares with one regressor: b = S_xy / S_xx, b ± t_{n-2}((1 + level)/2) · s_b.

  The interval and the p-value are exact for independent normal errors of one variance.

  Args:
    x: (n,) regressor, not constant.
    y: (n,) response.
    level: coverage of the slope's interval, in (0, 1).

  Returns:
    The line. A constant y has slope 0, r² 0 and p 1; a perfect fit has p 0 and an interval of
    width zero.

  Raises:
    ValueError: if there are fewer than 3 points, `x` and `y` are no vectors of equal length or not
      finite, x is constant (but for rounding), or `level` is not in (0, 1).
  """
  u, v = np.asarray(x, np.float64), np.asarray(y, np.float64)
  if u.ndim != 1 or u.shape != v.shape:
    raise ValueError(f'x and y must be vectors of one length, got shapes {u.shape} and {v.shape}.')
  if u.size < 3:
    raise ValueError(f'A line with its uncertainty needs at least 3 points, got {u.size}.')
  for name, values in (('x', u), ('y', v)):
    if not np.isfinite(values).all():
      first = int(np.flatnonzero(~np.isfinite(values))[0])
      raise ValueError(f'{name} must be finite, got {name}[{first}] = {values[first]}.')
  if not 0 < level < 1:
    raise ValueError(f'A confidence level must lie in (0, 1), got {level=}.')
  # Powers of two keep the squares in range, and change no digit.
  u_exponent, v_exponent = (int(np.frexp(np.abs(values).max())[1]) for values in (u, v))
  u, v = np.ldexp(u, -u_exponent), np.ldexp(v, -v_exponent)
  if np.ptp(u) <= u.size * np.finfo(u.dtype).eps:
    raise ValueError(f'x must not be constant, got {u.size} times {np.ldexp(u[0], u_exponent)}.')
  if np.ptp(v) == 0:
    slope, intercept, error, correlation, p = 0.0, float(v[0]), 0.0, 0.0, 1.0
  else:
    fit = stats.linregress(u, v)
    slope, intercept, error = fit.slope, fit.intercept, fit.stderr
    correlation, p = fit.rvalue, fit.pvalue
  slope, error = (float(np.ldexp(value, v_exponent - u_exponent)) for value in (slope, error))
  half = float(stats.t.ppf((1 + level) / 2, u.size - 2)) * error
  return Regression(
    slope=slope,
    intercept=float(np.ldexp(intercept, v_exponent)),
    slope_interval=(slope - half, slope + half),
    r_squared=float(correlation) ** 2,
    p_value=float(p),
    slope_stderr=error,
    n=u.size,
  )
