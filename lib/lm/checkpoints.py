"""Host. Names: from the metadata and tensors of published checkpoints to `transformer`'s."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from lib.lm import quantize, rope, transformer

Read = Callable[[str], np.ndarray]


class Naming(NamedTuple):
  """What a format calls a tensor.

  Attributes:
    embed, norm, head: of the model.
    layers: of layer `i`, by our name, with a field `{i}`.
    interleaved: whether queries and keys are stored for rotations of neighbouring pairs.
  """

  embed: str
  norm: str
  head: str
  layers: Mapping[str, str]
  interleaved: bool = False


_HUGGING_FACE = Naming(
  embed='model.embed_tokens.weight',
  norm='model.norm.weight',
  head='lm_head.weight',
  layers={
    'attention_norm': 'model.layers.{i}.input_layernorm.weight',
    'q': 'model.layers.{i}.self_attn.q_proj.weight',
    'k': 'model.layers.{i}.self_attn.k_proj.weight',
    'v': 'model.layers.{i}.self_attn.v_proj.weight',
    'o': 'model.layers.{i}.self_attn.o_proj.weight',
    'q_bias': 'model.layers.{i}.self_attn.q_proj.bias',
    'k_bias': 'model.layers.{i}.self_attn.k_proj.bias',
    'v_bias': 'model.layers.{i}.self_attn.v_proj.bias',
    'q_norm': 'model.layers.{i}.self_attn.q_norm.weight',
    'k_norm': 'model.layers.{i}.self_attn.k_norm.weight',
    'mlp_norm': 'model.layers.{i}.post_attention_layernorm.weight',
    'gate': 'model.layers.{i}.mlp.gate_proj.weight',
    'up': 'model.layers.{i}.mlp.up_proj.weight',
    'down': 'model.layers.{i}.mlp.down_proj.weight',
  },
)
_GGUF = Naming(
  embed='token_embd.weight',
  norm='output_norm.weight',
  head='output.weight',
  layers={
    'attention_norm': 'blk.{i}.attn_norm.weight',
    'q': 'blk.{i}.attn_q.weight',
    'k': 'blk.{i}.attn_k.weight',
    'v': 'blk.{i}.attn_v.weight',
    'o': 'blk.{i}.attn_output.weight',
    'q_bias': 'blk.{i}.attn_q.bias',
    'k_bias': 'blk.{i}.attn_k.bias',
    'v_bias': 'blk.{i}.attn_v.bias',
    'q_norm': 'blk.{i}.attn_q_norm.weight',
    'k_norm': 'blk.{i}.attn_k_norm.weight',
    'mlp_norm': 'blk.{i}.ffn_norm.weight',
    'gate': 'blk.{i}.ffn_gate.weight',
    'up': 'blk.{i}.ffn_up.weight',
    'down': 'blk.{i}.ffn_down.weight',
  },
)
_FAMILIES = ('llama', 'mistral', 'qwen2', 'qwen3')


def from_hugging_face(
  config: Mapping[str, Any], names: Collection[str]
) -> tuple[transformer.Architecture, Naming]:
  """Reads the architecture from a `config.json`.

  Args:
    config: its contents.
    names: of the tensors; a head that is missing is tied.

  Returns:
    The architecture and the names of its tensors.

  Raises:
    ValueError: naming what is missing, wrong or not supported.
  """
  family = config.get('model_type')
  if family not in _FAMILIES:
    raise ValueError(f'model_type {family!r} is none of {", ".join(_FAMILIES)}')
  number = lambda key, default=None: _number(config, key, default)
  if (activation := config.get('hidden_act', 'silu')) not in ('silu', 'swish'):
    raise ValueError(f'hidden_act {activation!r} is not supported')
  for key in ('mlp_bias', 'use_sliding_window'):
    if config.get(key):
      raise ValueError(f'{key} is not supported')
  if family in ('llama', 'mistral', 'qwen3') and config.get('attention_bias'):
    raise ValueError('attention_bias is not supported')
  width, heads = int(number('hidden_size')), int(number('num_attention_heads'))
  rotation = config.get('rope_parameters') or config.get('rope_scaling') or {}
  base = rotation.get('rope_theta', config.get('rope_theta', 10_000.0))
  window = config.get('sliding_window') if family == 'mistral' else None
  arch = transformer.Architecture(
    vocabulary=int(number('vocab_size')),
    width=width,
    num_layers=int(number('num_hidden_layers')),
    num_heads=heads,
    num_kv_heads=int(number('num_key_value_heads', heads)),
    head_dim=int(config.get('head_dim') or width // max(heads, 1)),
    mlp_width=int(number('intermediate_size')),
    context=int(number('max_position_embeddings')),
    rope_base=float(base),
    rope_scaling=_scaling(rotation),
    norm_eps=float(number('rms_norm_eps', 1e-6)),
    tied=_HUGGING_FACE.head not in names,
    qkv_bias=family == 'qwen2',
    qk_norm=family == 'qwen3',
    window=window,
  )
  return _checked(arch), _HUGGING_FACE


def from_gguf(
  metadata: Mapping[str, Any], names: Collection[str], read: Read
) -> tuple[transformer.Architecture, Naming]:
  """Reads the architecture from a GGUF file's metadata.

  Args:
    metadata: by key.
    names: of the tensors; a head that is missing is tied.
    read: `read(name)` returns a tensor, here the factors of Llama 3's frequencies.

  Returns:
    As `from_hugging_face`.

  Raises:
    ValueError: as `from_hugging_face`.
  """
  family = metadata.get('general.architecture')
  if family not in _FAMILIES:
    raise ValueError(f'general.architecture {family!r} is none of {", ".join(_FAMILIES)}')
  number = lambda key, default=None: _number(metadata, f'{family}.{key}', default)
  width, heads = int(number('embedding_length')), int(number('attention.head_count'))
  factors = 'rope_freqs.weight'
  scaling: rope.Scaling = None
  if factors in names:
    scaling = tuple(read(factors).astype(float).tolist())
  elif (kind := metadata.get(f'{family}.rope.scaling.type', 'none')) == 'linear':
    scaling = float(number('rope.scaling.factor'))
  elif kind != 'none':
    raise ValueError(f'{family}.rope.scaling.type {kind!r} is not supported')
  vocabulary = metadata.get(f'{family}.vocab_size') or len(metadata['tokenizer.ggml.tokens'])
  arch = transformer.Architecture(
    vocabulary=int(vocabulary),
    width=width,
    num_layers=int(number('block_count')),
    num_heads=heads,
    num_kv_heads=int(number('attention.head_count_kv', heads)),
    head_dim=int(number('attention.key_length', width // max(heads, 1))),
    mlp_width=int(number('feed_forward_length')),
    context=int(number('context_length')),
    rope_base=float(number('rope.freq_base', 10_000.0)),
    rope_scaling=scaling,
    norm_eps=float(number('attention.layer_norm_rms_epsilon')),
    tied=_GGUF.head not in names,
    qkv_bias='blk.0.attn_q.bias' in names,
    qk_norm='blk.0.attn_q_norm.weight' in names,
  )
  return _checked(arch), _GGUF._replace(interleaved=family in ('llama', 'mistral'))


def load(
  arch: transformer.Architecture,
  naming: Naming,
  read: Read,
  dtype: Any = jnp.float32,
  *,
  stacked: bool = True,
  int8: bool = False,
) -> transformer.Params:
  """Reads the parameters, one tensor after another.

  Args:
    arch: of the checkpoint.
    naming: of its tensors.
    read: `read(name)` returns a tensor with outputs first, or raises a ValueError.
    dtype: of the parameters.
    stacked: whether layers are stacked, or in a tuple.
    int8: whether matrices are rounded to eight bits with scales of `dtype`.

  Returns:
    Parameters for `transformer`. While they are read, no more than one of its arrays is held twice.

  Raises:
    ValueError: naming the tensor that is missing or has another shape.
  """

  def tensor(name: str, shape: tuple[int, ...]) -> np.ndarray:
    array = read(name)
    if array.shape != shape:
      raise ValueError(f'tensor {name!r} has shape {array.shape}, expected {shape}')
    return array

  def of_layer(ours: str, shape: tuple[int, ...], i: int) -> np.ndarray:
    array = tensor(naming.layers[ours].format(i=i), shape)
    if naming.interleaved and ours in ('q', 'k', 'q_bias', 'k_bias'):
      array = _halves(array, arch.head_dim)
    return array

  # The largest first: while a tensor is converted it is held twice.
  table = (arch.vocabulary, arch.width)
  matrix = lambda x: _int8(x, dtype) if int8 else jnp.asarray(x, dtype)
  params: dict[str, Any] = {'embed': matrix(tensor(naming.embed, table))}
  if not arch.tied:
    params['head'] = matrix(tensor(naming.head, table))
  layers: Any = {}
  for ours, shape in sorted(_shapes(arch).items(), key=lambda item: -math.prod(item[1])):
    arrays = (of_layer(ours, shape, i) for i in range(arch.num_layers))
    if int8 and len(shape) == 2:
      parts = [_int8(array, dtype) for array in arrays]
      join = jnp.stack if stacked else tuple
      layers[ours] = quantize.Int8(*map(join, zip(*parts, strict=True)))
    elif stacked:
      layers[ours] = _filled(arrays, (arch.num_layers, *shape), dtype)
    else:
      layers[ours] = [jnp.asarray(array, dtype) for array in arrays]
  if not stacked:
    layers = tuple(
      {ours: _pick(parts, i) for ours, parts in layers.items()} for i in range(arch.num_layers)
    )
  params['layers'] = layers
  params['norm'] = jnp.asarray(tensor(naming.norm, (arch.width,)), dtype)
  return params


def _shapes(arch: transformer.Architecture) -> dict[str, tuple[int, ...]]:
  """The shapes of a layer's parameters."""
  key = jax.eval_shape(lambda: jax.random.key(0))
  abstract = jax.eval_shape(lambda k: transformer.init(k, arch), key)
  return {name: x.shape[1:] for name, x in abstract['layers'].items()}


