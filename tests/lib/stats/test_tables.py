"""Tests of lib.stats.tables."""

import json
import math

import numpy as np
from absl.testing import absltest, parameterized

from lib.stats import intervals, tables


def make_row(method: str, metric: str, mean: float, **keys) -> tables.Row:
  interval = intervals.Interval(mean, mean - 0.5, mean + 0.5, 't')
  return tables.row(method, metric, interval, n=10, seeds=2, **keys)


def cells(table: str) -> list[list[str]]:
  """Returns the cells of each line, and checks that the lines are of one table."""
  lines = [line.split('|') for line in table.splitlines()]
  assert all(line[0] == line[-1] == '' for line in lines)
  assert len({len(line) for line in lines}) == 1
  return [[cell.strip() for cell in line[1:-1]] for line in lines]


class RowTest(parameterized.TestCase):
  @parameterized.parameters(2, 9, 12)
  def test_holds_the_interval(self, num_seeds):
    interval = intervals.mean_interval(np.linspace(0.0, 1.0, num_seeds) ** 2)
    row = tables.row(
      'a', 'success', interval, n=50, seeds=num_seeds, better='higher', task='cube', budget=3
    )
    expected = {
      'method': 'a', 'metric': 'success', 'mean': interval.mean, 'n': 50, 'seeds': num_seeds,
      'ci95': [interval.low, interval.high], 'interval': interval.method, 'better': 'higher',
      'task': 'cube', 'budget': 3,
    }  # fmt: skip
    self.assertEqual(row, expected)
    self.assertEqual(json.loads(json.dumps(row, allow_nan=False)), row)

  def test_one_seed_has_no_interval(self):
    row = tables.row('a', 'success', intervals.mean_interval([0.5]), n=1, seeds=1)
    self.assertIsNone(row['ci95'])
    self.assertIsNone(row['better'])
    json.dumps(row, allow_nan=False)
    self.assertEqual(tables.estimate(row), '0.5')

  @parameterized.parameters((math.nan, 1.0), (0.0, math.nan))
  def test_half_an_interval_is_none(self, low, high):
    row = tables.row('a', 'x', intervals.Interval(0.5, low, high, 't'), n=1, seeds=1)
    self.assertIsNone(row['ci95'])


class TableTest(parameterized.TestCase):
  @parameterized.parameters(
    (0.5, '0.5 [0, 1]'), (0.12345, '0.123 [-0.377, 0.623]'), (1e6, '1e+06 [1e+06, 1e+06]')
  )
  def test_estimate(self, mean, expected):
    self.assertEqual(tables.estimate(make_row('a', 'x', mean)), expected)

  def test_a_line_a_method_and_a_column_a_metric(self):
    rows = [make_row(m, x, i) for i, (x, m) in enumerate([(x, m) for x in 'xy' for m in 'ba'])]
    found = cells(tables.table(rows))
    self.assertEqual(found[0], ['method', 'x', 'y'])
    self.assertEqual(found[1], ['---'] * 3)
    estimates = [tables.estimate(row) for row in rows]
    expected = [['b', estimates[0], estimates[2]], ['a', estimates[1], estimates[3]]]
    self.assertEqual(found[2:], expected)  # in the order of the rows

  def test_other_keys_tell_lines_apart(self):
    rows = [make_row('a', 'x', i, task=task, budget=i) for i, task in enumerate(['one', 'two'])]
    found = cells(tables.table(rows))
    self.assertEqual(found[0], ['method', 'task', 'budget', 'x'])
    self.assertEqual([line[:3] for line in found[2:]], [['a', 'one', '0'], ['a', 'two', '1']])

  def test_holes_are_empty(self):
    rows = [make_row('a', 'x', 0), make_row('b', 'y', 1, task='one')]
    found = cells(tables.table(rows))
    self.assertEqual(found[0], ['method', 'task', 'x', 'y'])
    estimates = [tables.estimate(row) for row in rows]
    self.assertEqual(found[2:], [['a', '', estimates[0], ''], ['b', 'one', '', estimates[1]]])

  def test_names_of_metrics_are_spaced(self):
    self.assertEqual(
      cells(tables.table([make_row('a_b', 'flow_loss', 0)]))[0], ['method', 'flow loss']
    )

  @parameterized.parameters('a|b', '|', 'a\nb', '||u||')
  def test_no_name_breaks_a_line(self, name):
    table = tables.table([make_row(name, name, 0, task=name)])
    self.assertLen(table.splitlines(), 3)
    for line in table.splitlines():
      self.assertEqual(line.replace('\\|', '').count('|'), 4)

  def test_no_rows(self):
    self.assertLen(tables.table([]).splitlines(), 2)


if __name__ == '__main__':
  absltest.main()
