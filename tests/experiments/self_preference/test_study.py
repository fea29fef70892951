"""Tests of the study: tables that must follow from votes, restarts, bad input."""

import json
import pathlib
import tempfile
from unittest import mock

import chex
import numpy as np
from absl.testing import parameterized

from configs.self_preference import lm as lm_config
from configs.self_preference import quick
from configs.self_preference import records as records_config
from experiments.self_preference import cells, lm, study
from lib.io import models, questions
from lib.judging import categories
from lib.lm import text
from lib.train import app, signals
from tests.lib.lm import toys

ARCH = toys.PLAIN._replace(num_layers=2, context=512)
HEAD = 'from configs.self_preference import {module}\n\ndef get_config():\n  config = {module}'
HEAD += (
  '.get_config()\n  config.num_draws = 49\n  config.min_ilsp = 1\n  config.stability_draws = 4\n'
)
TINY = (
  HEAD.format(module='quick')
  + """
  config.digits.update({'num_seeds': 2, 'models': 3, 'bonuses': (0.0, 0.5), 'noises': (0.0,)})
  config.calibration.update({
    'datasets': 20, 'num_items': 8, 'bonuses': (0.0,), 'num_draws': 9, 'proxies': (2,),
  })
  return config
"""
)
TINY_LM = (
  HEAD.format(module='lm')
  + """
  config.lm.tasks = {'sums1': 3, 'products': 3}
  config.lm.spellings = (('A',), ('B',), ('T',))
  config.lm.authors.drop1.drop = 1
  for name in ('teacher', 'hasty', 'drop2', 'drop4'):
    del config.lm.authors[name]
  config.lm.batch_size = 4
  config.lm.question = '{question} {a} {b}'
  return config
"""
)
RECORDS = (
  HEAD.format(module='records')
  + """
  config.path = 'PATH'
  return config
"""
)


class Letters:
  """A tokeniser of letters; an answer is the first token's number."""

  eos = frozenset({0})

  def encode(self, text):
    return [1 + ord(c) % 30 for c in text]

  def decode(self, tokens):
    return ' '.join(str(token % 12) for token in tokens)

  def encode_chat(self, messages):
    return [token for m in messages for token in self.encode(m['content'])]


def model():
  return models.Model(ARCH, toys.params_of(ARCH), Letters())


def complete(arch, params, prompts, decode, **options):
  """Answers in place of a model's: a number that follows from the prompt."""
  del arch, params, decode, options
  return [[text.Completion(str(sum(prompt) % 7 + 2), [], [], True)] for prompt in prompts]


def vote(example, target, game, p, **more):
  base = {'example_id': example, 'judge': 'j', 'reference': 'r', 'proxy': target, 'game': game}
  own, other = p, 0.9 - p
  a, b = (own, other) if game == 1 else (other, own)
  return base | {'p_A': a, 'p_B': b, 'p_T': 0.1, 'category': 'ILSP'} | more


