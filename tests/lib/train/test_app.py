"""Tests of lib.train.app."""

import contextlib
import errno
import io
import json
import os
import pathlib
import platform
import signal
import sys
import tempfile
from unittest import mock

import jax
import ml_collections
import numpy as np
from absl.testing import absltest, parameterized

from lib.io import files
from lib.train import app, checkpoint, loop, signals

CONFIG = """
import ml_collections

def get_config():
  config = ml_collections.ConfigDict()
  config.steps = 3
  config.rate = 0.5
  config.name = 'one'
  config.methods = ('a', 'b')
  config.net = ml_collections.ConfigDict({'width': 8})
  config.eval_only = False
  config.eval_episodes = 2
  config.eval = ml_collections.ConfigDict({'games': 2})
  config.cpu_devices = 1
  return config
"""


class AppTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
    self.enterContext(contextlib.chdir(self.directory))
    self.addCleanup(sys.modules.pop, 'config_config', None)  # loading it again would keep its names
    self.config = self.directory / 'small.py'
    self.config.write_text(CONFIG)
    self.workdir = self.directory / 'deep' / 'run'
    self.prepare = mock.Mock(return_value='prepared')
    self.train = mock.Mock(__module__='experiments.toy.train')

  def main(self, *args: str) -> int:
    """Runs `main` with these arguments alone, and keeps what it says."""
    err, out = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(out):
      code = app.main(['main.py', *args], self.prepare, self.train)
    self.said, self.printed = err.getvalue(), out.getvalue()
    errors = [line for line in self.said.splitlines() if line.startswith('error: ')]
    self.assertLen(errors, 1 if code else 0)
    self.error = ''.join(errors)
    return code

  def start(self, *args: str) -> int:
    """Runs `main` with the config and the workdir, and these arguments."""
    return self.main(f'--config={self.config}', f'--workdir={self.workdir}', *args)

  def read(self, name: str):
    return json.loads((self.workdir / name).read_text())


class DoneTest(AppTest):
  def test_trains_what_was_prepared(self):
    self.assertEqual(self.start(), 0)
    ((config,), _), ((run, prepared), _) = self.prepare.call_args, self.train.call_args
    self.assertEqual(prepared, 'prepared')
    self.assertEqual((run.experiment, run.config_file), ('toy', str(self.config)))
    self.assertEqual(run.workdir, self.workdir)
    for found in (config, run.config):
      self.assertIsInstance(found, ml_collections.FrozenConfigDict)
      self.assertEqual((found.steps, found.methods, found.net.width), (3, ('a', 'b'), 8))
    self.assertIn(f'toy: {self.config} in {self.workdir}', self.said)
    self.assertIn(f'Done: {self.workdir}', self.said)

  def test_overrides(self):
    args = ('--config.steps=7', '--config.rate=1e-3', '--config.net.width=9', '--config.name=two')
    self.assertEqual(self.start(*args), 0)
    config = self.train.call_args.args[0].config
    expected = (7, 1e-3, 9, 'two')
    self.assertEqual((config.steps, config.rate, config.net.width, config.name), expected)
    found = self.read('config.json')
    self.assertEqual(
      (found['steps'], found['rate'], found['net']['width'], found['name']), expected
    )

  def test_config_json(self):
    self.assertEqual(self.start(), 0)
    expected = {'steps': 3, 'rate': 0.5, 'name': 'one', 'methods': ['a', 'b'], 'net': {'width': 8},
                'eval_only': False, 'eval_episodes': 2, 'eval': {'games': 2},
                'cpu_devices': 1}  # fmt: skip
    self.assertEqual(self.read('config.json'), expected)

  def test_environment_json(self):
    self.assertEqual(self.start('--config.name=a b'), 0)
    facts = self.read('environment.json')
    self.assertEndsWith(facts['command'], "'--config.name=a b'")
    self.assertStartsWith(facts['command'], 'main.py ')
    self.assertEqual(facts['devices'], [str(device) for device in jax.devices()])
    self.assertEqual(facts['versions']['jax'], jax.__version__)
    self.assertEqual(facts['versions']['numpy'], np.__version__)
    self.assertEqual(facts['python'], platform.python_version())
    self.assertContainsSubset({'machine', 'git'}, facts)

  def test_facts_are_there_before_training(self):
    self.train.side_effect = lambda run, _: self.assertEqual(
      sorted(os.listdir(run.workdir)), ['config.json', 'environment.json', 'lock']
    )
    self.assertEqual(self.start(), 0)

  def test_default_workdir(self):
    self.assertEqual(self.main('--config=small.py'), 0)
    self.workdir = pathlib.Path('runs', 'toy', 'small')
    self.assertEqual(self.train.call_args.args[0].workdir, self.workdir)
    self.assertEqual(self.read('config.json')['steps'], 3)

  def test_same_command_again(self):
    for _ in range(2):
      self.assertEqual(self.start(), 0)
    self.assertEqual(self.train.call_count, 2)

  @parameterized.parameters('--help', '-h')
  def test_help(self, flag):
    self.assertEqual(self.main(flag), 0)
    for name in ('--config', '--workdir', '--distributed', '--config.FIELD'):
      self.assertIn(name, self.printed)
    self.prepare.assert_not_called()
    self.assertEqual(os.listdir(self.directory), ['small.py'])

  def test_run_exits_with_the_code(self):
    with (
      mock.patch('sys.argv', ['main.py']),
      contextlib.redirect_stderr(io.StringIO()),
      self.assertRaises(SystemExit) as caught,
    ):
      app.run(self.prepare, self.train)
    self.assertEqual(caught.exception.code, 2)


