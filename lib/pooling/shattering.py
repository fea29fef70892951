"""Traced. How much an edit of small size can reduce an event's probability, to first order.

A belief P is edited along directions, functions of the outcomes that span S: log P changes by a ΔL
in S with ‖ΔL‖_P <= ε, and P(A) by <ΔL, g_A>_P to first order, with the score g_A of
`profiles.event_score`. Constants do not change a belief, so that only what directions are beyond
them counts. Theorems are those of Lee, Kondor and Ngo, arXiv:2509.06701.
"""

import chex
import jax.numpy as jnp
import optax

from lib.pooling import profiles


def max_reduction(
  logp: chex.Array,
  directions: chex.Array,
  g: chex.Array,
  budget: chex.Numeric,
  rank_tolerance: float | None = None,
) -> chex.Array:
  """The largest first-order reduction of P(A), M(S) = ε ‖Proj_S g_A‖_P (Lemma 71).

  Args:
    logp: log P (K,).
    directions: (m, K), which span S.
    g: g_A (K,).
    budget: ε >= 0. A small divergence κ, either way round, is ε = √(2κ) to first order.
    rank_tolerance: see `profiles.orthonormal_basis`.

  Returns:
    The reduction, a scalar.

  Raises:
    ValueError: if the tolerance is out of range.
  """
  return budget * optax.safe_norm(_coefficients(logp, directions, g, rank_tolerance), 0.0)


def shatter_gain(
  logp: chex.Array,
  directions: chex.Array,
  w: chex.Array,
  g: chex.Array,
  budget: chex.Numeric,
  rank_tolerance: float | None = None,
) -> chex.Array:
  """What one more direction w adds to the largest reduction, M(S + span w) - M(S).

    ε (√(‖Proj_S g_A‖² + <g_A, u>²/‖u‖²) - ‖Proj_S g_A‖),  u = w - Proj_S w

  by Proposition 72. It is never negative, and positive if and only if u ≠ 0 and <g_A, u> ≠ 0
  (Corollary 74), a condition that the short form of Theorem 21 leaves out.

  Args:
    logp: log P (K,).
    directions: (m, K), which span S.
    w: (K,).
    g: g_A (K,).
    budget: ε >= 0.
    rank_tolerance: see `profiles.orthonormal_basis`; below it, w counts as part of S.

  Returns:
    The gain, a scalar.

  Raises:
    ValueError: if the tolerance is out of range.
  """
  chex.assert_equal_shape([logp, w])
  coefficients = _coefficients(logp, jnp.concatenate([directions, w[None]]), g, rank_tolerance)
  before = optax.safe_norm(coefficients[:-1], 0.0)
  after = optax.safe_norm(coefficients, 0.0)
  # The difference of roots without its cancellation.
  return budget * coefficients[-1] ** 2 / jnp.where(after > 0, after + before, 1.0)


def _coefficients(
  logp: chex.Array, directions: chex.Array, g: chex.Array, rank_tolerance: float | None
) -> chex.Array:
  """g's coefficients in an orthonormal basis of the directions."""
  # Orthogonal to the constant is centred; and a direction that is constant counts as none.
  functions = jnp.concatenate([jnp.ones_like(directions[:1]), directions])
  basis = profiles.orthonormal_basis(functions, logp, rank_tolerance)[1:]
  return profiles.inner(basis, g, logp)
