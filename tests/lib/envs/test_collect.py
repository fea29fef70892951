"""Tests of lib.envs.collect."""

import functools
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
from absl.testing import absltest, parameterized

from lib.envs import collect, seeding
from tests.lib.envs import toys

COUNTS = {'train': 8, 'val': 2}
KILLED = """
import functools, sys
from lib.envs import collect
from tests.lib.envs import toys
make = functools.partial(toys.make_collector, 0.1)
collect.collect(make, {'train': 8, 'val': 2}, 3, sys.argv[1], 2)
"""


class CollectTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    directory = tempfile.TemporaryDirectory()
    self.addCleanup(directory.cleanup)
    self.directory = pathlib.Path(directory.name) / 'episodes'

  def collect(self, num_workers=1, **kwargs):
    return collect.collect(toys.make_collector, COUNTS, 3, self.directory, num_workers, **kwargs)

  def expected(self):
    collector = toys.make_collector()
    splits = {}
    for split, (name, count) in enumerate(COUNTS.items()):
      episodes = [collector(seeding.seed_sequence(3, split, i)) for i in range(count)]
      splits[name] = {
        key: np.concatenate([episode[key] for episode in episodes]) for key in ('x', 'last')
      }
    return splits

  def assert_expected(self, splits):
    for name, columns in self.expected().items():
      for key, column in columns.items():
        np.testing.assert_array_equal(splits[name][key], column)

  @parameterized.parameters(1, 3)
  def test_number_of_workers_changes_nothing(self, num_workers):
    seen = []
    splits = self.collect(num_workers, progress=lambda done, total: seen.append((done, total)))
    self.assert_expected(splits)
    self.assertEqual(seen, [(i, 10) for i in range(11)])

  def test_goes_on_from_what_is_whole(self):
    self.collect()
    kept, *broken = sorted(self.directory.glob('*.npz'))
    before = kept.stat().st_mtime_ns
    broken[0].unlink()
    broken[1].write_bytes(broken[1].read_bytes()[:100])
    (self.directory / 'x.npz.tmp-1').touch()
    seen = []
    splits = self.collect(progress=lambda done, total: seen.append(done))
    self.assert_expected(splits)
    self.assertEqual(seen, [8, 9, 10])
    self.assertEqual(kept.stat().st_mtime_ns, before)
    self.assertLen(os.listdir(self.directory), 10)
    collect.discard(self.directory)
    self.assertFalse(self.directory.exists())

  def test_killed_and_restarted_equals_never_stopped(self):
    process = subprocess.Popen([sys.executable, '-c', KILLED, self.directory])
    while process.poll() is None and not list(self.directory.glob('*.npz')):
      time.sleep(0.01)
    process.kill()
    process.wait()
    self.assert_expected(self.collect())

  def test_failing_collector_is_reported(self):
    make = functools.partial(toys.make_collector, 'not a pause')
    with self.assertRaisesRegex(RuntimeError, 'TypeError'):
      collect.collect(make, COUNTS, 3, self.directory, 1)


if __name__ == '__main__':
  absltest.main()
