"""Tests of lib.io.answer_pools, and of lib.io.json_lines by way of it."""

import json
import pathlib
import random
import tempfile
from unittest import mock

import pyarrow
import pyarrow.parquet
from absl.testing import absltest, parameterized

from lib.io import answer_pools

ROWS = [
  {'question': 'a', 'answer': '18', 'gold': '18'},
  {'question': 'b', 'answer': 'no idea', 'gold': None},
  {'question': 'a', 'answer': '$18.00', 'gold': '18'},
  {'question': 'a', 'answer': '', 'gold': None},
  {'question': 'b', 'answer': '½ 🙂', 'gold': None},
]
LISTS = [
  {'question': 'a', 'answer': ['18', '$18.00', ''], 'gold': '18'},
  {'question': 'b', 'answer': ['no idea', '½ 🙂'], 'gold': None},
]
POOLS = answer_pools.Pools(('a', 'b'), (('18', '$18.00', ''), ('no idea', '½ 🙂')), ('18', None))


class PoolsTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

  def jsonl(self, rows) -> pathlib.Path:
    path = self.directory / 'pool.jsonl'
    path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
    return path

  def parquet(self, rows, **kwargs) -> pathlib.Path:
    path = self.directory / 'pool.parquet'
    table = rows if isinstance(rows, pyarrow.Table) else pyarrow.Table.from_pylist(rows)
    pyarrow.parquet.write_table(table, path, **kwargs)
    return path

  @parameterized.parameters((ROWS,), (LISTS,))
  def test_both_layouts_in_both_formats(self, rows):
    self.assertEqual(answer_pools.read_jsonl(self.jsonl(rows)), POOLS)
    for kwargs in (
      {}, {'compression': 'none'}, {'use_dictionary': False}, {'row_group_size': 1},
    ):  # fmt: skip
      self.assertEqual(answer_pools.read_parquet(self.parquet(rows, **kwargs)), POOLS)

  def test_other_names_integer_ids_and_no_golds(self):
    rows = [{'n': 7, 'text': 'x', 'more': [1]}, {'n': -1, 'text': 'y', 'more': []}]
    expected = answer_pools.Pools(('7', '-1'), (('x',), ('y',)), (None, None))
    names = {'question': 'n', 'answer': 'text'}
    self.assertEqual(answer_pools.read_jsonl(self.jsonl(rows), **names), expected)
    self.assertEqual(answer_pools.read_parquet(self.parquet(rows), **names), expected)

  def test_lists_of_other_arrow_types(self):
    kinds = (pyarrow.large_list(pyarrow.large_string()), pyarrow.list_(pyarrow.string()))
    for kind in kinds:
      columns = {
        'question': pyarrow.array(['a', 'b']).dictionary_encode(),
        'answer': pyarrow.array([['x', 'x'], ['y']], kind),
        'gold': pyarrow.array([None, 'y'], pyarrow.large_string()),
      }
      pools = answer_pools.read_parquet(self.parquet(pyarrow.table(columns)))
      self.assertEqual(pools, (('a', 'b'), (('x', 'x'), ('y',)), (None, 'y')))

  def test_last_line_needs_no_end_and_blank_lines_say_nothing(self):
    path = self.jsonl(ROWS)
    path.write_bytes(b'\n' + path.read_bytes().replace(b'\n', b'\r\n\n').rstrip())
    self.assertEqual(answer_pools.read_jsonl(path), POOLS)

  @parameterized.parameters(
    ({'answer': '1'}, "field 'question' is missing"),
    ({'question': 'a'}, "field 'answer' is missing"),
    ({'question': '', 'answer': '1'}, "field 'question' is empty"),
    ({'question': 1.5, 'answer': '1'}, "field 'question' is float, expected str or int"),
    ({'question': True, 'answer': '1'}, "field 'question' is bool"),
    ({'question': None, 'answer': '1'}, "field 'question' is NoneType"),
    ({'question': 'a', 'answer': 18}, "field 'answer' is int, expected str or list"),
    ({'question': 'a', 'answer': None}, "field 'answer' is NoneType"),
    ({'question': 'c', 'answer': ['1']}, "'answer' is a list in some rows and a text in others"),
    ({'question': 'a', 'answer': '1', 'gold': '17'}, "question 'a' has gold '17', and '18' before"),
    ({'question': 'a', 'answer': '1', 'gold': 18}, "field 'gold' is int, expected str"),
    ({'question': 'a', 'answer': '\ud800'}, "field 'answer' has a lone surrogate at 0"),
  )
  def test_bad_rows_are_named_by_line(self, row, message):
    with self.assertRaisesRegex(ValueError, rf'pool\.jsonl:6: .*{message}'):
      answer_pools.read_jsonl(self.jsonl([*ROWS, row]))

  @parameterized.parameters(
    ({'question': 'c', 'answer': []}, "field 'answer' is empty"),
    ({'question': 'c', 'answer': ['1', None]}, "field 'answer' holds NoneType, expected str"),
    ({'question': 'a', 'answer': ['1']}, "question 'a' has a list of answers already"),
    ({'question': 'c', 'answer': None}, "field 'answer' is NoneType"),
    ({'question': None, 'answer': ['1']}, "field 'question' is NoneType"),
  )
  def test_bad_rows_are_named_in_both_formats(self, row, message):
    with self.assertRaisesRegex(ValueError, rf'pool\.jsonl:3: .*{message}'):
      answer_pools.read_jsonl(self.jsonl([*LISTS, row]))
    with self.assertRaisesRegex(ValueError, rf'pool\.parquet: row 2: .*{message}'):
      answer_pools.read_parquet(self.parquet([*LISTS, row]))

  @parameterized.parameters(
    (b'{"question": "a", "answer"', 'not JSON'), (b'3', 'holds a int'), (b'[]', 'holds a list'),
    (b'\xff', 'not UTF-8 at byte 0'), (b'\0', 'not JSON'), (b'[' * 100_000, 'not JSON'),
    (b'{"question": "a\0"}', 'not JSON'), (b'9' * 5000, 'not JSON'), (b'{} {}', 'not JSON'),
    (b'{"question": "a", "answer": "1", "answer": "2"}', 'not JSON: a key is given twice'),
    (b'\xef\xbb\xbf{}', 'not JSON'),
  )  # fmt: skip
  def test_other_lines_are_named(self, line, message):
    path = self.jsonl(ROWS)
    path.write_bytes(path.read_bytes() + line)
    with self.assertRaisesRegex(ValueError, rf'pool\.jsonl:6: {message}'):
      answer_pools.read_jsonl(path)

  @parameterized.parameters(
    ({'question': ['a'], 'answer': [1.5]}, "column 'answer' has type double"),
    ({'question': ['a'], 'answer': [{'x': '1'}]}, "column 'answer' has type struct"),
    ({'question': ['a'], 'answer': [b'1']}, "column 'answer' has type binary"),
    ({'question': ['a'], 'answer': [[['1']]]}, "row 0: field 'answer' holds list, expected str"),
    ({'question': ['a'], 'answer': [1]}, "row 0: field 'answer' is int"),
    ({'question': ['a'], 'answers': ['1']}, "0 columns 'answer' among"),
    ({'answer': ['1']}, "0 columns 'question' among"),
  )
  def test_other_columns_are_named(self, columns, message):
    path = self.parquet(pyarrow.table(columns))
    with self.assertRaisesRegex(ValueError, rf'pool\.parquet: .*{message}'):
      answer_pools.read_parquet(path)

  def test_columns_that_repeat(self):
    table = pyarrow.table([['a'], ['1'], ['2']], names=['question', 'answer', 'answer'])
    with self.assertRaisesRegex(ValueError, "2 columns 'answer'"):
      answer_pools.read_parquet(self.parquet(table))

  def test_empty_files(self):
    for content in (b'', b'\n \n'):
      (self.directory / 'pool.jsonl').write_bytes(content)
      with self.assertRaisesRegex(ValueError, r'pool\.jsonl: is empty'):
        answer_pools.read_jsonl(self.directory / 'pool.jsonl')
    with self.assertRaisesRegex(ValueError, r'pool\.parquet: is empty'):
      answer_pools.read_parquet(
        self.parquet(pyarrow.table({'question': ['a'], 'answer': ['1']})[:0])
      )

  def test_large_files_are_refused(self):
    with self.assertRaisesRegex(ValueError, r'pool\.jsonl: takes \d+ bytes, more than 100'):
      answer_pools.read_jsonl(self.jsonl(ROWS), max_bytes=100)
    with self.assertRaisesRegex(ValueError, r'/dev/zero:1: is longer than 1000 bytes'):
      answer_pools.read_jsonl('/dev/zero', max_bytes=1000)
    # Of a file of kilobytes that claims megabytes.
    table = pyarrow.table({
      'question': pyarrow.array(['a'] * 1000), 'answer': pyarrow.array(['x' * 10**4] * 1000)
    })  # fmt: skip
    path = self.parquet(table, use_dictionary=['question'], compression='zstd')
    self.assertLess(path.stat().st_size, 10**5)
    with self.assertRaisesRegex(ValueError, r'claims \d{8} bytes, more than 1000000'):
      answer_pools.read_parquet(path, max_bytes=10**6)

  def test_texts_that_repeat_are_one(self):
    texts = ['x' * 10**5] * 100
    for columns in (
      {'question': ['a'] * 100, 'answer': texts},
      {'question': ['a'], 'answer': [texts]},
    ):
      path = self.parquet(pyarrow.table(columns))
      pools = answer_pools.read_parquet(path, max_bytes=10**6)
      self.assertEqual(pools.answers[0], tuple(texts))
      self.assertLen({id(text) for text in pools.answers[0]}, 1)

  def test_missing_files_are_missing(self):
    for read in (answer_pools.read_jsonl, answer_pools.read_parquet):
      with self.assertRaises(FileNotFoundError):
        read(self.directory / 'none')

  def test_missing_package_is_named(self):
    path = self.parquet(ROWS)
    with (
      mock.patch.dict('sys.modules', {'pyarrow': None}),
      self.assertRaisesRegex(ValueError, r'pool\.parquet: Parquet needs a package: pip install'),
    ):
      answer_pools.read_parquet(path)

  @parameterized.parameters('jsonl', 'parquet')
  def test_damage_is_refused_or_harmless(self, kind):
    if kind == 'parquet':
      path, read = self.parquet(LISTS), answer_pools.read_parquet
    else:
      path, read = self.jsonl(ROWS), answer_pools.read_jsonl
    whole = path.read_bytes()
    rng = random.Random(0)
    for case in range(150):
      damaged = bytearray(whole)
      if case % 3:
        for _ in range(rng.randint(1, 4)):
          damaged[rng.randrange(len(whole))] = rng.choice([0, 0xFF, 0x22, rng.randrange(256)])
      else:
        del damaged[rng.randrange(len(whole)) :]
      path.write_bytes(damaged)
      try:
        result = read(path)
      except ValueError as error:
        self.assertIn(path.name, str(error))
      else:
        self.assertLen(set(result.questions), len(result.questions))


if __name__ == '__main__':
  absltest.main()
