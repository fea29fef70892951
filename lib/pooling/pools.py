"""Traced. Pools of beliefs, tilts, and the splits that leave a pool as it is.

An agent is a distribution over K outcomes, given by log-probabilities; a group is (..., n, K) with
weights β on the simplex. An impossible outcome has log-probability -∞. The definitions are those of
Lee, Kondor and Ngo, "Probabilistic Modeling of Latent Agentic Substructures in Deep Neural
Networks", arXiv:2509.06701; theorems have the numbers of its second version.

Weights are checked where their values are at hand, which waits for them; traced ones are not.
"""

import chex
import jax
import jax.numpy as jnp
import numpy as np

# How far from one weights may sum: float32 arithmetic makes such sums, a forgotten weight does not.
_SUM_TOLERANCE = 1e-5


def log_pool(logp: chex.Array, beta: chex.Array) -> chex.Array:
  """The logarithmic pool, log P = Σ_i β_i log P_i - log Z: the normalised geometric mean.

  What a member of positive weight holds impossible, the pool does; a member of weight zero has no
  say. Derived: it is the only minimiser over Q of Σ_i β_i KL(Q‖P_i), and the minimum is -log Z.

  Args:
    logp: log P_i (..., n, K); rows need not be normalised, for their constants cancel.
    beta: weights β (n,), or (..., n) that broadcast, >= 0 and of sum 1.

  Returns:
    log P (..., K), normalised; NaN where the members leave no outcome possible.

  Raises:
    ValueError: if there are fewer than two outcomes, or weights at hand are not on the simplex.
  """
  return jax.nn.log_softmax(_geometric_mean(logp, beta))


def log_partition(logp: chex.Array, beta: chex.Array) -> chex.Array:
  """The log pool's normaliser, log Z = log Σ_o Π_i P_i(o)^β_i <= 0, by Hölder's inequality.

  It is zero only where all members of positive weight agree.

  Args:
    logp: normalised log P_i (..., n, K).
    beta: weights β (n,), or (..., n) that broadcast, >= 0 and of sum 1.

  Returns:
    log Z (...); -∞ where the members leave no outcome possible.

  Raises:
    ValueError: if there are fewer than two outcomes, or weights at hand are not on the simplex.
  """
  return jax.nn.logsumexp(_geometric_mean(logp, beta), axis=-1)


def linear_pool(logp: chex.Array, beta: chex.Array) -> chex.Array:
  """The linear pool P = Σ_i β_i P_i, a mixture, in log space.

  Args:
    logp: normalised log P_i (..., n, K).
    beta: weights β (n,), or (..., n) that broadcast, >= 0 and of sum 1. The derivative in a weight
      that is zero is returned as zero, as if it had to stay there.

  Returns:
    log P (..., K).

  Raises:
    ValueError: if there are fewer than two outcomes, or weights at hand are not on the simplex.
  """
  weights = _checked_weights(logp, beta)
  possible = jnp.any((logp > -jnp.inf) & (weights > 0), axis=-2, keepdims=True)
  # An outcome impossible for all would give the logarithm of zero, whose derivative is NaN.
  mixed = jax.nn.logsumexp(jnp.where(possible, logp, 0.0), axis=-2, b=weights)
  return jnp.where(possible[..., 0, :], mixed, -jnp.inf)


def tilt(logp: chex.Array, g: chex.Array, t: chex.Numeric = 1.0) -> chex.Array:
  """The exponential tilt P_t ∝ P exp(t g).

  Derived, for tilts g_i with Σ_i β_i g_i = 0, centred under P, and L = log P: the tilts of P pool
  to P itself, with the welfare gaps

    Δ_i = -t Cov_P(g_i, L) - t² (Var_P(g_i) + ½ E_P[g_i² (L - E_P L)]) + O(t³)

  So Σ_i β_i Δ_i has no first-order term: unless all covariances vanish, some near-duplicate loses
  (compare Theorem 55). Where all vanish, all may gain.

  Args:
    logp: log P (..., K).
    g: finite (..., K).
    t: finite, a number or an array that broadcasts.

  Returns:
    log P_t (..., K), normalised.

  Raises:
    ValueError: if there are fewer than two outcomes.
  """
  _check_outcomes(logp)
  chex.assert_equal_shape_suffix([logp, g], 1)
  return jax.nn.log_softmax(logp + t * g)


