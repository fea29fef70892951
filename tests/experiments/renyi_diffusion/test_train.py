"""The whole experiment on tiny data: it ends, survives being stopped, and says what is wrong."""

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
import pytest
from absl.testing import parameterized

import lib.train
from experiments.renyi_diffusion import evaluate, methods, report, train
from experiments.renyi_diffusion.methods import learner
from lib.io import npz
from lib.train import app, checkpoint, metrics
from tests.experiments import endings

RING = """
from configs.renyi_diffusion import quick

def get_config():
  config = quick.get_config()
  config.num_seeds = 2
  config.methods = ('likelihood', 'tight')
  config.variants = {
    'tight': {'method': 'excess', 'objective': {'alpha': 1.2, 'reference': 'likelihood'}},
  }
  config.claims = (('tight', 'likelihood', 'nll', 0.0),)
  config.data.test = 50
  config.steps = 6
  config.batch_size = 8
  config.chunk_steps = 2
  config.checkpoint_every = 4
  config.network.hidden = (4,)
  config.objective.num_times = 2
  config.eval.samples = 50
  config.eval.compared = 50
  config.eval.rtol = 1e-2
  config.eval.atol = 1e-2
  config.eval.sampler = 'ancestral'
  config.eval.sampler_steps = 5
  config.gaussian_fit = False
  return config
"""
DIGITS = """
from configs.renyi_diffusion import digits

def get_config():
  config = digits.get_config()
  config.num_seeds = 1
  config.methods = ('likelihood', 'renyi_1_25')
  config.claims = ()
  config.steps = 2
  config.batch_size = 8
  config.chunk_steps = 2
  config.checkpoint_every = 2
  config.network.hidden = (8,)
  config.objective.num_times = 2
  config.eval.samples = 20
  config.eval.compared = 20
  config.eval.probes = 1
  config.eval.rtol = 0.1
  config.eval.atol = 0.1
  config.eval.sampler = 'dpm'
  config.eval.sampler_steps = 5
  config.eval.classifier_steps = 5
  return config
"""
METHODS = ('likelihood', 'tight')


class Killed(BaseException):
  """Ends a run at once, as a kill would."""


def shared(make):
  """Makes what the first caller wants, for all."""
  made = []

  def get(*arguments):
    made[:] = made or [make(*arguments)]
    return made[0]

  return get


