"""Traced. What a series' past says of its future: regimes, their fits and their signs.

A context (..., L) is normalised, of mean about 0 and size about 1, and a horizon (..., H) follows
it at the same spacing. Time is counted in lengths of the context: s = 1/L, ..., 1 in the context
and 1 + 1/L, ..., 1 + H/L beyond; the lead time is s - 1.

A regime is a family of small bases, one for each rate or frequency of a grid, that are fitted by
weighted ridge least squares, beside a constant:

  steady      none
  saturating  exp(-k s)
  pulse       exp(-k s), s exp(-k s)
  rhythm      sin and cos of 2π f s and 4π f s, times exp(-d s)
  growth      exp(k (s - 1))

A fit is linear in the context, so that all of a family are a few constant matrices.
"""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

REGIMES = ('steady', 'saturating', 'pulse', 'rhythm', 'growth')
# What is chosen in a fit: coefficients, the rate, frequency and damping.
NUM_PARAMETERS = (1, 3, 4, 7, 3)
PENALTIES = (1.0, 1.2, 1.5, 2.0, 1.2)
FREQUENCIES = tuple(np.arange(8, 65) / 8)
CLASSES = ('steady', 'monotone', 'pulse', 'damped', 'sustained', 'irregular')

_einsum = functools.partial(jnp.einsum, precision='highest')


class Family(NamedTuple):
  """The G bases of one regime, of K functions each, as matrices in orthogonal coordinates.

  Attributes:
    analysis: (K, G, L), from a context to coordinates a. What a fit explains of the context's
      weighted mean square, less its ridge, is ‖a‖².
    fitted: (G, L, K), from coordinates to the fit less the context's weighted mean.
    means: (G, H, K), likewise to its extrapolation.
    screen: (G, P, K), the `means` at some lead times, by which bases that run away are rejected
      before the best is chosen.
    noise: (G, H + 1), of the noise around it, see `priors.correlated_noise`.
  """

  analysis: chex.Array
  fitted: chex.Array
  means: chex.Array
  screen: chex.Array
  noise: chex.Array


class Fits(NamedTuple):
  """The best fit of each of R regimes.

  Attributes:
    means: (..., R, H), extrapolations.
    fitted: (..., R, L).
    errors: (..., R), weighted mean squares of context - fitted; inf where the regime has no
      admissible fit.
    members: (..., R) int32, which of the family's bases.
  """

  means: chex.Array
  fitted: chex.Array
  errors: chex.Array
  members: chex.Array


class Features(NamedTuple):
  """Numbers (...) that tell regimes apart.

  Attributes:
    spectral_share: of the largest of the frequencies above 0 in the power of all of them.
    sign_changes: share of the steps whose direction is not that of the step before.
    trend: Mann and Kendall's statistic, from -1 for falling to 1 for rising.
    late_variation: share of the later half in the sum of the steps' sizes.
    recurrence: the autocorrelation at the period of the largest frequency, 0 if it is that of the
      context.
  """

  spectral_share: chex.Array
  sign_changes: chex.Array
  trend: chex.Array
  late_variation: chex.Array
  recurrence: chex.Array


def rising_weights(length: int) -> np.ndarray:
  """Weights (L,) of a context's points, of mean 1, from ½ for the first to 3/2 for the last."""
  return np.linspace(0.5, 1.5, length)


def fit_basis(
  context: chex.Array,
  basis_context: chex.Array,
  basis_horizon: chex.Array,
  ridge: float,
  weights: chex.Array | None = None,
) -> tuple[chex.Array, chex.Array, chex.Array]:
  """Fits a + B θ to a context, least Σ w (c - a - B θ)² / L + λ ‖θ‖², and extrapolates it.

  Args:
    context: c (..., L).
    basis_context: B (L, K), without a constant.
    basis_horizon: the same functions beyond (H, K).
    ridge: λ > 0; the constant has none, so that the fit moves with the context.
    weights: w (L,), of mean 1; `rising_weights` by default.

  Returns:
    The extrapolation (..., H), the fit (..., L), and its weighted mean squared error (...).

  Raises:
    ValueError: if the ridge is not positive.
  """
  if not ridge > 0:
    raise ValueError(f'The ridge must be positive, got {ridge}.')
  length, num_functions = basis_context.shape
  weights = rising_weights(length) if weights is None else weights
  share = jnp.asarray(weights / length, context.dtype)
  average = lambda x: _einsum('...l,l->...', x, share)
  centre, offset = average(context)[..., None], average(basis_context.T)
  basis, centred = basis_context - offset, context - centre
  moments = basis.T * share
  normal = _einsum('kl,lj->kj', moments, basis) + ridge * jnp.eye(num_functions)
  theta = _einsum('kl,...l->...k', jnp.linalg.solve(normal, moments), centred)
  fitted, mean = (_einsum('lk,...k->...l', b, theta) for b in (basis, basis_horizon - offset))
  return centre + mean, centre + fitted, average((centred - fitted) ** 2)


