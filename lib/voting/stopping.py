"""Traced. When a question has been asked often enough: booleans along paths of votes.

For `allocation.run_stopping`, which stops at the first True. A rule need not say True ever after.
"""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from lib.voting import confidence
from lib.voting.paths import Votes


def beta(votes: Votes, threshold: float = 0.95) -> chex.Array:
  """Adaptive consistency: Pr[θ > 1/2 | votes] >= threshold (Aggarwal et al., 2023).

  Looked at after every sample, the probability overstates: a threshold of 0.95 is no error of 0.05.
  """
  _check_probability('threshold', threshold)
  return confidence.beta_log_uncertainty(votes.first, votes.second) <= np.log1p(-threshold)


def ppr(votes: Votes, delta: float, num_answers: int | None = None) -> chex.Array:
  """PPR-1v1: R <= δ / (K - 1), wrong with probability δ at most (Jain et al., AISTATS 2022).

  Args:
    votes: summary of the votes.
    delta: δ, in (0, 1).
    num_answers: K; by default the number of answers seen, at least 2, and no guarantee.
  """
  _check_probability('delta', delta)
  if num_answers is not None and num_answers < 2:
    raise ValueError(f'A vote needs two answers, got {num_answers=}.')
  others = jnp.maximum(votes.seen, 2) - 1.0 if num_answers is None else num_answers - 1.0
  return confidence.ppr_log_ratio(votes.first, votes.second) <= np.log(delta) - jnp.log(others)


def window(answers: chex.Array, size: int) -> chex.Array:
  """Early-stopping self-consistency: a whole window of answers agrees (Li et al., ICLR 2024).

  Args:
    answers: (..., T) codes; -1 agrees with nothing.
    size: answers in a window, in [1, T]; windows do not overlap.

  Returns:
    (..., T + 1) booleans.
  """
  n = jnp.arange(answers.shape[-1] + 1)
  return running_window(answers, size) & (n % size == 0)


def running_window(answers: chex.Array, size: int) -> chex.Array:
  """As `window`, of the last `size` answers after every sample."""
  length = answers.shape[-1]
  if not 1 <= size <= length:
    raise ValueError(f'A window has 1 to {length} answers, got {size=}.')
  same = (answers[..., 1:] == answers[..., :-1]) & (answers[..., 1:] >= 0)
  start = jnp.arange(length)
  breaks = jnp.where(jnp.pad(same, [(0, 0)] * (answers.ndim - 1) + [(1, 0)]), 0, start)
  since = jax.lax.cummax(breaks, axis=answers.ndim - 1)  # where the run of equal answers began
  agree = (start - since + 1 >= size) & (answers >= 0)
  return jnp.pad(agree, [(0, 0)] * (answers.ndim - 1) + [(1, 0)])


def _check_probability(name: str, value: float) -> None:
  if not 0 < value < 1:
    raise ValueError(f'{name} must lie in (0, 1), got {value}.')
