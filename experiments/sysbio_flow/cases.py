"""Cases of the SBML Test Suite: what is to be simulated, and what comes out.

Hucka et al., https://github.com/sbmlteam/sbml-test-suite: in cases/semantic a folder for each case,
with the model in several levels, settings and results.
"""

import csv
import functools
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from experiments.sysbio_flow import outcomes

_RTOL = 1e-8
_ATOL = 1e-12
_MAX_STEPS = 20_000
_BOUNDS = ((128, 4), (500_000, 16))  # of events and slots; few cases exceed the first


class Case(NamedTuple):
  """A case of the suite.

  Attributes:
    model: the file, of the highest level and version that there is.
    ts: times (T).
    columns: what is asked for, by the names of `compiler.Names.observables`.
    results: the values (T, columns).
    absolute: tolerance, and
    relative: tolerance: |a - b| <= absolute + relative |b|.
  """

  model: pathlib.Path
  ts: np.ndarray
  columns: tuple[str, ...]
  results: np.ndarray
  absolute: float
  relative: float


def load(folder: pathlib.Path) -> Case:
  """Reads a case.

  Raises:
    OSError: if a file is missing.
    ValueError: naming the folder: a file is not what it should be.
  """
  name = folder.name
  try:
    settings = dict(_setting(line) for line in _lines(folder / f'{name}-settings.txt'))
    rows = list(csv.reader(_lines(folder / f'{name}-results.csv')))
    amounts = _names(settings['amount'])
    concentrations = _names(settings['concentration'])
    header = [column.strip() for column in rows[0][1:]]
    values = np.array([[float(x) for x in row] for row in rows[1:]])
    return Case(
      model=max(folder.glob(f'{name}-sbml-l*v*.xml')),
      ts=values[:, 0],
      columns=tuple(
        f'[{column}]' if column in concentrations and column not in amounts else column
        for column in header
      ),
      results=values[:, 1:],
      absolute=float(settings['absolute']),
      relative=float(settings['relative']),
    )
  except (ValueError, KeyError, IndexError) as error:
    raise ValueError(f'{folder}: no case of the suite: {error!r}') from error


def _lines(path: pathlib.Path) -> list[str]:
  return [line for line in path.read_text().splitlines() if line.strip()]


def _setting(line: str) -> tuple[str, str]:
  key, _, value = line.partition(':')
  return key.strip(), value.strip()


def _names(text: str) -> list[str]:
  return [name.strip() for name in text.split(',')]


def outcome_of(case: Case) -> str:
  """What becomes of a case: `passes`, or what does not.

  Raises:
    ValueError: if the model is not read or compiled.
  """
  import jax  # not in the parent of the processes

  from lib.io import sbml
  from lib.sbml import compiler, simulate

  compiled = compiler.compile_rhs(sbml.parse(case.model))
  names = compiled.names.observables
  if unknown := set(case.columns) - set(names):
    return f'refused: asks for {sorted(unknown)[0]}, which no equation has'
  places = np.array([names.index(column) for column in case.columns], int)

  @functools.partial(jax.jit, static_argnums=(2, 3))
  def run(y0, c, max_events, num_slots):
    key = jax.random.key(0)
    ys, ok = simulate.simulate(
      *(compiled, case.ts, y0, c, _RTOL, _ATOL, _MAX_STEPS, max_events, num_slots, key)
    )
    observe = jax.vmap(lambda t, y: compiled.observe(t, y, c)[places])
    return observe(jax.numpy.asarray(case.ts), ys), ok

  with jax.enable_x64(True):
    for bounds in _BOUNDS if compiled.events else _BOUNDS[:1]:
      values, ok = map(np.asarray, run(compiled.y0, compiled.c, *bounds))
      if ok:
        break
  if not ok:
    return 'fails: the simulation is given up'
  close = np.isclose(values, case.results, case.relative, case.absolute, equal_nan=True)
  if not close.all():
    i, j = np.argwhere(~close)[0]
    return (
      f'fails: {case.columns[j]!r} at {case.ts[i]:g} is {values[i, j]:g}, '
      f'not {case.results[i, j]:g}'
    )
  return 'passes'


def make_worker() -> Callable[[tuple[str, pathlib.Path]], str]:
  """What tries cases in a process of its own."""
  outcomes.confine()

  def handle(request: tuple[str, pathlib.Path]) -> str:
    try:
      return outcome_of(load(request[1]))
    except (OSError, ValueError, MemoryError) as error:
      return f'refused: {str(error).split(": ", 1)[-1]}'

  return handle
