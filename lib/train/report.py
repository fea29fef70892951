"""Host. Results of runs: rows, and tables of them. `python -m lib.train.report DIR...` merges."""

import json
import pathlib
import sys
from collections.abc import Iterable, Sequence

from lib.io import files
from lib.stats import tables
from lib.train.app import Run


def write_results(run: Run, rows: Sequence[tables.Row]) -> None:
  """Writes WORKDIR/results.json."""
  results = {'experiment': run.experiment, 'config': run.config_file, 'rows': list(rows)}
  files.write_json(run.workdir / 'results.json', results)


def write_report(run: Run, title: str, sections: Iterable[str]) -> None:
  """Writes WORKDIR/report.md: a title, and sections of Markdown below."""
  with files.replacing(run.workdir / 'report.md') as stream:
    stream.write(('\n\n'.join([f'# {title}', *sections]) + '\n').encode())


def merge(directories: Iterable[str]) -> str:
  """Returns one table of the results in several workdirs.

  Raises a ValueError or an OSError that names a results.json which is something else or missing.
  """
  rows = []
  for directory in directories:
    path = pathlib.Path(directory) / 'results.json'
    try:
      results = json.loads(path.read_bytes())
      where = {'experiment': results['experiment'], 'config': results['config'], 'run': directory}
      rows += [where | row for row in results['rows'] if tables.table([row])]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
      raise ValueError(f'{path}: not results of a run: {error!r}') from error
  return tables.table(rows)


if __name__ == '__main__':
  try:
    print(merge(sys.argv[1:]) if sys.argv[1:] else __doc__)
  except (ValueError, OSError) as error:
    sys.exit(f'error: {error}')
