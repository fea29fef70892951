import collections
import json
import pathlib
import tempfile
from unittest import mock

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from scipy import stats

from experiments.blend_asc import pools
from lib.io import models, questions
from lib.lm import generate, sampling, score
from lib.voting import answers
from tests.lib.lm import toys

ARCH = toys.PLAIN._replace(num_layers=1, context=96)
FIXTURE = pathlib.Path(__file__).parent / 'fixtures' / 'smollm2_pool.json'
DRAW = pools.Draw(samples=12, max_tokens=3, seed=5)
ITEMS = questions.sums(0, 3)
HOT = sampling.Sampling(temperature=1.0)


class Letters:
  """A tokeniser whose text is the ids, so that the first integer is the first token."""

  eos = frozenset({7})

  def encode(self, text):
    return [1 + ord(c) % 30 for c in text[-6:]]

  def decode(self, tokens):
    return ' '.join(map(str, tokens))

  def encode_chat(self, messages):
    return [token for m in messages for token in self.encode(m['content'][8:])]


def model(seed=0):
  return models.Model(ARCH, toys.params_of(ARCH, seed), Letters())


class StoppedError(Exception):
  pass


_full = jax.jit(score.next_token_log_probs, static_argnums=0)


def full(prompts):
  """What the model says after each of 12 prompts, without a cache."""
  return np.asarray(_full(ARCH, toys.params_of(ARCH), *generate.pad_left(prompts, 24)))


@jax.jit
def choose(key, rows, t, log_probs):
  """Token t of each row, by a key of its own."""
  fold = jax.random.fold_in
  keys = jax.vmap(lambda i: fold(fold(key, i), t))(rows)
  return jax.vmap(lambda key, row: sampling.sample(key, row, HOT))(keys, log_probs)


class DrawTest(chex.TestCase):
  def setUp(self):
    super().setUp()
    self.directory = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory()))

  def test_a_run_that_was_stopped_ends_with_the_same(self):
    whole = pools.draw_pool(model(), ITEMS, DRAW)

    def stop(done, total):
      if done == 2:
        raise StoppedError

    with self.assertRaises(StoppedError):
      pools.draw_pool(model(), ITEMS, DRAW, self.directory, stop)
    seen = []
    show = lambda *state: seen.append(state)
    self.assertEqual(pools.draw_pool(model(), ITEMS, DRAW, self.directory, show), whole)
    self.assertEqual(seen, [(3, 3)])
    with mock.patch.object(pools, '_samples', side_effect=AssertionError):
      self.assertEqual(pools.draw_pool(model(), ITEMS, DRAW, self.directory), whole)
    self.assertLen(list(self.directory.iterdir()), 1)

  def test_other_questions_change_nothing(self):
    whole = pools.draw_pool(model(), ITEMS, DRAW)
    self.assertEqual(pools.draw_pool(model(), ITEMS[::-1], DRAW), whole[::-1])
    self.assertEqual(pools.draw_pool(model(), [], DRAW), [])

  def test_another_cause_has_another_file(self):
    item = ITEMS[0]
    draws = [DRAW, DRAW._replace(seed=6), DRAW._replace(prefix='x'), DRAW._replace(temperature=2.0)]
    with mock.patch.object(pools, '_samples', side_effect=self._nothing):
      for draw in draws:
        pools.draw_pool(model(), [item], draw, self.directory)
      pools.draw_pool(model(1), [item], DRAW, self.directory)
      pools.draw_pool(model(), [item._replace(prompt='Which number?')], DRAW, self.directory)
    self.assertLen(list(self.directory.iterdir()), 6)

  def _nothing(self, *_):
    return np.zeros((12, 3), np.int32), np.zeros(12, np.int32)

  def test_samples_are_those_of_full_passes_over_each_row(self):
    prompt, key = [3, 1, 4, 1], jax.random.key(2)
    tokens, positions = generate.pad_left([prompt], 64)
    args = (ARCH, toys.params_of(ARCH), tokens, positions, key, np.array([7], np.int32), HOT)
    found, counts = pools._samples(*args, 12, 3)
    for i, row in enumerate(found.tolist()):
      self.assertEqual(counts[i], row.index(7) + 1 if 7 in row else 3)
    for t in range(3):
      expected = choose(key, jnp.arange(12), t, full([prompt + row[:t] for row in found.tolist()]))
      np.testing.assert_array_equal(expected[counts > t], found[counts > t, t])

  def test_many_first_tokens_have_the_probabilities_of_the_model_and_few_are_the_first(self):
    count = 2000
    (row,) = pools.draw_pool(model(), ITEMS[:1], DRAW._replace(samples=count))
    self.assertEqual(row[:12], pools.draw_pool(model(), ITEMS[:1], DRAW)[0])
    p = np.exp(full([pools.prompt(model(), ITEMS[0], DRAW.prefix)] * 12)[0].astype(np.float64))
    seen = np.bincount(np.array(row, int), minlength=ARCH.vocabulary)
    self.assertGreater(stats.chisquare(seen, count * p / p.sum()).pvalue, 1e-3)

  @parameterized.parameters(
    ({'samples': 0}, 'samples must be positive'),
    ({'max_tokens': -1}, 'max_tokens must be positive'),
    ({'max_tokens': 90}, 'sums1/0/0 has .* exceed the context'),
    ({'temperature': -1.0}, 'temperature'),
  )
  def test_refuses(self, changes, message):
    with self.assertRaisesRegex(ValueError, message):
      pools.draw_pool(model(), ITEMS, DRAW._replace(**changes))

  def test_refuses_two_questions_of_one_id(self):
    with self.assertRaisesRegex(ValueError, 'one id'):
      pools.draw_pool(model(), ITEMS[:1] * 2, DRAW)

  def test_a_bad_file_is_named(self):
    with mock.patch.object(pools, '_samples', side_effect=self._nothing):
      pools.draw_pool(model(), ITEMS[:1], DRAW, self.directory)
      (file,) = self.directory.iterdir()
      for content in ('', '3', '["1,x"]', '[[1]]', '["1,2"]', '["1,2,3,4,5,6,7,8,9,0,1,'):
        file.write_text(f'{{"answers": {content}}}')
        with self.assertRaisesRegex(ValueError, file.name):
          pools.draw_pool(model(), ITEMS[:1], DRAW, self.directory)