class BadInputTest(AppTest):
  """Code 2, before anything is prepared or written."""

  def check_refused(self, code: int, says: str):
    self.assertEqual(code, 2)
    self.assertRegex(self.error, says)
    self.prepare.assert_not_called()
    self.train.assert_not_called()
    self.assertFalse(self.workdir.exists())

  def test_no_config(self):
    self.check_refused(self.main(f'--workdir={self.workdir}'), 'give --config=FILE')

  @parameterized.parameters('--config=there/is/none.py', '--config=.', '--config=')
  def test_no_config_file(self, flag):
    path = flag.removeprefix('--config=')
    code = self.main(flag, f'--workdir={self.workdir}')
    self.check_refused(code, f'no config file {path}'.rstrip())

  def test_no_config_file_in_two_words(self):
    code = self.main('--config', 'there/is/none.py', f'--workdir={self.workdir}')
    self.check_refused(code, r'there/is/none\.py')

  @parameterized.parameters(
    ('steps: 3\nrate: [', 'invalid syntax|never closed'),
    ('hello', 'hello'),
    ('import nothing_of_this_name', 'nothing_of_this_name'),
    ('x = 1', 'get_config'),
    ('def get_config():\n  return 3', 'int'),
    ('def get_config():\n  return 1 / 0', 'division by zero'),
    ('def get_config():\n  raise ValueError("two\\nlines")', 'two lines'),
    ('\0\1\2', 'null bytes'),
    ('', 'get_config'),
  )
  def test_config_file_of_something_else(self, text, says):
    self.config.write_text(text)
    self.check_refused(self.start(), says)

  @parameterized.parameters(
    ('--nope', "'nope'"),
    ('--config.stesp=3', 'stesp.*"steps"'),
    ('--config.net.widht=3', 'widht.*"width"'),
    ('--config.steps.more=3', r'steps\.more'),
    ('--config.steps=many', 'steps.*many'),
    ('--config.steps=1.5', r'steps.*1\.5'),
    ('--config.rate=fast', 'rate.*fast'),
    ('--config.net=3', 'net=3'),
    ('--config.eval_only=maybe', 'eval_only.*maybe'),
    ('--config.cpu_devices=0', r'config\.cpu_devices must be positive, got 0'),
    ('--config.cpu_devices=-1', r'config\.cpu_devices must be positive, got -1'),
    ('extra', "unknown argument 'extra'"),
    ('--config.eval_only=True', r'config\.eval_only: no finished run in .*run'),
  )
  def test_arguments(self, arg, says):
    self.check_refused(self.start(arg), says)

  @parameterized.parameters('file', 'file/below', 'file/far/below')
  def test_workdir_under_a_file(self, name):
    (self.directory / 'file').touch()
    self.workdir = self.directory / name
    self.assertEqual(self.start(), 2)
    self.assertIn(f'{self.directory / "file"} is no directory', self.error)
    self.prepare.assert_not_called()

  def test_workdir_that_cannot_be_written(self):
    with mock.patch.object(os, 'access', return_value=False):  # root may write anywhere
      code = self.start()
    self.check_refused(code, f'{self.directory} is no directory that can be written to')

  @parameterized.parameters(
    ValueError('the data\nare bad'), FileNotFoundError(errno.ENOENT, 'gone', 'data.npz')
  )
  def test_prepare_refuses(self, error):
    self.prepare.side_effect = error
    self.assertEqual(self.start(), 2)
    self.assertIn(' '.join(str(error).split()), self.error)
    self.train.assert_not_called()
    self.assertFalse(self.workdir.exists())


