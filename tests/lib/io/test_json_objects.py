"""Tests of lib.io.json_objects."""

import pathlib
import tempfile

from absl.testing import absltest, parameterized

from lib.io import json_objects


class ReadObjectTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    directory = tempfile.TemporaryDirectory()
    self.addCleanup(directory.cleanup)
    self.path = pathlib.Path(directory.name) / 'config.json'

  def test_reads_an_object(self):
    self.path.write_text('{"a": [1, 2.5, null], "b": {"é": "🙂"}, "a": [1, 2.5, null]}')
    expected = {'a': [1, 2.5, None], 'b': {'é': '🙂'}}
    self.assertEqual(json_objects.read_object(str(self.path)), expected)

  @parameterized.parameters(
    (b'', 'not JSON'),
    (b'{"a": ', 'not JSON'),
    (b'\xff\xfe{', 'not JSON'),
    (b'{"a": ' * 100_000, 'not JSON'),
    (b'[' * 100_000, 'not JSON'),
    (b'{"a": ' + b'9' * 10_000 + b'}', 'not JSON'),
    (b'[]', 'holds a list'),
    (b'3', 'holds a int'),
    (b'{"a": 1, "a": 2}', "key 'a' has two values"),
    (b'{"b": {"a": 1, "a": 2}}', "key 'a' has two values"),
    (b'{"a": "' + b'x' * 1000 + b'"}', 'larger than 1000 bytes'),
  )
  def test_anything_else_is_refused_by_name(self, content, message):
    self.path.write_bytes(content)
    limit = 1000 if 'larger' in message else 2**20
    with self.assertRaisesRegex(ValueError, rf'config\.json: .*{message}'):
      json_objects.read_object(self.path, limit)

  def test_missing_file_is_missing(self):
    with self.assertRaises(FileNotFoundError):
      json_objects.read_object(self.path)


if __name__ == '__main__':
  absltest.main()
