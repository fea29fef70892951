"""Tests of all experiments' programs at once."""

import pathlib
import subprocess
import sys

from absl.testing import absltest

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = """
import importlib, sys
from jax._src import xla_bridge
for name in sys.argv[1:]:
  importlib.import_module(name)
  if xla_bridge.backends_are_initialized():
    sys.exit(f'{name} starts the devices')
"""


class MainsTest(absltest.TestCase):
  def test_none_starts_the_devices_before_their_number_is_set(self):
    names = [f'experiments.{path.parent.name}.main' for path in ROOT.glob('experiments/*/main.py')]
    self.assertNotEmpty(names)
    found = subprocess.run(
      [sys.executable, '-c', PROGRAM, *sorted(names)],
      cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    self.assertEqual(found.returncode, 0, found.stderr)


if __name__ == '__main__':
  absltest.main()
