"""From a config to a table: yardsticks and cases are timed in turn and compared round by round."""

import contextlib
from collections.abc import Mapping

import jax
import ml_collections
import numpy as np

from experiments.bench import yardsticks
from experiments.bench.cases import CASES, Case
from experiments.pql import methods
from experiments.pql.methods import agent
from lib.io import progress
from lib.stats import intervals, tables
from lib.train import console, report, signals

POSITIVE = ('rounds', 'matmul_size', 'triad_elements')
BASELINE = 'fql_update'  # what PQL adds to
OFFLINE = tuple(f'{name}_update' for name in methods.METHODS)


def prepare(config: ml_collections.ConfigDict) -> None:
  """Checks the config; raises a ValueError that names the bad field."""
  if not config.cases:
    raise ValueError('config.cases is empty.')
  for name in config.cases:
    if name not in CASES:
      raise ValueError(f'config.cases must be among {", ".join(CASES)}, got {name!r}.')
  for section, names in (('', POSITIVE), ('mlp.', config.mlp), ('offline.', config.offline)):
    values = config[section[:-1]] if section else config
    for name in names:
      numbers = values[name]
      if name != 'agent' and np.any(np.asarray(numbers) <= 0):
        raise ValueError(f'config.{section}{name} must be positive, got {numbers}.')
  if not config.min_seconds >= 0:
    raise ValueError(f'config.min_seconds must be zero or more, got {config.min_seconds}.')
  for make in methods.METHODS.values():
    try:
      make(config.offline.agent, agent.Spec(1, 1))
    except (KeyError, TypeError, ValueError) as error:
      raise ValueError(f'config.offline.agent: {error!r}') from error


def measure(run, _) -> None:
  """Measures every case beside the yardsticks, prints the table and writes it."""
  config = run.config
  cases = {name: CASES[name](config) for name in config.cases}
  console.say(f'compiling {", ".join(cases)}')
  tasks = {
    'matmul': yardsticks.matmul(config.matmul_size),
    'triad': yardsticks.triad(config.triad_elements),
    **{name: yardsticks.function(case.fn, *case.args) for name, case in cases.items()},
  }
  rounds = []
  with contextlib.closing(progress.Progress('bench', 'round')) as show:
    show(0, config.rounds)
    for rates in yardsticks.rates(tasks, config.rounds, config.min_seconds):
      rounds.append(rates)
      show(len(rounds), config.rounds)
      signals.check()
  by_name = {name: np.array([rates[name] for rates in rounds]) for name in tasks}
  rows = compare(by_name, cases, {name: tasks[name].work for name in cases})
  report.write_results(run, rows)
  kinds = ', '.join(sorted({device.device_kind for device in jax.devices()}))
  about = (
    f'On {jax.device_count()} × {kinds}. Means over {config.rounds} rounds, in each of which '
    'everything is timed in turn, with 95 % intervals. The matrix product is '
    f'{config.matmul_size}³ in float32 at the default precision; the triad goes through 3 × '
    f'{config.triad_elements:,} float32. Operations and rate of updates are those of each seed.'
  )
  table = tables.table(rows)
  report.write_report(run, 'Benchmark', [about, table])
  print(align(table))


def compare(
  rates: Mapping[str, np.ndarray], cases: Mapping[str, Case], works: Mapping[str, float]
) -> list[tables.Row]:
  """Makes the rows of results.json.

  Args:
    rates: work a second by name and round, of `matmul`, `triad` and the cases.
    cases: by name.
    works: operations of one call of each case.

  Returns:
    For each case its rate and its share of the matrix product's, its operations an update and
    updates a second, both of one seed, and the time of an update over the baseline's, if that is
    among the cases. Shares and ratios are taken within a round.
  """
  rows = []

  def add(name, metric, values, better=None, seeds=1):
    estimate = intervals.mean_interval(values)
    estimate = estimate._replace(method=f'{estimate.method} over rounds')
    n = len(values)
    rows.append(tables.row(name, metric, estimate, n=n, seeds=seeds, better=better))

  add('matmul', 'gflop_per_s', rates['matmul'] / 1e9, 'higher')
  add('triad', 'gbyte_per_s', rates['triad'] / 1e9, 'higher')
  speeds = {name: rates[name] / works[name] * case.updates for name, case in cases.items()}
  for name, case in cases.items():
    add(name, 'gflop_per_s', rates[name] / 1e9, 'higher', case.seeds)
    add(name, 'share_of_matmul', rates[name] / rates['matmul'], 'higher', case.seeds)
    add(name, 'gflop_per_update', [works[name] / case.updates / case.seeds / 1e9])
    add(name, 'updates_per_s', speeds[name], 'higher', case.seeds)
    if BASELINE in cases and name in OFFLINE and name != BASELINE:
      add(name, f'time_over_{BASELINE}', speeds[BASELINE] / speeds[name], 'lower', case.seeds)
  return rows


def align(table: str) -> str:
  """Returns a Markdown table with columns of one width, for a terminal."""
  head, _, *lines = ([cell.strip() for cell in x.split('|')[1:-1]] for x in table.splitlines())
  widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
  return '\n'.join(
    '  '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    for row in (head, ['-' * width for width in widths], *lines)
  )
