"""What becomes of many models, each tried in a process with little memory and time."""

import collections
import contextlib
import functools
import json
import os
import pathlib
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from absl import flags

from lib.envs import workers
from lib.io import files, jsonl, progress

_OUTPUT = flags.DEFINE_string(
  'output', '', 'JSON lines, one for each that was tried; a run goes on with those not in it.'
)
_WORKERS = flags.DEFINE_integer('workers', 0, 'Processes; 0 for one for each core.')
_SECONDS = flags.DEFINE_float('seconds', 120.0, 'The most that one may take.')
_FIELDS = {'name': str, 'outcome': str, 'seconds': float}

Handler = Callable[[tuple[str, Any]], str]


def confine(gigabytes: float = 8.0) -> None:
  """Bounds the memory of this process, silences it, and makes jax compile fast."""
  resource.setrlimit(resource.RLIMIT_AS, (int(gigabytes * 2**30),) * 2)
  resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
  os.environ |= {'JAX_PLATFORMS': 'cpu', 'JAX_DISABLE_MOST_OPTIMIZATIONS': '1'}
  silence = os.open(os.devnull, os.O_WRONLY)
  for stream in (1, 2):  # where simulators complain
    os.dup2(silence, stream)


def collect(make: Callable[[], Handler], requests: Mapping[str, Any], unit: str) -> None:
  """Tries each that was not tried before, then prints what there is to tell.

  Args:
    make: makes, in a process, what takes a name with its request and returns the outcome.
    requests: by name.
    unit: what they are.

  Raises:
    OSError: if the output cannot be written.
    ValueError: if the output is something else.
  """
  show = progress.Progress(f'Trying each {unit}', unit)
  with _records(_OUTPUT.value) as (found, add):
    missing = {name: request for name, request in requests.items() if name not in found}
    count = min(_WORKERS.value or workers.num_cores(), len(missing))
    done = len(requests) - len(missing)
    show(done, len(requests))
    with workers.Workers([functools.partial(_timed, make)] * count) as pool:
      for (name, _), answer in pool.map_within(missing.items(), _SECONDS.value):
        lost = isinstance(answer, workers.Lost)
        outcome, seconds = (f'lost: {answer.reason}', _SECONDS.value) if lost else answer
        add({'name': name, 'outcome': outcome, 'seconds': seconds})
        done += 1
        show(done, len(requests))
  show.close()
  of_these = [found[name] for name in requests]
  print(f'{len(of_these):5d}  in all, {sum(r["seconds"] for r in of_these):.0f} s')
  for outcome, number in tally([record['outcome'] for record in of_these]).items():
    print(f'{number:5d}  {outcome}')


@contextlib.contextmanager
def _records(output: str) -> Iterator[tuple[dict[str, Any], Callable[[dict[str, Any]], None]]]:
  """The records of a file by name, and what adds one; in memory alone if there is no file."""
  path = pathlib.Path(output)
  lines = jsonl.read(path, _FIELDS) if output and path.exists() else []
  found = {record['name']: record for _, record in lines}
  with contextlib.ExitStack() as stack:
    stream = None
    if output:
      with files.replacing(path) as whole:  # without a torn line
        whole.write(b''.join(line for line, _ in lines))
      stream = stack.enter_context(open(path, 'a'))

    def add(record: dict[str, Any]) -> None:
      found[record['name']] = record
      if stream:
        stream.write(json.dumps(record) + '\n')
        stream.flush()

    yield found, add


def _timed(make: Callable[[], Handler]) -> Callable[[tuple[str, Any]], tuple[str, float]]:
  """What returns the outcome and the seconds that it took."""
  handle = make()

  def timed(request: tuple[str, Any]) -> tuple[str, float]:
    start = time.perf_counter()
    outcome = handle(request)
    if jax := sys.modules.get('jax'):
      jax.clear_caches()  # programs of one model are of no use to another
    return outcome, time.perf_counter() - start

  return timed


def tally(outcomes: Sequence[str]) -> dict[str, int]:
  """How many had each outcome, names and numbers apart; the commonest first."""
  general = (re.sub(r"'[^']*'", '…', outcome) for outcome in outcomes)
  kinds = (re.sub(r'(?<![a-z])-?(\d[\d.e+-]*|nan|inf)\b', '…', kind) for kind in general)
  return dict(collections.Counter(kinds).most_common())
