"""Traced. Error of the most frequent of n answers, and samples handed out by known margins.

An answer's probabilities p (..., K) are >= 0 and sum to one; their largest is the mode, which the
vote is to find. Its margin is m = (√p₁ - √p₂)². Derived, but for the names.
"""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlog1py, xlogy
from scipy.special import gammaln

# Halvings of an interval: more than a float64 has bits.
_NUM_HALVINGS = 64


def chernoff_bound(p: chex.Array, n: chex.Numeric) -> chex.Array:
  """Bounds the probability that another answer than the mode has at least as many of n votes.

  For two answers, from E e^{λ(1[2] - 1[1])} at its least, e^λ = √(p₁/p₂), and summed over rivals:

    Pr[N_2 >= N_1] <= (1 - (√p₁ - √p₂)²)^n,    Pr[error] <= Σ_{j>=2} (1 - (√p₁ - √p_j)²)^n

  Args:
    p: probabilities (..., K), in any order.
    n: votes >= 0, a number or (...) that broadcasts.

  Returns:
    The sum (...), which may exceed one. At K = 2 it is the first bound; at K = 1 it is 0.
  """
  leader = jnp.argmax(p, axis=-1, keepdims=True)
  largest = jnp.take_along_axis(p, leader, axis=-1)
  margins = ((largest - p) / (jnp.sqrt(largest) + jnp.sqrt(p))) ** 2
  log_bounds = xlog1py(jnp.asarray(n, p.dtype)[..., None], -margins)
  rivals = jnp.arange(p.shape[-1]) != leader
  return jnp.sum(jnp.exp(log_bounds), axis=-1, where=rivals)


def exact_error(p: chex.Array, n: int) -> chex.Array:
  """Probability that the vote of n answers misses the mode, where ties are drawn uniformly.

  All (n + K - 1 choose n) outcomes are enumerated, so this is for two or three answers.

  Args:
    p: probabilities (..., K), in any order. Where several are largest, the first is the mode.
    n: votes, >= 0.

  Returns:
    Probabilities (...), to a relative 1e-5 in float32 for hundreds of votes.

  Raises:
    ValueError: if K is not 2 or 3, or `n` is negative.
  """
  num_answers = p.shape[-1]
  if num_answers not in (2, 3):
    raise ValueError(f'Only two or three answers are enumerated, got {num_answers}.')
  if n < 0:
    raise ValueError(f'A number of votes must not be negative, got {n=}.')
  counts = np.indices((n + 1,) * (num_answers - 1)).reshape(num_answers - 1, -1)
  counts = counts[:, counts.sum(0) <= n]
  counts = np.vstack([counts, n - counts.sum(0)])
  log_ways = gammaln(n + 1) - gammaln(counts + 1).sum(0)
  in_lead = counts == counts.max(0)
  misses = 1 - in_lead / in_lead.sum(0)
  log_chances = jnp.asarray(log_ways, p.dtype)
  for answer in range(num_answers):
    log_chances += xlogy(jnp.asarray(counts[answer], p.dtype), p[..., answer, None])
  chances = jnp.exp(log_chances)
  # Not a matrix product, which accelerators may round to fewer bits.
  errors = [jnp.sum(chances * jnp.asarray(row, p.dtype), axis=-1) for row in misses]
  mode = jnp.argmax(p, axis=-1, keepdims=True)
  return jnp.take_along_axis(jnp.stack(errors, axis=-1), mode, axis=-1)[..., 0]


def laplace_error(margins: chex.Array, x: chex.Numeric) -> chex.Array:
  """Mean of e^{-x m} over questions: the Laplace transform of the law of margins at x votes each.

  A density of margins ~ m^{γ-1} at zero makes it fall as x^{-γ}; c/2 m^{-1/2}, as a gap p₁ - p₂
  of positive density at zero does, makes it c/2 √(π/x).

  Args:
    margins: (Q,), >= 0, or the exact rates -log(1 - m).
    x: votes a question, a number or any shape (...).

  Returns:
    Errors (...), as sharp as the bound `chernoff_bound`, up to its factor.
  """
  x = jnp.asarray(x, margins.dtype)
  return jnp.mean(jnp.exp(-x[..., None] * margins), axis=-1)


