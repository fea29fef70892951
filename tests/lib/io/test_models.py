import json
import pathlib
import unittest

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl.testing import parameterized

from lib.io import gguf, models, tokenizer
from lib.lm import generate, score, text, transformer
from tests.lib.lm import reference

FIXTURES = pathlib.Path(__file__).parents[1] / 'lm' / 'fixtures'
FACTS = json.loads((FIXTURES / 'smollm2_tokens.json').read_text())


def smollm2():
  try:
    return models.find(models.SMOLLM2)
  except FileNotFoundError as error:
    raise unittest.SkipTest(str(error)) from error


class LoadTest(parameterized.TestCase):
  @parameterized.parameters('/no/such/model.gguf', '/no/such/directory')
  def test_what_is_missing_is_named(self, path):
    with self.assertRaisesRegex(OSError, path):
      models.load(path)

  def test_directory_without_a_tokeniser_is_named(self):
    with self.assertRaisesRegex((ValueError, OSError), 'llama'):
      models.load(FIXTURES / 'llama')


class SmolLm2TokensTest(parameterized.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.tokenizer = tokenizer.from_gguf(gguf.open_gguf(smollm2()))

  def test_ids_are_those_of_transformers(self):
    for content, ids in FACTS['texts']:
      self.assertEqual(self.tokenizer.encode(content), ids, content)
      self.assertEqual(self.tokenizer.decode(ids), content)

  def test_chats_are_those_of_transformers(self):
    for messages, ids in FACTS['chats']:
      self.assertEqual(self.tokenizer.encode_chat(messages), ids)


@pytest.mark.slow
class SmolLm2Test(chex.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    smollm2()
    cls.model = models.load(stacked=False)

  def test_logits_are_those_of_the_plain_implementation(self):
    tokens = self.model.tokenizer.encode_chat([{'role': 'user', 'content': 'Count to 3!'}])
    params = transformer.stack(self.model.params)
    expected, *_ = reference.forward(self.model.arch, params, np.array(tokens))
    forward = jax.jit(
      lambda p, t: transformer.logits(
        self.model.arch, p, transformer.forward(self.model.arch, p, t).hidden
      )
    )
    for layout in (self.model.params, params):
      found = forward(layout, jnp.asarray(tokens)[None])[0]
      np.testing.assert_allclose(found, expected, atol=2e-3)

  def test_answers(self):
    chat = [{'role': 'user', 'content': 'What is the capital of France?'}]
    ((answer,),) = text.complete(
      self.model.arch,
      self.model.params,
      [self.model.tokenizer.encode_chat(chat)],
      self.model.tokenizer.decode,
      max_tokens=16,
      stop_tokens=self.model.tokenizer.eos,
    )
    self.assertIn('Paris', answer.text)
    self.assertTrue(answer.stopped)

  def test_finds_text_likelier_than_its_words_in_disorder(self):
    words = ['The', 'cat', 'sat', 'on', 'the', 'mat', 'because', 'it', 'was', 'tired', '.']
    lists = [self.model.tokenizer.encode(' '.join(order)) for order in (words, words[::-1])]
    tokens, positions = generate.pad_left(lists, 16)
    total, _ = jax.jit(score.sequence_log_probs, static_argnums=0)(
      self.model.arch, self.model.params, tokens, positions, positions >= 0
    )
    self.assertGreater(float(total[0]), float(total[1]) + 10)
