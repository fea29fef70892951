"""Host. Bounds on the means of methods: (method, metric, bound), at least or at most by the metric.

A bound holds where the mean over seeds is at least it, for metrics of which more is better, or at
most it, for the others.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lib.stats import claims, intervals, tables

Bound = tuple[str, str, float]


def check(field: str, bounds: Any, methods: Collection[str], metrics: Collection[str]) -> None:
  """Raises a ValueError that names the first of a config's `field` that is no bound.

  Args:
    field: its name.
    bounds: what it holds.
    methods: what there is.
    metrics: likewise.
  """
  is_number = lambda x: type(x) in (int, float) and math.isfinite(x)
  names = {'method': methods, 'metric': metrics}
  claims.check_tuples(field, bounds, names, 'bound', is_number)


def test(
  bounds: Sequence[Bound],
  values: Mapping[str, Mapping[str, ArrayLike]],
  better: Mapping[str, str],
) -> list[tables.Row]:
  """Tests the bounds whose methods and metrics were measured.

  Args:
    bounds: see above.
    values: by method and metric, one number a seed (S,).
    better: 'higher' or 'lower', by metric.

  Returns:
    A row a bound, with `bound` and `passed`.
  """
  rows = []
  for name, metric, bound in bounds:
    if metric not in values.get(name, {}):
      continue
    numbers = np.asarray(values[name][metric])
    found = intervals.mean_interval(numbers)
    passed = found.mean >= bound if better[metric] == 'higher' else found.mean <= bound
    row = tables.row(
      name, f'{metric}, bound', found, n=len(numbers), seeds=len(numbers), better=better[metric],
      bound=bound, passed=bool(passed),
    )  # fmt: skip
    rows.append(row)
  return rows


def section(bounds: Sequence[Bound], rows: Sequence[tables.Row]) -> list[str]:
  """Returns the bounds and what became of them, as paragraphs of Markdown; none without bounds."""
  if not bounds:
    return []
  side = {'higher': 'at least', 'lower': 'at most'}
  lines = [claims.verdict(row, f'{side[row["better"]]} {row["bound"]:g}') for row in rows]
  tested = {(row['method'], row['metric']) for row in rows}
  for name, metric, _ in bounds:
    if (name, f'{metric}, bound') not in tested:
      lines.append(f'- not tested: {name}, {metric}')
  return ['## Bounds on means over seeds', '\n'.join(lines)]
