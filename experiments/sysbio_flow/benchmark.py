"""The benchmark: trajectories of every model that has some, made once and kept on disk."""

import functools
import hashlib
import json
import os
import pathlib
import resource
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from experiments.sysbio_flow import biomodels, trajectories
from lib.envs import seeding, workers
from lib.io import files, manifest, npz, progress

_PACKAGES = ('libroadrunner', 'SBMLKinetics', 'numpy')
_FILES = ('series.npz', 'systems.json')


class Benchmark(NamedTuple):
  """Series of one channel of one run of one system each.

  Attributes:
    values: (N, L) float64, on a uniform grid of times, in the units of the models.
    system: (N,) index in `systems`.
    run: (N,) 0 for the nominal one, then the perturbed ones.
    channel: (N,) index in the system's `channels`.
    systems: of each system its `name`, `group`, `organism`, `process`, `horizon` and `channels`.
    failures: why the other models have no series, by name.
    origin: the directory.
  """

  values: np.ndarray
  system: np.ndarray
  run: np.ndarray
  channel: np.ndarray
  systems: list[dict[str, Any]]
  failures: dict[str, str]
  origin: str


def recipe(config: Any) -> trajectories.Recipe:
  """The recipe of a config's section `recipe`; raises ValueError naming a bad field."""
  made = trajectories.Recipe(**config.recipe.to_dict())
  numbers = made._asdict() | {'horizons': min(made.horizons, default=0)}
  zero = ('runs', 'amounts', 'parameters', 'range', 'least_after')
  for name, number in numbers.items():
    if not (number >= 0 if name in zero else number > 0):
      raise ValueError(f'config.recipe.{name} is too small, got {number}.')
  if not made.context < made.points - 1:
    raise ValueError(f'config.recipe.context must be below points - 1, got {made.context}.')
  return made


def build(config: Any) -> Benchmark:
  """Loads the benchmark, simulating first what is not on disk yet.

  Args:
    config: with the sections `data`: the directory `dir` to keep it in, the `folder` of more
      models, the number of `models` (0: all), the `seed`, and of the processes the number
      `workers` (0: one a core), `seconds` a model and `gigabytes`; and `recipe`.

  Returns:
    The benchmark. It depends on the machine only in which models take longer than `seconds`.

  Raises:
    ValueError: naming a field, or a file that is not what its manifest says.
    OSError: if the disk fails.
    ModuleNotFoundError: if a package is missing.
  """
  made, seed = recipe(config), config.data.seed
  found = biomodels.sources(config.data.folder)
  if not 0 <= config.data.models <= len(found):
    raise ValueError(f'config.data.models must be in 0..{len(found)}, got {config.data.models}.')
  names = list(found)
  if config.data.models:
    order = np.random.default_rng(seed).permutation(len(names))[: config.data.models]
    names = [names[i] for i in sorted(order)]
  facts = {
    'recipe': made._asdict(),
    'seed': seed,
    'seconds': config.data.seconds,
    'gigabytes': config.data.gigabytes,
    'versions': manifest.versions(_PACKAGES),
  }
  root = pathlib.Path(config.data.dir)
  parts = root / f'models-{_digest(facts)}'
  own = {name: manifest.sha256(x.path) for name, x in found.items() if not x.member}
  facts |= {'models': names, 'own': own}
  directory = root / f'benchmark-{_digest(facts)}'
  with files.locked(directory / 'lock'):
    if manifest.verify(directory) is None:
      _simulate(config, made, {name: found[name] for name in names}, own, parts)
      _assemble(directory, parts, names)
      manifest.write(directory, _FILES, facts)
  return _load(directory)


def count_reasons(failures: dict[str, str]) -> dict[str, int]:
  """How many models failed, by kind of reason, the commonest first."""
  return dict(Counter(_kind(reason) for reason in failures.values()).most_common())


def _kind(reason: str) -> str:
  """A reason without what differs between models."""
  head = reason.split(':')
  for word, kind in (
    ('delay', 'delays are not simulated'),
    ('fast', 'fast reactions are not simulated'),
    ('CV_', 'the solver fails'),
    ('CVODE', 'the solver fails'),
    ('died', 'the process died'),
  ):
    if word in reason:
      return kind
  return head[0].strip()


