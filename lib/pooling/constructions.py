"""Traced. Beliefs whose gaps are known in closed form, and how far gaps survive perturbations.

Beliefs are normalised log-probabilities (..., K). Theorems are those of Lee, Kondor and Ngo,
arXiv:2509.06701; what is derived from its definitions alone says so.
"""

import math

import chex
import jax
import jax.numpy as jnp

from lib.pooling import pools


def unanimous_family(num_members: int, eps: float) -> chex.Array:
  """Members whose log pool is strictly unanimous once ε is small, as Theorem 9 constructs them.

    P_i(o_i) = ε,  P_i(o_j) = ε^(n+1) for the other j >= 1,  P_i(o_0) = 1 - ε - (n-1) ε^(n+1)

  With weights β, none of them 1, the pool's mass on o_i is ε^(n+1 - n β_i) / Z, of higher order
  than ε: each member thinks its own outcome unlikely, and the pool thinks it next to impossible.
  Δ_i / (ε log(1/ε)) → 1 as ε → 0.

  Args:
    num_members: n >= 2.
    eps: ε in (0, 1/4).

  Returns:
    log P_i (n, n + 1), in jax's default precision; outcome o_0 comes first.

  Raises:
    ValueError: if there are fewer than two members or ε is out of range.
  """
  if num_members < 2:
    raise ValueError(f'A group needs at least two members, got {num_members=}.')
  if not 0 < eps < 0.25:
    raise ValueError(f'The family needs ε in (0, 1/4), got {eps=}.')
  rare = (num_members + 1) * math.log(eps)
  first = math.log1p(-eps - (num_members - 1) * math.exp(rare))
  own = jnp.eye(num_members, dtype=bool)
  others = jnp.where(own, math.log(eps), rare)
  return jnp.concatenate([jnp.full((num_members, 1), first), others], axis=1)


def power_family(logp: chex.Array, t: float) -> chex.Array:
  """A pair P_1 and P_2 ∝ P_1^(2t-1), whose pool at equal weights is ∝ P_1^t.

  Unless P_1 is uniform, the first gains from the pool, for it sharpens P_1 (Theorem 14's parent).

  Args:
    logp: log P_1 (..., K).
    t: > 1.

  Returns:
    Log-probabilities (..., 2, K).

  Raises:
    ValueError: if t is not above 1.
  """
  if not t > 1:
    raise ValueError(f'The power must be above 1, got {t=}.')
  return jnp.stack([logp, jax.nn.log_softmax((2 * t - 1) * logp)], axis=-2)


def binary_gap(p: chex.Array, q: chex.Array) -> chex.Array:
  """The gap of a member that gives the first of two outcomes p from a pool that gives it q.

    Δ = (q - p) logit p

  For the log pool, logit q = Σ_i β_i logit p_i lies between the members' own, so that not all can
  gain (Theorem 8).

  Args:
    p: probabilities in (0, 1).
    q: probabilities in [0, 1], broadcast against p.

  Returns:
    Gaps, in nats.
  """
  return (q - p) * jax.scipy.special.logit(p)


def oscillation(f: chex.Array) -> chex.Array:
  """osc f = max f - min f (...), of finite f (..., K)."""
  return jnp.max(f, axis=-1) - jnp.min(f, axis=-1)


def belief_change_bound(logp: chex.Array, changed: chex.Array, beta: chex.Array) -> chex.Array:
  """Bounds how far a log pool moves when its members do.

    osc(log P̃ - log P) <= Σ_i β_i osc(log P̃_i - log P_i)

  Derived, for the pools' difference is Σ_i β_i (log P̃_i - log P_i) and a constant.

  Args:
    logp: log P_i (..., n, K), finite.
    changed: log P̃_i (..., n, K), finite.
    beta: weights β (n,), or (..., n) that broadcast, >= 0 and of sum 1.

  Returns:
    Bounds (...).

  Raises:
    ValueError: if weights at hand are not on the simplex.
  """
  chex.assert_equal_shape_suffix([logp, changed], 2)
  chex.assert_axis_dimension(logp, -2, beta.shape[-1])
  pools.check_weights(beta)
  return jnp.sum(beta * oscillation(changed - logp), axis=-1)


def weight_change_bound(logp: chex.Array, dbeta: chex.Array) -> chex.Array:
  """Bounds how far a log pool moves when its weights do.

    osc(log P' - log P) <= Σ_i |Δβ_i| osc(log P_i)

  Derived, for the pools' difference is Σ_i Δβ_i log P_i and a constant.

  Args:
    logp: log P_i (..., n, K), finite.
    dbeta: changes Δβ (n,), or (..., n) that broadcast.

  Returns:
    Bounds (...).
  """
  chex.assert_axis_dimension(logp, -2, dbeta.shape[-1])
  return jnp.sum(jnp.abs(dbeta) * oscillation(logp), axis=-1)


def gap_change_bound(logp: chex.Array, eta: chex.Numeric) -> chex.Array:
  """Bounds how far a gap moves when all members are tilted by u_i with |u_i| <= η.

    |Δ̃_i - Δ_i| <= η (osc(log P_i) + 2)

  Derived. A tilt whose oscillation is at most 2η moves a belief by at most tanh(η/2) in total
  variation; both the member and the pool move so. With P̃_i ∝ P_i exp(u_i),

    Δ̃_i - Δ_i = (E_P̃ - E_P)[log P_i] - (E_P̃i - E_Pi)[log P_i] + (E_P̃ - E_P̃i)[u_i]

  so that the first two terms are at most 2 tanh(η/2) osc(log P_i) together, the third 2η, and
  tanh x <= x. It is below the cruder (exp(2η) - 1) osc(log P_i) + 2η.

  Args:
    logp: log P_i (..., K), finite.
    eta: η >= 0, broadcast against the bounds.

  Returns:
    Bounds (...), in nats.
  """
  return eta * (oscillation(logp) + 2)


def openness_radius(logp: chex.Array, gaps: chex.Array) -> chex.Array:
  """A radius within which strict unanimity persists, explicit for Theorem 17.

    η = min_i Δ_i / (osc(log P_i) + 2)

  Derived: where all |u_i| < η, the pool of P̃_i ∝ P_i exp(u_i) with the same weights is strictly
  unanimous too; see `gap_change_bound`.

  Args:
    logp: log P_i (..., n, K), finite.
    gaps: Δ_i (..., n).

  Returns:
    Radii η (...), zero where the pool is not strictly unanimous.
  """
  chex.assert_equal_shape_suffix([logp[..., 0], gaps], 1)
  return jnp.maximum(jnp.min(gaps / (oscillation(logp) + 2), axis=-1), 0.0)
