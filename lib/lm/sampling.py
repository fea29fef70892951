"""Traced. From logits to a token: temperature, and the usual cuts of the tail."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp


class Sampling(NamedTuple):
  """How tokens are drawn; static under `jit`. The cuts apply in this order.

  Attributes:
    temperature: divides the logits, >= 0; 0 takes the largest.
    top_k: how many of the largest stay; 0 for all.
    top_p: the smallest set of at least this probability stays, the token that crosses it included
      (nucleus sampling, Holtzman et al., 2020, arXiv:1904.09751); in (0, 1].
    min_p: tokens stay whose probability is at least this share of the largest's (Nguyen et al.,
      2024, arXiv:2407.01082); in [0, 1].
  """

  temperature: float = 1.0
  top_k: int = 0
  top_p: float = 1.0
  min_p: float = 0.0


GREEDY = Sampling(temperature=0.0)


def check(settings: Sampling) -> None:
  """Raises a ValueError that names the first setting out of its range."""
  ranges = {
    'temperature': settings.temperature >= 0,
    'top_k': settings.top_k >= 0,
    'top_p': 0 < settings.top_p <= 1,
    'min_p': 0 <= settings.min_p <= 1,
  }
  for name, holds in ranges.items():
    if not holds:
      raise ValueError(f'{name} is out of its range: {getattr(settings, name)}')


def keep_top_k(logits: chex.Array, k: int) -> chex.Array:
  """Sets all but the k largest logits (..., V) to -inf; ties with the k-th stay."""
  if not 0 < k < logits.shape[-1]:
    return logits
  least = jax.lax.top_k(logits, k)[0][..., -1:]
  return jnp.where(logits >= least, logits, -jnp.inf)


def keep_top_p(logits: chex.Array, p: float) -> chex.Array:
  """Sets logits (..., V) outside of the smallest set of probability >= p to -inf.

  The token that crosses p stays, and so does the first, however small p.
  """
  if p >= 1:
    return logits
  falling = jnp.sort(logits, axis=-1, descending=True)
  before = jnp.cumsum(jax.nn.softmax(falling, axis=-1), axis=-1) - jax.nn.softmax(falling, axis=-1)
  count = jnp.maximum(jnp.sum(before < p, axis=-1, keepdims=True), 1)
  least = jnp.take_along_axis(falling, count - 1, axis=-1)
  return jnp.where(logits >= least, logits, -jnp.inf)


def keep_min_p(logits: chex.Array, p: float) -> chex.Array:
  """Sets logits (..., V) of tokens below p times the largest probability to -inf."""
  if p <= 0:
    return logits
  largest = jnp.max(logits, axis=-1, keepdims=True)
  return jnp.where(logits >= largest + jnp.log(p), logits, -jnp.inf)


def log_probs(logits: chex.Array, tokens: chex.Array) -> chex.Array:
  """The log-probabilities (...) of tokens (...) under logits (..., V), as they are."""
  picked = jnp.take_along_axis(logits, tokens[..., None], axis=-1)[..., 0]
  return picked - jax.nn.logsumexp(logits, axis=-1)


def sample(key: chex.PRNGKey, logits: chex.Array, settings: Sampling) -> chex.Array:
  """Draws a token from logits (V,): int32 ()."""
  if settings.temperature == 0:
    return jnp.argmax(logits).astype(jnp.int32)
  kept = logits / settings.temperature
  kept = keep_top_k(kept, settings.top_k)
  kept = keep_top_p(kept, settings.top_p)
  kept = keep_min_p(kept, settings.min_p)
  return jax.random.categorical(key, kept).astype(jnp.int32)
