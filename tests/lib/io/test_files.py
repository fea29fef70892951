"""Tests of lib.io.files."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from absl.testing import absltest

from lib.io import files


class FilesTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    directory = tempfile.TemporaryDirectory()
    self.addCleanup(directory.cleanup)
    self.directory = pathlib.Path(directory.name)

  def test_readers_see_the_old_file_or_the_new(self):
    path = self.directory / 'deep' / 'file'
    with files.replacing(path) as stream:
      stream.write(b'old')
    with files.replacing(path) as stream:
      stream.write(b'new')
      stream.flush()
      self.assertEqual(path.read_bytes(), b'old')
    self.assertEqual(path.read_bytes(), b'new')

  def test_failure_leaves_nothing(self):
    with self.assertRaises(KeyError), files.replacing(self.directory / 'file') as stream:
      stream.write(b'half')
      raise KeyError
    self.assertEmpty(os.listdir(self.directory))

  def test_json(self):
    path = self.directory / 'deep' / 'a.json'
    for value in ({'λ': [1, 2.5, None, True], 'deep': {'er': 'text\n'}}, [], 3):
      files.write_json(path, value)
      self.assertEqual(json.loads(path.read_bytes()), value)
      self.assertEndsWith(path.read_text(), '\n')
    with self.assertRaises(TypeError):
      files.write_json(path, {'half': 1, 'a set': {1}})
    self.assertEqual(json.loads(path.read_bytes()), 3)
    self.assertEqual(os.listdir(path.parent), ['a.json'])

  def test_sweep_removes_what_a_killed_writer_left(self):
    code = (
      'import os, signal, sys\n'
      'from lib.io import files\n'
      'with files.replacing(sys.argv[1]) as stream:\n'
      '  stream.write(b"half")\n'
      '  os.kill(os.getpid(), signal.SIGKILL)\n'
    )
    (self.directory / 'other').touch()
    subprocess.run([sys.executable, '-c', code, self.directory / 'file'], check=False)
    self.assertLen(os.listdir(self.directory), 2)
    files.sweep(self.directory)
    self.assertEqual(os.listdir(self.directory), ['other'])

  def test_lock_goes_with_its_process(self):
    code = (
      'import sys\n'
      'from lib.io import files\n'
      'with files.locked(sys.argv[1]):\n'
      '  print("held", flush=True)\n'
      '  sys.stdin.read()\n'
    )
    path = self.directory / 'lock'
    holder = subprocess.Popen(
      [sys.executable, '-c', code, path], stdout=subprocess.PIPE, stdin=subprocess.PIPE
    )
    self.assertEqual(holder.stdout.readline(), b'held\n')
    holder.kill()
    holder.communicate()
    with files.locked(path):
      pass


if __name__ == '__main__':
  absltest.main()