def bases(
  context_length: int,
  horizon: int,
  ridge: float = 1e-4,
  saturation_rates: Sequence[float] = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0),
  pulse_rates: Sequence[float] = (1.0, 2.0, 4.0),
  frequencies: Sequence[float] = FREQUENCIES,
  dampings: Sequence[float] = (0.0, 0.5, 2.0),
  growth_rates: Sequence[float] = (0.25, 0.5, 1.0, 2.0, 4.0),
  correlation_length: float = 0.5,
  periodicity: float = 1.0,
) -> tuple[Family, ...]:
  """The bases of all regimes, constants that are computed once, in double precision.

  Args:
    context_length: L > 1.
    horizon: H > 0.
    ridge: λ of `fit_basis`, > 0.
    saturation_rates: k, per length of the context.
    pulse_rates: k, likewise.
    frequencies: f, cycles per length of the context. For the phase to hold over the horizon, steps
      should be well below L/H.
    dampings: d of rhythms, per length of the context; each frequency goes with each.
    growth_rates: k, likewise.
    correlation_length: ℓ > 0 of the noise, exp(-|s - s'|/ℓ), in lengths of the context.
    periodicity: γ >= 0 of the noise of rhythms, which has a factor exp(-γ sin²(π f (s - s'))).

  Returns:
    Families, in the order of `REGIMES`.

  Raises:
    ValueError: if a length, the ridge or the correlation length is not positive.
  """
  if context_length < 2 or horizon < 1 or not (ridge > 0 and correlation_length > 0):
    raise ValueError(
      'Needs context_length > 1, horizon > 0, ridge > 0 and correlation_length > 0, got '
      f'{context_length=}, {horizon=}, {ridge=}, {correlation_length=}.'
    )
  s = np.arange(1, context_length + horizon + 1) / context_length
  lags = np.arange(horizon + 1) / context_length
  trend = np.exp(-lags / correlation_length)[None]
  f, d = (grid.reshape(-1, 1) for grid in np.meshgrid(frequencies, dampings, indexing='ij'))
  rhythm = trend * np.exp(-periodicity * np.sin(np.pi * f * lags) ** 2)
  waves = [wave(2 * np.pi * n * f * s) for n in (1, 2) for wave in (np.sin, np.cos)]
  saturation, pulse, growth = (
    np.asarray(k)[:, None] for k in (saturation_rates, pulse_rates, growth_rates)
  )
  return (
    _family([], context_length, ridge, trend),
    _family([np.exp(-saturation * s)], context_length, ridge, trend),
    _family([np.exp(-pulse * s), s * np.exp(-pulse * s)], context_length, ridge, trend),
    _family([wave * np.exp(-d * s) for wave in waves], context_length, ridge, rhythm),
    _family([np.exp(growth * (s - 1))], context_length, ridge, trend),
  )