class RunTest(chex.TestCase):
  def setUp(self):
    super().setUp()
    self.directory = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory()))
    self.say = self.enter_context(mock.patch('lib.train.console.say'))

  def go(self, config, prepare=study.prepare):
    (self.directory / 'tiny.py').write_text(config)
    argv = ['self_preference', f'--config={self.directory}/tiny.py']
    return app.main([*argv, f'--workdir={self.directory}/run'], prepare, study.run)

  def rows(self):
    return json.loads((self.directory / 'run' / 'results.json').read_text())['rows']

  def test_quick_parts_hold_what_must_hold(self):
    self.assertEqual(self.go(TINY), 0)
    rows = self.rows()
    find = lambda **keys: [r for r in rows if all(r.get(k) == v for k, v in keys.items())]
    (share,) = find(source='published', method='all', metric='share_significant')
    self.assertEqual(share['mean'], 15 / 32)
    (largest,) = find(metric='largest_same_error_excess')
    self.assertLessEqual(largest['mean'], 1e-12)
    (blind,) = find(method='no bonus, no noise', metric='excess')
    self.assertGreater(blind['mean'], 0.1)
    for row in find(method='bonus 0, noise 0', metric='share_recommended'):
      self.assertEqual(row['mean'], 0.0)
    (bonus,) = find(method='bonus 0.5, noise 0', metric='mean_recommended')
    self.assertGreater(bonus['mean'], 0.0)
    self.assertLen(find(source='simulated'), 3)
    for picture in ('power', 'calibration', 'judges-digits', 'entropy-digits'):
      path = self.directory / 'run' / 'figures' / f'{picture}.png'
      self.assertGreater(path.stat().st_size, 5_000)

  def test_a_killed_run_asks_only_what_is_left(self):
    prepare = lambda config: (study.check(config), study.Prepared(model(), None))[1]
    seen = []
    real = lm._verdicts

    def spied(arch, params, tokens, positions, ids):
      if len(seen) == 2 and not killed:
        killed.append(True)
        raise signals.Stopped(15)
      seen.append(np.unique(tokens, axis=0))  # padding repeats a prompt
      return real(arch, params, tokens, positions, ids)

    killed = []
    answering = self.enter_context(mock.patch.object(text, 'complete', side_effect=complete))
    self.enter_context(mock.patch.object(lm, '_verdicts', spied))
    self.assertEqual(self.go(TINY_LM, prepare), 128 + 15)
    (votes,) = (self.directory / 'run' / 'votes').glob('*.jsonl')
    with open(votes, 'ab') as stream:
      stream.write(b'{"key": "unfin')
    asked = answering.call_count
    self.assertEqual(self.go(TINY_LM, prepare), 0)
    self.assertEqual((asked, answering.call_count), (3, 3))
    files = sorted((self.directory / 'run' / 'votes').glob('*.jsonl'))
    kept = [json.loads(line)['key'] for file in files for line in file.read_text().splitlines()]
    self.assertLen(kept, sum(map(len, seen)))
    for row in self.rows():
      if row['metric'] == 'same_error_excess':
        self.assertEqual(row['mean'], 0.0)  # the same answers are the same prompt
    first = self.rows()
    with mock.patch.object(lm, '_verdicts', side_effect=AssertionError):
      self.assertEqual(self.go(TINY_LM, prepare), 0)
    self.assertEqual(self.rows(), first)

  def test_own_records(self):
    path = self.directory / 'votes.jsonl'
    lines = []
    for i in range(6):
      for target, p in (('j', 0.6), ('k', 0.4 + 0.01 * i), ('l', 0.6)):
        lines += [vote(i, target, game, p, same_error=target == 'l') for game in (1, 2)]
    path.write_text('\n'.join(map(json.dumps, lines)))
    self.assertEqual(self.go(RECORDS.replace('PATH', str(path))), 0)
    mean = {r['metric']: r['mean'] for r in self.rows() if r['method'] == 'all'}
    self.assertAlmostEqual(mean['raw'], 0.6, places=5)
    self.assertAlmostEqual(mean['excess'], (0.2 - 0.025) / 2, places=5)
    self.assertAlmostEqual(mean['mass_removed'], 1 - mean['excess'] / 0.6, places=5)
    self.assertAlmostEqual(mean['same_error_excess'], 0.0, places=5)

  @parameterized.parameters(
    ('', 'config.path'), ('{"game": 1}', 'votes.jsonl:1'), (None, 'No such file')
  )
  def test_bad_records_are_one_line(self, content, message):
    path = self.directory / 'votes.jsonl'
    if content:
      path.write_text(content)
    config = RECORDS.replace('PATH', '' if content == '' else str(path))
    self.assertEqual(self.go(config), 2)
    self.assertIn(message, self.say.call_args.args[0])
    self.assertFalse((self.directory / 'run').exists())