class DigitsTest(chex.TestCase):
  def test_are_the_softmax_over_the_digits(self):
    found, mass = pools.digit_distributions(model(), ITEMS, batch_size=2)
    digits = [1 + ord(str(d)) % 30 for d in range(10)]
    log_probs = full([pools.prompt(model(), item, pools.PREFIX) for item in ITEMS * 4])
    p = np.exp(log_probs[:3, digits].astype(np.float64))
    np.testing.assert_allclose(mass, p.sum(axis=1), atol=1e-5)
    np.testing.assert_allclose(found, p / p.sum(axis=1, keepdims=True), atol=1e-5)

  def test_refuses_digits_of_two_tokens(self):
    self.enter_context(mock.patch.object(Letters, 'encode', return_value=[1, 2]))
    with self.assertRaisesRegex(ValueError, 'no token for each digit'):
      pools.digit_distributions(model(), ITEMS)


class FirstIntegerTest(parameterized.TestCase):
  @parameterized.parameters(
    ('14.', '14'), (' is 7 apples of 9', '7'), ('-3', '-3'), ('$1,200.', '1200'), ('3.5', '3'),
    ('8-5', '8'), ('1,20', '1'), ('none', None), ('', None), ('٣', None), ('x' * 99 + '5', '5'),
  )  # fmt: skip
  def test_examples(self, text, expected):
    self.assertEqual(answers.first_integer(text), expected)
    self.assertEqual(answers.first_integer(expected or ''), expected)


class ItemsTest(parameterized.TestCase):
  def test_halves_share_no_question_and_have_all_tasks_alike(self):
    items = questions.make({'sums1': 10, 'left': 7}, seed=1)
    validation, test = pools.halves(items)
    self.assertCountEqual([*validation, *test], items)
    self.assertEqual(collections.Counter(q.task for q in validation), {'sums1': 5, 'left': 4})
    self.assertEqual(collections.Counter(q.task for q in test), {'sums1': 5, 'left': 3})

  def test_refuses_a_task_that_is_none(self):
    with self.assertRaisesRegex(ValueError, "'tea'"):
      questions.make({'tea': 1}, seed=0)


class FixtureTest(parameterized.TestCase):
  """What SmolLM2-135M-Instruct said, made by `experiments/blend_asc/make_fixture.py`."""

  def setUp(self):
    super().setUp()
    raw = json.loads(FIXTURE.read_text())
    self.items = [questions.Question(*record) for record in raw['questions']]
    self.digits, self.mass = np.array(raw['digits']), np.array(raw['mass'])
    self.rows = pools.read(FIXTURE)

  def test_its_questions_are_made_from_its_seed(self):
    counts = collections.Counter(item.task for item in self.items)
    own = {task: count for task, count in counts.items() if task not in questions.REASONING_GYM}
    made = questions.make(own, seed=0)
    self.assertEqual(made, [item for item in self.items if item.task in own])

  def test_counts_of_first_digits_follow_the_exact_distributions(self):
    for item, row, p in zip(self.items, self.rows, self.digits, strict=True):
      digits = [int(answer[0]) for answer in row if answer[:1].isdigit()]
      seen, expected = np.bincount(digits, minlength=10), len(digits) * p / p.sum()
      often = expected > 3
      merge = lambda x, often=often: np.append(x[often], x[~often].sum())
      pvalue = stats.chisquare(merge(seen), merge(expected)).pvalue
      self.assertGreater(pvalue, 1e-3 / len(self.items), item)

  def test_some_questions_are_settled_and_some_are_not(self):
    encoded = answers.encode(self.rows, [item.gold for item in self.items], answers.number)
    counts = [np.bincount(code[code >= 0], minlength=2) for code in encoded.codes]
    shares = np.array([row.max() / row.sum() for row in counts])
    self.assertLess(shares.min(), 0.5)
    self.assertGreater(shares.max(), 0.9)
    self.assertLess(FIXTURE.stat().st_size, 60_000)
