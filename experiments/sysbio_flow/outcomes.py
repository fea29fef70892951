"""What becomes of many models, each tried in a process with little memory and time."""

import collections
import os
import re
import resource
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import flags

from lib.envs import workers
from lib.io import files, progress

_OUTPUT = flags.DEFINE_string('output', '', 'JSON file to write with the outcome of each.')
_WORKERS = flags.DEFINE_integer('workers', 0, 'Processes; 0 for one for each core.')
_SECONDS = flags.DEFINE_float('seconds', 120.0, 'The most that one may take.')


def confine(gigabytes: float = 8.0) -> None:
  """Bounds the memory of this process, silences it, and makes jax compile fast."""
  resource.setrlimit(resource.RLIMIT_AS, (int(gigabytes * 2**30),) * 2)
  resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
  os.environ |= {'JAX_PLATFORMS': 'cpu', 'JAX_DISABLE_MOST_OPTIMIZATIONS': '1'}
  silence = os.open(os.devnull, os.O_WRONLY)
  for stream in (1, 2):  # where simulators complain
    os.dup2(silence, stream)


def collect(
  make: Callable[[], Callable[[tuple[str, Any]], str]], requests: Mapping[str, Any], unit: str
) -> None:
  """Tries each, then prints and writes what there is to tell.

  Args:
    make: makes, in a process, what takes a name with its request and returns the outcome.
    requests: by name.
    unit: what they are.
  """
  show = progress.Progress(f'Trying each {unit}', unit)
  found: dict[str, str] = {}
  with workers.Workers([make] * (_WORKERS.value or workers.num_cores())) as pool:
    for (name, _), answer in pool.map_within(requests.items(), _SECONDS.value):
      found[name] = answer.reason if isinstance(answer, workers.Lost) else answer
      show(len(found), len(requests))
  show.close()
  found = dict(sorted(found.items()))
  counts = tally(list(found.values()))
  if _OUTPUT.value:
    files.write_json(_OUTPUT.value, {'counts': counts, 'outcomes': found})
  print(f'{len(found):5d}  in all')
  for outcome, number in counts.items():
    print(f'{number:5d}  {outcome}')


def tally(outcomes: Sequence[str]) -> dict[str, int]:
  """How many had each outcome, names and numbers apart; the commonest first."""
  general = (re.sub(r"'[^']*'", '…', outcome) for outcome in outcomes)
  kinds = (re.sub(r'(?<![a-z])-?(\d[\d.e+-]*|nan|inf)\b', '…', kind) for kind in general)
  return dict(collections.Counter(kinds).most_common())
