import contextlib
import io
import pathlib
from unittest import mock

from absl.testing import parameterized

from experiments.lm import run
from lib.io import models
from tests.experiments.agency import test_study
from tests.lib.lm import toys

CONFIGS = pathlib.Path(run.__file__).parents[2] / 'configs' / 'lm'


def main(config, *arguments):
  """Runs with a toy model; returns the exit code, what was printed, and what was said."""
  out = io.StringIO()
  toy = models.Model(test_study.ARCH, toys.params_of(test_study.ARCH), test_study.Letters())
  with (
    mock.patch.object(models, 'load', return_value=toy),
    mock.patch('lib.train.console.say') as say,
    contextlib.redirect_stdout(out),
  ):
    code = run.main(['lm', f'--config={CONFIGS / config}', *arguments])
  return code, out.getvalue(), say.call_args


class RunTest(parameterized.TestCase):
  def test_completion_streams_what_it_returns(self):
    options = ('--config.prompt=abc', '--config.max_tokens=6')
    code, shown, _ = main('complete.py', *options)
    self.assertEqual(code, 0)
    self.assertStartsWith(shown, 'abc')
    self.assertEqual(shown, main('complete.py', *options)[1])
    self.assertNotEqual(shown, main('complete.py', *options, '--config.seed=1')[1])

  def test_samples_are_told_apart(self):
    code, shown, _ = main(
      'complete.py', '--config.prompt=abc', '--config.max_tokens=4', '--config.num_samples=3'
    )
    self.assertEqual(code, 0)
    self.assertLen(shown.split('\n---\n'), 3)

  def test_conversation_ends_with_the_input(self):
    with mock.patch('builtins.input', side_effect=['how are you now', 'a second line', EOFError]):
      code, shown, _ = main('chat.py', '--config.max_tokens=3')
    self.assertEqual(code, 0)
    self.assertLen(shown.splitlines(), 2)

  def test_log_probabilities_sum_to_the_mean(self):
    code, shown, _ = main('log_prob.py', '--config.prompt=abcde')
    self.assertEqual(code, 0)
    *tokens, last = shown.splitlines()
    self.assertLen(tokens, 4)
    mean = sum(float(line.split()[0]) for line in tokens) / 4
    self.assertAlmostEqual(float(last.split()[0]), mean, places=3)

  @parameterized.parameters(
    ('--config.task=sing', 'config.task must be one of chat'),
    ('--config.max_tokens=0', 'config.max_tokens must be positive'),
    ('--config.sampling.top_p=2.0', 'top_p'),
    ('--config.tempo=1', 'tempo'),
    ('--config.prompt=x', 'at least two tokens'),
    ('extra', "unknown argument 'extra'"),
  )
  def test_bad_input_is_named_in_one_line(self, argument, message):
    code, _, said = main('log_prob.py', argument)
    self.assertEqual(code, 2)
    self.assertRegex(said.args[0], message)
    self.assertNotIn('\n', said.args[0])

  def test_missing_config_is_named(self):
    code, _, said = main('nothing.py')
    self.assertEqual(code, 2)
    self.assertIn('nothing.py', said.args[0])
