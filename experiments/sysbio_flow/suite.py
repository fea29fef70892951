"""Runs the SBML Test Suite: `python -m experiments.sysbio_flow.suite --folder=.../cases/semantic`.

A case passes if all results are within its tolerances. The cases come from
https://github.com/sbmlteam/sbml-test-suite; each takes seconds, for its model is compiled.
"""

import pathlib
from collections.abc import Sequence

from absl import app, flags

from experiments.sysbio_flow import cases, outcomes

_FOLDER = flags.DEFINE_string('folder', None, 'The folder cases/semantic.', required=True)
_STRIDE = flags.DEFINE_integer('stride', 1, 'Runs one of each so many cases.', lower_bound=1)


def main(argv: Sequence[str]) -> None:
  """Runs the suite."""
  if len(argv) > 1:
    raise app.UsageError(f'What is {argv[1]!r}?')
  folders = sorted(path for path in pathlib.Path(_FOLDER.value).iterdir() if path.is_dir())
  if not folders:
    raise app.UsageError(f'{_FOLDER.value} has no cases.')
  found = {path.name: path for path in folders[:: _STRIDE.value]}
  outcomes.collect(cases.make_worker, found, 'case')


if __name__ == '__main__':
  app.run(main)
