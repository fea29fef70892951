import functools
import itertools

import chex
import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from hypothesis import strategies as st

from lib.lm import generate, sampling, score, text, transformer
from tests.lib.lm import toys

ARCH = toys.PLAIN._replace(num_layers=1)
PROMPTS = [[3, 1, 4], [1, 5, 9, 2, 6], [5]]
HOT = sampling.Sampling(temperature=1.0)


def words(tokens):
  return ' '.join(f'w{token}' for token in tokens)


def complete(prompts=PROMPTS, **options):
  params = toys.params_of(ARCH)
  return text.complete(ARCH, params, prompts, words, **{'max_tokens': 6, **options})


class GreedyTest(chex.TestCase):
  def test_equals_the_argmax_of_full_passes(self):
    params = toys.params_of(ARCH)
    full = jax.jit(
      lambda tokens, positions: score.next_token_log_probs(ARCH, params, tokens, positions)
    )
    for prompt, (found,) in zip(PROMPTS, complete(), strict=True):
      tokens = list(prompt)
      for token, log_prob in zip(found.tokens, found.log_probs, strict=True):
        expected = full(*generate.pad_left([tokens], 12))[0]
        self.assertEqual(token, int(expected.argmax()))
        self.assertAlmostEqual(log_prob, float(expected.max()), delta=1e-4)
        tokens.append(token)
      self.assertLen(found.tokens, 6)
      self.assertFalse(found.stopped)


class SamplesTest(chex.TestCase):
  def test_depend_on_seed_and_place_alone(self):
    whole = complete(settings=HOT, num_samples=3, seed=4)
    for alone in (
      complete(settings=HOT, num_samples=3, seed=4, batch_size=1),
      complete(settings=HOT, num_samples=3, seed=4, show=lambda *_: None, show_every=1),
    ):
      for mine, theirs in zip(alone, whole, strict=True):
        for a, b in zip(mine, theirs, strict=True):
          self.assertEqual(a.tokens, b.tokens)
          np.testing.assert_allclose(a.log_probs, b.log_probs, atol=1e-4)
    fewer = complete(settings=HOT, num_samples=2, seed=4)
    self.assertEqual(
      [[c.tokens for c in s] for s in fewer], [[c.tokens for c in s[:2]] for s in whole]
    )
    self.assertNotEqual(whole[0][0].tokens, whole[0][1].tokens)
    other = complete(settings=HOT, num_samples=3, seed=5)
    self.assertNotEqual(whole[0][0].tokens, other[0][0].tokens)

  def test_log_probabilities_are_those_of_the_sequence(self):
    params = toys.params_of(ARCH)
    settings = sampling.Sampling(temperature=2.0, top_k=5)
    for prompt, samples in zip(PROMPTS, complete(settings=settings, num_samples=2), strict=True):
      for sample in samples:
        tokens, positions = generate.pad_left([[*prompt, *sample.tokens]], 12)
        counted = positions >= len(prompt)
        total, _ = score.sequence_log_probs(ARCH, params, tokens, positions, counted, block=5)
        self.assertAlmostEqual(float(total[0]), sum(sample.log_probs), delta=1e-3)


class StopTest(chex.TestCase):
  def test_a_stop_token_ends_its_row_and_is_counted(self):
    free = complete(max_tokens=8)
    stop = free[0][0].tokens[2]
    found = complete(max_tokens=8, stop_tokens=(stop,))
    for (before,), (after,) in zip(free, found, strict=True):
      ends = before.tokens.index(stop) + 1 if stop in before.tokens else 8
      self.assertEqual(after.tokens, before.tokens[:ends])
      self.assertEqual(after.stopped, stop in before.tokens)
      self.assertEqual(after.text, words([t for t in after.tokens if t != stop]))

  def test_a_stop_string_cuts_the_text(self):
    ((free,), *_) = complete()
    string = f' w{free.tokens[3]}'
    ((found,), *_) = complete(stop_strings=(string,))
    self.assertEqual(found.text, free.text[: free.text.index(string)])
    self.assertTrue(found.stopped)

  def test_what_is_shown_grows_to_the_text(self):
    seen = {}
    result = complete(
      show=lambda prompt, sample, t: seen.setdefault((prompt, sample), []).append(t), num_samples=2
    )
    for (prompt, sample), texts in seen.items():
      self.assertEqual(texts[-1], result[prompt][sample].text)
      for shorter, longer in itertools.pairwise(texts):
        self.assertStartsWith(longer, shorter)
    self.assertLen(seen, 6)


class RefusalTest(parameterized.TestCase):
  @parameterized.parameters(
    ({'prompts': [[]]}, 'prompt 0 is empty'),
    ({'prompts': [[1], [31]]}, 'prompt 1 has token 31; the model knows 0 to 30'),
    ({'prompts': [[1, -2]]}, 'token -2'),
    ({'prompts': [[1] * 60]}, '60 tokens, which with 6 more exceed the context, 64'),
    ({'max_tokens': 0}, 'max_tokens must be positive'),
    ({'num_samples': 0}, 'num_samples must be positive'),
    ({'stop_strings': ('',)}, 'stop string is empty'),
    ({'settings': sampling.Sampling(top_p=2.0)}, 'top_p'),
  )
  def test_says_what_is_wrong(self, options, message):
    with self.assertRaisesRegex(ValueError, message):
      complete(**options)

  @parameterized.parameters(([[1], []],), ([[1, 2, 3]],))
  def test_padding_refuses(self, prompts):
    with self.assertRaisesRegex(ValueError, 'it must have 1 to 2'):
      generate.pad_left(prompts, 2)


class BucketTest(parameterized.TestCase):
  @hypothesis.given(st.integers(1, 10**6))
  def test_wastes_less_than_half_and_has_few_values(self, length):
    size = generate.bucket(length)
    self.assertGreaterEqual(size, length)
    self.assertTrue(size == 16 or size < 1.5 * length + 1)
    odd = size >> ((size & -size).bit_length() - 1)
    self.assertIn(odd, (1, 3))

  def test_a_hundred_lengths_are_a_handful(self):
    self.assertLess(len({generate.bucket(n) for n in range(1, 101)}), 8)


class ScoreTest(chex.TestCase):
  @parameterized.parameters(1, 4, 100)
  def test_blocks_change_nothing(self, block):
    params = toys.params_of(ARCH)
    tokens = toys.tokens_of(ARCH, (2, 7))
    run = functools.partial(transformer.forward, ARCH, params)
    hidden = run(tokens).hidden
    full = jax.nn.log_softmax(transformer.logits(ARCH, params, hidden))
    expected = jnp.take_along_axis(full, tokens[..., None], axis=-1)[..., 0]
    found = score.token_log_probs(ARCH, params, hidden, tokens, block)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)

  @chex.variants(with_jit=True, without_jit=True)
  def test_labels_sum_their_spellings(self):
    log_probs = jnp.log(jnp.array([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]]))
    spellings = jnp.array([[0, 2], [3, -1]])
    found = self.variant(score.label_log_probs)(log_probs, spellings)
    np.testing.assert_allclose(jnp.exp(found), [[0.4, 0.4], [0.6, 0.1]], rtol=1e-5)

  def test_refuses_no_block(self):
    with self.assertRaisesRegex(ValueError, 'block=0'):
      score.token_log_probs(ARCH, {}, jnp.zeros((1, 2)), jnp.zeros(1, jnp.int32), 0)