def _halves(array: np.ndarray, head_dim: int) -> np.ndarray:
  """Reorders outputs from pairs of neighbours to two halves in each head."""
  pairs = array.reshape(-1, head_dim // 2, 2, *array.shape[1:])
  return pairs.swapaxes(1, 2).reshape(array.shape)


def _filled(arrays: Iterable[np.ndarray], shape: tuple[int, ...], dtype: Any) -> chex.Array:
  whole = np.empty(shape, jnp.dtype(dtype))
  for place, array in zip(whole, arrays, strict=True):
    place[...] = array
  return jnp.asarray(whole)


def _int8(array: np.ndarray, dtype: Any) -> quantize.Int8:
  matrix = quantize.quantize(jnp.asarray(array, jnp.float32))
  return matrix._replace(scale=matrix.scale.astype(dtype))


def _pick(parts: Any, i: int) -> Any:
  return (
    quantize.Int8(parts.values[i], parts.scale[i]) if isinstance(parts, quantize.Int8) else parts[i]
  )


def _checked(arch: transformer.Architecture) -> transformer.Architecture:
  sizes = arch[:8]
  if min(sizes) <= 0:
    raise ValueError(f'sizes must be positive: {arch}')
  if arch.num_heads % arch.num_kv_heads or arch.head_dim % 2:
    raise ValueError(f'{arch.num_heads=} must be a multiple of {arch.num_kv_heads=}')
  return arch


def _number(config: Mapping[str, Any], key: str, default: float | None) -> float:
  value = config.get(key, default)
  if isinstance(value, bool) or not isinstance(value, (int, float)):
    raise ValueError(f'{key} must be a number, got {value!r}')
  if not abs(value) <= 2**53:
    raise ValueError(f'{key} = {value!r} is too large')
  return value


def _scaling(rotation: Mapping[str, Any]) -> rope.Scaling:
  kind = rotation.get('rope_type', rotation.get('type', 'default'))
  if kind == 'default':
    return None
  if kind == 'linear':
    return float(_number(rotation, 'factor', None))
  if kind == 'llama3':
    return rope.Llama3Scaling(
      factor=float(_number(rotation, 'factor', None)),
      low=float(_number(rotation, 'low_freq_factor', None)),
      high=float(_number(rotation, 'high_freq_factor', None)),
      context=int(_number(rotation, 'original_max_position_embeddings', None)),
    )
  raise ValueError(f'rope_type {kind!r} is not supported')
