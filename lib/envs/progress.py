"""Host. Progress on standard error: a bar on a terminal, a line every so often elsewhere."""

import sys
import time
from collections.abc import Callable

import tqdm

Progress = Callable[[int, int], None]


def console(label: str, unit: str, interval: float = 15.0) -> Progress:
  """Makes a progress report.

  Args:
    label: what is being done.
    unit: what is counted.
    interval: seconds between lines where standard error is no terminal.

  Returns:
    `progress(done, total)`, to be called whenever `done` grows; the first call sets the clock.
  """
  if sys.stderr.isatty():
    bar = tqdm.tqdm(desc=label, unit=unit, dynamic_ncols=True, file=sys.stderr)

    def draw(done: int, total: int) -> None:
      if bar.total is None:
        bar.reset(total)
        bar.initial = bar.n = done  # what a former run left counts for nothing in the rate
      bar.update(done - bar.n)
      if done == total:
        bar.close()

    return draw

  first: list[float] = []  # time and count of the first call
  last = time.monotonic()

  def write(done: int, total: int) -> None:
    nonlocal last
    now = time.monotonic()
    if not first:
      first.extend((now, done))
    if now - last < interval and done < total:
      return
    last = now
    rate = (done - first[1]) / max(now - first[0], 1e-9)
    left = f', {(total - done) / rate:.0f} s left' if rate else ''
    print(f'{label}: {done} of {total} {unit}s, {rate:.2f} {unit}/s{left}', file=sys.stderr)

  return write