class AnotherRunTest(AppTest):
  """A workdir that has a run already."""

  def setUp(self):
    super().setUp()
    self.assertEqual(self.start(), 0)
    self.before = {name: (self.workdir / name).read_bytes() for name in os.listdir(self.workdir)}
    self.prepare.reset_mock()

  def check_untouched(self):
    after = {name: (self.workdir / name).read_bytes() for name in os.listdir(self.workdir)}
    self.assertEqual(after, self.before)

  @parameterized.parameters(
    ('--config.steps=4', 'steps = 3, not 4'),
    ('--config.net.width=9', r'net\.width = 8, not 9'),
    ('--config.methods=("a",)', r'methods\.1 = b, not None'),
    ('--config.methods=("a", "b", "c")', r'methods\.2 = None, not c'),
    ('--config.eval_episodes=3', 'eval_episodes = 2, not 3'),
  )
  def test_another_config_is_refused_by_field(self, arg, says):
    self.assertEqual(self.start(arg), 2)
    self.assertRegex(self.error, rf'config\.json has {says}; choose another --workdir')
    self.prepare.assert_not_called()
    self.check_untouched()

  def test_config_that_gained_a_field(self):
    self.config.write_text(CONFIG.replace('return', 'config.extra = 1\n  return'))
    self.assertEqual(self.start(), 2)
    self.assertIn('extra = None, not 1', self.error)

  @parameterized.parameters('', '{"steps": ', '\xff', '[' * 100_000)
  def test_corrupt_config_json(self, text):
    (self.workdir / 'config.json').write_bytes(text.encode('latin1'))
    self.assertEqual(self.start(), 2)
    self.assertRegex(self.error, r'config\.json: not a config')
    self.prepare.assert_not_called()

  @parameterized.parameters('3', 'null', '[]', '{}', '[{"steps": 3}]', '{"steps": {"steps": 3}}')
  def test_config_json_of_something_else(self, text):
    (self.workdir / 'config.json').write_text(text)
    self.assertEqual(self.start(), 2)
    self.assertIn('config.json', self.error)
    self.prepare.assert_not_called()

  def test_eval_only_changes_the_evaluation_alone(self):
    changes = ['--config.eval_episodes=50', '--config.eval.games=7']
    self.assertEqual(self.start('--config.eval_only=True', *changes), 0)
    config = self.train.call_args.args[0].config
    self.assertEqual(config.eval.games, 7)
    self.assertEqual((config.eval_only, config.eval_episodes, config.steps), (True, 50, 3))
    self.check_untouched()
    self.assertEqual(self.start('--config.eval_only=True', '--config.steps=4'), 2)
    self.assertIn('steps = 3, not 4', self.error)
    self.assertEqual(self.start(), 0)  # and the run goes on as before

  def test_another_run_that_began_meanwhile(self):
    (self.workdir / 'config.json').unlink()
    other = json.dumps(json.loads(self.before['config.json']) | {'steps': 4})
    self.prepare.side_effect = lambda config: (self.workdir / 'config.json').write_text(other)
    self.train.reset_mock()
    self.assertEqual(self.start(), 2)
    self.assertIn('steps = 4, not 3', self.error)
    self.train.assert_not_called()
    self.assertEqual((self.workdir / 'config.json').read_text(), other)

  def test_interrupted_while_it_waits_for_another(self):
    def interrupt(signum, frame):
      raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    self.addCleanup(signal.signal, signal.SIGALRM, before)
    self.prepare.side_effect = lambda config: signal.setitimer(signal.ITIMER_REAL, 0.05)
    self.train.reset_mock()
    with files.locked(self.workdir / 'lock'):
      self.assertEqual(self.start(), 130)
    self.train.assert_not_called()
    self.check_untouched()


class FailureTest(AppTest):
  @parameterized.parameters(
    (checkpoint.CheckpointError('does not fit'), 2, 'does not fit'),
    (loop.Diverged(7, 'loss', 1), 3, 'loss .*step 7.*seed 1.*is kept'),
    (OSError(errno.ENOSPC, 'full'), 4, 'full'),
    (FileNotFoundError(errno.ENOENT, 'gone'), 4, 'gone'),
  )
  def test_train(self, error, code, says):
    self.train.side_effect = error
    self.assertEqual(self.start(), code)
    self.assertRegex(self.error, says)
    self.assertNotIn('Done', self.said)
    with files.locked(self.workdir / 'lock'):  # it was let go
      pass

  @parameterized.parameters(
    (OSError(errno.ENOSPC, 'full'), 4),
    (MemoryError('too large'), 4),
    (jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: Out of memory'), 4),
    (OSError(errno.EDQUOT, 'quota'), 4),
    (OSError(errno.EIO, 'broken'), 4),
    (KeyboardInterrupt(), 130),
  )
  def test_prepare(self, error, code):
    self.prepare.side_effect = error
    self.assertEqual(self.start(), code)
    self.train.assert_not_called()
    self.assertFalse(self.workdir.exists())

  @parameterized.parameters((signal.SIGINT, 130), (signal.SIGTERM, 143))
  def test_signal(self, signum, code):
    def train(run, prepared):
      os.kill(os.getpid(), signum)
      signals.check()
      self.fail('it went on')

    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    self.train.side_effect = train
    self.assertEqual(self.start(), code)
    self.assertIn(f'stopped by {signum.name}; the same', self.error)
    self.assertEqual([signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)], before)
    self.train.side_effect = None
    self.assertEqual(self.start(), 0)

  def test_errors_of_the_code_are_not_hidden(self):
    self.train.side_effect = ValueError('a bug')
    with self.assertRaisesRegex(ValueError, 'a bug'):
      self.start()


if __name__ == '__main__':
  absltest.main()