def _simulate(
  config: Any,
  made: trajectories.Recipe,
  found: dict[str, biomodels.Source],
  own: dict[str, str],
  parts: pathlib.Path,
) -> None:
  """Makes the parts that are missing, each one whole from the moment it is there."""
  files.sweep(parts)
  missing = [name for name in found if not _is_current(parts / f'{name}.json', own.get(name))]
  missing.sort(key=lambda name: -found[name].size)  # the longest first, for the workers' sake
  show = progress.Progress('Simulating models', 'model')
  done = len(found) - len(missing)
  show(done, len(found))
  serve = functools.partial(_worker, made, config.data.seed, parts, own, config.data.gigabytes)
  count = min(config.data.workers or workers.num_cores(), len(missing))
  with workers.Workers([serve] * count) as pool:
    requests = [(name, found[name]) for name in missing]
    for (name, _), answer in pool.map_within(requests, config.data.seconds):
      if isinstance(answer, workers.Lost):
        _write(parts, name, {'failed': answer.reason, 'own': own.get(name)})
      done += 1
      show(done, len(found))


def _worker(
  made: trajectories.Recipe,
  seed: int,
  parts: pathlib.Path,
  own: dict[str, str],
  gigabytes: float,
) -> Callable[[tuple[str, biomodels.Source]], None]:
  """What a worker process does."""
  resource.setrlimit(resource.RLIMIT_AS, (int(gigabytes * 2**30),) * 2)
  resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
  silence = os.open(os.devnull, os.O_WRONLY)
  for stream in (1, 2):  # where the solver complains
    os.dup2(silence, stream)

  def handle(request: tuple[str, biomodels.Source]) -> None:
    name, source = request
    facts: dict[str, Any] = {'own': own.get(name)}
    try:
      text = source.read()
      facts |= biomodels.facts(text)._asdict()
      word = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4])
      found = trajectories.make(text, made, seeding.seed_sequence(seed, word))
      npz.save_npz(parts / f'{name}.npz', {'values': found.values})
      facts |= {'channels': found.names, 'horizon': found.horizon}
    except (ValueError, MemoryError) as error:
      facts['failed'] = ' '.join((str(error) or type(error).__name__).split())
    _write(parts, name, facts)

  return handle


def _write(parts: pathlib.Path, name: str, facts: dict[str, Any]) -> None:
  files.write_json(parts / f'{name}.json', facts)


def _is_current(path: pathlib.Path, digest: str | None) -> bool:
  try:
    return json.loads(path.read_bytes())['own'] == digest
  except (FileNotFoundError, ValueError, KeyError):
    return False


def _assemble(directory: pathlib.Path, parts: pathlib.Path, names: list[str]) -> None:
  """One archive out of the parts."""
  facts = {name: json.loads((parts / f'{name}.json').read_bytes()) for name in names}
  of_groups = biomodels.groups(
    {
      name: biomodels.Facts(tuple(own['publications']), tuple(own['species']), own['organism'])
      for name, own in facts.items()
      if 'failed' not in own
    }
  )
  kinds = biomodels.processes()
  systems: list[dict[str, Any]] = []
  values, columns = [], []
  for name, group in of_groups.items():
    own = npz.load_npz(parts / f'{name}.npz')['values']
    runs, channels, points = own.shape
    values.append(own.reshape(-1, points))
    run, channel = np.divmod(np.arange(runs * channels), channels)
    columns.append(np.stack([np.full_like(run, len(systems)), run, channel]))
    systems.append(
      {'name': name, 'group': group, 'process': kinds.get(name, 'unknown')}
      | {key: facts[name][key] for key in ('organism', 'horizon', 'channels', 'publications')}
    )
  if not systems:
    raise ValueError('none of the models has trajectories')
  system, run, channel = np.concatenate(columns, axis=1)
  npz.save_npz(
    directory / 'series.npz',
    {'values': np.concatenate(values), 'system': system, 'run': run, 'channel': channel},
  )
  failures = {name: own['failed'] for name, own in facts.items() if 'failed' in own}
  files.write_json(directory / 'systems.json', {'systems': systems, 'failures': failures})


def _load(directory: pathlib.Path) -> Benchmark:
  arrays = npz.load_npz(directory / 'series.npz')
  described = json.loads((directory / 'systems.json').read_bytes())
  return Benchmark(**{**arrays, **described, 'origin': str(directory)})


def _digest(facts: dict[str, Any]) -> str:
  return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
