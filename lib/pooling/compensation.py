"""Traced. What raising one persona's weight costs: Theorem 19, "Waluigi emergence".

A pool P changes its weights by Δβ, of sum 0. Member H gains δ = Δβ_H. The other members are
aligned with H where <v_j, v_H>_P >= 0, and anti-aligned elsewhere, with the profiles v of
`profiles.centre`. If the pooled log-belief may move by no more than a budget, anti-aligned members
must gain weight too. Theorems are those of Lee, Kondor and Ngo, arXiv:2509.06701; they are about
this model of pooled beliefs.
"""

import chex
import jax.numpy as jnp

from lib.pooling import profiles


def compensation(dbeta: chex.Array, v: chex.Array, logp: chex.Array, h: int) -> chex.Array:
  """Theorem 19's left side, what anti-aligned members gain: Σ_anti (Δβ_i)⁺ |<v_i, v_H>_P|.

  Args:
    dbeta: changes Δβ (..., n).
    v: profiles (..., n, K).
    logp: log P (..., K).
    h: member H.

  Returns:
    Compensations (...), >= 0.

  Raises:
    ValueError: if there is no member H.
  """
  products = _products_with_others(dbeta, v, logp, h)
  return jnp.sum(jnp.maximum(dbeta, 0.0) * jnp.maximum(-products, 0.0), axis=-1)


def compensation_bound(
  dbeta: chex.Array,
  v: chex.Array,
  logp: chex.Array,
  h: int,
  budget: chex.Numeric,
  remainder: chex.Numeric = 0.0,
) -> chex.Array:
  """Theorem 19's right side, which `compensation` never falls below.

    δ ‖v_H‖² - (ε + ‖r‖) ‖v_H‖ - Σ_aligned (Δβ_j)⁻ <v_j, v_H>_P

  Derived: it holds without ‖r‖ too, and for the smallest ε that there is, ‖Σ_i Δβ_i v_i‖_P, because
  the constant r is orthogonal to v_H.

  Args:
    dbeta: changes Δβ (..., n).
    v: profiles (..., n, K).
    logp: log P (..., K).
    h: member H.
    budget: ε (...), at least ‖Σ_i Δβ_i v_i‖_P; ‖log P' - log P‖_P is.
    remainder: r (...); give it for the inequality as the paper states it.

  Returns:
    Bounds (...); one that is not positive says nothing.

  Raises:
    ValueError: if there is no member H.
  """
  products = _products_with_others(dbeta, v, logp, h)
  lost = jnp.sum(jnp.maximum(-dbeta, 0.0) * jnp.maximum(products, 0.0), axis=-1)
  size = profiles.norm(v[..., h, :], logp)
  return dbeta[..., h] * size**2 - (budget + jnp.abs(remainder)) * size - lost


def _products_with_others(dbeta: chex.Array, v: chex.Array, logp: chex.Array, h: int) -> chex.Array:
  """<v_i, v_H>_P (..., n), with zero for H itself, of members to whom the changes belong."""
  num_members = dbeta.shape[-1]
  chex.assert_axis_dimension(v, -2, num_members)
  if not 0 <= h < num_members:
    raise ValueError(f'There is no member {h} among {num_members}.')
  products = profiles.inner(v, v[..., h, None, :], logp[..., None, :])
  return jnp.where(jnp.arange(num_members) == h, 0.0, products)