def fixed_allocation(
  margins: chex.Array, budget: chex.Numeric, cap: chex.Numeric = jnp.inf
) -> chex.Array:
  """The allocation that minimises Σ_q e^{-n_q m_q} under Σ_q n_q = B, for margins known before.

  It fills water, n_q = (1/m_q) [log(m_q/λ)]₊, where log λ is found by halving an interval. What is
  too close to call gets nothing, so for a density ~ m^{-1/2} the error falls as 1/B, not B^{-1/2}.

  Args:
    margins: m (..., Q), >= 0; better the exact rates -log(1 - m). One of 0 gains nothing by votes
      and gets 0. An infinite one needs any vote at all, and gets 0 too: hand that out first.
    budget: B >= 0, a number or (...).
    cap: most votes of a question, > 0, a number; what is above it goes to the others.

  Returns:
    n (..., Q) of sum B; where B is more than the cap allows, all that it allows, and 0 where no
    margin is positive and finite.
  """
  useful = (margins > 0) & (margins < jnp.inf)
  safe = jnp.where(useful, margins, 1.0)
  logs = jnp.log(safe)
  budget = jnp.asarray(budget, safe.dtype)[..., None]
  cap = jnp.asarray(cap, safe.dtype)

  def votes(log_water: chex.Array) -> chex.Array:
    return jnp.where(useful, jnp.clip((logs - log_water) / safe, 0.0, cap), 0.0)

  def halve(_: int, ends: tuple[chex.Array, chex.Array]) -> tuple[chex.Array, chex.Array]:
    low, high = ends
    middle = 0.5 * (low + high)
    too_many = votes(middle).sum(-1, keepdims=True) > budget
    return jnp.where(too_many, middle, low), jnp.where(too_many, high, middle)

  # At the lowest level every question has the whole budget or its cap, in spite of rounding.
  lowest = logs - jnp.minimum(budget, cap) * safe
  lowest -= 4 * jnp.finfo(safe.dtype).eps * (1 + jnp.abs(lowest))
  low = jnp.min(jnp.where(useful, lowest, jnp.inf), axis=-1, keepdims=True)
  high = jnp.max(jnp.where(useful, logs, -jnp.inf), axis=-1, keepdims=True)
  any_useful = jnp.any(useful, axis=-1, keepdims=True)
  low, high = jnp.where(any_useful, low, 0.0), jnp.where(any_useful, high, 0.0)
  low, high, _ = jnp.broadcast_arrays(low, high, budget)
  low, high = jax.lax.fori_loop(0, _NUM_HALVINGS, halve, (low, high))
  # Between the last two levels votes are linear, but for those of margins below the precision.
  n = votes(high)
  more = votes(low) - n
  missing, step = budget - n.sum(-1, keepdims=True), more.sum(-1, keepdims=True)
  return n + more * jnp.clip(missing / jnp.where(step > 0, step, 1.0), 0.0, 1.0)


def integer_allocation(allocation: chex.Array, budget: int, cap: int) -> chex.Array:
  """Rounds an allocation to whole votes of sum B exactly, at most T for any question.

  All n_q are raised or lowered by one number ν until Σ_q min(⌊n_q + ν⌋₊, T) = B. Where Σ_q n_q = B
  and no cap binds, that is rounding by largest remainders; ties go to the earlier question.

  Args:
    allocation: n (..., Q), finite, >= 0; any sum will do.
    budget: B, in [0, Q T].
    cap: most votes T of a question, >= 0.

  Returns:
    Votes i32 (..., Q).

  Raises:
    ValueError: if `cap` is negative, or `budget` is negative or more than the cap allows.
  """
  most = allocation.shape[-1] * cap
  if cap < 0 or not 0 <= budget <= most:
    raise ValueError(f'A budget must lie in [0, {most}], got {budget=} under {cap=}.')

  def votes(shift: chex.Array) -> chex.Array:
    return jnp.clip(jnp.floor(allocation + shift), 0, cap).astype(jnp.int32)

  def halve(_: int, ends: tuple[chex.Array, chex.Array]) -> tuple[chex.Array, chex.Array]:
    low, high = ends
    middle = 0.5 * (low + high)
    too_many = votes(middle).sum(-1, keepdims=True) > budget
    return jnp.where(too_many, low, middle), jnp.where(too_many, middle, high)

  low = -jnp.max(allocation, axis=-1, keepdims=True) - 1.0
  high = jnp.full_like(low, cap + 1.0)
  low, high = jax.lax.fori_loop(0, _NUM_HALVINGS, halve, (low, high))
  # The last step from low to high moves those of one remainder, some of which must wait.
  n, next_n = votes(low), votes(high)
  missing = budget - n.sum(-1, keepdims=True)
  steps = next_n - n
  before = jnp.cumsum(steps, axis=-1) - steps
  return n + jnp.clip(missing - before, 0, steps)


def ppr_rate(p1: chex.Array, p2: chex.Array) -> chex.Array:
  """D = p₁ log(2p₁/(p₁ + p₂)) + p₂ log(2p₂/(p₁ + p₂)), the rate of PPR-1v1.

  It stops at level δ after about log(1/δ)/D votes. D is p₁ + p₂ times the divergence of a coin from
  a fair one. With the imbalance t = (p₁ - p₂)/(p₁ + p₂) that is t artanh t + ½ log(1 - t²), whose
  leading terms, unlike those above, do not cancel at small t.

  Args:
    p1: >= 0, probabilities; or numbers of votes, for D times their sum.
    p2: >= 0, that broadcasts.

  Returns:
    D >= 0, symmetric and homogeneous; 0 at p₁ = p₂, and p₁ log 2 at p₂ = 0.
  """
  total = p1 + p2
  some = total > 0
  safe = jnp.where(some, total, 1)
  share1, share2 = jnp.where(some, p1 / safe, 0.5), jnp.where(some, p2 / safe, 0.5)
  # The difference before the quotient: it is exact where the two are near.
  imbalance = (p1 - p2) / safe
  near = jnp.clip(imbalance, -0.5, 0.5)
  close = near * jnp.arctanh(near) + 0.5 * jnp.log1p(-(near**2))
  apart = xlogy(share1, 2 * share1) + xlogy(share2, 2 * share2)
  return total * jnp.where(imbalance == near, close, apart)
