"""Traced. Coefficients in a ⋆-orthonormal basis, projections and derivatives between bases.

A basis Φ is (n, m) with Φᵀ ⋆ Φ = 1, of `spectra.eigenbasis`; a diagonal star is (n,). Columns of
zeros, as padding has, have coefficients of zero.
"""

from collections.abc import Sequence

import chex

from lib.hodge import operators
from lib.hodge.complexes import Complex


def coefficients(basis: chex.Array, star: chex.Array, w: chex.Array) -> chex.Array:
  """Φᵀ ⋆ w (..., m), of cochains w (..., n)."""
  return (star * w) @ basis


def synthesize(basis: chex.Array, coefficients_: chex.Array) -> chex.Array:
  """Φ c (..., n), of coefficients c (..., m)."""
  return coefficients_ @ basis.T


def project(basis: chex.Array, star: chex.Array, w: chex.Array) -> chex.Array:
  """Π w = Φ Φᵀ ⋆ w (..., n): the closest cochain in the basis's span, in the ⋆ norm."""
  return synthesize(basis, coefficients(basis, star, w))


def complement(basis: chex.Array, star: chex.Array, w: chex.Array) -> chex.Array:
  """(1 - Π) w (..., n): what the basis cannot hold, and what does not change its coefficients."""
  return w - project(basis, star, w)


def spectral_derivative(
  c: Complex, stars: Sequence[chex.Array], k: int, basis: chex.Array, above: chex.Array
) -> chex.Array:
  """M_d = Φ_{k+1}ᵀ ⋆_{k+1} d_k Φ_k (m_{k+1}, m_k); its transpose is that of the codifferential.

  With the metric eigenbases of all degrees, cut between clusters, M_d M_d = 0, and an entry is
  √λ for an exact mode dφ/√λ and its potential φ, up to rotations within clusters.

  Args:
    c: the complex.
    stars: diagonals ⋆0, ⋆1, ...
    k: degree.
    basis: Φ_k (n_k, m_k).
    above: Φ_{k+1} (n_{k+1}, m_{k+1}).
  """
  return coefficients(above, stars[k + 1], operators.derivative(c, k, basis.T)).T
