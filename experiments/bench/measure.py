"""From a config to a table: yardsticks and cases are timed in turn and compared round by round."""

import contextlib
from collections.abc import Mapping, Sequence

import jax
import ml_collections
import numpy as np

from experiments.bench import diffusion, games, hodge, peers, yardsticks
from experiments.bench.cases import Case, build, known, sizes_of
from experiments.pql import methods
from experiments.pql.methods import agent
from lib.io import progress
from lib.stats import intervals, tables
from lib.train import console, report, signals

POSITIVE = ('rounds', 'matmul_size', 'triad_elements')
PEER = 'peer'  # the method of a case that is the public FQL


def prepare(config: ml_collections.ConfigDict) -> None:
  """Checks the config; raises a ValueError that names the bad field."""
  if not config.cases:
    raise ValueError('config.cases is empty.')
  for name in config.cases:
    if name not in known(config):
      names = ', '.join(known(config))
      raise ValueError(f'config.cases must be among {names}, got {name!r}.')
  for name, changes in config.updates.items():
    if changes.get('method') not in (*methods.METHODS, PEER):
      raise ValueError(f'config.updates.{name}.method: no {changes.get("method")!r}.')
    try:
      sizes_of(config, name)
    except (KeyError, TypeError, ValueError) as error:
      raise ValueError(f'config.updates.{name}: {error!r}') from error
  if config.peer:
    peers.check(config.peer)
  if config.transformers:
    peers.check_installed('transformers', ('torch', 'transformers'))
  if config.torch:
    peers.check_installed('torch', ('torch',))
  for pair in config.ratios:
    if len(pair) != 2 or not set(pair) <= set(config.cases):
      raise ValueError(f'config.ratios: {pair} are not two of config.cases.')
  sections = ('mlp', 'voting', 'sign_flip', 'offline')
  for section, names in (('', POSITIVE), *((f'{name}.', config[name]) for name in sections)):
    values = config[section[:-1]] if section else config
    for name in names:
      numbers = values[name]
      if name not in ('agent', 'peer_apart') and np.any(np.asarray(numbers) <= 0):
        raise ValueError(f'config.{section}{name} must be positive, got {numbers}.')
  if not config.min_seconds >= 0:
    raise ValueError(f'config.min_seconds must be zero or more, got {config.min_seconds}.')
  diffusion.check(config)
  hodge.check(config)
  if games.used(config):
    peers.check_installed('cases', ('pgx', 'mctx'))
  games.check(config)
  for make in methods.METHODS.values():
    try:
      make(config.offline.agent, agent.Spec(1, 1))
    except (KeyError, TypeError, ValueError) as error:
      raise ValueError(f'config.offline.agent: {error!r}') from error


