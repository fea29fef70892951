import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

from lib.lm import transformer
from tests.lib.lm import reference, toys

KINDS = tuple(toys.KINDS)


@functools.partial(jax.jit, static_argnums=0, static_argnames=('streams', 'attention', 'remat'))
def run(arch, params, tokens, **options):
  out = transformer.forward(arch, params, tokens, **options)
  return transformer.logits(arch, params, out.hidden), out


class ForwardTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_equals_the_plain_implementation(self):
    arch = toys.PLAIN
    params, tokens = toys.params_of(arch), toys.tokens_of(arch, (2, 7))
    forward = self.variant(
      lambda params, tokens: transformer.logits(
        arch, params, transformer.forward(arch, params, tokens).hidden
      )
    )
    expected = [reference.forward(arch, params, row)[0] for row in np.asarray(tokens)]
    np.testing.assert_allclose(forward(params, tokens), expected, rtol=1e-4, atol=1e-4)

  @parameterized.parameters(*KINDS)
  def test_every_kind_with_streams_and_attention(self, kind):
    arch = toys.KINDS[kind]
    params, tokens = toys.params_of(arch), toys.tokens_of(arch, (1, 9))
    logits, out = run(arch, params, tokens, streams=(0, 2, 3), attention=(2, 0))
    expected, streams, rows = reference.forward(arch, params, np.asarray(tokens[0]))
    np.testing.assert_allclose(logits[0], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(out.streams[:, 0], streams[[0, 2, 3]], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(out.attention[:, 0], rows[[2, 0]], rtol=1e-4, atol=1e-5)

  @parameterized.parameters('normed', 'biased')
  def test_layouts_of_the_layers_agree(self, kind):
    arch = toys.KINDS[kind]
    params, tokens = toys.params_of(arch), toys.tokens_of(arch, (2, 5))
    options = {'streams': (1, 3), 'attention': (1,), 'gates': jnp.array([1.0, 0.5, 0.0])}
    stacked, out = run(arch, params, tokens, **options)
    unrolled, other = run(arch, transformer.unstack(params), tokens, **options)
    np.testing.assert_allclose(stacked, unrolled, rtol=1e-5, atol=1e-5)
    chex.assert_trees_all_close(out, other, rtol=1e-5, atol=1e-5)
    again = transformer.stack(transformer.unstack(params))
    chex.assert_trees_all_equal(again, params)

  @parameterized.parameters(
    ('plain', False), ('interleaved', True), ('biased', True), ('normed', False), ('windowed', True)
  )
  def test_piecewise_with_a_cache_equals_the_whole(self, kind, stacked):
    arch = toys.KINDS[kind]
    params, tokens = toys.params_of(arch), toys.tokens_of(arch, (2, 8))
    whole, _ = run(arch, params, tokens)
    params = params if stacked else transformer.unstack(params)
    cache = transformer.init_cache(arch, params, 2, 11)
    parts = []
    for piece in jnp.split(tokens, (4, 5, 6), axis=1):
      logits, out = run(arch, params, piece, cache=cache)
      cache = out.cache
      parts.append(logits)
    np.testing.assert_allclose(jnp.concatenate(parts, axis=1), whole, rtol=1e-4, atol=1e-4)
    self.assertEqual(int(cache.filled), 8)

  def test_what_is_forgotten_is_not_seen(self):
    arch, params = toys.PLAIN, toys.params_of(toys.PLAIN)
    tokens = toys.tokens_of(arch, (1, 6))
    cache = transformer.init_cache(arch, params, 1, 10)
    _, out = run(arch, params, tokens, cache=cache)
    back = out.cache._replace(filled=jnp.int32(4))
    other = (tokens[:, 4:5] + 1) % arch.vocabulary
    logits, _ = run(arch, params, other, cache=back)
    expected, _ = run(arch, params, jnp.concatenate([tokens[:, :4], other], axis=1))
    np.testing.assert_allclose(logits[:, 0], expected[:, 4], rtol=1e-4, atol=1e-4)

  def test_padding_does_not_matter(self):
    arch, params = toys.PLAIN, toys.params_of(toys.PLAIN)
    tokens = toys.tokens_of(arch, (3, 6))
    alone, _ = run(arch, params, tokens[1:2, 2:])
    positions = jnp.array([[0, 1, 2, 3, 4, 5], [-1, -1, 0, 1, 2, 3], [-1, 0, 1, 2, 3, 4]])
    together, out = run(arch, params, tokens, positions=positions, attention=(0, 1, 2))
    np.testing.assert_allclose(together[1, 2:], alone[0], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(out.attention[:, 1, :, :, :2], 0.0)
    self.assertTrue(bool(jnp.isfinite(together).all()))

  def test_shifting_all_positions_changes_nothing(self):
    arch, params = toys.PLAIN, toys.params_of(toys.PLAIN)
    tokens = toys.tokens_of(arch, (1, 6))
    near, _ = run(arch, params, tokens)
    far, _ = run(arch, params, tokens, positions=jnp.arange(6)[None] + 40)
    np.testing.assert_allclose(near, far, rtol=1e-3, atol=1e-4)

  def test_no_token_sees_a_later_one(self):
    arch, params = toys.PLAIN, toys.params_of(toys.PLAIN)
    tokens = toys.tokens_of(arch, (1, 6))
    changed = tokens.at[0, 4].add(1) % arch.vocabulary
    (a, _), (b, _) = run(arch, params, tokens), run(arch, params, changed)
    np.testing.assert_array_equal(a[:, :4], b[:, :4])
    self.assertGreater(float(jnp.abs(a[:, 4:] - b[:, 4:]).max()), 1e-3)

  @chex.variants(with_jit=True, without_jit=True)
  @parameterized.parameters((True, 2), (False, 3), (True, 7), (False, 100))
  def test_attention_in_blocks_is_attention(self, ordered, block):
    keys = jax.random.split(jax.random.key(0), 4)
    q = jax.random.normal(keys[0], (2, 6, 7, 4))
    k = jax.random.normal(keys[1], (2, 3, 4, 7))
    v = jax.random.normal(keys[2], (2, 3, 7, 4))
    mask = jax.random.bernoulli(keys[3], 0.7, (2, 7, 7))
    mask = mask & jnp.tri(7, dtype=bool) if ordered else mask
    blocks = self.variant(
      lambda *inputs: transformer.attend_in_blocks(*inputs, ordered=ordered, block=block)
    )
    whole, rows = transformer.attend(q, k, v, mask)
    np.testing.assert_allclose(blocks(q, k, v, mask), whole, rtol=1e-4, atol=1e-5)
    sums = jnp.broadcast_to(mask.any(axis=-1)[:, None], rows.shape[:-1])
    np.testing.assert_allclose(rows.sum(axis=-1), sums, rtol=1e-5)

  def test_long_inputs_equal_short_ones(self):
    arch, params = toys.PLAIN, toys.params_of(toys.PLAIN)
    tokens = toys.tokens_of(arch, (1, 150))
    long, _ = run(arch, params, tokens)
    with_rows, _ = run(arch, params, tokens, attention=(0,))
    np.testing.assert_allclose(long, with_rows, rtol=1e-3, atol=1e-4)

  def test_a_mask_of_ones_sees_everything(self):
    arch, params = toys.PLAIN, toys.params_of(toys.PLAIN)
    tokens = toys.tokens_of(arch, (1, 4))
    _, out = run(arch, params, tokens, mask=jnp.ones((1, 4, 4), bool), attention=(0,))
    self.assertGreater(float(out.attention.min()), 0.0)
    np.testing.assert_allclose(out.attention.sum(axis=-1), 1.0, rtol=1e-5)

  def test_embeddings_instead_of_tokens(self):
    arch, params = toys.PLAIN, toys.params_of(toys.PLAIN)
    tokens = toys.tokens_of(arch, (2, 4))
    a, _ = run(arch, params, tokens)
    b, _ = run(arch, params, transformer.embed(params, tokens))
    np.testing.assert_array_equal(a, b)

  def test_selected_layers_are_a_model_of_their_own(self):
    arch, params = toys.PLAIN, toys.params_of(toys.PLAIN)
    tokens = toys.tokens_of(arch, (1, 5))
    expected, *_ = reference.forward(arch, params, np.asarray(tokens[0]), layers=(2, 0))
    for layout in (params, transformer.unstack(params)):
      logits, _ = run(arch, transformer.select_layers(layout, (2, 0)), tokens)
      np.testing.assert_allclose(logits[0], expected, rtol=1e-4, atol=1e-4)
    gated, _ = run(arch, params, tokens, gates=jnp.array([1.0, 0.0, 1.0]))
    skipped, _ = run(arch, transformer.select_layers(params, (0, 2)), tokens)
    np.testing.assert_allclose(gated, skipped, rtol=1e-4, atol=1e-5)

  @parameterized.parameters(False, True)
  def test_gradients_are_those_of_differences(self, remat):
    arch, params = toys.KINDS['normed'], toys.params_of(toys.KINDS['normed'])
    tokens = toys.tokens_of(arch, (1, 5))

    def loss(x):
      logits, _ = run(arch, params, x, remat=remat)
      return jnp.mean(jax.nn.log_softmax(logits)[:, :, 3])

    x = transformer.embed(params, tokens)
    direction = jax.random.normal(jax.random.key(5), x.shape)
    _, slope = jax.jvp(loss, (x,), (direction,))
    gradient = jax.grad(loss)(x)
    self.assertAlmostEqual(float(jnp.vdot(gradient, direction)), float(slope), places=4)
    step = 1e-2
    difference = (loss(x + step * direction) - loss(x - step * direction)) / (2 * step)
    np.testing.assert_allclose(slope, difference, rtol=2e-2, atol=1e-4)

  def test_gradients_reach_all_parameters_and_are_finite_with_padding(self):
    arch, params = toys.KINDS['biased'], toys.params_of(toys.KINDS['biased'])
    tokens = toys.tokens_of(arch, (2, 5))
    positions = jnp.array([[0, 1, 2, 3, 4], [-1, -1, 0, 1, 2]])

    def loss(params):
      logits, _ = run(arch, params, tokens, positions=positions)
      return jnp.mean(logits[:, -1] ** 2)

    for leaf in jax.tree.leaves(jax.grad(loss)(params)):
      self.assertTrue(bool(jnp.isfinite(leaf).all()))
      self.assertGreater(float(jnp.abs(leaf).max()), 0.0)

  def test_refuses_layers_that_do_not_exist(self):
    arch, params = toys.PLAIN, toys.params_of(toys.PLAIN)
    tokens = toys.tokens_of(arch, (1, 3))
    with self.assertRaisesRegex(ValueError, 'attention: there is no layer 3 among 3'):
      transformer.forward(arch, params, tokens, attention=(3,))
    with self.assertRaisesRegex(ValueError, 'streams: there is no layer -1'):
      transformer.forward(arch, params, tokens, streams=(-1,))
    with self.assertRaisesRegex(ValueError, 'size=0'):
      transformer.init_cache(arch, params, 1, 0)
    with self.assertRaisesRegex(ValueError, 'new cache'):
      cache = transformer.init_cache(arch, params, 1, 4)
      transformer.forward(arch, params, tokens, cache=cache, room=2)