class GamesTest(chex.TestCase):
  def test_every_pair_finds_its_games_and_each_is_asked_once(self):
    items = [questions.Question(f'{i}', 't', f'{i}?', gold) for i, gold in enumerate('123')]
    answers = {'a': ['1', '4', '4'], 'b': ['5', '4', ''], 'c': ['1', '2', '6']}
    asked = lm.games(items, answers)
    self.assertLen(set(asked), len(asked))
    probs = {game: np.full(3, 1 / 3) for game in asked}
    collected = lm.Collected(items, answers, dict.fromkeys(answers, probs), {}, len(asked))
    pairs, names = lm.pairs(collected)
    found = {
      (*(names[m[i]] for m in (pairs.judge, pairs.proxy, pairs.reference)), pairs.example[i])
      for i in range(len(pairs.example))
      if pairs.category[i] == categories.HARMFUL
    }
    self.assertIn(('a', 'b', 'gold', 1), found)
    self.assertIn(('a', 'b', 'c', 1), found)
    self.assertIn(('a', 'c', 'gold', 2), found)
    self.assertLen(found, 6)  # and the other way round
    legitimate = (pairs.category == categories.LEGITIMATE).sum()
    self.assertEqual(legitimate, 2)  # a and c against b on the first item


class CellsTest(chex.TestCase):
  def test_cells_divide_pairs_and_small_ones_go(self):
    rng = np.random.default_rng(0)
    columns = [rng.integers(3, size=60) for _ in range(4)]
    pairs = cells.Pairs(*columns, *rng.random((2, 60)), rng.integers(3, size=60), columns[0] % 2)
    keys, rows = cells.split(pairs, ('judge', 'reference'))
    np.testing.assert_array_equal(np.sort(np.concatenate(rows)), np.arange(60))
    for key, cell in zip(keys, rows, strict=True):
      np.testing.assert_array_equal(pairs.judge[cell], key[0])
      np.testing.assert_array_equal(pairs.reference[cell], key[1])
    chosen = cells.harmful(pairs, min_ilsp=2)
    self.assertTrue((chosen.category == categories.HARMFUL).all())
    triplets = cells.split(chosen, cells.LEVELS['triplet (J, K, R)'])[1]
    self.assertGreaterEqual(min(map(len, triplets)), 2)
    self.assertLess(len(chosen.judge), (pairs.category == categories.HARMFUL).sum())


class CheckTest(parameterized.TestCase):
  @parameterized.parameters(quick, lm_config)
  def test_every_config_passes(self, module):
    study.check(module.get_config())

  def test_records_want_a_path(self):
    with self.assertRaisesRegex(ValueError, r'config\.path'):
      study.prepare(records_config.get_config())

  @parameterized.parameters(
    ({'parts': ('digit',)}, r'config\.parts'),
    ({'alpha': 0.0}, r'config\.alpha'),
    ({'num_draws': 0}, r'config\.num_draws'),
    ({'min_lsp': -1}, r'config\.min_lsp'),
    ({'digits': {'models': 2}}, r'config\.digits\.models'),
    ({'digits': {'bonuses': (0.1,)}}, r'config\.digits\.bonuses'),
    ({'digits': {'noises': (-1.0,)}}, r'config\.digits\.noises'),
    ({'calibration': {'num_items': 1}}, r'config\.calibration\.num_items'),
    ({'calibration': {'proxies': (0,)}}, r'config\.calibration\.proxies'),
    ({'calibration': {'noise': -1.0}}, r'config\.calibration\.noise'),
  )
  def test_names_the_bad_field(self, changes, message):
    config = quick.get_config()
    config.update(changes)
    with self.assertRaisesRegex(ValueError, message):
      study.check(config)

  @parameterized.parameters(
    ({'dtype': 'float8'}, 'dtype'),
    ({'tasks': {'chess': 3}}, "'chess'"),
    ({'question': 'Which?'}, 'question'),
    ({'question': '{question}{a}{b}{c}'}, 'question'),
    ({'batch_size': 0}, 'batch_size'),
    ({'authors': {'plain': {'shots': 3}}}, 'plain.shots'),
    ({'authors': {'plain': {'drop': -1}}}, 'plain.drop'),
    ({'spellings': (('A',), ('B',))}, 'spellings'),
  )
  def test_names_the_bad_field_of_the_model(self, changes, message):
    config = lm_config.get_config()
    config.lm.update(changes)
    with self.assertRaisesRegex(ValueError, rf'config\.lm\..*{message}|config\.lm\.{message}'):
      study.check(config)

  def test_labels_are_single_tokens(self):
    config = lm_config.get_config().lm
    with self.assertRaisesRegex(ValueError, "' A' is no single token"):
      lm.label_ids(config, models.Model(ARCH, None, Letters()))
