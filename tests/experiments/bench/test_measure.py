"""Tests of the benchmark's run, on cases of no size."""

import contextlib
import io
import json
import pathlib
import tempfile
from unittest import mock

import chex
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

from configs.bench import diffusion, games, hodge, lm, pql, quick, stats
from experiments.bench import cases, measure, peers
from lib.train import app


class PrepareTest(parameterized.TestCase):
  @parameterized.parameters(
    (quick,), (pql,), (lm,), (stats,), (diffusion,), (games,), (hodge,), (hodge, 'decompose')
  )
  def test_every_config_passes(self, module, *part):
    measure.prepare(module.get_config(*part))

  @parameterized.parameters(
    ({'cases': ()}, r'config\.cases is empty'),
    ({'cases': ('pql_updates',)}, r"config\.cases .*pql_update, .*got 'pql_updates'"),
    ({'rounds': 0}, r'config\.rounds must be positive, got 0'),
    ({'min_seconds': float('nan')}, r'config\.min_seconds must be zero or more, got nan'),
    ({'matmul_size': -1}, r'config\.matmul_size'),
    ({'updates': {'new': {'method': 'sac'}}}, r"config\.updates\.new\.method: no 'sac'"),
    ({'updates': {'new': {'method': 'fql', 'rows': 'all'}}}, r'config\.updates\.new: .*rows'),
    ({'ratios': (('pql_update', 'iql_update'),)}, r'config\.ratios: .*iql_update'),
    ({'peer': '/nowhere'}, r"config\.peer: no checkout .*'/nowhere'"),
    ({'mlp': {'hidden': (8, 0)}}, r'config\.mlp\.hidden'),
    ({'voting': {'largest': 0}}, r'config\.voting\.largest must be positive'),
    ({'diffusion': {'mlp': {'rows': 0}}}, r'config\.diffusion\.mlp\.rows must be positive'),
    ({'diffusion': {'unet': {'shape': (9, 9, 1)}}}, r'config\.diffusion\.unet: .*multipliers'),
    ({'diffusion': {'likelihood': {'probes': -1}}}, r'config\.diffusion\.likelihood\.probes'),
    ({'neighbors': {'k': 10_000}}, r'config\.neighbors\.points must be more than k'),
    ({'hodge': {'edges': 35}}, r'config\.hodge\.edges must be at least 36, got 35'),
    ({'hodge': {'scaling': (9, 99)}}, r'config\.hodge\.scaling must be at least 36'),
    ({'hodge': {'tol': 0.0}}, r'config\.hodge\.tol must be in \(0, 1\), got 0'),
    ({'hodge': {'training': {'task': {'name': 'heat'}}}}, r"config\.hodge\.training: .*no 'heat'"),
    ({'offline': {'updates': 0}}, r'config\.offline\.updates'),
    ({'offline': {'agent': {'q_aggregation': 'max'}}}, r"config\.offline\.agent: .*'max'"),
    ({'offline': {'agent': {'pde': {'form': 'jacobi'}}}}, r"config\.offline\.agent: .*'jacobi'"),
  )
  def test_names_the_bad_field(self, changes, message):
    config = quick.get_config()
    config.update(changes)
    with self.assertRaisesRegex(ValueError, message):
      measure.prepare(config)


