"""Traced. The Hodge decomposition ω = d a + δ b + h, harmonic cochains and their periods.

The parts are orthogonal in the ⋆ product. With the stars of `operators.relative` all of this is
for cochains that vanish on the boundary, and batched complexes decompose under `jax.vmap`.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from lib.hodge import operators
from lib.hodge.complexes import Complex


class Solve(NamedTuple):
  """How conjugate gradients ended, one number for each right-hand side (...).

  Attributes:
    steps: how many there were, int32.
    residual: |b - A x|/|b|, computed afresh; 0 where b is zero up to rounding.
  """

  steps: chex.Array
  residual: chex.Array


class Decomposition(NamedTuple):
  """ω = exact + coexact + harmonic, all (..., n_k).

  Attributes:
    exact: d a.
    coexact: δ b.
    harmonic: what remains, with d h = 0 and δ h = 0.
    potential: a (..., n_{k-1}); for k = 1 its mean, weighted by the diagonal of d0ᵀ ⋆1 d0, is zero
      on each component. None for k = 0.
    copotential: ⋆_{k+1} b (..., n_{k+1}), None where k is the dimension.
    exact_solve: of the potential, None for k = 0.
    coexact_solve: of the copotential, None where k is the dimension.
  """

  exact: chex.Array
  coexact: chex.Array
  harmonic: chex.Array
  potential: chex.Array | None
  copotential: chex.Array | None
  exact_solve: Solve | None
  coexact_solve: Solve | None


def decompose(
  c: Complex,
  stars: Sequence[chex.Array],
  k: int,
  w: chex.Array,
  tol: float = 1e-6,
  max_steps: int = 10_000,
) -> Decomposition:
  """Splits k-cochains by two solves of conjugate gradients.

    (d_{k-1}ᵀ ⋆_k d_{k-1}) a = d_{k-1}ᵀ ⋆_k ω        (d_k ⋆_k⁻¹ d_kᵀ) y = d_k ω

  with exact = d a, coexact = ⋆_k⁻¹ d_kᵀ y. Both are singular and solvable; the solutions from a
  start at zero have no part in the kernel, up to the scaling by the diagonal. A right-hand side
  that is all rounding, as d ω for an exact ω, counts as zero.

  Args:
    c: the complex.
    stars: positive diagonals ⋆0, ⋆1, ... up to the dimension.
    k: degree, from 0 to the dimension.
    w: cochains ω (..., n_k), zero where ⋆_k is.
    tol: relative residual at which a solve stops; float32 reaches about 1e-6, float64 1e-13.
    max_steps: at which it stops in any case.

  Returns:
    The parts, and how the solves ended.
  """
  exact = coexact = jnp.zeros_like(w)
  potential = copotential = exact_solve = coexact_solve = None
  if k > 0:
    exact, potential, exact_solve = exact_part(c, stars, k, w, tol, max_steps)
  if k + 1 < len(stars):
    coexact, copotential, coexact_solve = coexact_part(c, stars, k, w, tol, max_steps)
  harmonic = w - exact - coexact
  return Decomposition(exact, coexact, harmonic, potential, copotential, exact_solve, coexact_solve)


def exact_part(
  c: Complex,
  stars: Sequence[chex.Array],
  k: int,
  w: chex.Array,
  tol: float = 1e-6,
  max_steps: int = 10_000,
) -> tuple[chex.Array, chex.Array, Solve]:
  """d a (..., n_k) closest to a k-cochain in the ⋆ norm, the potential a, and how its solve ended.

  Arguments are those of `decompose`, k > 0.
  """
  free = stars[k - 1] != 0
  gradient = lambda a: operators.derivative(c, k - 1, a)  # which is zero where it is not free
  adjoint = lambda v: free * operators.transpose(c, k - 1, stars[k] * v)
  diagonal = free * operators.transpose_abs(c, k - 1, stars[k])
  sizes = free * operators.transpose_abs(c, k - 1, abs(stars[k] * w))
  potential, solve = conjugate_gradients(
    lambda a: adjoint(gradient(a)), _unrounded(adjoint(w), sizes), diagonal, tol, max_steps
  )
  return gradient(potential), potential, solve


def coexact_part(
  c: Complex,
  stars: Sequence[chex.Array],
  k: int,
  w: chex.Array,
  tol: float = 1e-6,
  max_steps: int = 10_000,
) -> tuple[chex.Array, chex.Array, Solve]:
  """⋆_k⁻¹ d_kᵀ y (..., n_k) closest to a k-cochain, y (..., n_{k+1}), and how its solve ended.

  Arguments are those of `decompose`, k below the dimension.
  """
  weights = operators.inverse(stars[k])
  free = stars[k + 1] != 0
  coboundary = lambda v: free * operators.derivative(c, k, v)
  adjoint = lambda y: weights * operators.transpose(c, k, y)  # which is zero where it is not free
  diagonal = free * operators.derivative_abs(c, k, weights)
  sizes = free * operators.derivative_abs(c, k, abs(w))
  copotential, solve = conjugate_gradients(
    lambda y: coboundary(adjoint(y)), _unrounded(coboundary(w), sizes), diagonal, tol, max_steps
  )
  return adjoint(copotential), copotential, solve


def harmonic_basis(
  c: Complex,
  stars: Sequence[chex.Array],
  cocycles: chex.Array,
  tol: float = 1e-6,
  max_steps: int = 10_000,
) -> chex.Array:
  """The harmonic 1-cochains cohomologous to cocycles (b, E): η - d0 a, of the same periods.

  With the cocycles of `topology.homology` their periods along its cycles are the identity; with
  those of `topology.relative_homology` and relative stars, they are the relative ones.
  """
  cocycles = jnp.asarray(cocycles, jnp.result_type(stars[1], float))
  return cocycles - exact_part(c, stars, 1, cocycles, tol, max_steps)[0]


def orthonormal(basis: chex.Array, star: chex.Array) -> chex.Array:
  """⋆-orthonormal combinations (b, n) of independent cochains (b, n), by Gram and Schmidt."""
  gram = (basis * star) @ basis.T
  return jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(gram), basis, lower=True)


def periods(cycles: chex.Array, w: chex.Array) -> chex.Array:
  """Integrals (..., b) of 1-cochains w (..., E) along cycles (b, E)."""
  return w @ jnp.asarray(cycles, jnp.result_type(w, float)).T


def with_periods(basis: chex.Array, cycles: chex.Array, values: chex.Array) -> chex.Array:
  """The combination (..., E) of a harmonic basis (b, E) with given periods (..., b).

  Args:
    basis: of the harmonic cochains, any.
    cycles: (b, E), a basis of the homology.
    values: the periods.
  """
  return jnp.linalg.solve(periods(cycles, basis).T, values[..., None])[..., 0] @ basis


def conjugate_gradients(
  matvec: Callable[[chex.Array], chex.Array],
  b: chex.Array,
  diagonal: chex.Array,
  tol: float,
  max_steps: int,
) -> tuple[chex.Array, Solve]:
  """Solves A x = b for symmetric A >= 0 and b in its range, scaled by the diagonal.

  Each right-hand side of a batch stops by itself. Differentiable in b, at the cost of one more
  solve; the derivative in what `matvec` holds is that of the solution too.

  Args:
    matvec: A, on arrays (..., n).
    b: right-hand sides (..., n).
    diagonal: of A (n,), >= 0; where it is zero, x is.
    tol: relative residual |b - A x|/|b| at which a right-hand side is done.
    max_steps: at which all are.

  Returns:
    x (..., n), and how the solves ended.
  """
  diagonal = jax.lax.stop_gradient(diagonal)
  scale = operators.inverse(diagonal)
  tiny = 8 * jnp.finfo(b.dtype).eps
  dot = lambda u, v: jnp.sum(u * v, axis=-1, keepdims=True)

  def solve_together(matvec: Callable, b: chex.Array) -> tuple[chex.Array, chex.Array]:
    enough = tol**2 * dot(b, b)

    def going(state):
      return (state.step < max_steps) & jnp.any(unfinished(state))

    def unfinished(state):
      return (state.square > enough) & (state.rho > 0)

    def advance(state):
      x, r, p, rho = state.x, state.r, state.p, state.rho
      active = unfinished(state)
      ap = matvec(p)
      curvature = dot(p, ap)
      # A direction in the kernel, which is where rounding leads, or an A that is not >= 0, ends it.
      rho = jnp.where(active & ~(curvature > tiny * state.size), 0, rho)
      alpha = jnp.where(active, rho, 0) * operators.inverse(curvature)
      x, r = x + alpha * p, r - alpha * ap
      z = scale * r
      new = jnp.where(active & (rho > 0), dot(r, z), 0)
      beta = new * operators.inverse(rho)
      p = z + beta * p
      size = new + beta**2 * state.size
      return _State(x, r, p, new, size, dot(r, r), state.step + 1, state.steps + active)

    z = scale * b
    counts = jnp.zeros((*b.shape[:-1], 1), jnp.int32)
    rho = dot(b, z)
    first = _State(jnp.zeros_like(b), b, z, rho, rho, dot(b, b), 0, counts)
    last = jax.lax.while_loop(going, advance, first)
    return last.x, last.steps

  def solve(matvec: Callable, b: chex.Array) -> tuple[chex.Array, chex.Array]:
    rows = b.reshape(-1, b.shape[-1])
    run = functools.partial(solve_together, matvec)
    # One by one on CPUs, in whose caches the vectors of one solve stay.
    x, steps = jax.lax.platform_dependent(
      rows, cpu=functools.partial(jax.lax.map, run), default=run
    )
    return x.reshape(b.shape), steps.reshape(*b.shape[:-1], 1)

  x, steps = jax.lax.custom_linear_solve(matvec, b, solve, symmetric=True, has_aux=True)
  rest = b - matvec(jax.lax.stop_gradient(x))
  residual = jnp.sqrt(dot(rest, rest) * operators.inverse(dot(b, b)))
  return x, Solve(steps[..., 0], jax.lax.stop_gradient(residual)[..., 0])


class _State(NamedTuple):
  """Of conjugate gradients: x, b - A x, the direction p, with numbers (..., 1) of each right side.

  Attributes:
    x: the solution so far.
    r: its residual.
    p: the direction.
    rho: r · z of the scaled residual z, or zero where the solve has ended.
    size: p · D p with the diagonal D, for p and r are orthogonal, up to rounding.
    square: r · r.
    step: how many there were.
    steps: likewise, of each right-hand side (..., 1).
  """

  x: chex.Array
  r: chex.Array
  p: chex.Array
  rho: chex.Array
  size: chex.Array
  square: chex.Array
  step: chex.Numeric
  steps: chex.Array


def _unrounded(sums: chex.Array, sizes: chex.Array) -> chex.Array:
  """Sums (..., n) with terms of the absolute values `sizes`, or 0 where all of it is rounding."""
  norms = [jnp.linalg.norm(x, axis=-1, keepdims=True) for x in (sums, sizes)]
  noise = jnp.finfo(sums.dtype).eps * norms[1]
  # Not the other way round, for NaN must stay.
  return jnp.where(jax.lax.stop_gradient(norms[0] <= noise), 0, sums)
