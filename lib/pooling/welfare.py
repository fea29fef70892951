"""Traced. Who gains from a pool: welfare gaps under the log score, and strict unanimity.

A member's welfare is the log score log P_i(o). Its gap is what it expects to gain from the pooled
belief P over its own, in nats. Beliefs are normalised log-probabilities; -∞ marks an impossible
outcome, and what is impossible adds nothing to an expectation, 0 · ∞ = 0. Values may be infinite,
as a divergence is where supports differ; gradients are finite all the same. Definitions and
theorems are those of Lee, Kondor and Ngo, arXiv:2509.06701.
"""

import chex
import jax
import jax.numpy as jnp

from lib.pooling import pools


def expectation(logp: chex.Array, f: chex.Array) -> chex.Array:
  """E_P[f] = Σ_o P(o) f(o) over the possible outcomes.

  Args:
    logp: log P (..., K).
    f: (..., K), broadcast against logp but for the outcomes; anything where P(o) = 0.

  Returns:
    Expectations (...).
  """
  chex.assert_equal_shape_suffix([logp, f], 1)
  return _sum(jnp.exp(logp), f, logp > -jnp.inf)


def entropy(logp: chex.Array) -> chex.Array:
  """Shannon's entropy H(P) = -E_P[log P] (...), in nats, of log P (..., K)."""
  return -expectation(logp, logp)


def kl(logp: chex.Array, logq: chex.Array) -> chex.Array:
  """The divergence KL(P‖Q) = E_P[log P - log Q].

  Args:
    logp: log P (..., K).
    logq: log Q (..., K), broadcast against logp but for the outcomes.

  Returns:
    Divergences (...), in nats; ∞ where Q excludes an outcome that P does not.
  """
  chex.assert_equal_shape_suffix([logp, logq], 1)
  return expectation(logp, logp - logq)


def general_gap(welfare: chex.Array, logp: chex.Array, logpool: chex.Array) -> chex.Array:
  """A member's gap under any welfare function, Δ(P; W) = E_P[W] - E_{P_i}[W].

  With W of one's choice all members can gain from a log pool of any n >= 2 (Theorem 6).

  Args:
    welfare: W (..., K), finite where P_i(o) > 0; a W of -∞ elsewhere makes a pool that allows the
      outcome infinitely bad.
    logp: the member's log P_i (..., K).
    logpool: log P (..., K). All three broadcast but for the outcomes.

  Returns:
    Gaps (...), in the unit of W.
  """
  chex.assert_equal_shape_suffix([welfare, logp, logpool], 1)
  # One sum over the difference, of a welfare centred around zero, rounds less than two sums do:
  # the gap is often a thousandth of each.
  level = jax.lax.stop_gradient(expectation(logp, welfare))
  difference = jnp.exp(logpool) - jnp.exp(logp)
  return _sum(difference, welfare - level[..., None], jnp.maximum(logp, logpool) > -jnp.inf)


def welfare_gap(logp: chex.Array, logpool: chex.Array) -> chex.Array:
  """A member's gap under the log score, Δ_i(P) = E_P[log P_i] - E_{P_i}[log P_i] (Definition 7).

  It equals H(P_i) - H(P) - KL(P‖P_i) (Proposition 32). Derived: for m independent draws, each
  belief its own m-fold product, the gap is m times as large.

  Args:
    logp: the member's log P_i (..., K).
    logpool: log P (..., K); both broadcast but for the outcomes.

  Returns:
    Gaps (...), in nats; -∞ where the member excludes an outcome that the pool does not.
  """
  return general_gap(logp, logp, logpool)


def welfare_gaps(logp: chex.Array, logpool: chex.Array) -> chex.Array:
  """The gaps Δ_i (..., n) of all members, log P_i (..., n, K), from one pool, log P (..., K)."""
  return welfare_gap(logp, logpool[..., None, :])


def weighted_gap(logp: chex.Array, logpool: chex.Array, beta: chex.Array) -> chex.Array:
  """The group's gap Σ_i β_i Δ_i.

  Derived: for the log pool it is Σ_i β_i H(P_i) - H(P) + log Z. For the linear pool it is never
  positive; see `linear_pool_certificate`.

  Args:
    logp: the members' log P_i (..., n, K).
    logpool: log P (..., K).
    beta: weights β (n,), or (..., n) that broadcast, >= 0 and of sum 1.

  Returns:
    Gaps (...), in nats.

  Raises:
    ValueError: if weights at hand are not on the simplex.
  """
  return _weighted_sum(beta, welfare_gaps(logp, logpool))


def linear_pool_certificate(logp: chex.Array, beta: chex.Array) -> chex.Array:
  """The linear pool's group gap, as a sum of terms none of which is positive.

    Σ_i β_i Δ_i = -Σ_i β_i (KL(P_i‖P) + KL(P‖P_i)),  P = Σ_i β_i P_i

  It is zero only where all members of positive weight agree, so that no linear pool is strictly
  unanimous (Theorem 10).

  Args:
    logp: the members' log P_i (..., n, K).
    beta: weights β (n,), or (..., n) that broadcast, >= 0 and of sum 1.

  Returns:
    The gap (...), in nats, <= 0 but for rounding.

  Raises:
    ValueError: if there are fewer than two outcomes, or weights at hand are not on the simplex.
  """
  logpool = pools.linear_pool(logp, beta)[..., None, :]
  return -_weighted_sum(beta, kl(logp, logpool) + kl(logpool, logp))


def gap_tolerance(gaps: chex.Array) -> float:
  """The size, 256 ε of its dtype, below which a gap may be rounding.

  Rounded log-probabilities of size l move a gap by about l² ε; l = 16 is a probability of 1e-7.
  It is 3e-5 nats in float32 and 6e-14 in float64.
  """
  return 256 * float(jnp.finfo(gaps.dtype).eps)


def strictly_unanimous(gaps: chex.Array, tolerance: float | None = None) -> chex.Array:
  """Whether every member gains, min_i Δ_i > tolerance.

  Possible for log pools from three outcomes on (Theorem 9), but not for two (Theorem 8), nor for
  linear pools (Theorem 10), nor where one member has all the weight: its gap is zero.

  Args:
    gaps: Δ_i (..., n).
    tolerance: nats, >= 0; `gap_tolerance` by default.

  Returns:
    Booleans (...).

  Raises:
    ValueError: if the tolerance is negative.
  """
  if tolerance is None:
    tolerance = gap_tolerance(gaps)
  if not tolerance >= 0:
    raise ValueError(f'The tolerance must not be negative, got {tolerance=}.')
  return jnp.min(gaps, axis=-1) > tolerance


def _sum(weights: chex.Array, f: chex.Array, counted: chex.Array) -> chex.Array:
  """Σ_o weights(o) f(o) over the counted outcomes; infinities count whole, and have no gradient."""
  f = jnp.where(counted, f, 0.0)
  infinite = jnp.isinf(f)
  return jnp.sum(jnp.where(infinite, f, weights * jnp.where(infinite, 0.0, f)), axis=-1)


def _weighted_sum(beta: chex.Array, values: chex.Array) -> chex.Array:
  """Σ_i β_i values_i, where an infinite value of a member of weight zero does not count."""
  chex.assert_axis_dimension(values, -1, beta.shape[-1])
  pools.check_weights(beta)
  return _sum(beta, values, (beta > 0) | jnp.isfinite(values))
