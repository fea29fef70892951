"""Traced. Generation in one compiled loop: prompts of many lengths, several samples each.

  state = prefill(arch, params, prompts, positions, room)
  state = begin(state, keys, num_samples, max_tokens)
  state = decode(arch, params, state, settings, stop, num_tokens)    # as often as one likes

Each step folds a row's own key with the number of the token: what a prompt gets depends neither on
the other rows nor on how the tokens are divided among calls of `decode`.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from lib.lm import sampling, transformer

PADDING = 0  # the token in places that nobody reads


class Prefilled(NamedTuple):
  """Prompts that the model has read.

  Attributes:
    cache: of the prompts, with room for what is generated.
    logits: of the token after each prompt (B, V), float32.
    lengths: tokens of each prompt (B,), int32.
  """

  cache: transformer.Cache
  logits: chex.Array
  lengths: chex.Array


class State(NamedTuple):
  """Rows that are being generated, R = prompts × samples of them, a prompt's samples side by side.

  Attributes:
    cache: prompts and what was generated.
    logits: of each row's next token (R, V), float32.
    lengths: tokens of each row's prompt (R,).
    keys: typed keys (R,).
    tokens: generated (R, N), int32, the stop token included.
    log_probs: of the tokens, under the model at temperature 1 (R, N), float32.
    counts: tokens generated in each row (R,), int32.
    done: whether a stop token came (R,), bool.
    step: tokens generated in the rows that are not done, int32 ().
  """

  cache: transformer.Cache
  logits: chex.Array
  lengths: chex.Array
  keys: chex.PRNGKey
  tokens: chex.Array
  log_probs: chex.Array
  counts: chex.Array
  done: chex.Array
  step: chex.Array


def pad_left(prompts: list[list[int]], length: int) -> tuple[np.ndarray, np.ndarray]:
  """Host. Brings prompts to one length, with padding before them.

  Args:
    prompts: token lists, none of them empty.
    length: T, at least that of the longest.

  Returns:
    Tokens and positions (B, T), int32; the positions of padding are -1.

  Raises:
    ValueError: if a prompt is empty or longer than T.
  """
  tokens = np.full((len(prompts), length), PADDING, np.int32)
  positions = np.full((len(prompts), length), -1, np.int32)
  for i, prompt in enumerate(prompts):
    if not 0 < len(prompt) <= length:
      raise ValueError(f'prompt {i} has {len(prompt)} tokens; it must have 1 to {length}')
    tokens[i, length - len(prompt) :] = prompt
    positions[i, length - len(prompt) :] = np.arange(len(prompt))
  return tokens, positions


def bucket(length: int, smallest: int = 16) -> int:
  """Host. Rounds a length up to 2^k or 3 · 2^(k-1), so that few programs are compiled."""
  size = max(length, smallest)
  power = 1 << (size - 1).bit_length()
  return power * 3 // 4 if size <= power * 3 // 4 else power


def prefill(
  arch: transformer.Architecture,
  params: transformer.Params,
  tokens: chex.Array,
  positions: chex.Array,
  room: int,
) -> Prefilled:
  """Reads prompts.

  Args:
    arch: of the model; static.
    params: of the model.
    tokens: (B, T), as `pad_left`.
    positions: (B, T).
    room: tokens that will be generated; static.

  Returns:
    What `begin` goes on from.
  """
  out = transformer.forward(arch, params, tokens, positions=positions, room=room)
  assert out.cache is not None
  logits = transformer.logits(arch, params, out.hidden[:, -1])
  return Prefilled(out.cache, logits, positions[:, -1] + 1)


def begin(prefilled: Prefilled, keys: chex.PRNGKey, num_samples: int, max_tokens: int) -> State:
  """Makes rows for each prompt's samples, which share the reading of the prompt.

  Args:
    prefilled: of B prompts.
    keys: one typed key for each prompt (B,); sample i folds it with i.
    num_samples: of each prompt; static.
    max_tokens: N, no more than the room that was left; static.

  Returns:
    R = B num_samples rows without a token yet.
  """
  repeat = lambda x: jnp.repeat(x, num_samples, axis=0)
  layers = prefilled.cache.layers
  axis = 0 if isinstance(layers, tuple) else 1
  layers = jax.tree.map(lambda x: jnp.repeat(x, num_samples, axis=axis), layers)
  cache = prefilled.cache._replace(layers=layers, positions=repeat(prefilled.cache.positions))
  samples = jnp.arange(num_samples)
  keys = jax.vmap(lambda key: jax.vmap(lambda i: jax.random.fold_in(key, i))(samples))(keys)
  rows = prefilled.lengths.shape[0] * num_samples
  return State(
    cache=cache,
    logits=repeat(prefilled.logits),
    lengths=repeat(prefilled.lengths),
    keys=keys.reshape(rows),
    tokens=jnp.full((rows, max_tokens), PADDING, jnp.int32),
    log_probs=jnp.zeros((rows, max_tokens), jnp.float32),
    counts=jnp.zeros(rows, jnp.int32),
    done=jnp.zeros(rows, bool),
    step=jnp.zeros((), jnp.int32),
  )


def decode(
  arch: transformer.Architecture,
  params: transformer.Params,
  state: State,
  settings: sampling.Sampling,
  stop: chex.Array,
  num_tokens: chex.Numeric,
) -> State:
  """Generates until every row is done or has so many tokens more.

  Args:
    arch: of the model; static.
    params: of the model.
    state: of `begin` or of an earlier call.
    settings: how tokens are drawn; static.
    stop: tokens that end a row (n,), integers; n may be 0.
    num_tokens: how many tokens to add at most; N bounds it.

  Returns:
    The state.
  """
  last = jnp.minimum(state.step + num_tokens, state.tokens.shape[1])

  def unfinished(state: State) -> chex.Array:
    return (state.step < last) & ~jnp.all(state.done)

  def body(state: State) -> State:
    keys = jax.vmap(lambda key: jax.random.fold_in(key, state.step))(state.keys)
    chosen = jax.vmap(lambda key, row: sampling.sample(key, row, settings))(keys, state.logits)
    token = jnp.where(state.done, PADDING, chosen)
    positions = jnp.where(state.done, -1, state.lengths + state.step)[:, None]
    out = transformer.forward(arch, params, token[:, None], positions=positions, cache=state.cache)
    assert out.cache is not None
    at = (0, state.step)
    write = jax.lax.dynamic_update_slice
    seen = jnp.where(state.done, 0.0, sampling.log_probs(state.logits, chosen))
    return State(
      cache=out.cache,
      logits=transformer.logits(arch, params, out.hidden[:, 0]),
      lengths=state.lengths,
      keys=state.keys,
      tokens=write(state.tokens, token[:, None], at),
      log_probs=write(state.log_probs, seen[:, None], at),
      counts=state.counts + ~state.done,
      done=state.done | jnp.isin(token, stop),
      step=state.step + 1,
    )

  return jax.lax.while_loop(unfinished, body, state)
