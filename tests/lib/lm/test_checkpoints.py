import json
import pathlib

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

from lib.io import safetensors
from lib.lm import checkpoints, quantize, transformer
from tests.lib.lm import toys

FIXTURES = pathlib.Path(__file__).parent / 'fixtures'
FAMILIES = ('llama', 'llama3', 'mistral', 'qwen2', 'qwen3')


def load(family, **options):
  directory = safetensors.open_directory(FIXTURES / family)
  arch, naming = checkpoints.from_hugging_face(directory.config, directory.tensors)
  read = lambda name: safetensors.read_tensor(directory, name)
  return arch, checkpoints.load(arch, naming, read, **options)


def logits_of(arch, params, tokens):
  forward = jax.jit(
    lambda p, t: transformer.logits(arch, p, transformer.forward(arch, p, t).hidden)
  )
  return forward(params, tokens)


class HuggingFaceTest(chex.TestCase):
  @parameterized.parameters(*FAMILIES)
  def test_logits_are_those_of_transformers(self, family):
    arch, params = load(family)
    with np.load(FIXTURES / family / 'expected.npz') as expected:
      logits = logits_of(arch, params, expected['tokens'].astype(np.int32))
      np.testing.assert_allclose(logits, expected['logits'], rtol=1e-4, atol=1e-4)

  def test_layouts_hold_the_same(self):
    arch, params = load('qwen2')
    _, unrolled = load('qwen2', stacked=False)
    chex.assert_trees_all_equal(transformer.stack(unrolled), params)
    self.assertEqual(arch.num_layers, len(unrolled['layers']))

  @parameterized.parameters(True, False)
  def test_eight_bits_stay_close(self, stacked):
    arch, params = load('llama3', int8=True, stacked=stacked)
    self.assertIsInstance(params['embed'], quantize.Int8)
    with np.load(FIXTURES / 'llama3' / 'expected.npz') as expected:
      logits = logits_of(arch, params, expected['tokens'].astype(np.int32))
      error = np.std(logits - expected['logits']) / np.std(expected['logits'])
    self.assertBetween(error, 1e-5, 0.05)

  def test_half_precision(self):
    _, params = load('mistral', dtype=jnp.bfloat16)
    self.assertEqual({x.dtype for x in jax.tree.leaves(params)}, {jnp.dtype(jnp.bfloat16)})

  @parameterized.parameters(
    ({'model_type': 'gpt2'}, "model_type 'gpt2' is none of llama"),
    ({'hidden_act': 'gelu'}, "hidden_act 'gelu'"),
    ({'mlp_bias': True}, 'mlp_bias'),
    ({'attention_bias': True}, 'attention_bias'),
    ({'hidden_size': '24'}, "hidden_size must be a number, got '24'"),
    ({'num_hidden_layers': None}, 'num_hidden_layers'),
    ({'num_attention_heads': 0}, 'positive'),
    ({'num_key_value_heads': 3}, 'multiple'),
    ({'vocab_size': 10**30}, 'too large'),
    ({'rope_parameters': {'rope_type': 'yarn'}}, "rope_type 'yarn'"),
    ({'rope_parameters': {'rope_type': 'llama3'}}, 'factor'),
  )
  def test_config_that_does_not_fit_is_named(self, changes, message):
    config = json.loads((FIXTURES / 'llama' / 'config.json').read_text()) | changes
    with self.assertRaisesRegex(ValueError, message):
      checkpoints.from_hugging_face(config, ())

  def test_other_shapes_are_named(self):
    directory = safetensors.open_directory(FIXTURES / 'llama')
    arch, naming = checkpoints.from_hugging_face(directory.config, directory.tensors)
    read = lambda name: safetensors.read_tensor(directory, name)
    with self.assertRaisesRegex(ValueError, r"tensor 'model.layers.0.mlp.\w+.weight' has shape"):
      checkpoints.load(arch._replace(mlp_width=21), naming, read)