def _family(
  functions: list[np.ndarray], context_length: int, ridge: float, correlation: np.ndarray
) -> Family:
  """A family of K functions (G, L + H), and correlations at the lags 0, ..., H, (G or 1, H + 1)."""
  horizon = correlation.shape[1] - 1
  basis = np.stack(functions, axis=-1) if functions else np.zeros((1, context_length + horizon, 0))
  share = rising_weights(context_length) / context_length
  # Centred, which fits the constant.
  basis = basis - np.einsum('l,glk->gk', share, basis[:, :context_length])[:, None]
  inside, beyond = basis[:, :context_length], basis[:, context_length:]
  moments = inside.mT * share
  # θ = C⁻ᵀ a, with C Cᵀ the normal matrix.
  inverse = np.linalg.inv(np.linalg.cholesky(moments @ inside + ridge * np.eye(basis.shape[-1])))
  means = beyond @ inverse.mT
  # The covariance of a period of 2 H is a circulant. What it lacks of being one is cut off.
  period = np.concatenate([correlation, correlation[:, -2:0:-1]], axis=1)
  spectrum = np.maximum(np.fft.rfft(period).real, 0.0)
  variance = np.fft.irfft(spectrum)[:, :1]
  return Family(
    analysis=np.swapaxes(inverse @ moments, 0, 1),
    fitted=inside @ inverse.mT,
    means=means,
    # Rhythms are bounded.
    screen=means[:, : 0 if len(functions) > 2 else None][:, :: -max(1, horizon // 8)],
    noise=np.broadcast_to(np.sqrt(spectrum / variance), (len(basis), horizon + 1)),
  )


def fit(
  context: chex.Array,
  families: Sequence[Family],
  limit: float = 12.0,
  blend: float = 4.0,
) -> Fits:
  """Fits all regimes to contexts, by the best basis of each.

  A fit is admissible if its extrapolation stays within `limit` of the context's weighted mean. What
  it misses of the last observation is then added, times exp(-b s) at the lead time s.

  Args:
    context: (..., L).
    families: of `bases`.
    limit: > 0, in the unit of the context.
    blend: b >= 0, per length of the context.

  Returns:
    Fits. The steady one is always admissible.
  """
  length = context.shape[-1]
  share = jnp.asarray(rising_weights(length) / length, context.dtype)
  centre = _einsum('...l,l->...', context, share)[..., None]
  centred = context - centre

  def best(family: Family) -> Fits:
    family = jax.tree.map(lambda x: jnp.asarray(x, context.dtype), family)
    # (..., K, G): sums over the few functions, and the best along what is contiguous.
    coordinates = _einsum('...l,kgl->...kg', centred, family.analysis)
    explained = jnp.sum(coordinates**2, axis=-2)
    screened = _einsum('gpk,...kg->...gp', family.screen, coordinates)
    stays = jnp.all(jnp.abs(screened) <= limit, axis=-1)
    member = jnp.argmax(jnp.where(stays, explained, -1.0), axis=-1)
    a = jnp.take_along_axis(coordinates, member[..., None, None], axis=-1)[..., 0]
    combine = lambda basis: _einsum('...lk,...k->...l', basis[member], a)
    fitted, mean = combine(family.fitted), combine(family.means)
    error = _einsum('...l,l->...', (centred - fitted) ** 2, share)
    error = jnp.where(jnp.all(jnp.abs(mean) <= limit, axis=-1), error, jnp.inf)
    return Fits(centre + mean, centre + fitted, error, member)

  fits = [best(family) for family in families]
  means, fitted = (jnp.stack(x, axis=-2) for x in zip(*(f[:2] for f in fits), strict=True))
  errors, members = (jnp.stack(x, axis=-1) for x in zip(*(f[2:] for f in fits), strict=True))
  lead = jnp.arange(1, means.shape[-1] + 1, dtype=context.dtype) / length
  missed = context[..., None, -1:] - fitted[..., -1:]
  return Fits(means + missed * jnp.exp(-blend * lead), fitted, errors, members)


def posterior(
  errors: chex.Array,
  num_parameters: chex.Array,
  num_points: int,
  noise_std: chex.Numeric,
) -> chex.Array:
  """Weights w_r ∝ exp(-n e_r / 2σ² - ½ p_r log n) of regimes: Bayes' information criterion.

  Args:
    errors: e (..., R), mean squares; inf for what is excluded.
    num_parameters: p (R,), such as `NUM_PARAMETERS`.
    num_points: n > 0, that count as independent, such as L.
    noise_std: σ > 0 of what a true regime misses, a number or (..., 1).

  Returns:
    Weights (..., R), of sum 1.
  """
  known = jnp.isfinite(errors)
  fit = -num_points * jnp.where(known, errors, 0.0) / (2.0 * noise_std**2)
  penalty = 0.5 * jnp.asarray(num_parameters, errors.dtype) * math.log(num_points)
  return jax.nn.softmax(jnp.where(known, fit - penalty, -jnp.inf), axis=-1)


def choose(errors: chex.Array, penalties: chex.Array, floor: float = 1e-4) -> chex.Array:
  """The regime of the least (e_r + floor) · penalty_r, (...) int32.

  Args:
    errors: e (..., R), mean squares; inf for what is excluded.
    penalties: (R,), >= 1, such as `PENALTIES`.
    floor: > 0, below which all errors are alike, so that the simplest of exact fits is chosen.
  """
  return jnp.argmin((errors + floor) * jnp.asarray(penalties, errors.dtype), axis=-1)


def features(context: chex.Array) -> Features:
  """Features of contexts (..., L), L > 2, which no shift or positive scale changes.

  A constant context has no power, no trend, and half of its variation in each half.
  """
  length = context.shape[-1]
  steps = jnp.diff(context, axis=-1)
  early, late = jnp.abs(steps[..., : length // 2]), jnp.abs(steps[..., -(length // 2) :])
  power = jnp.abs(jnp.fft.rfft(_centred(context))[..., 1:]) ** 2
  later = jnp.triu(jnp.sign(context[..., None, :] - context[..., None]))
  return Features(
    spectral_share=_ratio(power.max(axis=-1), power.sum(axis=-1), 0.0),
    sign_changes=jnp.mean(steps[..., 1:] * steps[..., :-1] < 0, axis=-1),
    trend=later.sum(axis=(-2, -1)) / (length * (length - 1) / 2),
    late_variation=_ratio(late.sum(axis=-1), (early + late).sum(axis=-1), 0.5),
    recurrence=autocorrelation(context, length / (1.0 + jnp.argmax(power, axis=-1))),
  )


def autocorrelation(context: chex.Array, lag: chex.Array) -> chex.Array:
  """The correlation (...) of contexts (..., L) with themselves `lag` (...) steps later.

  Lags are rounded. From L - 1 on, where one pair or none is left, it is 0.
  """
  length = context.shape[-1]
  centred = _centred(context)
  lag = jnp.round(lag).astype(jnp.int32)[..., None]
  later = jnp.arange(length) + lag
  paired = later < length
  ahead = jnp.take_along_axis(centred, jnp.minimum(later, length - 1), axis=-1)
  total = lambda x: jnp.sum(jnp.where(paired, x, 0.0), axis=-1)
  product, square = total(centred * ahead), total(centred**2) * total(ahead**2)
  enough = (lag[..., 0] < length - 1) & (square > 0)
  return jnp.where(enough, product / jnp.sqrt(jnp.where(enough, square, 1.0)), 0.0)


def label(
  trajectory: chex.Array,
  flat: float = 0.02,
  swing: float = 0.05,
  damping: float = 0.7,
  regularity: float = 0.3,
) -> chex.Array:
  """The class of a whole trajectory, by the turns at which it swings back.

  A turn is an extreme from which the trajectory moves back by more than `swing` of its range; a
  period lies between a turn and the next but one. Without turns it is monotone, with one or two a
  pulse. With more, it is damped if the later half of the swings between turns is on average below
  `damping` times the earlier half; if not, sustained if the periods are regular, else irregular.

  Args:
    trajectory: (L,), in its own unit.
    flat: the range, in units of the largest absolute value, below which it is steady.
    swing: in (0, 1).
    damping: in (0, 1].
    regularity: standard deviation of regular periods, in units of their mean, at most.

  Returns:
    An index of `CLASSES`, a scalar.
  """
  chex.assert_rank(trajectory, 1)
  length, size = len(trajectory), jnp.ptp(trajectory)

  def step(state, point):
    direction, extreme, place, last = state  # direction is 0 until the first swing
    x, now = point
    gain = x - extreme
    starts = (direction == 0) & (jnp.abs(gain) > swing * size)
    turns = -direction * gain > swing * size
    moves = starts | turns | (direction * gain > 0)
    found = turns, jnp.abs(extreme - last), place
    last = jnp.where(turns, extreme, last)
    direction = jnp.where(starts, jnp.sign(gain), jnp.where(turns, -direction, direction))
    return (direction, jnp.where(moves, x, extreme), jnp.where(moves, now, place), last), found

  start, nowhere = trajectory[0], jnp.zeros_like(trajectory[0])
  points = trajectory, jnp.arange(length, dtype=trajectory.dtype)
  _, (turned, swings, places) = jax.lax.scan(step, (nowhere, start, nowhere, start), points)
  (order,) = jnp.nonzero(turned, size=length, fill_value=length - 1)
  count = jnp.sum(turned)
  # The swing to the first turn began anywhere.
  swings, places = swings[order[1:]], places[order]
  between, half, index = count - 1, (count - 1) // 2, jnp.arange(length - 1)
  early = jnp.sum(jnp.where(index < half, swings, 0.0))
  late = jnp.sum(jnp.where((index >= between - half) & (index < between), swings, 0.0))
  periods, full = places[2:] - places[:-2], jnp.arange(length - 2) < count - 2
  average = lambda x: jnp.sum(jnp.where(full, x, 0.0)) / jnp.maximum(1, count - 2)
  mean = average(periods)
  irregular = average((periods - mean) ** 2) > (regularity * mean) ** 2
  oscillation = jnp.where(late < damping * early, 3, jnp.where(irregular, 5, 4))
  kind = jnp.where(count == 0, 1, jnp.where(count <= 2, 2, oscillation))
  return jnp.where(size <= flat * jnp.max(jnp.abs(trajectory)), 0, kind)


def _ratio(a: chex.Array, b: chex.Array, otherwise: float) -> chex.Array:
  """a / b, and `otherwise` where b is zero."""
  return jnp.where(b > 0, a / jnp.where(b > 0, b, 1.0), otherwise)


def _centred(context: chex.Array) -> chex.Array:
  """A context less its mean; exactly zero if it is constant."""
  context = context - context[..., :1]
  return context - context.mean(axis=-1, keepdims=True)
