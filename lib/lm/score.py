"""Traced. What a model thinks of given text, without logits for all of it at once."""

import chex
import jax
import jax.numpy as jnp

from lib.lm import sampling, transformer


def token_log_probs(
  arch: transformer.Architecture,
  params: transformer.Params,
  hidden: chex.Array,
  targets: chex.Array,
  block: int = 128,
) -> chex.Array:
  """The log-probability of each target, a block of rows at a time.

  Args:
    arch: of the model.
    params: of the model.
    hidden: the residual stream after the last layer (..., d).
    targets: tokens (...), integers.
    block: rows whose logits are held at once, > 0.

  Returns:
    float32 (...).

  Raises:
    ValueError: if the block is not positive.
  """
  if block <= 0:
    raise ValueError(f'A block needs rows, got {block=}.')
  chex.assert_equal_shape_prefix([hidden, targets], targets.ndim)
  rows, wanted = hidden.reshape(-1, hidden.shape[-1]), targets.reshape(-1)

  def one(pair: tuple[chex.Array, chex.Array]) -> chex.Array:
    return sampling.log_probs(transformer.logits(arch, params, pair[0]), pair[1])

  return jax.lax.map(one, (rows, wanted), batch_size=block).reshape(targets.shape)


def sequence_log_probs(
  arch: transformer.Architecture,
  params: transformer.Params,
  tokens: chex.Array,
  positions: chex.Array,
  counted: chex.Array,
  block: int = 128,
) -> tuple[chex.Array, chex.Array]:
  """The log-probability of part of each sequence given what comes before it.

  Args:
    arch: of the model.
    params: of the model.
    tokens: (B, T), T > 1.
    positions: (B, T); -1 for padding.
    counted: which tokens count, bool (B, T); the first has no condition and never does.
    block: as `token_log_probs`.

  Returns:
    Sums (B,), and the single terms (B, T), 0 where a token does not count. Minus the mean of the
    terms that count is the logarithm of the perplexity.
  """
  out = transformer.forward(arch, params, tokens, positions=positions)
  terms = token_log_probs(arch, params, out.hidden[:, :-1], tokens[:, 1:], block)
  terms = jnp.pad(terms, ((0, 0), (1, 0)))
  first = jnp.arange(tokens.shape[1]) == 0
  terms = jnp.where(counted & ~first & (positions > 0), terms, 0.0)
  return jnp.sum(terms, axis=-1), terms


def next_token_log_probs(
  arch: transformer.Architecture,
  params: transformer.Params,
  tokens: chex.Array,
  positions: chex.Array,
) -> chex.Array:
  """The distribution of the token after each left-padded prompt.

  Args:
    arch: of the model.
    params: of the model.
    tokens: (B, T), the last column a token of every row.
    positions: (B, T); -1 for padding.

  Returns:
    float32 (B, V).
  """
  out = transformer.forward(arch, params, tokens, positions=positions)
  return jax.nn.log_softmax(transformer.logits(arch, params, out.hidden[:, -1]), axis=-1)


def label_log_probs(log_probs: chex.Array, spellings: chex.Array) -> chex.Array:
  """The probability of labels, each the sum over its spellings' first tokens.

  Args:
    log_probs: of the next token (..., V).
    spellings: tokens (C, m) of each label; -1 fills rows up.

  Returns:
    Log-probabilities (..., C), not normalised over the labels.
  """
  picked = jnp.take(log_probs, jnp.maximum(spellings, 0), axis=-1)
  return jax.nn.logsumexp(jnp.where(spellings >= 0, picked, -jnp.inf), axis=-1)
