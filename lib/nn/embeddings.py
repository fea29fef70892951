"""Traced. Sines and cosines of a number, such as a time, as inputs of a network."""

import math

import chex
import jax.numpy as jnp


def sinusoidal(t: chex.Array, dim: int, max_period: float = 10_000.0) -> chex.Array:
  """Embeds t as sin(ω_k t) and cos(ω_k t) at frequencies from 1 down to 1/max_period.

    ω_k = max_period^(-k / (K - 1)),  k = 0, ..., K - 1,  K = dim/2

  as DDPM does, Ho et al. (2020), arXiv:2006.11239, after the positions of Vaswani et al. (2017),
  arXiv:1706.03762. A time in [0, 1] varies too little for it: multiply it by 1000, say.

  Args:
    t: numbers, of any shape (...).
    dim: even, >= 4.
    max_period: the longest period over 2π, > 1.

  Returns:
    Embeddings (..., dim): the sines, then the cosines.

  Raises:
    ValueError: if `dim` is odd or below 4, or max_period is not above 1.
  """
  if dim < 4 or dim % 2:
    raise ValueError(f'The width of the embedding must be even and 4 at least, got {dim=}.')
  if not 1 < max_period < math.inf:
    raise ValueError(f'The longest period must be above 1, got {max_period=}.')
  exponents = jnp.arange(dim // 2, dtype=jnp.float32) / (dim // 2 - 1)
  angles = t[..., None] * jnp.exp(-math.log(max_period) * exponents)
  return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)


def fourier(t: chex.Array, num_frequencies: int) -> chex.Array:
  """Embeds t as sin(2^k π t) and cos(2^k π t) for k = 0, ..., num_frequencies - 1.

  On [0, 1] the slowest pair makes half a turn, so that no two times share an embedding. Mildenhall
  et al. (2020), arXiv:2003.08934.

  Args:
    t: numbers, of any shape (...).
    num_frequencies: >= 0.

  Returns:
    Embeddings (..., 2 num_frequencies): the sines, then the cosines.

  Raises:
    ValueError: if num_frequencies is negative.
  """
  if num_frequencies < 0:
    raise ValueError(f'The number of frequencies must not be negative, got {num_frequencies}.')
  angles = t[..., None] * (math.pi * 2.0 ** jnp.arange(num_frequencies, dtype=jnp.float32))
  return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)
