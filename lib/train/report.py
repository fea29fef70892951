"""Host. Results of runs: rows, and tables of them. `python -m lib.train.report DIR...` merges."""

import json
import math
import pathlib
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from lib.io import files
from lib.stats import intervals
from lib.train.app import Run

Row = dict[str, Any]
_FIXED = ('metric', 'mean', 'ci95', 'interval', 'n', 'seeds', 'better')


def row(
  method: str,
  metric: str,
  interval: intervals.Interval,
  *,
  n: int,
  seeds: int,
  better: str | None = None,
  **keys: Any,
) -> Row:
  """Makes one row of results.json.

  Args:
    method: what was measured.
    metric: which of its numbers.
    interval: its mean and 95 % interval over seeds.
    n: number of measurements, such as episodes, over all seeds.
    seeds: number of seeds.
    better: 'higher', 'lower', or None.
    **keys: what else tells this row from others, such as `task` or `budget`.
  """
  bounds = [interval.low, interval.high]
  return {
    'method': method,
    'metric': metric,
    'mean': interval.mean,
    'ci95': None if any(map(math.isnan, bounds)) else bounds,
    'interval': interval.method,
    'n': n,
    'seeds': seeds,
    'better': better,
    **keys,
  }


def write_results(run: Run, rows: Sequence[Row]) -> None:
  """Writes WORKDIR/results.json."""
  results = {'experiment': run.experiment, 'config': run.config_file, 'rows': list(rows)}
  with files.replacing(run.workdir / 'results.json') as stream:
    stream.write((json.dumps(results, indent=2) + '\n').encode())


def write_report(run: Run, title: str, sections: Iterable[str]) -> None:
  """Writes WORKDIR/report.md: a title, and sections of Markdown below."""
  with files.replacing(run.workdir / 'report.md') as stream:
    stream.write(('\n\n'.join([f'# {title}', *sections]) + '\n').encode())


def table(rows: Sequence[Row]) -> str:
  """Returns rows as a Markdown table: a line a method (and its other keys), a column a metric."""
  keys = list(dict.fromkeys(key for row in rows for key in row if key not in _FIXED))
  metrics = list(dict.fromkeys(row['metric'] for row in rows))
  lines: dict[tuple, dict[str, str]] = {}
  for row in rows:
    line = lines.setdefault(tuple(str(row.get(key, '')) for key in keys), {})
    line[row['metric']] = estimate(row)
  head = [*keys, *(metric.replace('_', ' ') for metric in metrics)]
  body = [[*line, *(cells.get(m, '') for m in metrics)] for line, cells in lines.items()]
  return '\n'.join('| ' + ' | '.join(x) + ' |' for x in [head, ['---'] * len(head), *body])


def merge(directories: Iterable[str]) -> str:
  """Returns one table of the results in several workdirs.

  Raises:
    ValueError: naming a results.json that is something else.
    OSError: naming one that is missing.
  """
  rows = []
  for directory in directories:
    path = pathlib.Path(directory) / 'results.json'
    try:
      results = json.loads(path.read_bytes())
      where = {'experiment': results['experiment'], 'config': results['config']}
      rows += [where | row for row in results['rows'] if estimate(row)]
    except (ValueError, KeyError, TypeError) as error:
      raise ValueError(f'{path}: not results of a run: {error!r}') from error
  return table(rows)


def estimate(row: Row) -> str:
  """Returns a row's mean with its interval, as tables show it."""
  if row['ci95'] is None:
    return f'{row["mean"]:.3g}'
  return f'{row["mean"]:.3g} [{row["ci95"][0]:.3g}, {row["ci95"][1]:.3g}]'


if __name__ == '__main__':
  try:
    print(merge(sys.argv[1:]) if sys.argv[1:] else __doc__)
  except (ValueError, OSError) as error:
    sys.exit(f'error: {error}')