class GgufTest(chex.TestCase):
  @parameterized.parameters(
    ('llama', 'plain'), ('llama', 'untied'), ('qwen3', 'normed'), ('qwen2', 'biased')
  )
  def test_reads_what_the_format_holds(self, family, kind):
    arch = toys.KINDS[kind]
    params = toys.params_of(arch)
    tensors, metadata = as_gguf(family, arch, params)
    found, naming = checkpoints.from_gguf(metadata, tensors, tensors.__getitem__)
    self.assertEqual(found, arch)
    chex.assert_trees_all_equal(checkpoints.load(found, naming, tensors.__getitem__), params)

  def test_frequencies_with_a_factor_for_each_plane(self):
    tensors, metadata = as_gguf('llama', toys.PLAIN, toys.params_of(toys.PLAIN))
    tensors['rope_freqs.weight'] = np.array([1, 1, 2, 8], np.float32)
    arch, _ = checkpoints.from_gguf(metadata, tensors, tensors.__getitem__)
    self.assertEqual(arch.rope_scaling, (1.0, 1.0, 2.0, 8.0))

  @parameterized.parameters(
    ({'general.architecture': 'mamba'}, "'mamba' is none of"),
    ({'llama.rope.scaling.type': 'yarn'}, 'yarn'),
    ({'llama.block_count': 'three'}, 'llama.block_count must be a number'),
    ({'llama.context_length': -1}, 'positive'),
  )
  def test_metadata_that_do_not_fit_are_named(self, changes, message):
    tensors, metadata = as_gguf('llama', toys.PLAIN, toys.params_of(toys.PLAIN))
    with self.assertRaisesRegex(ValueError, message):
      checkpoints.from_gguf(metadata | changes, tensors, tensors.__getitem__)


def as_gguf(family, arch, params):
  """Tensors by name, with the order of queries and keys that llama.cpp writes."""
  names = {
    'attention_norm': 'attn_norm.weight', 'q': 'attn_q.weight', 'k': 'attn_k.weight',
    'v': 'attn_v.weight', 'o': 'attn_output.weight', 'q_bias': 'attn_q.bias',
    'k_bias': 'attn_k.bias', 'v_bias': 'attn_v.bias', 'q_norm': 'attn_q_norm.weight',
    'k_norm': 'attn_k_norm.weight', 'mlp_norm': 'ffn_norm.weight', 'gate': 'ffn_gate.weight',
    'up': 'ffn_up.weight', 'down': 'ffn_down.weight',
  }  # fmt: skip
  tensors = {'token_embd.weight': np.asarray(params['embed'])}
  tensors['output_norm.weight'] = np.asarray(params['norm'])
  if not arch.tied:
    tensors['output.weight'] = np.asarray(params['head'])
  for ours, stacked in params['layers'].items():
    for i, array in enumerate(np.asarray(stacked)):
      if family == 'llama' and ours in ('q', 'k'):
        halves = array.reshape(-1, 2, arch.head_dim // 2, array.shape[1])
        array = np.concatenate(
          [np.stack(pair, axis=1).reshape(arch.head_dim, -1) for pair in halves]
        )
      tensors[f'blk.{i}.{names[ours]}'] = array
  metadata = {
    'general.architecture': family,
    f'{family}.embedding_length': arch.width,
    f'{family}.block_count': arch.num_layers,
    f'{family}.attention.head_count': arch.num_heads,
    f'{family}.attention.head_count_kv': arch.num_kv_heads,
    f'{family}.attention.key_length': arch.head_dim,
    f'{family}.feed_forward_length': arch.mlp_width,
    f'{family}.context_length': arch.context,
    f'{family}.rope.freq_base': arch.rope_base,
    f'{family}.attention.layer_norm_rms_epsilon': arch.norm_eps,
    'tokenizer.ggml.tokens': ['x'] * arch.vocabulary,
  }
  return tensors, metadata