class CompareTest(chex.TestCase):
  def test_shares_and_ratios_are_taken_within_a_round(self):
    # The machine's speed doubles and halves; nothing else changes.
    machine = np.array([1.0, 2.0, 1.0, 0.5, 2.0])
    made = {
      'fql_update': cases.Case(None, (), updates=10, seeds=2),
      'pql_update': cases.Case(None, (), updates=10, seeds=4),
    }
    rates = {
      'matmul': 80e9 * machine,
      'triad': 10e9 * machine,
      'fql_update': 40e9 * machine,
      'pql_update': 60e9 * machine,
    }
    works = {'fql_update': 4e9, 'pql_update': 18e9}
    rows = measure.compare(rates, made, works, (('pql_update', 'fql_update'),))
    found = {(row['method'], row['metric']): row for row in rows}
    for name, share in (('fql_update', 0.5), ('pql_update', 0.75)):
      row = found[name, 'share_of_matmul']
      np.testing.assert_allclose([row['mean'], *row['ci95']], share)
    row = found['pql_update', 'time_over_fql_update']
    np.testing.assert_allclose([row['mean'], *row['ci95']], (9 / 60) / (4 / 40))
    self.assertNotIn(('fql_update', 'time_over_fql_update'), found)
    # 4 GFLOP a call of 10 updates, at 40 GFLOP a second.
    self.assertAlmostEqual(found['fql_update', 'updates_per_s']['mean'], 100 * machine.mean())
    self.assertAlmostEqual(found['fql_update', 'gflop_per_update']['mean'], 4 / 10 / 2)
    self.assertAlmostEqual(found['triad', 'gbyte_per_s']['mean'], 10 * machine.mean())

  def test_aligned_table_keeps_every_cell(self):
    aligned = measure.align('| a | long name |\n| --- | --- |\n| 1.5 [1, 2] | |\n| | x |')
    self.assertEqual(
      aligned.splitlines(),
      ['a           long name', '----------  ---------', '1.5 [1, 2]', '            x'],
    )


class MeasureTest(chex.TestCase):
  def test_writes_and_prints_what_it_measured(self):
    with tempfile.TemporaryDirectory() as directory:
      square = lambda config: cases.Case(jnp.square, (jnp.ones(8),))
      argv = [
        'bench',
        f'--config={pathlib.Path(quick.__file__)}',
        f'--workdir={directory}/run',
        "--config.cases=('square',)",
        '--config.ratios=()',
        '--config.rounds=2',
        '--config.min_seconds=0.0',
        '--config.matmul_size=8',
        '--config.triad_elements=8',
      ]
      with (
        mock.patch.dict(cases.CASES, {'square': square}),
        contextlib.redirect_stdout(io.StringIO()) as printed,
      ):
        self.assertEqual(app.main(argv, measure.prepare, measure.measure), 0)
      results = json.loads(pathlib.Path(directory, 'run', 'results.json').read_text())
      report = pathlib.Path(directory, 'run', 'report.md').read_text()
    self.assertEqual(results['experiment'], 'bench')
    names = {row['method'] for row in results['rows']}
    self.assertEqual(names, {'matmul', 'triad', 'square'})
    for row in results['rows']:
      self.assertGreater(row['mean'], 0.0)
    for text in (report, printed.getvalue()):
      self.assertIn('updates per s', text)
      self.assertIn('square', text)

  def test_peers_of_the_host_run_beside_our_cases_once_they_agree(self):
    config = quick.get_config()
    config.update({'cases': ('sign_flip',), 'ratios': (), 'host_peers': True, 'rounds': 2})
    config.update({'min_seconds': 0.0, 'matmul_size': 8, 'triad_elements': 8})
    config.sign_flip.update({'pairs': 60, 'draws': 300, 'peer_draws': 50})
    run = mock.Mock(config=config)
    with (
      mock.patch.object(measure.report, 'write_results') as write,
      mock.patch.object(measure.report, 'write_report'),
      contextlib.redirect_stdout(io.StringIO()),
    ):
      measure.measure(run, None)
      rows = {(row['method'], row['metric']) for row in write.call_args[0][1]}
      self.assertIn(('sign_flip', 'time_over_scipy_sign_flip'), rows)
      self.assertIn(('scipy_sign_flip', 'draws_per_s'), rows)
      wrong = peers.HOST['sign_flip'][0]._replace(
        make=lambda config, ours: peers.yardsticks.Task(lambda: 0.99, ours.work)
      )
      with (
        mock.patch.dict(peers.HOST, {'sign_flip': (wrong,)}),
        self.assertRaisesRegex(AssertionError, '0.99'),
      ):
        measure.measure(run, None)
