"""Tests of lib.io.vote_records."""

import itertools
import json
import pathlib
import random
import tempfile

import numpy as np
from absl.testing import absltest, parameterized

from lib.io import vote_records
from lib.judging import categories, votes

MODELS = ('J', 'K', 'L')


def _line(example, target, game, judge='J', **more):
  """A vote whose probabilities are unlike all others'."""
  rng = random.Random(f'{example} {target} {game} {judge}')
  p = np.array([rng.random() for _ in range(3)])
  p /= p.sum()
  return {
    'example_id': example, 'judge': judge, 'reference': 'R', 'proxy': target, 'game': game,
    'p_A': p[0], 'p_B': p[1], 'p_T': p[2], 'category': 'ILSP',
  } | more  # fmt: skip


def _lines():
  return [_line(f'e{i}', target, game) for i in range(4) for target in MODELS for game in (1, 2)]


class VoteRecordsTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    directory = self.enterContext(tempfile.TemporaryDirectory())
    self.path = pathlib.Path(directory, 'votes.jsonl')

  def read(self, lines):
    self.path.write_text('\n'.join(map(json.dumps, lines)))
    return vote_records.read(self.path)

  def test_columns_decode_to_the_lines(self):
    lines = _lines()
    lines[0] |= {'example_id': 7, 'category': None, 'answer': 'x', 'other': [1]}
    lines[1] |= {'example_id': 7, 'category': None, 'answer': 'x'}
    lines[2] |= {'category': 'LSP', 'example_id': 'f', 'same_error': True}
    lines[3] |= {'category': 'LSP', 'example_id': 'f', 'same_error': True}
    records = self.read(lines)
    codes = {None: categories.NEITHER, 'LSP': categories.LEGITIMATE, 'ILSP': categories.HARMFUL}
    for i, line in enumerate(lines):
      self.assertEqual(records.examples[records.example[i]], str(line['example_id']))
      self.assertEqual(records.models[records.judge[i]], line['judge'])
      self.assertEqual(records.models[records.reference[i]], line['reference'])
      self.assertEqual(records.models[records.target[i]], line['proxy'])
      self.assertEqual(records.game[i], line['game'])
      self.assertEqual(records.category[i], codes[line['category']])
      self.assertEqual(records.same_error[i], line.get('same_error', -1))
      self.assertEqual(records.answer[i], 0 if 'answer' in line else -1)
      np.testing.assert_array_equal(records.probs[i], [line[p] for p in ('p_A', 'p_B', 'p_T')])
    self.assertEqual(records.answers, ('x',))

  @parameterized.parameters('J', None)
  def test_pairs_hold_both_games_of_both(self, own):
    lines = [line | {'proxy': own if line['proxy'] == 'J' else line['proxy']} for line in _lines()]
    random.Random(0).shuffle(lines)
    pairs = vote_records.pair_games(records := self.read(lines))
    self.assertEqual((pairs.num_dropped, pairs.num_unused), (0, 0))
    found = set()
    for i, (example, proxy) in enumerate(zip(pairs.example, pairs.proxy, strict=True)):
      example, proxy = records.examples[example], records.models[proxy]
      found.add((example, proxy))
      for games, target in ((pairs.judge_games, 'J'), (pairs.proxy_games, proxy)):
        for game in (1, 2):
          line = _line(example, target, game)
          expected = [line['p_A'], line['p_B'], line['p_T']]
          np.testing.assert_array_equal(games[i, game - 1], expected)
    self.assertEqual(found, set(itertools.product(('e0', 'e1', 'e2', 'e3'), 'KL')))
    # A judge that votes by position alone prefers nobody.
    flat = records._replace(probs=np.tile([0.9, 0.1, 0.0], (len(lines), 1)))
    games = vote_records.pair_games(flat).judge_games
    np.testing.assert_allclose(votes.position_average(games[:, 0], games[:, 1]), 0.5, atol=1e-7)

  def test_missing_games_are_counted(self):
    lines = _lines()
    del lines[0]  # game 1 of J on e0, on which two pairs stand
    lines = [x for x in lines if (x['example_id'], x['proxy'], x['game']) != ('e1', 'K', 2)]
    lines = [x for x in lines if (x['example_id'], x['proxy']) != ('e2', 'J')]
    lines.append(_line('e3', 'K', 1, judge='K'))
    pairs = vote_records.pair_games(self.read(lines))
    self.assertLen(pairs.example, 3)  # L on e1, K and L on e3
    self.assertEqual(pairs.num_dropped, 5)
    self.assertEqual(pairs.num_unused, len(lines) - (4 + 6))

  def test_no_pairs(self):
    pairs = vote_records.pair_games(self.read(_lines()[:2]))
    self.assertEqual(pairs.judge_games.shape, (0, 2, 3))
    self.assertEqual((pairs.num_dropped, pairs.num_unused), (0, 2))

  def test_same_error_is_given_or_follows_from_the_answers(self):
    said = {
      'e0': ('x', 'x', None),
      'e1': ('x', 'y', None),
      'e2': ('x', 'y', True),
      'e3': ('', '', None),
    }
    lines = []
    for line in _lines():
      own, other, same = said[line['example_id']]
      more = {'answer': own} if line['proxy'] == 'J' else {'answer': other, 'same_error': same}
      lines.append(line | more)
    pairs = vote_records.pair_games(records := self.read(lines))
    expected = {'e0': 1, 'e1': 0, 'e2': 1, 'e3': -1}
    for example, same in zip(pairs.example, pairs.same_error, strict=True):
      self.assertEqual(same, expected[records.examples[example]])

  def test_category_is_the_proxys(self):
    lines = [x | ({'category': None} if x['proxy'] != 'K' else {}) for x in _lines()]
    pairs = vote_records.pair_games(records := self.read(lines))
    for proxy, category in zip(pairs.proxy, pairs.category, strict=True):
      is_k = records.models[proxy] == 'K'
      self.assertEqual(category, categories.HARMFUL if is_k else categories.NEITHER)

  @parameterized.parameters(
    ({'example_id': ''}, "field 'example_id' is empty"),
    ({'example_id': 1.0}, "field 'example_id' is float"),
    ({'judge': None}, "field 'judge' is NoneType"),
    ({'judge': ''}, "field 'judge' is empty"),
    ({'reference': 3}, "field 'reference' is int"),
    ({'proxy': []}, "field 'proxy' is list"),
    ({'game': 3}, "field 'game' is 3, expected 1 or 2"),
    ({'game': True}, "field 'game' is bool"),
    ({'game': '1'}, "field 'game' is str"),
    ({'p_A': float('nan')}, "field 'p_A' is nan, expected a probability"),
    ({'p_B': float('inf')}, "field 'p_B' is inf"),
    ({'p_T': -0.1}, "field 'p_T' is -0.1"),
    ({'p_T': 10**400}, "field 'p_T' is 10"),
    ({'p_A': '0.5'}, "field 'p_A' is str"),
    ({'p_A': True}, "field 'p_A' is bool"),
    ({'p_A': 0.0, 'p_B': 0.0, 'p_T': 0.9}, 'sum to 0.9'),
    ({'category': 'lsp'}, "field 'category' is 'lsp', expected 'LSP', 'ILSP' or null"),
    ({'category': 1}, "field 'category' is int"),
    ({'answer': 3}, "field 'answer' is int"),
    ({'same_error': 1}, "field 'same_error' is int"),
    ({'judge': '\ud800'}, "field 'judge' has a lone surrogate"),
  )
  def test_bad_fields_are_named(self, change, message):
    lines = [*_lines(), _line('f', 'K', 1) | change]
    with self.assertRaisesRegex(ValueError, rf'votes\.jsonl:25: .*{message}'):
      self.read(lines)

  @parameterized.parameters(
    'example_id', 'judge', 'reference', 'proxy', 'game', 'p_A', 'p_B', 'p_T', 'category'
  )
  def test_missing_fields_are_named(self, name):
    line = _line('f', 'K', 1)
    del line[name]
    with self.assertRaisesRegex(ValueError, rf"votes\.jsonl:25: field '{name}' is missing"):
      self.read([*_lines(), line])

  @parameterized.parameters(
    (_line('e0', 'K', 1), r"field 'game': this game is at .*votes\.jsonl:3 already"),
    (_line('e0', None, 1), r'this game is at .*votes\.jsonl:1 already'),
    (_line('e0', 'M', 1, category='LSP'), r"field 'category' contradicts .*votes\.jsonl:1"),
  )
  def test_lines_that_do_not_go_together(self, line, message):
    with self.assertRaisesRegex(ValueError, rf'votes\.jsonl:25: .*{message}'):
      self.read([*_lines(), line])

  @parameterized.parameters({'category': None}, {'answer': 'x'}, {'same_error': False})
  def test_games_that_differ(self, **change):
    lines = [_line('e0', 'K', 1), _line('e0', 'K', 2) | change]
    with self.assertRaisesRegex(ValueError, rf'jsonl:2: field {next(iter(change))!r} differs .*:1'):
      self.read(lines)

  def test_tolerance(self):
    self.path.write_text(json.dumps(_line('a', 'K', 1, p_A=0.3, p_B=0.3, p_T=0.39)))
    self.assertLen(vote_records.read(self.path, tolerance=0.02).game, 1)
    for tolerance in (-1.0, float('nan')):
      with self.assertRaisesRegex(ValueError, 'must not be negative'):
        vote_records.read(self.path, tolerance=tolerance)

  def test_limits(self):
    lines = _lines()
    self.read(lines)
    with self.assertRaisesRegex(ValueError, r'votes\.jsonl: takes \d+ bytes, more than 100'):
      vote_records.read(self.path, max_bytes=100)
    self.path.write_bytes(b'')
    with self.assertRaisesRegex(ValueError, r'votes\.jsonl: is empty'):
      vote_records.read(self.path)

  def test_damage_is_refused_or_harmless(self):
    self.read(_lines()[:6])
    whole = self.path.read_bytes()
    rng = random.Random(0)
    for case in range(300):
      damaged = bytearray(whole)
      if case % 3:
        for _ in range(rng.randint(1, 4)):
          damaged[rng.randrange(len(whole))] = rng.choice([0, 0xFF, 0x39, rng.randrange(256)])
      else:
        del damaged[rng.randrange(len(whole)) :]
      self.path.write_bytes(damaged)
      try:
        records = vote_records.read(self.path)
      except ValueError as error:
        self.assertIn('votes.jsonl', str(error))
      else:
        self.assertTrue(np.isfinite(vote_records.pair_games(records).judge_games).all())


if __name__ == '__main__':
  absltest.main()
