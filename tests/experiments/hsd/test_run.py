"""The whole experiment on tiny data: it ends, survives being stopped, and says what is wrong."""

import contextlib
import functools
import json
import pathlib
import shutil
import signal
import tempfile
import unittest
from unittest import mock

import chex
import jax
import numpy as np
from absl.testing import parameterized

import lib.train
from configs.hsd import quick
from experiments.hsd import checks, data, evaluate, methods, problems, report, tasks, train
from lib.envs import collect
from lib.io import npz
from lib.train import app, checkpoint, metrics
from tests.experiments import endings

TINY = """
from tests.experiments.hsd import toys

def get_config():
  config = toys.config()
  config.num_seeds = 2
  config.methods = ('spectral_only', 'ridge')
  config.claims = (('spectral_only', 'ridge', 'log_error', 0.0),)
  config.bounds = (('spectral_only', 'harmonic_error', 1e-5),)
  config.data.update({{'dir': {dir!r}, 'train': 4, 'valid': 3, 'test': 2, 'finer': 1}})
  config.space.modes = 6
  config.steps = 6
  config.batch_size = 2
  config.chunk_steps = 2
  config.checkpoint_every = 4
  config.eval.shown = 2
  return config
"""
METHODS = {'spectral_only': 6, 'ridge': 0}  # and their updates
FIGURES = {'errors.png', 'fields.png', 'parts.png', 'spectra.png', 'training.png'}
MAKE, BUILD = tasks.make, problems.build


@functools.cache
def cached(options, refine):
  return MAKE(dict(options), refine)


def make_once(config, refine=0):
  return cached(tuple(sorted(tasks.options(config).items())), refine)


@contextlib.contextmanager
def in_process(makes):
  """Stands for worker processes."""
  pool = mock.Mock()
  pool.map_unordered = lambda requests: ((request, handle(request)) for request in requests)
  handle = makes[0]() if makes else None
  yield pool


class Killed(BaseException):
  """Ends a run at once, as a kill would."""


