"""Traced. A decoder-only transformer as a function of parameters, tokens and a cache.

The family of Llama (Touvron et al., 2023, arXiv:2302.13971): RMSNorm, rotary positions, attention
with grouped keys, SwiGLU. Mistral, SmolLM2 and Qwen differ by the fields of `Architecture`.

Parameters are a dict:

  embed (V, d); norm (d,); head (d, V), absent where it is the embedding's transpose; and layers,
  each a dict of attention_norm (d,), q (d, H h), k (d, K h), v (d, K h), o (H h, d), mlp_norm (d,),
  gate (d, f), up (d, f), down (f, d), and where the architecture has them q_bias (H h,), k_bias
  (K h,), v_bias (K h,), q_norm (h,), k_norm (h,).

`params['layers']` is one such dict with a leading axis of layers, which is scanned (one layer is
compiled, and may be rematerialised), or a tuple of them, which is unrolled: no layer's weights are
then copied out of the stack, by which decoding on a CPU is faster. `stack` and `unstack` convert.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from lib.lm import quantize, rope

Params = Any
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
    layers: dicts of k and v (B, K, S, h), stacked or in a tuple as the parameters are.
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
  shapes = {'q': (d, q), 'k': (d, kv), 'v': (d, kv), 'o': (q, d)}
  shapes |= {'gate': (d, f), 'up': (d, f), 'down': (f, d)}
  keys = iter(jax.random.split(key, len(shapes) + 2))

  def normal(shape, inputs):
    return (jax.random.normal(next(keys), shape) / inputs**0.5).astype(dtype)

  stacked = {name: normal((layers, *shape), shape[0]) for name, shape in shapes.items()}
  ones = {'attention_norm': d, 'mlp_norm': d}
  zeros = {'q_bias': q, 'k_bias': kv, 'v_bias': kv} if arch.qkv_bias else {}
  ones |= {'q_norm': h, 'k_norm': h} if arch.qk_norm else {}
  stacked |= {name: jnp.ones((layers, size), dtype) for name, size in ones.items()}
  stacked |= {name: jnp.zeros((layers, size), dtype) for name, size in zeros.items()}
  params = {'embed': normal((arch.vocabulary, d), d), 'layers': stacked}
  params['norm'] = jnp.ones((d,), dtype)
  if not arch.tied:
    params['head'] = normal((d, arch.vocabulary), d)
  return params


def unstack(params: Params) -> Params:
  """Returns the parameters with a tuple of layers."""
  layers = params['layers']
  if isinstance(layers, tuple):
    return params
  size = layers['attention_norm'].shape[0]
  pick = lambda i: jax.tree.map(lambda x: x[i], layers)
  return {**params, 'layers': tuple(map(pick, range(size)))}


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
  shape = (batch_size, arch.num_kv_heads, size, arch.head_dim)
  dtype = params['norm'].dtype
  zeros = lambda *lead: {name: jnp.zeros((*lead, *shape), dtype) for name in ('k', 'v')}
  places: Any = tuple(zeros() for _ in layers)
  if not isinstance(layers, tuple):
    places = zeros(layers['attention_norm'].shape[0])
  positions = jnp.full((batch_size, size), _EMPTY, jnp.int32)
  return Cache(places, positions, jnp.zeros((), jnp.int32))


def embed(params: Params, tokens: chex.Array) -> chex.Array:
  """Looks tokens (B, T) up: (B, T, d)."""
  return quantize.rows(params['embed'], tokens).astype(params['norm'].dtype)


def logits(arch: Architecture, params: Params, hidden: chex.Array) -> chex.Array:
  """Maps the residual stream after the last layer (..., d) to logits (..., V), float32."""
  x = rms_norm(hidden, params['norm'], arch.norm_eps)
  if arch.tied:
    return quantize.matmul_transposed(x, params['embed']).astype(jnp.float32)
  return quantize.matmul(x, params['head']).astype(jnp.float32)


def forward(
  arch: Architecture,
  params: Params,
  inputs: chex.Array,
  *,
  positions: chex.Array | None = None,
  mask: chex.Array | None = None,
  cache: Cache | None = None,
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
    positions: (B, T), integers, of each token in its sequence; -1 for padding, which nobody sees.
      By default each row goes on after the last place of the cache.
    mask: which places a token sees, bool (B, T, S), instead of all that are no padding and come no
      later than itself.
    cache: what came before. The new tokens take its next places; that there is room is the
      caller's to check.
    streams: layers before which to keep the residual stream; L stands for the end.
    attention: layers whose attention rows to keep.
    gates: a factor for each layer's contribution (L,): x + g (layer(x) - x); 0 skips the layer.
    remat: recompute activations in the backward pass instead of keeping them.

  Returns:
    The output; `logits` makes logits of any of its rows.

  Raises:
    ValueError: if a layer that is asked for does not exist.
  """
  x = embed(params, inputs) if jnp.issubdtype(inputs.dtype, jnp.integer) else inputs
  size, length = x.shape[:2]
  layers = params['layers']
  count = len(layers) if isinstance(layers, tuple) else layers['attention_norm'].shape[0]
  _check_layers('streams', streams, count + 1)
  _check_layers('attention', attention, count)
  start = cache.filled if cache is not None else jnp.zeros((), jnp.int32)
  if positions is None:
    positions = jnp.broadcast_to(start + jnp.arange(length), (size, length))
  positions = positions.astype(jnp.int32)
  if cache is None:
    seen = positions
  else:
    seen = jax.lax.dynamic_update_slice(cache.positions, positions, (0, start))
    ends = start + length  # places beyond hold what was forgotten
    seen = jnp.where(jnp.arange(seen.shape[1]) < ends, seen, _EMPTY)
  if mask is None:
    mask = causal_mask(positions, seen, arch.window)
  chex.assert_shape(mask, (size, length, seen.shape[1]))
  omega = rope.frequencies(arch.head_dim, arch.rope_base, arch.rope_scaling)
  kept_streams = jnp.zeros((len(streams), *x.shape), x.dtype)
  kept_rows = jnp.zeros((len(attention), size, arch.num_heads, length, seen.shape[1]), jnp.float32)
  stream_slots = _slots(streams, count + 1)
  row_slots = _slots(attention, count)

  def layer(carry, weights, places, gate, stream_slot, row_slot):
    x, kept_streams, kept_rows = carry
    if streams:
      kept_streams = kept_streams.at[stream_slot].set(x, mode='drop')
    y, places, rows = _layer(arch, weights, x, positions, omega, mask, places, start)
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
  if cache is not None:
    cache = Cache(new, seen, start + length)
  return Output(x, cache, kept_streams, kept_rows)


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


