"""Small models of each kind, with parameters that no bias or gain leaves at its start."""

import functools

import jax
import jax.numpy as jnp

from lib.lm import transformer

PLAIN = transformer.Architecture(
  vocabulary=31,
  width=24,
  num_layers=3,
  num_heads=4,
  num_kv_heads=2,
  head_dim=8,
  mlp_width=20,
  context=64,
)
KINDS = {
  'plain': PLAIN,
  'interleaved': PLAIN._replace(rope_interleaved=True, rope_base=500.0),
  'untied': PLAIN._replace(tied=False, num_kv_heads=1),
  'biased': PLAIN._replace(qkv_bias=True, num_kv_heads=4),
  'normed': PLAIN._replace(qk_norm=True, head_dim=10),
  'windowed': PLAIN._replace(window=3),
}


@functools.cache
def params_of(arch, seed=0):
  key, noise_key = jax.random.split(jax.random.key(seed))
  params = transformer.init(key, arch)
  leaves, tree = jax.tree.flatten(params)
  keys = jax.random.split(noise_key, len(leaves))
  noisy = [x + 0.1 * jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)]
  return jax.tree.unflatten(tree, noisy)


def tokens_of(arch, shape, seed=0):
  return jax.random.randint(jax.random.key(seed), shape, 0, arch.vocabulary, jnp.int32)
