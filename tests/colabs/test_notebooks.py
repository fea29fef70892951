"""Runs the notebooks of colabs/ as the README's reader would, with their tiny configs."""

import nbformat
import pytest

from tests.colabs import runner

NOTEBOOKS = sorted(path.name for path in (runner.ROOT / 'colabs').glob('*.ipynb'))


def read(name):
  return nbformat.read(runner.ROOT / 'colabs' / name, as_version=4)


@pytest.mark.parametrize('name', NOTEBOOKS)
def test_is_fit_to_commit(name):
  assert runner.faults(read(name)) == []


@pytest.mark.parametrize('name', NOTEBOOKS)
def test_runs(name, tmp_path):
  runner.execute(read(name), tmp_path)
