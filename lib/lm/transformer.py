"""Traced. A decoder-only transformer as a function of parameters, tokens and a cache.

The family of Llama (Touvron et al., 2023, arXiv:2302.13971): RMSNorm, rotary positions, attention
with grouped keys, SwiGLU. Mistral, SmolLM2 and Qwen differ by the fields of `Architecture`.

Parameters are a dict; matrices have outputs first, as checkpoints do:

  embed (V, d); norm (d,); head (V, d), absent where it is the embedding; and layers, each a dict of
  attention_norm (d,), q (H h, d), k (K h, d), v (K h, d), o (d, H h), mlp_norm (d,), gate (f, d),
  up (f, d), down (d, f), and where the architecture has them q_bias (H h,), k_bias (K h,), v_bias
  (K h,), q_norm (h,), k_norm (h,).

`params['layers']` is one such dict with a leading axis of layers, which is scanned (one layer is
compiled, and may be rematerialised), or a tuple of them, which is unrolled: no layer's weights are
then copied out of the stack, by which decoding on a CPU is faster. `stack` and `unstack` convert.

Inside, activations have features first, (d, B, T): W x is what a CPU multiplies fastest where rows
are few, and keys lie as (h, S) for the same reason. Accelerators choose their own layouts.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from lib.lm import quantize, rope

Params = Any
_BLOCK = 128  # queries whose attention is computed at once, where there are more
_EMPTY = -1  # the position of a place in the cache that holds nothing


class Architecture(NamedTuple):
  """What a checkpoint's arrays do not tell.

  Attributes:
    vocabulary: V.
    width: d, of the residual stream.
    num_layers: L.
    num_heads: H, of queries.
    num_kv_heads: K, of keys and values; it divides H.
    head_dim: h.
    mlp_width: f.
    context: tokens that it was trained for.
    rope_base: of the rotations' frequencies.
    rope_scaling: as `rope.frequencies` takes it.
    rope_interleaved: which layout the rotations have.
    norm_eps: ε of RMSNorm.
    tied: whether the head is the embedding's transpose.
    qkv_bias: whether queries, keys and values have biases.
    qk_norm: whether each head of queries and keys is normalised.
    window: tokens that a token sees, itself included; None for all.
  """

  vocabulary: int
  width: int
  num_layers: int
  num_heads: int
  num_kv_heads: int
  head_dim: int
  mlp_width: int
  context: int
  rope_base: float = 10_000.0
  rope_scaling: rope.Scaling = None
  rope_interleaved: bool = False
  norm_eps: float = 1e-5
  tied: bool = True
  qkv_bias: bool = False
  qk_norm: bool = False
  window: int | None = None


class Cache(NamedTuple):
  """Keys and values of tokens that were seen, in places 0, 1, ... that all rows fill alike.

  Attributes:
    layers: dicts of k (B, K, h, S) and v (B, K, S, h), stacked or in a tuple as the parameters are.
    positions: (B, S), int32; -1 where a place holds nothing, or padding.
    filled: places in use, int32 (). To forget the last tokens, make it smaller.
  """

  layers: Any
  positions: chex.Array
  filled: chex.Array


class Output(NamedTuple):
  """What a forward pass leaves.

  Attributes:
    hidden: the residual stream after the last layer (B, T, d), which `logits` takes.
    cache: with the new tokens, or None if there was none.
    streams: the residual stream before the layers asked for (n, B, T, d).
    attention: attention rows of the layers asked for (n, B, H, T, S); S = T without a cache.
  """

  hidden: chex.Array
  cache: Cache | None
  streams: chex.Array
  attention: chex.Array


def init(key: chex.PRNGKey, arch: Architecture, dtype=jnp.float32) -> Params:
  """Draws parameters with stacked layers: normal, of variance 1/inputs; gains one, biases zero."""
  d, f, h, layers = arch.width, arch.mlp_width, arch.head_dim, arch.num_layers
  q, kv = arch.num_heads * h, arch.num_kv_heads * h
  shapes = {'q': (q, d), 'k': (kv, d), 'v': (kv, d), 'o': (d, q)}
  shapes |= {'gate': (f, d), 'up': (f, d), 'down': (d, f)}
  keys = iter(jax.random.split(key, len(shapes) + 2))

  def normal(shape, inputs):
    return (jax.random.normal(next(keys), shape) / inputs**0.5).astype(dtype)

  stacked = {name: normal((layers, *shape), shape[1]) for name, shape in shapes.items()}
  ones = {'attention_norm': d, 'mlp_norm': d}
  zeros = {'q_bias': q, 'k_bias': kv, 'v_bias': kv} if arch.qkv_bias else {}
  ones |= {'q_norm': h, 'k_norm': h} if arch.qk_norm else {}
  stacked |= {name: jnp.ones((layers, size), dtype) for name, size in ones.items()}
  stacked |= {name: jnp.zeros((layers, size), dtype) for name, size in zeros.items()}
  params = {'embed': normal((arch.vocabulary, d), d), 'layers': stacked}
  params['norm'] = jnp.ones((d,), dtype)
  if not arch.tied:
    params['head'] = normal((arch.vocabulary, d), d)
  return params


def unstack(params: Params) -> Params:
  """Returns the parameters with a tuple of layers."""
  layers = params['layers']
  if isinstance(layers, tuple):
    return params
  pick = lambda i: jax.tree.map(lambda x: x[i], layers)
  return {**params, 'layers': tuple(map(pick, range(_count(layers))))}


def stack(params: Params) -> Params:
  """Returns the parameters with stacked layers."""
  layers = params['layers']
  if not isinstance(layers, tuple):
    return params
  return {**params, 'layers': jax.tree.map(lambda *parts: jnp.stack(parts), *layers)}


def select_layers(params: Params, indices: Sequence[int]) -> Params:
  """Returns the parameters with some of the layers, in the order given: a model of its own."""
  layers = params['layers']
  if isinstance(layers, tuple):
    return {**params, 'layers': tuple(layers[i] for i in indices)}
  index = jnp.asarray(indices, jnp.int32)
  return {**params, 'layers': jax.tree.map(lambda x: x[index], layers)}


def init_cache(arch: Architecture, params: Params, batch_size: int, size: int) -> Cache:
  """Makes an empty cache for the layers of `params`.

  Args:
    arch: of the model.
    params: for the number of layers, their layout and their type.
    batch_size: B.
    size: S, the places, > 0.

  Raises:
    ValueError: if a size is not positive.
  """
  if batch_size <= 0 or size <= 0:
    raise ValueError(f'A cache needs rows and places, got {batch_size=}, {size=}.')
  layers = params['layers']
  rows, dtype = (batch_size, arch.num_kv_heads), params['norm'].dtype
  shapes = {'k': (*rows, arch.head_dim, size), 'v': (*rows, size, arch.head_dim)}
  zeros = lambda *lead: {n: jnp.zeros((*lead, *shape), dtype) for n, shape in shapes.items()}
  count = _count(layers)
  places: Any = tuple(zeros() for _ in layers) if isinstance(layers, tuple) else zeros(count)
  positions = jnp.full((batch_size, size), _EMPTY, jnp.int32)
  return Cache(places, positions, jnp.zeros((), jnp.int32))


def embed(params: Params, tokens: chex.Array) -> chex.Array:
  """Looks tokens (B, T) up: (B, T, d)."""
  return quantize.rows(params['embed'], tokens).astype(params['norm'].dtype)


def logits(arch: Architecture, params: Params, hidden: chex.Array) -> chex.Array:
  """Maps the residual stream after the last layer (..., d) to logits (..., V), float32."""
  x = rms_norm(hidden.reshape(-1, arch.width).T, params['norm'], arch.norm_eps)
  rows = quantize.matmul(params['embed' if arch.tied else 'head'], x).T
  return rows.astype(jnp.float32).reshape(*hidden.shape[:-1], arch.vocabulary)


def forward(
  arch: Architecture,
  params: Params,
  inputs: chex.Array,
  *,
  positions: chex.Array | None = None,
  mask: chex.Array | None = None,
  cache: Cache | None = None,
  room: int | None = None,
  streams: Sequence[int] = (),
  attention: Sequence[int] = (),
  gates: chex.Array | None = None,
  remat: bool = False,
) -> Output:
  """Runs the layers.

  Args:
    arch: of the model; static under `jit`.
    params: see the module's docstring.
    inputs: tokens (B, T), integers; or embeddings (B, T, d), to differentiate by, or to mix.
    positions: (B, T), integers, of each token in its sequence, not falling along a row; -1 for
      padding, which nobody sees. By default each row goes on after the last place of the cache.
    mask: which places a token sees, bool (B, T, S), instead of all that are no padding and come no
      later than itself.
    cache: what came before. The new tokens take its next places; that there is room is the
      caller's to check.
    room: without a cache, make one that holds these tokens and has so many places more.
    streams: layers before which to keep the residual stream; L stands for the end.
    attention: layers whose attention rows to keep.
    gates: a factor for each layer's contribution (L,): x + g (layer(x) - x); 0 skips the layer.
    remat: recompute activations in the backward pass instead of keeping them.

  Returns:
    The output; `logits` makes logits of any of its rows.

  Raises:
    ValueError: if a layer that is asked for does not exist, or there is both a cache and room.
  """
  if cache is not None and room is not None:
    raise ValueError('Room is for a new cache, and there is one.')
  x = embed(params, inputs) if jnp.issubdtype(inputs.dtype, jnp.integer) else inputs
  size, length = x.shape[:2]
  layers = params['layers']
  count = _count(layers)
  _check_layers('streams', streams, count + 1)
  _check_layers('attention', attention, count)
  start = 0 if cache is None else cache.filled
  if positions is None:
    positions = jnp.broadcast_to(start + jnp.arange(length), (size, length))
  seen = positions = positions.astype(jnp.int32)
  if cache is not None:
    seen = jax.lax.dynamic_update_slice(cache.positions, positions, (0, start))
    # Places beyond hold what was forgotten.
    seen = jnp.where(jnp.arange(seen.shape[1]) < start + length, seen, _EMPTY)
  ordered = mask is None and cache is None
  if mask is None:
    mask = causal_mask(positions, seen, arch.window)
    if ordered:
      mask &= jnp.tri(length, dtype=bool)
  chex.assert_shape(mask, (size, length, seen.shape[1]))
  omega = rope.frequencies(arch.head_dim, arch.rope_base, arch.rope_scaling)
  x = jnp.moveaxis(x, -1, 0)
  kept_streams = jnp.zeros((len(streams), *x.shape), x.dtype)
  kept_rows = jnp.zeros((len(attention), size, arch.num_heads, length, seen.shape[1]), jnp.float32)
  stream_slots = _slots(streams, count + 1)
  row_slots = _slots(attention, count)

  def layer(carry, weights, places, gate, stream_slot, row_slot):
    x, kept_streams, kept_rows = carry
    if streams:
      kept_streams = kept_streams.at[stream_slot].set(x, mode='drop')
    y, places, rows = _layer(
      arch, weights, x, positions, omega, mask, places, start, ordered, bool(attention)
    )
    x = y if gate is None else x + gate.astype(x.dtype) * (y - x)
    if attention:
      kept_rows = kept_rows.at[row_slot].set(rows, mode='drop')
    return (x, kept_streams, kept_rows), places

  if remat:
    layer = jax.checkpoint(layer)
  carry = (x, kept_streams, kept_rows)
  old = None if cache is None else cache.layers
  if isinstance(layers, tuple):
    places = []
    for i, weights in enumerate(layers):
      gate = None if gates is None else gates[i]
      before = None if old is None else old[i]
      carry, after = layer(carry, weights, before, gate, stream_slots[i], row_slots[i])
      places.append(after)
    new = tuple(places)
  else:
    slots = (jnp.asarray(stream_slots[:-1]), jnp.asarray(row_slots))
    carry, new = jax.lax.scan(lambda c, xs: layer(c, *xs), carry, (layers, old, gates, *slots))
  x, kept_streams, kept_rows = carry
  if streams:
    kept_streams = kept_streams.at[stream_slots[-1]].set(x, mode='drop')
  if cache is not None or room is not None:
    if room:
      pad = lambda x, axis: jnp.pad(x, [(0, room if i == axis else 0) for i in range(-x.ndim, 0)])
      widen = lambda kv: {'k': pad(kv['k'], -1), 'v': pad(kv['v'], -2)}
      new = tuple(map(widen, new)) if isinstance(new, tuple) else widen(new)
      seen = jnp.pad(seen, ((0, 0), (0, room)), constant_values=_EMPTY)
    cache = Cache(new, seen, jnp.asarray(start + length, jnp.int32))
  return Output(jnp.moveaxis(x, 0, -1), cache, jnp.moveaxis(kept_streams, 1, -1), kept_rows)


def causal_mask(queries: chex.Array, keys: chex.Array, window: int | None = None) -> chex.Array:
  """Which places are seen: no padding, no later than the query, and inside its window.

  Args:
    queries: positions (B, T); -1 for padding.
    keys: positions (B, S); -1 for padding.
    window: tokens that are seen, the query's own included; None for all.

  Returns:
    bool (B, T, S).
  """
  distance = queries[:, :, None] - keys[:, None, :]
  seen = (keys[:, None, :] >= 0) & (distance >= 0)
  return seen if window is None else seen & (distance < window)


def rms_norm(x: chex.Array, gain: chex.Array, eps: float, axis: int = 0) -> chex.Array:
  """x / √(mean x² + ε) · g over an axis, in float32 (Zhang and Sennrich, arXiv:1910.07467)."""
  wide = x.astype(jnp.float32)
  scale = jax.lax.rsqrt(jnp.mean(wide**2, axis=axis, keepdims=True) + eps)
  along = [-1 if i == axis % x.ndim else 1 for i in range(x.ndim)]
  return (wide * scale).astype(x.dtype) * gain.reshape(along)


def attend(
  q: chex.Array, k: chex.Array, v: chex.Array, mask: chex.Array
) -> tuple[chex.Array, chex.Array]:
  """Scaled dot-product attention of H heads of queries over K heads of keys; K divides H.

  Args:
    q: (B, H, T, h).
    k: (B, K, h, S).
    v: (B, K, S, h).
    mask: bool (B, T, S). A query that sees nothing gets zeros.

  Returns:
    (B, H, T, h), and the attention rows (B, H, T, S), float32.
  """
  (size, heads, length, dim), groups = q.shape, k.shape[1]
  q = q.reshape(size, groups, heads // groups * length, dim)
  scores = jnp.einsum('bkqh,bkhs->bkqs', q, k, preferred_element_type=jnp.float32)
  rows = _softmax(scores.reshape(size, groups, -1, length, k.shape[-1]), mask[:, None, None], dim)
  mixed = jnp.einsum('bkqs,bksh->bkqh', rows.reshape(scores.shape).astype(v.dtype), v)
  return mixed.reshape(size, heads, length, dim), rows.reshape(size, heads, length, -1)


def attend_in_blocks(
  q: chex.Array,
  k: chex.Array,
  v: chex.Array,
  mask: chex.Array,
  ordered: bool,
  block: int = 128,
) -> chex.Array:
  """`attend` without its rows, for many queries: a block of them at a time.

  Args:
    q: (B, H, T, h).
    k: (B, K, h, S).
    v: (B, K, S, h).
    mask: bool (B, T, S).
    ordered: whether query t sees no place beyond t, so that half of the products can be left out.
    block: queries at a time.

  Returns:
    (B, H, T, h).
  """
  (size, heads, length, dim), groups = q.shape, k.shape[1]
  q = q.reshape(size, groups, heads // groups, length, dim)

  def head(q, k, v, mask):
    scores = jnp.matmul(q.reshape(-1, dim), k, preferred_element_type=jnp.float32)
    rows = _softmax(scores.reshape(*q.shape[:2], -1), mask, dim)
    return (rows.reshape(scores.shape).astype(v.dtype) @ v).reshape(q.shape)

  parts = []
  for first in range(0, length, block):
    last = min(first + block, length)
    end = last if ordered else k.shape[-1]

    def row(inputs, end=end):
      q, k, v, mask = inputs
      return jax.lax.map(lambda a: head(a[0], a[1], a[2], mask), (q, k[..., :end], v[:, :end]))

    inputs = (q[:, :, :, first:last], k, v, mask[:, first:last, :end])
    parts.append(jax.lax.map(row, inputs))
  return jnp.concatenate(parts, axis=3).reshape(size, heads, length, dim)


def _softmax(scores: chex.Array, mask: chex.Array, dim: int) -> chex.Array:
  lowest = jnp.finfo(jnp.float32).min / 2  # finite, so that gradients are
  return jax.nn.softmax(jnp.where(mask, scores / dim**0.5, lowest), axis=-1) * mask


def _layer(arch, weights, x, positions, omega, mask, places, start, ordered, with_rows):
  """Returns the residual stream (d, B, T) after one layer, its places, and attention rows."""
  size, length = x.shape[1:]
  flat = lambda x: x.reshape(x.shape[0], -1)
  y = flat(rms_norm(x, weights['attention_norm'], arch.norm_eps))

  def heads(name, number):
    z = quantize.matmul(weights[name], y)
    if arch.qkv_bias:
      z = z + weights[f'{name}_bias'][:, None]
    z = z.reshape(number, arch.head_dim, size, length).transpose(2, 0, 3, 1)
    if arch.qk_norm and name != 'v':
      z = rms_norm(z, weights[f'{name}_norm'], arch.norm_eps, axis=-1)
    return z if name == 'v' else rope.rotate(z, positions, omega, arch.rope_interleaved)

  q, k, v = heads('q', arch.num_heads), heads('k', arch.num_kv_heads), heads('v', arch.num_kv_heads)
  new = {'k': k.swapaxes(2, 3), 'v': v}
  if places is not None:
    write = lambda old, z, at: jax.lax.dynamic_update_slice(old, z.astype(old.dtype), at)
    new = {
      'k': write(places['k'], new['k'], (0, 0, 0, start)),
      'v': write(places['v'], new['v'], (0, 0, start, 0)),
    }
  rows = None
  if with_rows or length <= _BLOCK:
    mixed, rows = attend(q, new['k'], new['v'], mask)
  else:
    mixed = attend_in_blocks(q, new['k'], new['v'], mask, ordered, _BLOCK)
  mixed = mixed.transpose(1, 3, 0, 2).reshape(-1, size * length)
  x = x + quantize.matmul(weights['o'], mixed).reshape(x.shape)
  y = flat(rms_norm(x, weights['mlp_norm'], arch.norm_eps))
  gated = jax.nn.silu(quantize.matmul(weights['gate'], y)) * quantize.matmul(weights['up'], y)
  return x + quantize.matmul(weights['down'], gated).reshape(x.shape), new, rows


def _count(layers: Any) -> int:
  return len(layers) if isinstance(layers, tuple) else layers['attention_norm'].shape[0]


def _check_layers(name: str, indices: Sequence[int], count: int) -> None:
  for i in indices:
    if not 0 <= i < count:
      raise ValueError(f'{name}: there is no layer {i} among {count}.')


def _slots(indices: Sequence[int], count: int) -> list[int]:
  """For each layer where its row is kept; beyond the end, which drops it, where it is not."""
  return [indices.index(i) if i in indices else len(indices) for i in range(count)]