class RunTest(chex.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.directory = pathlib.Path(tempfile.mkdtemp())
    unittest.addModuleCleanup(shutil.rmtree, cls.directory)
    cls.config = cls.directory / 'tiny.py'
    cls.config.write_text(cls.source)
    cls.whole = cls.directory / 'whole'
    # Methods and runs of one config share what scores them: it is compiled once.
    for name in ('_likelihoods', '_sampler'):
      patch = mock.patch.object(evaluate, name, shared(getattr(evaluate, name)))
      patch.start()
      cls.addClassCleanup(patch.stop)
    assert cls.run_here(cls.whole) == 0

  @classmethod
  def run_here(cls, workdir, *overrides):
    arguments = ['main', f'--config={cls.config}', f'--workdir={workdir}', *overrides]
    return app.main(arguments, train.prepare, train.train)

  def results(self):
    found = json.loads((self.whole / 'results.json').read_text())
    self.assertEqual(found['experiment'], 'renyi_diffusion')
    return {(row['method'], row['metric']): row for row in found['rows']}

  def assert_figures(self, *names):
    text = (self.whole / 'report.md').read_text()
    self.assertEqual({path.name for path in (self.whole / 'figures').iterdir()}, set(names))
    for name in names:
      self.assertIn(f'](figures/{name})', text)


class RingTest(RunTest):
  source = RING

  def assert_same(self, workdir):
    for name in METHODS:
      (_, mine), (_, theirs) = (lib.train.restore(d / name) for d in (workdir, self.whole))
      chex.assert_trees_all_equal(mine, theirs)
      mine, theirs = (
        [
          {key: value for key, value in record.items() if key != 'steps_per_second'}
          for record in metrics.read(d / name / 'metrics.jsonl')
        ]
        for d in (workdir, self.whole)
      )
      self.assertEqual(mine, theirs)
      mine, theirs = ((d / name / 'samples.npz').read_bytes() for d in (workdir, self.whole))
      self.assertEqual(mine, theirs)

  def test_leaves_what_a_reader_wants(self):
    rows = self.results()
    for name in METHODS:
      records = metrics.read(self.whole / name / 'metrics.jsonl')
      self.assertEqual([r['step'] for r in records if r['kind'] == 'train'], [2, 4, 6])
      (scored,) = (r for r in records if r['kind'] == 'eval')
      self.assertEqual(scored['step'], 6)
      bits = {'bpd', 'rare_bpd', 'bound_bpd', 'rare_bound_bpd'}
      image_scores = {*bits, 'fd_cnn', 'class_kl'}
      for metric in report.BETTER.keys() - image_scores:
        row = rows[name, metric]
        self.assertAlmostEqual(row['mean'], np.mean(scored[metric]))
        self.assertEqual((row['seeds'], row['better']), (2, report.BETTER[metric]))
      self.assertFalse(image_scores & scored.keys())
      samples = npz.load_npz(self.whole / name / 'samples.npz')['samples']
      chex.assert_shape(samples, (2, 50, 2))
      self.assertTrue(np.isfinite(samples).all())
      self.assertFalse((samples[0] == samples[1]).any())
    gain = rows['tight against likelihood', 'gain in nll']
    self.assertEqual(gain['passed'], gain['ci95'][0] > 0)
    self.assertAlmostEqual(rows['tight', 'effective_alpha']['mean'], 1.2, places=6)
    self.assert_figures('samples.png', 'training.png')

  def test_a_reference_is_the_average_of_its_own_seed(self):
    (_, mine), (_, theirs) = (lib.train.restore(self.whole / n) for n in METHODS[::-1])
    chex.assert_trees_all_equal(mine['extra'], theirs['ema'])

  def test_three_lines_denoise_with_a_trained_network(self):
    config, state = lib.train.restore(self.whole / 'tight')
    network = methods.network(config, (2,), 'tight')
    noise = network.noise(
      jax.tree.map(lambda x: x[0], state['ema']), np.ones((5, 2)), np.ones((5, 1))
    )
    chex.assert_shape(noise, (5, 2))

  def test_the_same_command_again_trains_and_scores_nothing(self):
    files = {p: p.read_bytes() for p in self.whole.rglob('*') if p.is_file()}
    with (
      mock.patch.object(train, 'train_method', side_effect=AssertionError),
      mock.patch.object(evaluate, 'score', side_effect=AssertionError),
    ):
      self.assertEqual(self.run_here(self.whole), 0)
    for path, content in files.items():
      if path.name not in ('environment.json', 'lock'):
        self.assertEqual(path.read_bytes(), content, path)

  def test_evaluates_a_finished_run(self):
    workdir = self.directory / 'evaluated'
    shutil.copytree(self.whole, workdir)
    with (
      mock.patch.object(learner.optax, 'apply_updates', side_effect=AssertionError),
      mock.patch.object(report, 'write') as write,
    ):
      self.assertEqual(self.run_here(workdir, '--config.eval_only=True'), 0)
    write.assert_called_once()
    for name in METHODS:
      records = metrics.read(workdir / name / 'metrics.jsonl')
      self.assertEqual(records[-1], records[-2])
      self.assertEqual(records[-1]['kind'], 'eval')

  def test_stopped_and_killed_runs_end_with_the_same_bits(self):
    workdir = self.directory / 'stopped'
    write = metrics.Writer.train

    def at(name, step, happens):
      def train_and_stop(writer, done, means):
        write(writer, done, means)
        if (writer.label, done) == (name, step):
          happens()

      return mock.patch.object(metrics.Writer, 'train', train_and_stop)

    def die():
      raise Killed

    with at('likelihood', 2, lambda: signal.raise_signal(signal.SIGTERM)):
      self.assertEqual(self.run_here(workdir), 128 + signal.SIGTERM)
    # Between two checkpoints: it was saved first.
    self.assertEqual(checkpoint.Checkpoints(workdir / 'likelihood').steps(), [2])
    with at('tight', 6, die), self.assertRaises(Killed):
      self.run_here(workdir)
    self.assertEqual(checkpoint.Checkpoints(workdir / 'tight').steps(), [4])
    self.assertFalse((workdir / 'report.md').exists())
    with mock.patch.object(report, 'write'):
      self.assertEqual(self.run_here(workdir), 0)
    self.assert_same(workdir)

  @parameterized.parameters(
    (
      ('--config.methods=("tight", "likelihood")',),
      "methods: tight needs the trained 'likelihood'",
    ),
    (('--config.variants.tight.objective.alhpa=1.0',), 'alhpa'),
    (('--config.start=1.5',), 'start.*horizon 1.0, got 1.5'),
    (('--config.eval.sampler=euler',), "eval.sampler.*ancestral.*'euler'"),
    (('--config.data.imbalance=0.5',), 'data.imbalance.*0.5'),
    (('--config.data.source=cifar10', '--config.data.path=/nowhere'), "data.path.*'/nowhere'"),
    (('--config.network.hidden=(0,)',), r'network.hidden.*\(0,\)'),
    (('--config.network.kind=unet',), "network.kind.*'unet'"),
    (('--config.stesp=3',), 'stesp'),
    (('--config.eval_only=True',), 'eval_only: no finished run'),
  )
  def test_bad_input_is_named_and_nothing_written(self, overrides, pattern):
    workdir = self.directory / 'new'
    endings.assert_ends(self, 2, pattern, workdir, *overrides)
    self.assertFalse(workdir.exists())


@pytest.mark.slow
class DigitsTest(RunTest):
  source = DIGITS

  def test_images_have_their_scores_and_figures(self):
    rows = self.results()
    names = report.BETTER.keys() - {'nll', 'rare_nll', 'q99_nll', 'near'}
    names |= {f'bpd_class_{k}' for k in range(10)}
    for name in ('likelihood', 'renyi_1_25'):
      for metric in names:
        self.assertTrue(np.isfinite(rows[name, metric]['mean']), metric)
      self.assertNotIn((name, 'nll'), rows)
      for metric in ('precision', 'recall', 'coverage', 'rare_mass'):
        self.assertBetween(rows[name, metric]['mean'], 0.0, 1.0)
      # Classes weigh as in training; the rare three weigh alike.
      by_class = np.array([rows[name, f'bpd_class_{k}']['mean'] for k in range(10)])
      shares = 10.0 ** -np.linspace(0.0, 1.0, 10)
      self.assertAlmostEqual(
        rows[name, 'bpd']['mean'], by_class @ shares / shares.sum(), delta=1e-4
      )
      self.assertAlmostEqual(rows[name, 'rare_bpd']['mean'], by_class[7:].mean(), delta=1e-4)
      samples = npz.load_npz(self.whole / name / 'samples.npz')['samples']
      chex.assert_shape(samples, (1, 20, 64))
    self.assert_figures('samples.png', 'training.png', 'classes.png')
    text = (self.whole / 'report.md').read_text()
    self.assertIn('digits, 8x8, 17 levels', text)
    self.assertIn('no FID', text)
