"""Traced. Functions of the outcomes in L²(P): persona profiles, projections, changes of weight.

The profile of member i is its log-belief, centred under the pool P. Functions f are (..., K) beside
log P (..., K); their values where P(o) = 0 do not count. Theorems are those of Lee, Kondor and Ngo,
arXiv:2509.06701.
"""

import chex
import jax
import jax.numpy as jnp

from lib.pooling import welfare


def centre(f: chex.Array, logp: chex.Array) -> chex.Array:
  """f - E_P[f] (..., K), zero where P(o) = 0; of a member's log-belief it is the profile v_i."""
  return jnp.where(logp > -jnp.inf, f - welfare.expectation(logp, f)[..., None], 0.0)


def inner(f: chex.Array, g: chex.Array, logp: chex.Array) -> chex.Array:
  """<f, g>_P = Σ_o P(o) f(o) g(o) (...)."""
  chex.assert_equal_shape_suffix([f, g], 1)
  return welfare.expectation(logp, f * g)


def norm(f: chex.Array, logp: chex.Array) -> chex.Array:
  """‖f‖_P = √<f, f>_P (...); its gradient where it vanishes is returned as zero."""
  square = inner(f, f, logp)
  positive = square > 0
  return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1.0)), 0.0)


def event_score(event: chex.Array, logp: chex.Array) -> chex.Array:
  """The event's score g_A = 1_A - P(A) (..., K): P(A) changes by <ΔL, g_A>_P + o(‖ΔL‖) (Lemma 20).

  Args:
    event: booleans (..., K), whether the outcome belongs to A.
    logp: log P (..., K).

  Returns:
    Scores (..., K), centred under P.
  """
  return centre(jnp.asarray(event, logp.dtype), logp)


def orthonormal_basis(
  functions: chex.Array, logp: chex.Array, rank_tolerance: float | None = None
) -> chex.Array:
  """An orthonormal basis in <·,·>_P of what functions span, by Gram and Schmidt, in their order.

  A function that hardly leaves the span of those before it adds no direction, only rounding, and
  gets a zero in its place: similar personas have nearly dependent profiles.

  Args:
    functions: (m, K).
    logp: log P (K,).
    rank_tolerance: the part of its norm that a function must have outside the span of those before
      it to count, in [0, 1); 1000 ε of its dtype by default.

  Returns:
    (m, K), orthonormal but for rows of zeros.

  Raises:
    ValueError: if the tolerance is out of range.
  """
  chex.assert_rank([functions, logp], [2, 1])
  chex.assert_equal_shape_suffix([functions, logp], 1)
  if rank_tolerance is None:
    rank_tolerance = 1000 * float(jnp.finfo(functions.dtype).eps)
  if not 0 <= rank_tolerance < 1:
    raise ValueError(f'The rank tolerance must lie in [0, 1), got {rank_tolerance=}.')
  functions = jnp.where(logp > -jnp.inf, functions, 0.0)
  if not len(functions):
    return functions

  def add(basis: chex.Array, indexed: tuple[chex.Array, chex.Array]) -> tuple[chex.Array, None]:
    i, f = indexed
    rest = f
    for _ in range(2):  # once leaves rounding, twice is enough
      rest -= combine(inner(basis, rest, logp), basis)
    size = norm(rest, logp)
    counts = size > rank_tolerance * norm(f, logp)
    return basis.at[i].set(jnp.where(counts, rest / jnp.where(counts, size, 1.0), 0.0)), None

  return jax.lax.scan(add, jnp.zeros_like(functions), (jnp.arange(len(functions)), functions))[0]


def project(
  g: chex.Array, functions: chex.Array, logp: chex.Array, rank_tolerance: float | None = None
) -> chex.Array:
  """The projection of g, orthogonal in <·,·>_P, on what functions span.

  Args:
    g: (K,).
    functions: (m, K).
    logp: log P (K,).
    rank_tolerance: see `orthonormal_basis`.

  Returns:
    (K,).

  Raises:
    ValueError: if the tolerance is out of range.
  """
  basis = orthonormal_basis(functions, logp, rank_tolerance)
  return combine(inner(basis, g, logp), basis)


def combine(coefficients: chex.Array, functions: chex.Array) -> chex.Array:
  """Σ_j c_j f_j (..., K), of c (..., m) and f (..., m, K)."""
  chex.assert_axis_dimension(functions, -2, coefficients.shape[-1])
  return jnp.sum(coefficients[..., None] * functions, axis=-2)


def first_order_shift(dbeta: chex.Array, v: chex.Array) -> chex.Array:
  """The first-order effect of a change of weights on the pooled log-belief, Σ_i Δβ_i v_i.

  The whole effect is log P' - log P = Σ_i Δβ_i v_i + r, with the constant r of `remainder`
  (Theorem 18).

  Args:
    dbeta: changes Δβ (..., n), of sum 0.
    v: profiles (..., n, K).

  Returns:
    Shifts (..., K), centred as the profiles are.
  """
  return combine(dbeta, v)


def remainder(dbeta: chex.Array, v: chex.Array, logp: chex.Array) -> chex.Array:
  """Theorem 18's remainder r = -log E_P[exp(Σ_i Δβ_i v_i)] <= 0, the same for all outcomes.

  Derived: being constant, it is orthogonal to every profile. -r is KL(P‖P'), and to second order
  ½ ‖Σ_i Δβ_i v_i‖²_P.

  Args:
    dbeta: changes Δβ (..., n), of sum 0.
    v: profiles (..., n, K), centred under P.
    logp: log P (..., K), the pool before the change.

  Returns:
    r (...).
  """
  shift = first_order_shift(dbeta, v)
  return -jax.nn.logsumexp(jnp.where(logp > -jnp.inf, logp + shift, -jnp.inf), axis=-1)
