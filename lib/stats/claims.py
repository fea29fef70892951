"""Host. Claims that one method is better than another, tested by paired intervals over seeds.

A claim is a tuple (method, baseline, metric, least): the method's gain in the metric over the
baseline, positive where it is better, is at least `least`. It passes where the gain's mean is at
least that, and its 95 % interval above 0; a negative `least` is a margin of non-inferiority, and
the interval must lie above it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lib.stats import intervals, tables

Claim = tuple[str, str, str, float]


def check(claims: Any, methods: Collection[str], metrics: Collection[str]) -> None:
  """Raises a ValueError that names the first claim which is none, or of something unknown."""
  for claim in claims if isinstance(claims, tuple) else [claims]:
    right = isinstance(claim, tuple) and len(claim) == 4 and isinstance(claim[3], (int, float))
    if not right:
      raise ValueError(f'config.claims must hold (method, baseline, metric, gain), got {claim!r}.')
    for name, known in ((claim[0], methods), (claim[1], methods), (claim[2], metrics)):
      if name not in known:
        raise ValueError(f'config.claims must be of {", ".join(known)}, got {name!r}.')


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
