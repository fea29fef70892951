"""Traced. Rotary position embeddings (Su et al., 2021, arXiv:2104.09864)."""

import math
from typing import NamedTuple

import chex
import jax.numpy as jnp
import numpy as np


class Llama3Scaling(NamedTuple):
  """How Llama 3.1 stretches the slow rotations (Grattafiori et al., 2024, arXiv:2407.21783).

  Attributes:
    factor: by which wavelengths longer than `context / low` grow.
    low: those shorter than `context / high` stay, and between the two the factor is interpolated.
    high: > low.
    context: tokens of the original context.
  """

  factor: float
  low: float
  high: float
  context: int


Scaling = None | float | tuple[float, ...] | Llama3Scaling


def frequencies(head_dim: int, base: float, scaling: Scaling = None) -> np.ndarray:
  """Angles a position, ω_i = base^(-2i/h) for each of the h/2 planes, after scaling.

  Args:
    head_dim: h, even.
    base: > 1.
    scaling: None; a number that divides all frequencies (position interpolation, Chen et al., 2023,
      arXiv:2306.15595); one for each plane, a tuple (h/2,); or Llama 3's.

  Returns:
    float64 (h/2,).

  Raises:
    ValueError: if a number is out of its range.
  """
  if head_dim <= 0 or head_dim % 2 or base <= 1:
    raise ValueError(f'Rotations need an even head_dim > 0 and base > 1, got {head_dim=}, {base=}.')
  omega = base ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
  if scaling is None:
    return omega
  if not isinstance(scaling, Llama3Scaling):
    divisor = np.asarray(scaling, np.float64)
    if divisor.shape not in ((), omega.shape) or not (divisor > 0).all():
      raise ValueError(f'Scaling needs one or {omega.size} positive numbers, got {scaling}.')
    return omega / divisor
  if not (scaling.factor > 0 and 0 < scaling.low < scaling.high and scaling.context > 0):
    raise ValueError(f'Scaling needs factor > 0, 0 < low < high and context > 0, got {scaling}.')
  turns = scaling.context * omega / (2 * math.pi)  # of each plane over the original context
  share = np.clip((turns - scaling.low) / (scaling.high - scaling.low), 0.0, 1.0)
  return omega * (share + (1.0 - share) / scaling.factor)


def rotate(
  x: chex.Array, positions: chex.Array, omega: chex.Array | np.ndarray, interleaved: bool = False
) -> chex.Array:
  """Turns the planes of each head by position times frequency, in float32.

  Args:
    x: queries or keys (B, n, T, h).
    positions: (B, T), integers.
    omega: frequencies (h/2,).
    interleaved: planes are pairs of neighbours (2i, 2i + 1), as published; otherwise (i, i + h/2),
      as in Hugging Face's checkpoints.

  Returns:
    Of x's shape and type.
  """
  chex.assert_shape(x, (positions.shape[0], None, positions.shape[1], 2 * len(omega)))
  angles = positions[:, None, :, None].astype(jnp.float32) * jnp.asarray(omega, jnp.float32)
  cos, sin = jnp.cos(angles), jnp.sin(angles)
  parts = jnp.split(x.astype(jnp.float32), 2, axis=-1)
  first, second = (x[..., 0::2], x[..., 1::2]) if interleaved else parts
  turned = (first * cos - second * sin, second * cos + first * sin)
  if interleaved:
    return jnp.stack(turned, axis=-1).reshape(x.shape).astype(x.dtype)
  return jnp.concatenate(turned, axis=-1).astype(x.dtype)
