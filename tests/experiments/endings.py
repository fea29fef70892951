"""What the experiments' tests assert of runs that end with an error."""

from unittest import mock


def assert_ends(test, code: int, pattern: str, *arguments) -> None:
  """Asserts the exit code of `test.run_here(*arguments)` and one line of error that is found."""
  with mock.patch('lib.train.console.say') as say:
    test.assertEqual(test.run_here(*arguments), code)
  message = say.call_args.args[0]
  test.assertRegex(message, pattern)
  test.assertNotIn('\n', message)
