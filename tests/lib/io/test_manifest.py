"""Tests of lib.io.manifest."""

import hashlib
import json
import pathlib
import tempfile

from absl.testing import absltest, parameterized

from lib.io import manifest


class ManifestTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    directory = tempfile.TemporaryDirectory()
    self.addCleanup(directory.cleanup)
    self.directory = pathlib.Path(directory.name)
    (self.directory / 'a.bin').write_bytes(b'alpha')
    (self.directory / 'b.bin').write_bytes(b'beta')

  def write(self):
    manifest.write(self.directory, ['a.bin', 'b.bin'], {'recipe': {'seed': 3}})

  def test_records_facts_and_digests(self):
    self.assertIsNone(manifest.verify(self.directory))
    self.write()
    verified = manifest.verify(self.directory)
    self.assertEqual(verified['recipe'], {'seed': 3})
    digest = hashlib.sha256(b'alpha').hexdigest()
    self.assertEqual(verified['files']['a.bin'], {'sha256': digest, 'bytes': 5})

  @parameterized.parameters(b'Alpha', b'alph', b'')
  def test_changed_file_is_refused_by_name(self, content):
    self.write()
    (self.directory / 'a.bin').write_bytes(content)
    with self.assertRaisesRegex(ValueError, r'a\.bin: its sha256 differs'):
      manifest.verify(self.directory)

  def test_missing_file_is_refused_by_name(self):
    self.write()
    (self.directory / 'b.bin').unlink()
    with self.assertRaisesRegex(ValueError, r'b\.bin: missing'):
      manifest.verify(self.directory)

  @parameterized.parameters(
    '',
    '{"files": ',
    '[]',
    '{}',
    '{"files": {"a.bin": 3}}',
    json.dumps({'files': {'../a.bin': {'sha256': '', 'bytes': 0}}}),
    '[' * 100_000,
    ' ' * 2**21,
  )
  def test_malformed_manifest_is_refused_by_name(self, text):
    (self.directory / manifest.NAME).write_text(text)
    with self.assertRaisesRegex(ValueError, r'manifest\.json: not a manifest'):
      manifest.verify(self.directory)

  def test_versions_are_those_installed(self):
    self.assertEqual(list(manifest.versions(['numpy'])), ['numpy'])


if __name__ == '__main__':
  absltest.main()
