"""Tests of lib.train.report."""

import contextlib
import io
import json
import os
import pathlib
import runpy
import tempfile
import warnings
from unittest import mock

import ml_collections
from absl.testing import absltest, parameterized

from lib.io import files
from lib.stats import intervals, tables
from lib.train import app, report


def make_row(method: str, mean: float, **keys) -> tables.Row:
  interval = intervals.Interval(mean, mean - 0.5, mean + 0.5, 't')
  return tables.row(method, 'success', interval, n=10, seeds=2, better='higher', **keys)


ROW = json.dumps(make_row('a', 0.5))


class ReportTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

  def make_run(self, name: str, config_file: str = 'configs/toy/quick.py') -> app.Run:
    config = ml_collections.FrozenConfigDict({'steps': 3})
    return app.Run(config, 'toy', config_file, self.directory / name)

  def test_results(self):
    rows = (make_row('a', 0.5, task='one'), make_row('b', 0.25, task='one'))
    run = self.make_run('run')
    report.write_results(run, rows)
    self.assertEqual(os.listdir(run.workdir), ['results.json'])
    results = json.loads((run.workdir / 'results.json').read_text())
    expected = {'experiment': 'toy', 'config': 'configs/toy/quick.py', 'rows': list(rows)}
    self.assertEqual(results, expected)

  def test_report(self):
    run = self.make_run('run')
    report.write_report(run, 'Toys × 3', (section for section in ['First.', '## λ\n\nSecond.']))
    text = (run.workdir / 'report.md').read_text('utf-8')
    self.assertEqual(text, '# Toys × 3\n\nFirst.\n\n## λ\n\nSecond.\n')

  @parameterized.parameters('results.json', 'report.md')
  def test_fails_whole(self, name):
    run = self.make_run('run')
    (run.workdir / name).mkdir(parents=True)
    with self.assertRaises(OSError):
      report.write_results(run, [make_row('a', 0.5)])
      report.write_report(run, 'Toy', [])
    self.assertContainsSubset([name], os.listdir(run.workdir))
    self.assertEmpty(list(run.workdir.glob('*.tmp-*')))

  def test_merge_keeps_order_and_tells_runs_apart(self):
    for name in ('one', 'two'):  # of one config, changed on the command line
      run = self.make_run(name, 'configs/toy/quick.py')
      report.write_results(run, [make_row('b', 0.5), make_row('a', 0.25)])
    lines = report.merge(str(self.directory / name) for name in ('two', 'one')).splitlines()
    cells = [[cell.strip() for cell in line.strip('|').split('|')] for line in lines]
    self.assertEqual(cells[0], ['experiment', 'config', 'run', 'method', 'success'])
    found = [(*line[:2], pathlib.Path(line[2]).name, line[3]) for line in cells[2:]]
    expected = [('toy', 'configs/toy/quick.py', n, m) for n in ('two', 'one') for m in 'ba']
    self.assertEqual(found, expected)
    self.assertEqual(cells[2][4], tables.estimate(make_row('b', 0.5)))

  @parameterized.parameters(
    '',
    '{"experiment": ',
    '\xff',
    '3',
    '[]',
    '{}',
    '{"experiment": "toy", "config": "c"}',
    '{"experiment": "toy", "config": "c", "rows": 3}',
    '{"experiment": "toy", "config": "c", "rows": "rows"}',
    '{"experiment": "toy", "config": "c", "rows": [3]}',
    '{"experiment": "toy", "config": "c", "rows": [[]]}',
    '{"experiment": "toy", "config": "c", "rows": [{}]}',
    f'{{"experiment": "toy", "rows": [{ROW}]}}',
    *(
      f'{{"experiment": "toy", "config": "c", "rows": [{ROW}, {json.dumps(row)}]}}'
      for row in (
        json.loads(ROW) | wrong
        for wrong in (
          {'mean': None}, {'mean': 'high'}, {'ci95': 3}, {'ci95': []}, {'ci95': [0.1]},
          {'ci95': [None, None]}, {'metric': 3}, {'metric': None}, {'metric': ['a']},
        )
      )
    ),
    json.dumps({'experiment': 'toy', 'config': 'c', 'rows': [{'metric': 'a', 'ci95': None}]}),
    json.dumps({'experiment': 'toy', 'config': 'c', 'rows': [{'mean': 0.5, 'ci95': None}]}),
    json.dumps({'experiment': 'toy', 'config': 'c', 'rows': [{'mean': 0.5, 'metric': 'a'}]}),
    '[' * 100_000,
  )  # fmt: skip
  def test_malformed_results_are_named(self, text):
    path = self.directory / 'results.json'
    path.write_bytes(text.encode('latin1'))
    with self.assertRaisesRegex(ValueError, r'results\.json: not results of a run: ') as caught:
      report.merge([str(self.directory)])
    self.assertIn(str(path), str(caught.exception))

  def test_missing_results_are_named(self):
    with self.assertRaisesRegex(OSError, str(self.directory / 'results.json')):
      report.merge([str(self.directory)])

  def main(self, *args: str) -> str:
    """Runs the module as a script, and returns what it prints."""
    out = io.StringIO()
    with (
      mock.patch('sys.argv', ['report.py', *args]),
      contextlib.redirect_stdout(out),
      warnings.catch_warnings(action='ignore', category=RuntimeWarning),  # it is imported already
    ):
      runpy.run_module('lib.train.report', run_name='__main__')
    return out.getvalue()

  def test_main(self):
    run = self.make_run('run')
    report.write_results(run, [make_row('a', 0.5)])
    self.assertEqual(self.main(str(run.workdir)), report.merge([str(run.workdir)]) + '\n')
    self.assertIn('python -m lib.train.report', self.main())

  def test_main_fails_in_one_line(self):
    files.write_json(self.directory / 'bad' / 'results.json', [])
    for name in ('bad', 'missing'):
      with self.assertRaises(SystemExit) as caught:
        self.main(str(self.directory / name))
      message = caught.exception.code  # Python prints it and exits with 1
      self.assertRegex(message, rf'^error: .*{name}/results\.json')
      self.assertLen(message.splitlines(), 1)


if __name__ == '__main__':
  absltest.main()
