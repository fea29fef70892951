"""Tests of lib.io.manifest."""

import hashlib
import json
import os
import pathlib
import platform
import shutil
import subprocess
import tempfile
from unittest import mock

import numpy as np
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
    self.assertEqual(manifest.versions(['numpy']), {'numpy': np.__version__})

  def test_environment(self):
    facts = manifest.environment()
    self.assertEqual(facts['python'], platform.python_version())
    self.assertEndsWith(facts['machine'], f', {os.cpu_count()} CPUs')
    self.assertRegex(facts['git'], r'^([0-9a-f]{40}(-dirty)?)?$')
    json.dumps(facts)

  def test_environment_without_git(self):
    with mock.patch.object(subprocess, 'run', side_effect=FileNotFoundError):
      self.assertEqual(manifest.environment()['git'], '')

  def seal(self):
    (self.directory / 'deep').mkdir()
    (self.directory / 'deep' / 'c.bin').write_bytes(b'')
    self.assertFalse(manifest.is_sealed(self.directory))
    manifest.seal(self.directory)
    self.assertTrue(manifest.is_sealed(self.directory))

  def test_seal_holds_for_a_copy(self):
    self.seal()
    with tempfile.TemporaryDirectory() as directory:
      copy = shutil.copytree(self.directory, pathlib.Path(directory, 'copy'))
      self.assertTrue(manifest.is_sealed(str(copy)))
    manifest.seal(self.directory)  # again
    self.assertTrue(manifest.is_sealed(self.directory))

  @parameterized.parameters(
    lambda d: (d / 'a.bin').rename(d / 'c.bin'),
    lambda d: (d / 'deep' / 'c.bin').rename(d / 'c.bin'),
    lambda d: (d / 'a.bin').unlink(),
    lambda d: (d / 'deep' / 'c.bin').unlink(),
    lambda d: (d / 'c.bin').touch(),
    lambda d: (d / 'deep' / 'd.bin').touch(),
    lambda d: (d / 'deep' / 'sha256').touch(),
    lambda d: (d / 'a.bin').write_bytes(b'alphb'),
    lambda d: (d / 'a.bin').write_bytes(b'alph'),
    lambda d: (d / 'deep' / 'c.bin').write_bytes(b'\0'),
    lambda d: (d / 'a.bin').replace(d / 'b.bin'),
    lambda d: shutil.rmtree(d / 'deep'),
    lambda d: (d / 'sha256').unlink(),
    lambda d: (d / 'sha256').write_bytes(b''),
    lambda d: (d / 'sha256').write_bytes(b'\xff' * 64),
    lambda d: (d / 'sha256').write_text((d / 'sha256').read_text().upper() + '0'),
  )
  def test_seal_breaks(self, change):
    self.seal()
    change(self.directory)
    self.assertFalse(manifest.is_sealed(self.directory))

  def test_files_that_swap_names_break_the_seal(self):
    self.seal()
    (self.directory / 'a.bin').write_bytes(b'beta')
    (self.directory / 'b.bin').write_bytes(b'alpha')
    self.assertFalse(manifest.is_sealed(self.directory))

  def test_no_directory_is_not_sealed(self):
    self.assertFalse(manifest.is_sealed(self.directory / 'missing'))
    self.assertFalse(manifest.is_sealed(self.directory / 'a.bin'))


if __name__ == '__main__':
  absltest.main()
