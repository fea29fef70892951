"""Tests of the notebook runner itself."""

import json
import pathlib
import sys
import time

import psutil
import pytest
from nbclient import exceptions
from nbformat import v4

from tests.colabs import runner

INSTALL = '# %pip install -r requirements.txt'
FACTS = """
import json, os, sys
import lib
print(json.dumps({
  'executable': sys.executable,
  'package': lib.__file__,
  'tiny': os.environ['TINY'],
  'cwd': os.getcwd(),
  'files': os.listdir(),
}))
"""


def notebook(*sources):
  return v4.new_notebook(cells=[v4.new_code_cell(source) for source in sources])


def is_running(pid):
  """A zombie does not run: whoever inherited a process may take note of its end late."""
  try:
    return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
  except psutil.NoSuchProcess:
    return False


def test_runs_in_this_interpreter_and_an_empty_directory(tmp_path):
  done = runner.execute(notebook(FACTS, 'sum(range(4))'), tmp_path)
  facts = json.loads(done.cells[0].outputs[0].text)
  assert facts['executable'] == sys.executable
  assert pathlib.Path(facts['package']).parent == runner.ROOT / 'lib'
  assert facts['tiny'] == '1'
  assert tmp_path in pathlib.Path(facts['cwd']).parents
  assert facts['files'] == []
  assert done.cells[1].outputs[0].data['text/plain'] == '6'


def test_an_error_shows_the_cell_and_the_traceback(tmp_path):
  with pytest.raises(exceptions.CellExecutionError) as error:
    runner.execute(notebook('y = 1 / 0  # here'), tmp_path)
  for part in ('y = 1 / 0  # here', 'ZeroDivisionError', 'division by zero'):
    assert part in str(error.value)


@pytest.mark.parametrize(
  ('source', 'error'),
  [
    ('1 / 0', exceptions.CellExecutionError),
    ('while True: pass  # here', exceptions.CellTimeoutError),
    ('import os; os._exit(1)', exceptions.DeadKernelError),
  ],
)
def test_the_kernel_ends_whatever_happens(source, error, tmp_path):
  before = psutil.Process().children()
  with pytest.raises(error, match='here' if 'here' in source else None):
    runner.execute(notebook(source), tmp_path, seconds=1.0 if 'here' in source else 60.0)
  assert psutil.Process().children() == before  # a zombie would count


def test_what_a_cell_started_ends_with_the_kernel(tmp_path):
  cells = notebook('import subprocess; subprocess.Popen(["sleep", "600"]).pid')
  runner.execute(cells, tmp_path)
  sleeper = int(cells.cells[0].outputs[0].data['text/plain'])
  deadline = time.monotonic() + 10
  while is_running(sleeper) and time.monotonic() < deadline:
    time.sleep(0.01)
  assert not is_running(sleeper)


def test_faults_name_what_is_wrong():
  assert runner.faults(notebook(INSTALL, '1 + 1')) == []
  assert 'does not say how to install' in runner.faults(notebook())[0]
  assert 'does not say how to install' in runner.faults(notebook('1 + 1', INSTALL))[0]

  failed = notebook(INSTALL, '1 / 0')
  failed.cells[1].outputs.append(v4.new_output('error', ename='E', evalue='', traceback=[]))
  assert runner.faults(failed) == ['code cell 2 holds an error: 1 / 0']

  invalid = notebook(INSTALL)
  invalid.cells[0].pop('outputs')
  assert 'outputs' in runner.faults(invalid)[0]