def compatible_split(logp: chex.Array, g: chex.Array, alpha: float) -> chex.Array:
  """Splits a belief in two, P' ∝ P exp((1-α) g) and P'' ∝ P exp(-α g), so that P ∝ P'^α P''^(1-α).

  With the weights of `split_weights` the children pool as their parent did (Lemma 13), yet one of
  them may lose where the parent gains (Theorem 14).

  Args:
    logp: the parent's log P (..., K).
    g: finite (..., K); zero makes clones.
    alpha: the first child's share α, in (0, 1).

  Returns:
    The children's log-probabilities (..., 2, K).

  Raises:
    ValueError: if α is not in (0, 1) or there are fewer than two outcomes.
  """
  if not 0 < alpha < 1:
    raise ValueError(f"The first child's share must lie in (0, 1), got {alpha=}.")
  return jnp.stack([tilt(logp, g, 1 - alpha), tilt(logp, g, -alpha)], axis=-2)


def split_weights(beta: chex.Array, i: int, alphas: chex.Array) -> chex.Array:
  """The weights β_i α_j of member i's children, in its place among the other members' weights.

  Args:
    beta: weights β (..., n).
    i: the member that is split, 0 <= i < n.
    alphas: its children's shares α (m,), >= 0 and of sum 1.

  Returns:
    Weights (..., n - 1 + m).

  Raises:
    ValueError: if there is no member i, or weights at hand are not on the simplex.
  """
  _check_member(i, beta.shape[-1])
  check_weights(beta)
  check_weights(alphas)
  return jnp.concatenate([beta[..., :i], beta[..., i, None] * alphas, beta[..., i + 1 :]], axis=-1)


def split_members(logp: chex.Array, i: int, children: chex.Array) -> chex.Array:
  """Puts children in member i's place, in the order of `split_weights`.

  Args:
    logp: the members' log-probabilities (..., n, K).
    i: the member that is split, 0 <= i < n.
    children: the children's log-probabilities (..., m, K).

  Returns:
    Log-probabilities (..., n - 1 + m, K).

  Raises:
    ValueError: if there is no member i.
  """
  _check_member(i, logp.shape[-2])
  chex.assert_equal_shape_suffix([logp, children], 1)
  return jnp.concatenate([logp[..., :i, :], children, logp[..., i + 1 :, :]], axis=-2)


def check_weights(beta: chex.Array) -> None:
  """Raises a ValueError if weights (..., n), not traced, are negative or do not sum to one."""
  if isinstance(beta, jax.core.Tracer):
    return
  values = np.asarray(beta)
  if not ((values >= 0).all() and (abs(values.sum(axis=-1) - 1) <= _SUM_TOLERANCE).all()):
    raise ValueError(f'Weights must not be negative and must sum to one, got {values}.')


def _geometric_mean(logp: chex.Array, beta: chex.Array) -> chex.Array:
  """Σ_i β_i log P_i (..., K), with 0 · ∞ = 0."""
  weights = _checked_weights(logp, beta)
  impossible = jnp.isneginf(logp)
  # Not a matrix product, which accelerators may round to fewer bits.
  mean = jnp.sum(weights * jnp.where(impossible, 0.0, logp), axis=-2)
  return jnp.where(jnp.any(impossible & (weights > 0), axis=-2), -jnp.inf, mean)


def _checked_weights(logp: chex.Array, beta: chex.Array) -> chex.Array:
  """Checks a group, and returns its weights (..., n, 1)."""
  _check_outcomes(logp)
  chex.assert_axis_dimension(logp, -2, beta.shape[-1])
  check_weights(beta)
  return beta[..., None]


def _check_outcomes(logp: chex.Array) -> None:
  if logp.shape[-1] < 2:
    raise ValueError(f'A belief needs at least two outcomes, got shape {logp.shape}.')


def _check_member(i: int, num_members: int) -> None:
  if not 0 <= i < num_members:
    raise ValueError(f'There is no member {i} among {num_members}.')
