"""Traced. How sure the votes for the two leading answers make us that the first is the mode.

With a votes for the first answer, b for the second and a uniform prior, the first one's share of
the votes for either is θ ~ Beta(a + 1, b + 1). Counts are integers or floats >= 0 and broadcast;
those between whole numbers interpolate, to 1e-3, and a negative one has no defined result.

All holds in float32 for tens of thousands of votes: log-Gammas, large and of both signs, never
appear, only their sums by Stirling's formula and its small remainders. A, B and M are a + 1, b + 1
and A + B.
"""

import math

import chex
import jax
import jax.numpy as jnp
import numpy as np

from lib.voting import theory

# From here on the asymptotic series below err by less than 2e-11.
_SERIES_FROM = 5.0

# log Γ(x) - [(x - ½) log x - x + ½ log 2π] in odd powers of 1/x (Stirling).
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)

# log Γ(x + ½) - log Γ(x) - ½ log x in odd powers of 1/x.
_HALF_STEP = (-1 / 8, 1 / 192, -1 / 640, 17 / 14336, -31 / 18432, 691 / 180224)

# The integral of `beta_log_uncertainty` leaves out what is below exp(-_CUTOFF) of its integrand,
# which 12 nodes match: together an error of 2e-8 for whole counts up to 20,000.
_CUTOFF = 18.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)

# Draws of one step of the Monte Carlo sum, which bounds its memory.
_DRAWS_AT_ONCE = 256


def top_two(counts: chex.Array) -> tuple[chex.Array, chex.Array]:
  """The largest and the second largest of counts (..., K), or of probabilities.

  Args:
    counts: (..., K), >= 0.

  Returns:
    Both (...), of the dtype of `counts`; the second is 0 where K = 1.

  Raises:
    ValueError: if there are no answers.
  """
  _check_answers(counts)
  leader = jnp.argmax(counts, axis=-1, keepdims=True)
  is_leader = jnp.arange(counts.shape[-1]) == leader
  first = jnp.take_along_axis(counts, leader, axis=-1)[..., 0]
  return first, jnp.max(jnp.where(is_leader, 0, counts), axis=-1)


def beta_log_uncertainty(first: chex.Array, second: chex.Array) -> chex.Array:
  """log Pr[θ <= ½] = log I_½(a + 1, b + 1): how likely the second answer is the better one.

  With u = 1 - 2θ and R of `ppr_log_ratio`, for a >= b,

    Pr[θ <= ½] = (R/2) ∫_0^1 (1 - u²)^b (1 - u)^(a-b) du

  whose integrand falls from 1 and has no cancellation; Gauss-Legendre nodes where it is not
  negligible give the integral to 2e-8. For a < b it is log(1 - Pr) of the votes exchanged. It has
  derivatives in the votes but at ties, where they are zero.

  Args:
    first: votes a, >= 0.
    second: votes b, >= 0.

  Returns:
    Values <= 0, decreasing in a; log ½ exactly at a = b, and about -(a + 1) log 2 at b = 0.
  """
  first, second = _floats(first, second)
  more, fewer = jnp.maximum(first, second), jnp.minimum(first, second)
  excess = more - fewer
  # Here u² b + u (a - b) = _CUTOFF, which is less than minus the integrand's logarithm.
  root = jnp.sqrt(excess**2 + 4 * _CUTOFF * fewer)
  end = jnp.minimum(1.0, 2 * _CUTOFF / jnp.maximum(excess + root, 1.0))

  def add_node(i: int, integral: chex.Array) -> chex.Array:
    u = end * nodes[i]
    return integral + weights[i] * jnp.exp(fewer * jnp.log1p(-(u**2)) + excess * jnp.log1p(-u))

  # A loop, for a table of votes is large, and one with an axis of nodes 12 times as large.
  nodes, weights = (jnp.asarray(x / 2, end.dtype) for x in (1 + _NODES, _WEIGHTS))
  integral = end * jax.lax.fori_loop(0, _NODES.size, add_node, jnp.zeros_like(end))
  log_half = -math.log(2)
  smaller = ppr_log_ratio(more, fewer) + log_half + jnp.log(integral)
  # Rounding must not carry the smaller half beyond ½.
  smaller = jnp.where(excess == 0, log_half, jnp.minimum(smaller, log_half))
  return jnp.where(first >= second, smaller, jnp.log1p(-jnp.exp(smaller)))


