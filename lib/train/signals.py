"""Host. SIGTERM and Ctrl-C: the first asks a run to save and stop, a second stops it at once."""

import contextlib
import signal
from collections.abc import Iterator

import jax
import numpy as np
from jax.experimental import multihost_utils

_received = 0


class Stopped(BaseException):  # like KeyboardInterrupt, so that `except Exception` lets it pass
  """A signal, `signum`, ended the run."""

  def __init__(self, signum: int):
    super().__init__(f'stopped by {signal.Signals(signum).name}')
    self.signum = signum


@contextlib.contextmanager
def handled() -> Iterator[None]:
  """Takes note of signals inside the block, for `check` to act on."""

  def take_note(signum, frame) -> None:
    global _received
    if _received:
      raise Stopped(signum)
    _received = signum

  previous = {s: signal.signal(s, take_note) for s in (signal.SIGINT, signal.SIGTERM)}
  try:
    yield
  finally:
    globals()['_received'] = 0
    for signum, handler in previous.items():
      signal.signal(signum, handler)


def received() -> int:
  """Returns the signal that this run has received, or 0."""
  return _received


def check() -> None:
  """Raises `Stopped` if a signal came; call it between the parts of a long evaluation.

  One of several hosts must not leave alone: there it does nothing, and the loop stops them all.
  """
  if _received and jax.process_count() == 1:
    raise Stopped(_received)


def check_together() -> None:
  """Raises `Stopped` on every host if a signal came to any; all must call it together."""
  global _received
  if jax.process_count() > 1:
    _received = int(multihost_utils.process_allgather(np.int32(_received)).max())
  if _received:
    raise Stopped(_received)
