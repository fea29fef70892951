"""The whole experiment on a tiny bandit: it ends, survives being killed, and says what is wrong."""

import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import chex
import h5py
import jax
import numpy as np
import pytest
from absl.testing import parameterized

import lib.train
from experiments.pql import data, methods, report, train
from experiments.pql.methods import agent
from lib.io import manifest
from lib.train import app, checkpoint, metrics
from tests.experiments import endings

ROOT = pathlib.Path(__file__).resolve().parents[3]
CONFIG = """
from configs.pql import bandit

def get_config():
  config = bandit.get_config()
  config.num_seeds = 2
  config.methods = ('bc_flow', 'pql')
  config.claims = (('pql', 'bc_flow', 'reward', 0.0),)
  config.data.env = 'two_modes'
  config.data.episodes = 256
  config.steps = 60
  config.batch_size = 8
  config.chunk_steps = 10
  config.checkpoint_every = 20
  config.eval_every = 30
  config.agent.hidden_dims = (8,)
  config.agent.flow_steps = 2
  return config
"""


class TrainTest(chex.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.directory = pathlib.Path(tempfile.mkdtemp())
    cls.config = cls.directory / 'tiny.py'
    cls.config.write_text(CONFIG)
    unittest.addModuleCleanup(shutil.rmtree, cls.directory)
    cls.whole = cls.directory / 'whole'
    assert cls.run_here(cls.whole) == 0

  @classmethod
  def arguments(cls, workdir, *overrides):
    return ['main', f'--config={cls.config}', f'--workdir={workdir}', *overrides]

  @classmethod
  def run_here(cls, workdir, *overrides):
    return app.main(cls.arguments(workdir, *overrides), train.prepare, train.train)

  @classmethod
  def start(cls, workdir, *overrides):
    command = [sys.executable, '-m', 'experiments.pql.main']
    command += cls.arguments(workdir, *overrides)[1:]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)

  def assert_close_to_whole(self, workdir):
    for name in ('bc_flow', 'pql'):
      (_, mine), (_, theirs) = (lib.train.restore(d / name) for d in (workdir, self.whole))
      chex.assert_trees_all_close(mine, theirs, rtol=1e-5, atol=1e-6)
      mine, theirs = (
        [r['loss'] for r in metrics.read(d / name / 'metrics.jsonl') if r['kind'] == 'train']
        for d in (workdir, self.whole)
      )
      np.testing.assert_allclose(mine, theirs, rtol=1e-5)

  def assert_same(self, workdir, whole):
    for name in ('bc_flow', 'pql'):
      (_, mine), (_, theirs) = (lib.train.restore(d / name) for d in (workdir, whole))
      chex.assert_trees_all_equal(mine, theirs)
      mine, theirs = (
        [
          {key: value for key, value in record.items() if key != 'steps_per_second'}
          for record in metrics.read(d / name / 'metrics.jsonl')
        ]
        for d in (workdir, whole)
      )
      self.assertEqual(mine, theirs)

  def test_leaves_what_a_reader_wants(self):
    results = json.loads((self.whole / 'results.json').read_text())
    self.assertEqual(results['experiment'], 'pql')
    by_name = {(row['method'], row['metric']): row for row in results['rows']}
    for name in ('bc_flow', 'pql'):
      row = by_name[name, 'reward']
      record = [r for r in metrics.read(self.whole / name / 'metrics.jsonl') if r['kind'] == 'eval']
      self.assertEqual([r['step'] for r in record], [30, 60])
      self.assertAlmostEqual(row['mean'], np.mean(record[-1]['reward']))
      self.assertEqual((row['seeds'], row['better']), (2, 'higher'))
    gain = by_name['pql against bc_flow', 'gain in reward']
    self.assertEqual(gain['passed'], gain['ci95'][0] > 0)
    report = (self.whole / 'report.md').read_text()
    for path in (self.whole / 'figures').iterdir():
      self.assertIn(f'](figures/{path.name})', report)

  def test_three_lines_act_with_a_trained_policy(self):
    config, state = lib.train.restore(self.whole / 'pql')
    method = methods.make(config, 'pql', agent.Spec(2, 2))
    params = jax.tree.map(lambda x: x[0], state['params'])
    actions = method.act(params, np.zeros((5, 2), np.float32), jax.random.key(0))
    chex.assert_shape(actions, (5, 2))
    self.assertTrue(np.isfinite(actions).all())

  def test_the_same_command_again_trains_nothing(self):
    before = (self.whole / 'pql' / 'metrics.jsonl').read_bytes()
    with mock.patch.object(agent, 'adam_step', side_effect=AssertionError):
      self.assertEqual(self.run_here(self.whole), 0)
    self.assertEqual((self.whole / 'pql' / 'metrics.jsonl').read_bytes(), before)

  def test_evaluates_a_finished_run(self):
    workdir = self.directory / 'evaluated'
    shutil.copytree(self.whole, workdir)
    with (
      mock.patch.object(agent, 'adam_step', side_effect=AssertionError),
      mock.patch.object(report, 'write'),
    ):
      self.assertEqual(self.run_here(workdir, '--config.eval_only=True'), 0)
    records = metrics.read(workdir / 'pql' / 'metrics.jsonl')
    self.assertEqual(records[-1], records[-2])

  def test_killed_run_ends_with_the_same_bits(self):
    workdir = self.directory / 'killed'
    process = self.start(workdir)
    while not (workdir / 'pql' / 'checkpoints' / '20').is_dir() and process.poll() is None:
      time.sleep(0.001)
    process.kill()
    process.communicate()
    self.assertEqual(process.returncode, -signal.SIGKILL)
    with mock.patch.object(report, 'write'):
      self.assertEqual(self.run_here(workdir), 0)
    self.assert_same(workdir, self.whole)

  @pytest.mark.slow
  def test_ten_kills_at_random_moments(self):
    longer = ('--config.steps=6000', '--config.chunk_steps=50', '--config.checkpoint_every=200')
    longer += ('--config.eval_every=3000',)
    whole, workdir = self.directory / 'whole longer', self.directory / 'killed often'
    self.assertEqual(self.run_here(whole, *longer), 0)
    rng = random.Random(0)
    for kill in range(10):
      process = self.start(workdir, *longer)
      if kill % 3:  # else while it starts
        while 'steps' not in (line := process.stderr.readline()) and line:
          pass
      time.sleep(rng.uniform(0.0, 0.7 if kill % 3 else 6.0))
      self.assertIsNone(process.poll(), 'done before the last kill')
      process.kill()
      process.communicate()
    process = self.start(workdir, *longer)
    time.sleep(rng.uniform(0.0, 10.0))
    process.terminate()
    process.communicate()
    self.assertEqual(self.run_here(workdir, *longer), 0)
    self.assert_same(workdir, whole)

  @pytest.mark.slow
  def test_eight_devices_end_as_one(self):
    workdir = self.directory / 'eight devices'
    process = self.start(workdir, '--config.cpu_devices=8')
    process.communicate(timeout=300)
    self.assertEqual(process.returncode, 0)
    self.assert_close_to_whole(workdir)

  @pytest.mark.slow
  def test_two_hosts_end_as_one(self):
    with socket.socket() as free:
      free.bind(('localhost', 0))
      port = free.getsockname()[1]
    workdir = self.directory / 'two hosts'
    hosts = []
    for i in range(2):
      cluster = {  # what jax reads under SLURM
        'JAX_COORDINATOR_ADDRESS': f'localhost:{port}',
        'SLURM_JOB_ID': '1',
        'SLURM_STEP_NODELIST': 'localhost',
        'SLURM_STEP_NUM_NODES': '1',
        'SLURM_NTASKS': '2',
        'SLURM_PROCID': str(i),
        'SLURM_LOCALID': str(i),
      }
      with mock.patch.dict(os.environ, cluster):
        hosts.append(self.start(workdir, '--distributed'))
    for host in hosts:
      host.communicate(timeout=300)
      self.assertEqual(host.returncode, 0)
    self.assert_close_to_whole(workdir)
    self.assertTrue((workdir / 'report.md').is_file())

  def assert_fails(self, code, pattern, *overrides, workdir=None):
    workdir = workdir or self.directory / 'new'
    endings.assert_ends(self, code, pattern, workdir, *overrides)
    if code == 2:
      self.assertFalse((self.directory / 'new').exists())

  @parameterized.parameters(
    ('--config.stesp=3', 'steps'),
    ('--config.agent.pde.wieght=0.1', 'weight'),
    ('--config.batch_size=many', 'batch_size'),
    ('--config.batch_size=0', 'batch_size'),
    ('--config.agent.discount=1.5', 'discount'),
    ('--config.eval_every=15', 'eval_every.*chunk_steps'),
    ('--config.data.source=d5rl', 'data.source.*d4rl'),
    ('--config.data.env=two_moods', 'data.env.*two_modes'),
  )
  def test_bad_input_is_named_and_nothing_written(self, override, pattern):
    self.assert_fails(2, pattern, override)

  def test_not_finite_data_are_named(self):
    path = self.directory / 'broken.hdf5'
    with h5py.File(path, 'w') as file:
      for name, width in (('observations', 3), ('actions', 2)):
        file[name] = np.zeros((9, width), np.float32)
      for name in ('rewards', 'terminals', 'timeouts'):
        file[name] = np.zeros(9, np.float32)
      file['rewards'][4] = np.nan
    source = ('--config.data.source=d4rl', f'--config.data.path={path}')
    source += ('--config.data.env=pen-human-v1',)
    self.assert_fails(2, r'broken\.hdf5.*rewards.*nan', *source)

  def test_nan_in_a_batch_stops_the_run_and_keeps_the_checkpoint_before(self):
    workdir = self.directory / 'diverged'
    init = agent.networks

    def explode(*args):  # as a bug or an overflow would, but at a known place
      nets = init(*args)
      return nets._replace(flow=lambda p, s, a, t: nets.flow(p, s, a, t) / (s[:1, :1] != s[:1, :1]))

    with mock.patch.object(agent, 'networks', explode):
      self.assert_fails(3, 'diverged: .*loss.* step 1', workdir=workdir)
    records = metrics.read(workdir / 'bc_flow' / 'metrics.jsonl')
    self.assertEqual(records, [])

  def test_disk_that_fills_while_saving_leaves_the_checkpoint_before(self):
    workdir = self.directory / 'full'
    seal, sealed = manifest.seal, []

    def fill(path):  # at the second checkpoint
      if sealed:
        raise OSError(28, 'No space left on device')
      sealed.append(path)
      seal(path)

    with mock.patch.object(manifest, 'seal', fill):
      self.assert_fails(4, 'No space left', workdir=workdir)
    self.assertEqual(checkpoint.Checkpoints(workdir / 'bc_flow').steps(), [20])
    with mock.patch.object(report, 'write'):
      self.assertEqual(self.run_here(workdir), 0)
    self.assert_same(workdir, self.whole)

  def test_full_disk_ends_with_its_own_code(self):
    full = OSError(28, 'No space left on device')
    with mock.patch.object(data, 'load', side_effect=full):
      self.assert_fails(4, 'No space left')
    self.assertFalse((self.directory / 'new').exists())
