"""Traced. The optimiser that networks of several subjects are trained by."""

import optax


def adamw_cosine(
  steps: int, learning_rate: float, warmup_fraction: float, clip: float, weight_decay: float
) -> optax.GradientTransformation:
  """AdamW on clipped gradients, with a linear warm-up and a cosine to zero.

  Loshchilov & Hutter (2019), arXiv:1711.05101.

  Args:
    steps: updates in all, > 0.
    learning_rate: the largest, > 0.
    warmup_fraction: of the steps, in [0, 1); without any it starts at the largest rate.
    clip: global norm that gradients are scaled down to, > 0.
    weight_decay: >= 0, times the rate.

  Returns:
    The transformation.

  Raises:
    ValueError: if there are no steps, or the fraction is out of its range.
  """
  if steps < 1 or not 0 <= warmup_fraction < 1:
    raise ValueError(f'Needs steps > 0 and a fraction in [0, 1), got {steps=}, {warmup_fraction=}.')
  warmup = min(round(warmup_fraction * steps), steps - 1)
  rate = optax.warmup_cosine_decay_schedule(
    learning_rate if warmup == 0 else 0.0, learning_rate, warmup, steps
  )
  return optax.chain(optax.clip_by_global_norm(clip), optax.adamw(rate, weight_decay=weight_decay))
