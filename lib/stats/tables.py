"""Host. Rows of results, one format for all experiments, and Markdown tables of them."""

import math
from collections.abc import Sequence
from typing import Any

from lib.stats import intervals

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


def estimate(row: Row) -> str:
  """Returns a row's mean with its interval, as tables show it."""
  if row['ci95'] is None:
    return f'{row["mean"]:.3g}'
  return f'{row["mean"]:.3g} [{row["ci95"][0]:.3g}, {row["ci95"][1]:.3g}]'


def table(rows: Sequence[Row], omit: Sequence[str] = ()) -> str:
  """Returns rows as a Markdown table: a line a method (and its other keys), a column a metric.

  Args:
    rows: made by `row`.
    omit: keys that are not shown, such as one that a heading tells already.
  """
  keys = list(dict.fromkeys(key for row in rows for key in row if key not in (*_FIXED, *omit)))
  metrics = list(dict.fromkeys(row['metric'] for row in rows))
  lines: dict[tuple, dict[str, str]] = {}
  for row in rows:
    line = lines.setdefault(tuple(str(row.get(key, '')) for key in keys), {})
    line[row['metric']] = estimate(row)
  head = [*keys, *(metric.replace('_', ' ') for metric in metrics)]
  body = [[*line, *(cells.get(m, '') for m in metrics)] for line, cells in lines.items()]
  text = [[' '.join(cell.split()).replace('|', r'\|') for cell in line] for line in [head, *body]]
  text.insert(1, ['---'] * len(head))
  return '\n'.join('| ' + ' | '.join(line) + ' |' for line in text)
