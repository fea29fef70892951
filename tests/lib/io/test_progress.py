"""Tests of lib.io.progress."""

import contextlib
import io
import re
from unittest import mock

from absl.testing import absltest, parameterized

from lib.io import progress


class Terminal(io.StringIO):
  def isatty(self) -> bool:
    return True


class ProgressTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.now = 100.0
    clock = lambda: self.now
    self.enterContext(mock.patch('tqdm.std.time', clock))
    self.enterContext(mock.patch('time.monotonic', clock))

  def show(self, calls, stream=None, **options) -> str:
    """Makes calls of (seconds to wait, done, total, note...), and returns what they show."""
    stream = io.StringIO() if stream is None else stream
    with contextlib.redirect_stderr(stream):
      with contextlib.closing(progress.Progress('toy', 'step', **options)) as show:
        for seconds, *args in calls:
          self.now += seconds
          show(*args)
      self.assertFalse(stream.closed)
    return stream.getvalue()

  def test_bar_on_a_terminal(self):
    calls = [(0, 0, 10), (1, 5, 10, 'loss 0.5'), (1, 10, 10, 'loss 0.25')]
    shown = self.show(calls, Terminal())
    bars = [bar for bar in shown.split('\r') if bar.strip()]
    self.assertGreaterEqual(len(bars), 3)
    for bar in bars:
      self.assertRegex(bar, r'^toy: .*/10 ')
    self.assertIn('5/10', shown)
    self.assertIn('loss 0.5', shown)
    self.assertRegex(bars[-1], '10/10 .*5.00step/s.*loss 0.25')
    self.assertEndsWith(shown, '\n')
    self.assertEqual(shown.count('\n'), 1)

  def test_stream_stays_open_for_the_next_bar(self):
    stream = Terminal()
    for _ in range(2):
      self.show([(0, 0, 2), (1, 2, 2)], stream)
    self.show([(0, 0, 2), (1, 1, 2)], stream)  # closed before the end
    print('more', file=stream)

  def test_lines_elsewhere(self):
    calls = [(0, 0, 100), (9, 10, 100), (2, 20, 100, 'loss 0.5'), (2, 30, 100), (9, 40, 100)]
    lines = self.show(calls, interval=10).splitlines()
    self.assertLen(lines, 2)
    self.assertRegex(lines[0], r'^toy: .*20/100 .*step/s.*loss 0.5')
    self.assertRegex(lines[1], r'^toy: .*40/100 ')
    self.assertNotIn('\r', ''.join(lines))

  def test_the_end_has_a_line(self):
    (line,) = self.show([(0, 0, 4), (1, 2, 4), (1, 4, 4)]).splitlines()
    self.assertRegex(line, '4/4 .*2.00step/s')

  @parameterized.parameters(io.StringIO, Terminal)
  def test_silent(self, stream):
    self.assertEqual(self.show([(0, 0, 2), (99, 1, 2), (99, 2, 2)], stream(), silent=True), '')

  def test_earlier_work_counts_for_no_rate(self):
    (line,) = self.show([(0, 900, 1000), (20, 940, 1000)], interval=10).splitlines()
    rate = re.search(r'([\d.]+)step/s', line)
    self.assertEqual(float(rate[1]), 2.0)
    self.assertIn('00:20<00:30', line)  # 60 more at that rate

  @parameterized.parameters(0, 5)
  def test_nothing_to_do_shows_nothing(self, done):
    self.assertEqual(self.show([(0, done, done), (99, done, done)]), '')

  def test_close_twice_or_before_the_start(self):
    with contextlib.redirect_stderr(Terminal()) as stream:
      show = progress.Progress('toy', 'step')
      show.close()
      show(1, 2)
      show.close()
      show.close()
      before = stream.getvalue()
      show(1, 2)  # begins anew
      show.close()
      self.assertGreater(len(stream.getvalue()), len(before))


if __name__ == '__main__':
  absltest.main()