def measure(run, _) -> None:
  """Measures every case beside the yardsticks, prints the table and writes it."""
  config = run.config
  names, config_ratios = list(config.cases), list(config.ratios)
  theirs = [n for n in names if n in config.updates and config.updates[n].method == PEER]
  if theirs and not config.peer:
    console.say(f'config.peer names no checkout: without {", ".join(theirs)}')
    names = [name for name in names if name not in theirs]
  peer_tasks = {n: peers.fql(config.peer, sizes_of(config, n)) for n in theirs if n in names}
  cases = {n: Case(None, ()) if n in peer_tasks else build(config, n) for n in names}
  if config.transformers:
    for name in [name for name in names if name.startswith('lm_')]:
      other = f'transformers_{name}'
      peer_tasks[other] = peers.transformers_lm(name.removeprefix('lm_'), config, cases[name])
      cases[other] = cases[name]._replace(fn=None, args=())
      config_ratios.append((name, other))
  if config.torch and 'diffusion_unet' in names:
    peer_tasks['torch_unet'] = peers.torch_unet(config, cases['diffusion_unet'])
    cases['torch_unet'] = Case(None, ())
    config_ratios.append(('diffusion_unet', 'torch_unet'))
  beside = {n: peers.HOST[n] for n in names if config.host_peers and n in peers.HOST}
  for name, hosts in beside.items():
    ours = cases[name]
    for other, make, _ in hosts:
      peer_tasks[other] = make(config, ours)
      done = round(ours.updates * peer_tasks[other].work * ours.seeds / ours.work)
      cases[other] = Case(None, (), done, 1, ours.unit)
      config_ratios.append((name, other))
  console.say(f'compiling {", ".join(cases)}')
  tasks = {
    'matmul': yardsticks.matmul(config.matmul_size),
    'triad': yardsticks.triad(config.triad_elements),
    **peer_tasks,
    **{
      n: yardsticks.function(c.fn, *c.args, work=c.work, traffic=c.traffic)
      for n, c in cases.items()
      if n not in peer_tasks
    },
  }
  for name, hosts in beside.items():
    found = jax.device_get(tasks[name].call())
    for other, _, check in hosts:
      check(config, found, tasks[other].call())
  rounds = []
  with contextlib.closing(progress.Progress('bench', 'round')) as show:
    show(0, config.rounds)
    for rates in yardsticks.rates(tasks, config.rounds, config.min_seconds):
      rounds.append(rates)
      show(len(rounds), config.rounds)
      signals.check()
  by_name = {name: np.array([rates[name] for rates in rounds]) for name in tasks}
  works = {name: tasks[name].work for name in cases}
  traffic = {name: tasks[name].traffic for name in cases}
  rows = compare(by_name, cases, works, config_ratios, traffic)
  for name in cases:
    if np.isfinite(memory := tasks[name].memory):
      exact = intervals.Interval(memory / 1e6, np.nan, np.nan, 'of the program')
      rows.append(tables.row(name, 'mbyte', exact, n=1, seeds=cases[name].seeds, better='lower'))
    for metric, number in (cases[name].counts or {}).items():
      exact = intervals.Interval(number, np.nan, np.nan, 'of one call')
      rows.append(tables.row(name, metric, exact, n=1, seeds=cases[name].seeds, better='lower'))
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
  rates: Mapping[str, np.ndarray],
  cases: Mapping[str, Case],
  works: Mapping[str, float],
  ratios: Sequence[tuple[str, str]] = (),
  traffic: Mapping[str, float] | None = None,
) -> list[tables.Row]:
  """Makes the rows of results.json.

  Args:
    rates: work a second by name and round, of `matmul`, `triad` and the cases.
    cases: by name.
    works: operations of one call of each case.
    ratios: pairs of cases, each to be compared with its second.
    traffic: bytes that one call of each case has to read, NaN where unknown.

  Returns:
    For each case its rate and its share of the matrix product's, its operations an update and
    updates a second, both of one seed, and what else it counts, a second; its share of the
    roofline, the larger of its operations over the matrix product's rate and its bytes over the
    triad's; and for each pair the time that an update of one seed takes in its first case over that
    in its second. Shares and ratios are taken within a round.
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
    if np.isfinite(moved := (traffic or {}).get(name, np.nan)):
      least = np.maximum(works[name] / rates['matmul'], moved / rates['triad'])
      add(name, 'share_of_roofline', least * rates[name] / works[name], 'higher', case.seeds)
    add(name, f'gflop_per_{case.unit}', [works[name] / case.updates / case.seeds / 1e9])
    add(name, f'{case.unit}s_per_s', speeds[name], 'higher', case.seeds)
    for metric, number in (case.counts or {}).items():
      add(name, f'{metric}_per_s', rates[name] / works[name] * number, 'higher', case.seeds)
  for name, baseline in ratios:
    if name in cases and baseline in cases:
      seconds = [1 / speeds[n] / cases[n].seeds for n in (name, baseline)]
      add(name, f'time_over_{baseline}', seconds[0] / seconds[1], 'lower', cases[name].seeds)
  return rows


def align(table: str) -> str:
  """Returns a Markdown table with columns of one width, for a terminal."""
  head, _, *lines = ([cell.strip() for cell in x.split('|')[1:-1]] for x in table.splitlines())
  widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
  return '\n'.join(
    '  '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    for row in (head, ['-' * width for width in widths], *lines)
  )
