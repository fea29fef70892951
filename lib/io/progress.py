"""Host. Progress on standard error: a bar on a terminal, a line every so often elsewhere."""

import io
import math
import sys
import time

import tqdm


class Progress:
  """How far something is, its rate and the time left; what an earlier run did counts for no rate.

  Args:
    label: what is being done.
    unit: what is counted.
    interval: seconds between lines where standard error is no terminal.
    silent: show nothing.
  """

  def __init__(self, label: str, unit: str, interval: float = 15.0, silent: bool = False):
    self._label, self._unit, self._interval, self._silent = label, unit, interval, silent
    self._bar: tqdm.tqdm | None = None
    self._shown = 0.0

  def __call__(self, done: int, total: int, note: str = '') -> None:
    """Shows that `done` of `total` are done; the first call starts the clock."""
    terminal = sys.stderr.isatty() and not self._silent
    if self._bar is None:
      self._bar = tqdm.tqdm(
        desc=self._label, unit=self._unit, initial=done, total=total, smoothing=0,
        file=sys.stderr if terminal else io.StringIO(),
        mininterval=0.1 if terminal else math.inf,  # then it counts, and draws nothing
        dynamic_ncols=terminal, ncols=None if terminal else 0,
      )  # fmt: skip
      self._shown = time.monotonic()
    self._bar.set_postfix_str(note, refresh=False)
    self._bar.update(done - self._bar.n)
    due = time.monotonic() > self._shown + self._interval or done == total > self._bar.initial
    if due and not terminal and not self._silent:
      self._shown = time.monotonic()
      print(self._bar, file=sys.stderr)
    if done == total:
      self.close()

  def close(self) -> None:
    """Ends the bar."""
    if self._bar is not None:
      self._bar.close()
    self._bar = None
