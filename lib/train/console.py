"""Host. What a person reads while a run goes on, on standard error of the first host."""

import os
import sys
import time

import jax
import tqdm


def say(text: str) -> None:
  """Prints a line, above the bar if there is one."""
  if jax.process_index() == 0:
    tqdm.tqdm.write(text, file=sys.stderr)


class Progress:
  """A bar on a terminal, a line every 15 seconds elsewhere: rate, time left, and a note."""

  def __init__(self, label: str, done: int, total: int):
    self._terminal = sys.stderr.isatty() and jax.process_index() == 0
    self._file = sys.stderr if self._terminal else open(os.devnull, 'w')  # noqa: SIM115
    self._shown = time.monotonic()
    self._bar = tqdm.tqdm(
      desc=label, unit='step', initial=done, total=total, smoothing=0, file=self._file,
      dynamic_ncols=self._terminal, ncols=None if self._terminal else 0,
    )  # fmt: skip

  def __call__(self, done: int, note: str) -> None:
    """Shows that `done` steps are done."""
    self._bar.set_postfix_str(note, refresh=False)
    self._bar.update(done - self._bar.n)
    if not self._terminal and (time.monotonic() > self._shown + 15 or done == self._bar.total):
      self._shown = time.monotonic()
      say(str(self._bar))

  def close(self) -> None:
    """Ends the bar."""
    self._bar.close()
    if not self._terminal:
      self._file.close()