def rms_norm(x: chex.Array, gain: chex.Array, eps: float) -> chex.Array:
  """x / √(mean x² + ε) · g over the last axis, in float32 (Zhang and Sennrich, 2019)."""
  wide = x.astype(jnp.float32)
  scale = jax.lax.rsqrt(jnp.mean(wide**2, axis=-1, keepdims=True) + eps)
  return (wide * scale).astype(x.dtype) * gain


def attend(
  q: chex.Array, k: chex.Array, v: chex.Array, mask: chex.Array
) -> tuple[chex.Array, chex.Array]:
  """Scaled dot-product attention of H heads of queries over K heads of keys; K divides H.

  Args:
    q: (B, T, H, h).
    k: (B, K, S, h).
    v: (B, K, S, h).
    mask: bool (B, T, S). A query that sees nothing gets zeros.

  Returns:
    (B, T, H, h), and the attention rows (B, H, T, S), float32.
  """
  size, length, heads, dim = q.shape
  groups = k.shape[1]
  q = q.reshape(size, length, groups, heads // groups, dim)
  scores = jnp.einsum('btkgh,bksh->bkgts', q, k, preferred_element_type=jnp.float32) / dim**0.5
  mask = mask[:, None, None]
  lowest = jnp.finfo(jnp.float32).min / 2  # finite, so that gradients are
  rows = jax.nn.softmax(jnp.where(mask, scores, lowest), axis=-1) * mask
  mixed = jnp.einsum('bkgts,bksh->btkgh', rows.astype(v.dtype), v)
  return (
    mixed.reshape(size, length, heads, dim),
    rows.reshape(size, heads, length, rows.shape[-1]),
  )


def _layer(arch, weights, x, positions, omega, mask, places, start):
  """Returns the residual stream after one layer, its places in the cache, and attention rows."""
  size, length = x.shape[:2]
  y = rms_norm(x, weights['attention_norm'], arch.norm_eps)

  def heads(name, number):
    z = quantize.matmul(y, weights[name])
    if arch.qkv_bias:
      z = z + weights[f'{name}_bias']
    z = z.reshape(size, length, number, arch.head_dim)
    if arch.qk_norm and name != 'v':
      z = rms_norm(z, weights[f'{name}_norm'], arch.norm_eps)
    return z

  q, k, v = heads('q', arch.num_heads), heads('k', arch.num_kv_heads), heads('v', arch.num_kv_heads)
  q = rope.rotate(q, positions, omega, arch.rope_interleaved)
  k = rope.rotate(k, positions, omega, arch.rope_interleaved)
  new = {'k': k.swapaxes(1, 2), 'v': v.swapaxes(1, 2)}
  if places is not None:
    new = jax.tree.map(
      lambda old, z: jax.lax.dynamic_update_slice(old, z.astype(old.dtype), (0, 0, start, 0)),
      places,
      new,
    )
  mixed, rows = attend(q, new['k'], new['v'], mask)
  x = x + quantize.matmul(mixed.reshape(size, length, -1), weights['o'])
  y = rms_norm(x, weights['mlp_norm'], arch.norm_eps)
  gated = jax.nn.silu(quantize.matmul(y, weights['gate'])) * quantize.matmul(y, weights['up'])
  x = x + quantize.matmul(gated, weights['down'])
  return x, None if places is None else new, rows


def _check_layers(name: str, indices: Sequence[int], count: int) -> None:
  for i in indices:
    if not 0 <= i < count:
      raise ValueError(f'{name}: there is no layer {i} among {count}.')


def _slots(indices: Sequence[int], count: int) -> list[int]:
  """For each layer where its row is kept; beyond the end, which drops it, where it is not."""
  return [indices.index(i) if i in indices else len(indices) for i in range(count)]
