"""Host. Claims that one method is better than another, tested by paired intervals over seeds.

A claim is a tuple (method, baseline, metric, least): the method's gain in the metric over the
baseline, positive where it is better, is at least `least`. It passes where the gain's mean is at
least that, and its 95 % interval above 0; a negative `least` is a margin of non-inferiority, and
the interval must lie above it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lib.stats import intervals, tables

Claim = tuple[str, str, str, float]


def check(claims: Any, methods: Collection[str], metrics: Collection[str]) -> None:
  """Raises a ValueError that names the first claim which is none, or of something unknown."""
  is_number = lambda x: isinstance(x, (int, float))
  names = {'method': methods, 'baseline': methods, 'metric': metrics}
  check_tuples('claims', claims, names, 'gain', is_number)


def check_tuples(
  field: str,
  asked: Any,
  names: Mapping[str, Collection[str]],
  last: str,
  is_number: Callable[[Any], bool],
) -> None:
  """Raises a ValueError that names the first of a config's tuples that is not as it must be.

  Args:
    field: that holds them.
    asked: what it holds.
    names: what the first entries of each are, and what they may be.
    last: what the last entry is, a number.
    is_number: whether it is one.
  """
  for one in asked if isinstance(asked, tuple) else [asked]:
    if not (isinstance(one, tuple) and len(one) == len(names) + 1 and is_number(one[-1])):
      raise ValueError(f'config.{field} must hold ({", ".join([*names, last])}), got {one!r}.')
    for name, known in zip(one, names.values(), strict=False):
      if name not in known:
        raise ValueError(f'config.{field} must be of {", ".join(known)}, got {name!r}.')


def test(
  claims: Sequence[Claim],
  values: Mapping[str, Mapping[str, ArrayLike]],
  better: Mapping[str, str],
  **keys: Any,
) -> list[tables.Row]:
  """Tests the claims whose methods and metrics were measured.

  Args:
    claims: see above.
    values: by method and metric, one number a seed (S,), paired by seed.
    better: 'higher' or 'lower', by metric.
    **keys: what else tells the rows from others.

  Returns:
    A row a claim, with `least` and `passed`.
  """
  rows = []
  for name, baseline, metric, least in claims:
    if not (metric in values.get(name, {}) and metric in values.get(baseline, {})):
      continue
    mine, theirs = (np.asarray(values[one][metric]) for one in (name, baseline))
    a, b = (mine, theirs) if better[metric] == 'higher' else (theirs, mine)
    gain = intervals.paired_interval(a, b)
    passed = bool(gain.low > min(0.0, least) and gain.mean >= least)
    row = tables.row(
      f'{name} against {baseline}', f'gain in {metric}', gain, n=len(a), seeds=len(a),
      better='higher', **keys, least=least, passed=passed,
    )  # fmt: skip
    rows.append(row)
  return rows


def verdict(row: tables.Row, asked: str = '') -> str:
  """A row that `passed` or not, and what was asked of it, as a line of a list in Markdown."""
  told = f'- {"PASS" if row["passed"] else "FAIL"}: {row["method"]}, {row["metric"]}: '
  return told + tables.estimate(row) + (f' ({asked})' if asked else '')


def section(claims: Sequence[Claim], rows: Sequence[tables.Row]) -> list[str]:
  """Returns the claims and what became of them, as paragraphs of Markdown; none without claims."""
  if not claims:
    return []
  lines = [verdict(row, f'asked: {row["least"]:g}' if row['least'] else '') for row in rows]
  tested = {(row['method'], row['metric']) for row in rows}
  for name, baseline, metric, _ in claims:
    if (f'{name} against {baseline}', f'gain in {metric}') not in tested:
      lines.append(f'- not tested: {name} against {baseline}, gain in {metric}')
  rule = 'Gains are paired by seed, positive where better. A pass has its interval above 0'
  least = {row['least'] for row in rows}
  rule += ', and a mean of at least what was asked' if any(x > 0 for x in least) else ''
  rule += '; a negative one asks for an interval above it' if any(x < 0 for x in least) else ''
  return ['## Claims', rule + '.', '\n'.join(lines)]