def beta_confidence(first: chex.Array, second: chex.Array) -> chex.Array:
  """Pr[θ > ½] = I_½(b + 1, a + 1), the statistic of adaptive consistency (ASC).

  Unanimous votes give 1 - 2^-(n+1). Stopping when it is large enough inflates it: it is no
  probability of error then (see `ppr_log_level`). It rounds to 1 where `beta_log_uncertainty`
  still tells questions apart.

  Args:
    first: votes a, >= 0.
    second: votes b, >= 0.

  Returns:
    Values in [0, 1]; ½ exactly at a = b.
  """
  return -jnp.expm1(beta_log_uncertainty(first, second))


def ppr_log_ratio(first: chex.Array, second: chex.Array) -> chex.Array:
  """log R, the posterior density of θ at ½ over its prior: R = (a + b + 1)!/(a! b!) 2^-(a+b).

  1/R is a martingale of mean one where both answers are equally likely, so it exceeds 1/δ, at any
  time, with probability at most δ (Ville). It is about -n D with D of `theory.ppr_rate`:

    log R = -M D(A/M, B/M) + ½ log(8AB/(πM)) + s(M) - s(A) - s(B)

  with Stirling's remainder s. Jain et al., "PAC Mode Estimation using PPR Martingale Confidence
  Sequences", AISTATS 2022.

  Args:
    first: votes a, >= 0.
    second: votes b, >= 0.

  Returns:
    Symmetric in a and b; positive where the votes speak for a tie.
  """
  first, second = _floats(first, second)
  a, b = jnp.maximum(first, second) + 1, jnp.minimum(first, second) + 1
  total = a + b
  remainders = _remainder(total) - (_remainder(a) + _remainder(b))
  return 0.5 * jnp.log(8 / math.pi * a * (b / total)) - theory.ppr_rate(a, b) + remainders


def ppr_log_level(first: chex.Array, second: chex.Array, seen: chex.Array) -> chex.Array:
  """log δ̂ = min(0, log R + log(K̂ - 1)), the level at which PPR-1v1 would stop now.

  Args:
    first: votes a, >= 0.
    second: votes b, >= 0.
    seen: number of answers K̂, taken as at least 2. With the number of all possible answers
      stopping at δ̂ <= δ errs with probability at most δ; with that of answers seen so far this is
      a heuristic.

  Returns:
    Values <= 0. The bound at 0 matters to rankings: log R grows with the votes at a tie.
  """
  log_ratio = ppr_log_ratio(first, second)
  others = jnp.asarray(jnp.maximum(seen, 2) - 1, log_ratio.dtype)
  return jnp.minimum(0.0, log_ratio + jnp.log(others))


def dirichlet_confidence(
  key: chex.PRNGKey, counts: chex.Array, num_draws: int, top: int = 5
) -> chex.Array:
  """Monte Carlo estimate of the probability that the leading answer is the most likely one.

  The posterior is Dirichlet(counts + 1) over the leading answers alone, as in Adaptive-Consistency.
  Its standard error is at most 1/(2 √num_draws).

  Args:
    key: typed PRNG key.
    counts: votes (..., K), >= 0.
    num_draws: draws, > 0.
    top: answers that are looked at, > 0; all where K is less.

  Returns:
    Probabilities (...); 1 where only one answer is looked at.

  Raises:
    ValueError: if there are no answers, or `num_draws` or `top` is not positive.
  """
  _check_answers(counts)
  if num_draws <= 0 or top <= 0:
    raise ValueError(f'Draws and answers must be positive numbers, got {num_draws=}, {top=}.')
  leading = -jnp.sort(-_floats(counts)[0], axis=-1)[..., :top]

  def leads(key: chex.PRNGKey) -> chex.Array:
    # Independent Gammas, divided by their sum, are a Dirichlet; the largest stays the largest.
    return jnp.argmax(jax.random.gamma(key, leading + 1), axis=-1) == 0

  keys = jax.random.split(key, num_draws)
  led = jax.lax.map(leads, keys, batch_size=min(num_draws, _DRAWS_AT_ONCE))
  return jnp.mean(led, axis=0, dtype=leading.dtype)


def margin(p: chex.Array) -> chex.Array:
  """m = (√p₁ - √p₂)² of the two most likely answers: n votes err with probability <= (1 - m)^n.

  Args:
    p: probabilities (..., K).

  Returns:
    Margins (...) in [0, 1]; 0 at a tie, accurate near it, and p₁ where K = 1. The derivative is
    infinite where p₂ = 0.

  Raises:
    ValueError: if there are no answers.
  """
  first, second = top_two(p)
  return ((first - second) / (jnp.sqrt(first) + jnp.sqrt(second))) ** 2


