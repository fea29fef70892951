"""Host. What a person reads while a run goes on, on standard error of the first host."""

import sys

import jax
import tqdm


def say(text: str) -> None:
  """Prints a line, above the bar if there is one."""
  if jax.process_index() == 0:
    tqdm.tqdm.write(text, file=sys.stderr)
