"""Tests of lib.io.jsonl."""

import json
import pathlib
import tempfile

import hypothesis
from absl.testing import absltest, parameterized
from hypothesis import strategies as st

from lib.io import jsonl

FIELDS = {'step': int, 'kind': str}
JSON = st.recursive(
  st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
  lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
  max_leaves=5,
)
RECORDS = st.builds(
  lambda more, step, kind: more | {'step': step, 'kind': kind},
  st.dictionaries(st.text(), JSON, max_size=3), st.integers(), st.text(),
)  # fmt: skip


class JsonlTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.path = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()), 'records.jsonl')

  @hypothesis.settings(max_examples=25, deadline=None)
  @hypothesis.given(st.lists(RECORDS, max_size=3), st.booleans(), st.binary(max_size=9))
  def test_round_trip(self, records, ascii_only, torn):
    lines = [(json.dumps(x, ensure_ascii=ascii_only) + '\n').encode('utf-8') for x in records]
    self.path.write_bytes(b''.join(lines) + torn.replace(b'\n', b''))
    self.assertEqual(jsonl.read(self.path, FIELDS), list(zip(lines, records, strict=True)))

  def test_every_cut_leaves_whole_records(self):
    record = {'step': 1, 'kind': 'a'}
    whole = (json.dumps(record) + '\n').encode() * 2
    for length in range(len(whole) + 1):
      self.path.write_bytes(whole[:length])
      found = jsonl.read(self.path, FIELDS)
      self.assertLen(found, whole[:length].count(b'\n'))
      self.assertTrue(all(x == record for _, x in found))

  @parameterized.parameters(
    b'', b'{', b'3', b'null', b'"step"', b'["step", "kind"]', b'{}', b'\xff', b'\0', b'[' * 100_000,
    b'{"step": 1}', b'{"step": 1.0, "kind": "a"}', b'{"step": true, "kind": "a"}',
    b'{"step": null, "kind": "a"}', b'{"step": 1, "kind": ["a"]}', b'{"step": 1, "kind": "a"} {}',
    b'9' * 5000,
  )  # fmt: skip
  def test_other_lines_are_named(self, line):
    good = b'{"step": 1, "kind": "a"}\n'
    self.path.write_bytes(good + line + b'\n' + good)
    with self.assertRaisesRegex(ValueError, r'records\.jsonl:2: not such a record'):
      jsonl.read(self.path, FIELDS)

  def test_no_fields_asked(self):
    self.path.write_bytes(b'{}\n{"a": 1}\n')
    self.assertEqual([record for _, record in jsonl.read(self.path, {})], [{}, {'a': 1}])

  def test_missing_file(self):
    with self.assertRaises(OSError):
      jsonl.read(self.path, FIELDS)


if __name__ == '__main__':
  absltest.main()
