"""Traced. Laws of questions, as answers' probabilities p (Q, K), and answers drawn from them.

Every law here gives sorted rows, the mode first; `relabel` puts it elsewhere, so that nothing
can find it by its index.
"""

import chex
import jax
import jax.numpy as jnp
import numpy as np

# How far from one probabilities may sum: float32 arithmetic makes such sums.
_SUM_TOLERANCE = 1e-5


def dirichlet_questions(
  key: chex.PRNGKey, num_questions: int, num_answers: int, concentration: float
) -> chex.Array:
  """Draws questions p ~ Dirichlet(c, ..., c), sorted.

  Args:
    key: typed PRNG key.
    num_questions: Q, > 0.
    num_answers: K, > 0.
    concentration: c > 0; small ones make sure questions, 1 is uniform on the simplex.

  Returns:
    Probabilities (Q, K), in descending order.

  Raises:
    ValueError: if a number is not positive, or c not finite.
  """
  _check_sizes(num_questions, num_answers, 1)
  if not 0 < concentration < float('inf'):
    raise ValueError(f'A concentration must be positive and finite, got {concentration=}.')
  p = jax.random.dirichlet(key, jnp.full(num_answers, concentration), (num_questions,))
  return _descending(p)


def gap_questions(key: chex.PRNGKey, num_questions: int, num_answers: int) -> chex.Array:
  """Draws questions with a gap p₁ - p₂ ~ U(0, 1), sorted.

  With u_3, ..., u_K ~ U(0, 1) and a gap g, the second answer has p₂ = (1 - g)/(2 + Σ_j u_j), the
  first p₂ + g and the others p₂ u_j: below p₂, and all sum to one. Near ties m ≈ g²/(4p₁), so the
  density of margins is ~ m^{-1/2} at zero and the vote's error ~ n^{-1/2}.

  Args:
    key: typed PRNG key.
    num_questions: Q, > 0.
    num_answers: K, > 1.

  Returns:
    Probabilities (Q, K), in descending order.

  Raises:
    ValueError: if there are no questions or fewer than two answers.
  """
  _check_sizes(num_questions, num_answers, 2)
  gap_key, rest_key = jax.random.split(key)
  gap = jax.random.uniform(gap_key, (num_questions, 1))
  rest = _descending(jax.random.uniform(rest_key, (num_questions, num_answers - 2)))
  second = (1 - gap) / (2 + rest.sum(-1, keepdims=True))
  return jnp.concatenate([second + gap, second, second * rest], axis=-1)


def margin_law_questions(
  key: chex.PRNGKey, num_questions: int, num_answers: int, gamma: float, rest: float = 0.0
) -> chex.Array:
  """Draws questions whose margins m = (√p₁ - √p₂)² have the density γ m^{γ-1} on (0, 1), sorted.

  With m = U^{1/γ} and the mass r of the others, spread evenly, √p₂ = (√(2(1 - r) - m) - √m)/2 and
  √p₁ = √p₂ + √m. Where that would put the others above the second, all of them are alike, with
  less mass than r: √p₂ = (√(m + K(1 - m)) - √m)/K. Either way the margin is m. The vote's error
  falls as n^{-γ}.

  Args:
    key: typed PRNG key.
    num_questions: Q, > 0.
    num_answers: K, > 1.
    gamma: γ > 0; ½ is the law of near ties.
    rest: mass r of the answers after the second, in [0, 1), 0 where there are none.

  Returns:
    Probabilities (Q, K), in descending order.

  Raises:
    ValueError: if a number is out of its range.
  """
  _check_sizes(num_questions, num_answers, 2)
  if not 0 < gamma < float('inf'):
    raise ValueError(f'The exponent must be positive and finite, got {gamma=}.')
  if not 0 <= rest < 1 or (rest > 0 and num_answers == 2):
    raise ValueError(f'No such mass beside two leading answers, got {rest=}, {num_answers=}.')
  tiny = jnp.finfo(float).tiny
  m = jax.random.uniform(key, (num_questions, 1), minval=tiny) ** (1 / gamma)
  root, sure = jnp.sqrt(m), 1 - m
  # The two roots of the docstring, with their differences multiplied out.
  wanted = (sure - rest) / (root + jnp.sqrt(jnp.maximum(2 * (1 - rest) - m, 0.0)))
  even = sure / (root + jnp.sqrt(m + num_answers * sure))
  second = jnp.maximum(wanted, even)
  others = jnp.where(wanted > even, rest / max(num_answers - 2, 1), even**2)
  others = jnp.broadcast_to(others, (num_questions, num_answers - 2))
  return jnp.concatenate([(second + root) ** 2, second**2, others], axis=-1)


def draw_answers(key: chex.PRNGKey, p: chex.Array, num_draws: int) -> chex.Array:
  """Draws answers by the inverse of the cumulative distribution, without a (..., T, K) array.

  Args:
    key: typed PRNG key.
    p: probabilities (..., K).
    num_draws: T, > 0.

  Returns:
    Answers i32 (..., T) in 0 .. K-1, never one of probability zero.

  Raises:
    ValueError: if `num_draws` is not positive, or probabilities at hand are none.
  """
  if num_draws <= 0:
    raise ValueError(f'At least one answer must be drawn, got {num_draws=}.')
  check_probabilities(p)
  # Rounding must give no width to an answer of probability zero, nor a negative one to any.
  ends = jax.lax.cummax(jnp.where(p > 0, jnp.cumsum(p, axis=-1), 0), axis=p.ndim - 1)
  u = jax.random.uniform(key, (*p.shape[:-1], num_draws), ends.dtype) * ends[..., -1:]
  find = jnp.vectorize(
    lambda ends, u: jnp.searchsorted(ends, u, side='right'), signature='(k),(t)->(t)'
  )
  return find(ends, u).astype(jnp.int32)


def relabel(key: chex.PRNGKey, p: chex.Array) -> chex.Array:
  """Gives the answers of every question new places, at random and independently.

  Args:
    key: typed PRNG key.
    p: probabilities (..., K).

  Returns:
    The same probabilities (..., K), permuted.
  """
  return jax.random.permutation(key, p, axis=-1, independent=True)


def check_probabilities(p: chex.Array) -> None:
  """Raises a ValueError if p (..., K), not traced, has negative entries or does not sum to one."""
  if jnp.ndim(p) < 1 or jnp.shape(p)[-1] < 1:
    raise ValueError(f'Questions need at least one answer, got shape {jnp.shape(p)}.')
  if isinstance(p, jax.core.Tracer):
    return
  rows = np.asarray(p, np.float64).reshape(-1, jnp.shape(p)[-1])
  wrong = ~((rows >= 0).all(-1) & (np.abs(rows.sum(-1) - 1) <= _SUM_TOLERANCE))
  if wrong.any():
    row = int(np.flatnonzero(wrong)[0])
    raise ValueError(
      f'Probabilities must not be negative and must sum to one, not so in question {row}: '
      f'sum {rows[row].sum():.6g}, least {rows[row].min():.6g}.'
    )


def _descending(x: chex.Array) -> chex.Array:
  return jnp.flip(jnp.sort(x, axis=-1), axis=-1)


def _check_sizes(num_questions: int, num_answers: int, fewest_answers: int) -> None:
  if num_questions < 1 or num_answers < fewest_answers:
    raise ValueError(
      f'At least one question and {fewest_answers} answers are needed, '
      f'got {num_questions=}, {num_answers=}.'
    )