class RunTest(chex.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.directory = pathlib.Path(tempfile.mkdtemp())
    unittest.addModuleCleanup(shutil.rmtree, cls.directory)
    cls.config = cls.directory / 'tiny.py'
    cls.config.write_text(TINY.format(dir=str(cls.directory / 'data')))
    cls.whole = cls.directory / 'whole'
    cls.enterClassContext(mock.patch.object(tasks, 'make', make_once))
    cls.enterClassContext(mock.patch.object(collect.workers, 'Workers', in_process))
    assert cls.run_here(cls.whole) == 0

  @classmethod
  def run_here(cls, workdir, *overrides):
    arguments = ['main', f'--config={cls.config}', f'--workdir={workdir}', *overrides]
    return app.main(arguments, train.prepare, train.train)

  def test_leaves_what_a_reader_wants(self):
    found = json.loads((self.whole / 'results.json').read_text())
    self.assertEqual(found['experiment'], 'hsd')
    rows = {(row['method'], row['metric']): row for row in found['rows']}
    for name, steps in METHODS.items():
      records = metrics.read(self.whole / name / 'metrics.jsonl')
      trained = [r['step'] for r in records if r['kind'] == 'train']
      self.assertEqual(trained, [2, 4, 6] if steps else [])
      (scored,) = (r for r in records if r['kind'] == 'eval')
      self.assertEqual(scored['step'], steps)
      seeds = 2 if steps else 1
      kept = {'error', 'exact_error', 'coexact_error', 'harmonic_error', 'closed_residual'}
      kept |= {'periods_residual', 'beta0', 'iou', 'mse', 'valid_error'}
      kept |= {'finer_error', 'finer_growth'} if steps else set()
      self.assertEqual(scored.keys() & report.BETTER.keys(), kept)
      for metric in kept:
        row = rows[name, metric]
        self.assertAlmostEqual(row['mean'], np.mean(scored[metric]))
        self.assertEqual((row['seeds'], row['better']), (seeds, report.BETTER[metric]))
        samples = {'finer_error': 1, 'finer_growth': 1, 'valid_error': 3}.get(metric, 2)
        self.assertEqual(row['n'], seeds * samples)
      shown = npz.load_npz(self.whole / name / 'shown.npz')['output']
      chex.assert_shape(shown, (seeds, 2, 120))
      self.assertTrue(np.isfinite(shown).all())
    # It keeps the harmonic part that is given.
    self.assertTrue(rows['spectral_only', 'harmonic_error, bound']['passed'])
    gain = rows['spectral_only against ridge', 'gain in log_error']
    self.assertEqual(gain['passed'], gain['ci95'][0] > 0)
    text = (self.whole / 'report.md').read_text()
    self.assertEqual({path.name for path in (self.whole / 'figures').iterdir()}, FIGURES)
    for name in FIGURES:
      self.assertIn(f'](figures/{name})', text)

  def test_three_lines_predict_with_a_trained_network(self):
    config, state = lib.train.restore(self.whole / 'spectral_only')
    loaded = data.load(config)
    problem = problems.build(config, 'spectral_only', loaded)
    method = methods.make(config, 'spectral_only', problem)
    params = jax.tree.map(lambda x: x[:1], state['params'])
    change = evaluate.predictor(problem, method)(params, problem.space, problem.valid)
    chex.assert_shape(change, (1, 3, 120))

  def test_the_same_command_again_trains_and_scores_nothing(self):
    files = {p: p.read_bytes() for p in self.whole.rglob('*') if p.is_file()}
    with (
      mock.patch.object(train, 'train_method', side_effect=AssertionError),
      mock.patch.object(report.figures, 'save'),
    ):
      self.assertEqual(self.run_here(self.whole), 0)
    for path, content in files.items():
      if path.name not in ('environment.json', 'lock'):
        self.assertEqual(path.read_bytes(), content, path)

  def test_stopped_and_killed_runs_end_with_the_same_bits_and_evaluate_alone(self):
    workdir = self.directory / 'stopped'

    def stop(*_):
      signal.raise_signal(signal.SIGTERM)
      return np.zeros(2)

    def build_or_die(config, name, loaded):
      if name == 'ridge':
        raise Killed
      return BUILD(config, name, loaded)

    with mock.patch.object(evaluate, 'validation_error', stop):
      self.assertEqual(self.run_here(workdir), 128 + signal.SIGTERM)
    # Between two checkpoints: it was saved first.
    self.assertEqual(checkpoint.Checkpoints(workdir / 'spectral_only').steps(), [2])
    with mock.patch.object(problems, 'build', build_or_die), self.assertRaises(Killed):
      self.run_here(workdir)
    self.assertEqual(checkpoint.Checkpoints(workdir / 'spectral_only').steps(), [4, 6])
    self.assertFalse((workdir / 'ridge').exists())
    self.assertFalse((workdir / 'report.md').exists())
    with mock.patch.object(report, 'write') as write, self.train_nothing():
      self.assertEqual(self.run_here(workdir), 0)
    write.assert_called_once()
    self.assert_same(workdir)

    with mock.patch.object(report, 'write') as write, self.train_nothing():
      self.assertEqual(self.run_here(workdir, '--config.eval_only=True'), 0)
    write.assert_called_once()
    for name in METHODS:
      records = metrics.read(workdir / name / 'metrics.jsonl')
      self.assertEqual(records[-1], records[-2])
      self.assertEqual(records[-1]['kind'], 'eval')

  def train_nothing(self):
    return mock.patch.object(train.loop, 'chunks', side_effect=AssertionError)

  def assert_same(self, workdir):
    (_, mine), (_, theirs) = (lib.train.restore(d / 'spectral_only') for d in (workdir, self.whole))
    chex.assert_trees_all_equal(mine, theirs)
    for name in METHODS:
      mine, theirs = (
        [
          {key: value for key, value in record.items() if key != 'steps_per_second'}
          for record in metrics.read(d / name / 'metrics.jsonl')
        ]
        for d in (workdir, self.whole)
      )
      self.assertEqual(mine, theirs)
      mine, theirs = ((d / name / 'shown.npz').read_bytes() for d in (workdir, self.whole))
      self.assertEqual(mine, theirs)

  @parameterized.parameters(
    (('--config.methods=("hsd",)',), "config.methods.*got 'hsd'"),
    (('--config.variants.spectral_only.hsd_form.fibre=False',), 'fibre'),
    (('--config.task.size=1',), 'config.task.size must be at least 2, got 1'),
    (('--config.space.stars=none',), "config.space.stars.*'none'"),
    (('--config.data.finer=3',), 'config.data.finer must be at most test, got 3'),
    (('--config.stesp=3',), 'stesp'),
    (('--config.eval_only=True',), 'config.eval_only: no finished run'),
  )
  def test_bad_input_is_named_and_nothing_written(self, overrides, pattern):
    workdir = self.directory / 'new'
    endings.assert_ends(self, 2, pattern, workdir, *overrides)
    self.assertFalse(workdir.exists())

  def test_bad_data_are_named(self):
    missing = ModuleNotFoundError("No module named 'gmsh'", name='gmsh')
    for error, pattern in (
      (missing, 'config.task: .*gmsh.*requirements.txt'),
      (ValueError('test.npz: not what manifest.json says'), 'test.npz'),
    ):
      with (
        mock.patch.object(data, 'load', side_effect=error),
      ):
        endings.assert_ends(self, 2, pattern, self.directory / 'new')


class ChecksTest(chex.TestCase):
  def test_the_config_passes(self):
    checks.check(quick.get_config())

  @parameterized.parameters(
    ({'num_seeds': 0}, 'num_seeds'),
    ({'seed': -1}, 'seed'),
    ({'seed': 2**31}, 'seed.*below'),
    ({'steps': 0}, 'steps'),
    ({'batch_size': -3}, 'batch_size'),
    ({'checkpoint_every': 30}, 'checkpoint_every.*chunk_steps'),
    ({'methods': ()}, 'methods is empty'),
    ({'methods': ('fno', 'fno')}, 'methods must be each once'),
    ({'methods': ('fnoo',)}, "methods.*got 'fnoo'"),
    ({'claims': (1, 2)}, 'claims'),
    ({'claims': (('fno', 'nobody', 'error', 0.0),)}, 'claims.*nobody'),
    ({'claims': (('fno', 'mgn', 'fid', 0.0),)}, 'claims.*fid'),
    ({'bounds': (1, 2)}, r'bounds must hold \(method, metric, bound\), got 1'),
    ({'bounds': (('nobody', 'error', 1.0),)}, 'bounds.*nobody'),
    ({'bounds': (('fno', 'fid', 1.0),)}, 'bounds.*fid'),
    ({'space': {'modes': 0}}, 'space.modes'),
    ({'space': {'gap': np.nan}}, 'space.gap'),
    ({'space': {'stars': 'voronoi'}}, 'space.stars.*combinatorial'),
    ({'optimizer': {'learning_rate': np.inf}}, 'optimizer.learning_rate'),
    ({'optimizer': {'warmup_fraction': 1.0}}, r'optimizer.warmup_fraction.*\[0, 1\)'),
    ({'optimizer': {'weight_decay': -1.0}}, 'optimizer.weight_decay'),
    ({'optimizer': {'clip': 0.0}}, 'optimizer.clip'),
    ({'eval': {'shown': 0}}, 'eval.shown'),
    ({'hsd_form': {'layers': 0}}, 'hsd_form.layers'),
    ({'hsd_form': {'gate': -1.0}}, 'hsd_form.gate'),
    ({'hsd_form': {'grid': 4}}, 'hsd_form.grid must be at least 7, got 4'),
    ({'hsd_reference': {'grid': 1, 'modes': 1}}, 'hsd_reference.grid must be at least 2, got 1'),
    ({'hsd_reference': {'hidden': (0,)}}, r'hsd_reference.hidden.*\(0,\)'),
    ({'hsd_reference': {'penalty': -1.0}}, 'hsd_reference.penalty'),
    ({'fno': {'grid': 4}}, 'config.fno.grid must be at least 7'),
    ({'geo_fno': {'hidden': ('a',)}}, 'geo_fno.hidden'),
    ({'gno': {'radius': 0.0}}, 'gno.radius'),
    ({'mgn': {'width': 0}}, 'mgn.width'),
    ({'deeponet': {'branch': (-1,)}}, 'deeponet.branch'),
    ({'transolver': {'heads': 5}}, 'transolver.width must be a multiple.*heads.*5.*got 64'),
    ({'ridge': {'penalties': ()}}, 'ridge.penalties'),
    ({'kernel_ridge': {'widths': (np.nan,)}}, 'kernel_ridge.widths'),
    ({'task': {'name': 'heat'}}, "task.name: no 'heat'"),
    ({'task': {'surface': 'klein'}}, "task.surface: no 'klein'"),
    ({'data': {'train': 0}}, 'data.train'),
    ({'data': {'finer': 1000}}, 'data.finer must be at most test'),
    ({'data': {'workers': -1}}, 'data.workers'),
  )
  def test_names_the_bad_field(self, changes, pattern):
    config = quick.get_config()
    config.update(changes)
    with self.assertRaisesRegex(ValueError, pattern) as raised:
      checks.check(config)
    self.assertNotIn('\n', str(raised.exception))

  @parameterized.parameters(
    ({'method': 'hsd'}, "method.*got 'hsd'"),
    ({}, 'method.*got None'),
    ({'method': 'fno', 'steps': 5}, 'steps is the same for all'),
    ({'method': 'fno', 'fno': {'widht': 5}}, 'widht'),
    ({'method': 'fno', 'fno': {'width': 'big'}}, 'width'),
    ({'method': 'fno', 'fno': {'modes': 9}}, 'fno.grid.*17'),
    ({'method': 'hsd_form', 'space': {'modes': -1}}, 'space.modes.*-1'),
  )
  def test_names_the_bad_variant(self, variant, pattern):
    config = quick.get_config()
    config.claims = config.bounds = ()
    config.variants = {'mine': variant}
    config.methods = ('mine',)
    with self.assertRaisesRegex(ValueError, f'variants.mine.*{pattern}'):
      checks.check(config)