def rate(p: chex.Array) -> chex.Array:
  """-log(1 - m), the exact exponential rate at which the error of n votes falls (Cramér).

  Args:
    p: probabilities (..., K).

  Returns:
    Rates (...) >= 0; infinite where one answer is certain.

  Raises:
    ValueError: if there are no answers.
  """
  return -jnp.log1p(-margin(p))


def plugin_information(first: chex.Array, second: chex.Array, total: chex.Array) -> chex.Array:
  """n (√((a + 1)/(n + 2)) - √((b + 1)/(n + 2)))², the margin of smoothed shares times votes.

  Args:
    first: votes a, >= 0.
    second: votes b, >= 0.
    total: votes n for all answers, >= a + b.

  Returns:
    Values >= 0; 0 at a tie and without votes.
  """
  first, second, total = _floats(first, second, total)
  roots = jnp.sqrt(first + 1) + jnp.sqrt(second + 1)
  return total / (total + 2) * ((first - second) / roots) ** 2


def expected_margin(first: chex.Array, second: chex.Array) -> chex.Array:
  """E[1 - 2 √(θ(1 - θ))] = 1 - 2 B(a + 3/2, b + 3/2)/B(a + 1, b + 1), the posterior mean margin.

  It is -expm1 of three terms <= 0, ½ log(4AB/M²) and one each of A and B, so nothing cancels.

  Args:
    first: votes a, >= 0.
    second: votes b, >= 0.

  Returns:
    Values in (0, 1), symmetric; about 1/(2n) at a tie, where it tells how little is known.
  """
  first, second = _floats(first, second)
  a, b = jnp.maximum(first, second) + 1, jnp.minimum(first, second) + 1
  return -jnp.expm1(0.5 * _log_balance(a, b) + (_half_step(a) + _half_step(b)))


def _floats(*counts: chex.Array) -> tuple[chex.Array, ...]:
  """Counts as floats of one dtype, of the default one where all are integers."""
  dtype = jnp.result_type(*counts, float)
  return tuple(jnp.asarray(count, dtype) for count in counts)


def _log_balance(a: chex.Array, b: chex.Array) -> chex.Array:
  """log(4ab/(a + b)²) <= 0 of positive numbers, accurate where it is near zero."""
  total = a + b
  imbalance = (a - b) / total
  near = jnp.clip(imbalance, -0.5, 0.5)
  apart = jnp.log(4 * (a / total) * (b / total))
  return jnp.where(imbalance == near, jnp.log1p(-(near**2)), apart)


def _remainder(x: chex.Array) -> chex.Array:
  """Stirling's remainder s(x) = log Γ(x) - [(x - ½) log x - x + ½ log 2π], x >= 1."""
  # s(x) from s(x + 4), by Γ(x + 1) = x Γ(x).
  small = jnp.minimum(x, _SERIES_FROM)
  rising = small * (small + 1) * (small + 2) * (small + 3)
  four = (small - 0.5) * jnp.log1p(4 / small) - 4 + jnp.log((small + 4) ** 4 / rising)
  is_small = x < _SERIES_FROM
  return _odd_series(_STIRLING, jnp.where(is_small, x + 4, x)) + jnp.where(is_small, four, 0.0)


def _half_step(x: chex.Array) -> chex.Array:
  """log Γ(x + ½) - log Γ(x) - ½ log x < 0, x >= 1."""
  small = jnp.minimum(x, _SERIES_FROM)
  four = 0.5 * jnp.log1p(4 / small)
  for i in range(4):
    four -= jnp.log1p(0.5 / (small + i))
  is_small = x < _SERIES_FROM
  return _odd_series(_HALF_STEP, jnp.where(is_small, x + 4, x)) + jnp.where(is_small, four, 0.0)


def _odd_series(coefficients: tuple[float, ...], x: chex.Array) -> chex.Array:
  """Σ_i c_i x^-(2i+1), by Horner's rule."""
  inverse = 1 / x
  return inverse * jnp.polyval(jnp.asarray(coefficients[::-1], x.dtype), inverse**2)


def _check_answers(counts: chex.Array) -> None:
  if counts.ndim < 1 or counts.shape[-1] < 1:
    raise ValueError(f'Votes need an axis of at least one answer, got shape {counts.shape}.')
