"""Traced. Judges that see answers as labels of a classification."""

import chex
import jax
import jax.numpy as jnp
import numpy as np


def label_margin_judge(
  log_p: chex.Array,
  candidate: chex.Array,
  reference: chex.Array,
  self_bonus: chex.Numeric = 0.0,
) -> chex.Array:
  """A classifier's vote for one label over another, σ(log p[x] - log p[r] + b).

  It cannot know who wrote a label: with b = 0 equal labels have equal votes, whoever they are from.

  Args:
    log_p: (..., n, C) the judge's finite log-probabilities; a constant per row cancels.
    candidate: integers (..., n) in [0, C), the label x that it votes for or against.
    reference: integers (..., n), the label r.
    self_bonus: b, added for candidates that are the judge's own.

  Returns:
    Votes (..., n) in [0, 1]; NaN where a label is C or more.

  Raises:
    ValueError: if labels are no integers or have not the shape of `log_p` without its last axis.
  """
  for name, label in (('candidate', candidate), ('reference', reference)):
    if np.shape(label) != np.shape(log_p)[:-1]:
      raise ValueError(f'{name} has shape {np.shape(label)}, with log_p of {np.shape(log_p)}.')
    if not jnp.issubdtype(jnp.result_type(label), jnp.integer):
      raise ValueError(f'{name} must be integers, got {jnp.result_type(label)}.')
  of_candidate, of_reference = (
    jnp.take_along_axis(log_p, jnp.asarray(label)[..., None], axis=-1, mode='fill')[..., 0]
    for label in (candidate, reference)
  )
  return jax.nn.sigmoid(of_candidate - of_reference + self_bonus)
