"""Samples of a task, made once and kept on disk."""

import functools
import hashlib
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.hsd import tasks
from experiments.hsd.tasks import record
from lib.envs import collect, seeding
from lib.io import files, manifest, npz, progress

_SPLITS = ('test', 'train', 'valid')  # test first, as the finer samples, to have their seeds
_PACKAGES = ('numpy', 'scipy')


class Data(NamedTuple):
  """A task and its samples (B, ...), float64, which no two splits share.

  Attributes:
    task: the task.
    train: to learn from.
    valid: to choose by.
    test: to measure.
    finer_task: the task on a finer mesh; None where there are no samples of it.
    finer: the first problems of `test` on that mesh; None likewise.
    facts: for the report.
  """

  task: record.Task
  train: record.Samples
  valid: record.Samples
  test: record.Samples
  finer_task: record.Task | None
  finer: record.Samples | None
  facts: dict[str, Any]

  @property
  def summary(self) -> str:
    """The facts in one line."""
    return ', '.join(f'{name} {fact}' for name, fact in self.facts.items())


def check(config: Any) -> None:
  """Refuses a config whose data could not be made, without making any.

  Args:
    config: with the sections `task`, for `tasks.options`, and `data`: the numbers of samples
      `train`, `valid`, `test` and `finer`, the `seed`, the `workers` that make them (0 for one for
      each core), and the directory `dir` that keeps them.

  Raises:
    ValueError: naming the field.
    FileNotFoundError: naming the mesh.
  """
  tasks.options(config.task)
  least = {'train': 1, 'valid': 1, 'test': 1, 'finer': 0, 'seed': 0, 'workers': 0}
  for field, bound in least.items():
    if config.data[field] < bound:
      raise ValueError(f'config.data.{field} must be at least {bound}, got {config.data[field]}.')
  if config.data.finer > config.data.test:
    raise ValueError(f'config.data.finer must be at most test, got {config.data.finer}.')


def load(config: Any) -> Data:
  """Loads the samples, making them first where they are not on disk yet.

  Args:
    config: as `check`, which is called first.

  Returns:
    The data, which depend neither on the number of workers nor on interruptions.

  Raises:
    ValueError: naming the field, the mesh, or the file that is not what the manifest beside it
      says, or the directory, if its samples are not those that the task makes by now.
    OSError: naming the file that is missing, or if the disk fails.
    ModuleNotFoundError: if a package is missing that makes or reads the mesh.
  """
  check(config)
  counts = {split: config.data[split] for split in _SPLITS}
  made = [tasks.make(config.task, refine) for refine in range(1 + bool(config.data.finer))]
  recipe = {
    'task': {**tasks.options(config.task), 'mesh': [_mesh_digest(task) for task in made]},
    'samples': {**counts, 'finer': config.data.finer},
    'seed': config.data.seed,
    'versions': manifest.versions(_PACKAGES),
  }
  digest = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:12]
  directory = pathlib.Path(config.data.dir) / f'{config.task.name}-{digest}'
  with files.locked(directory / 'lock'):
    if manifest.verify(directory) is None:
      splits = _generate(config, 0, counts, directory / 'parts')
      if config.data.finer:
        wanted = {'test': config.data.finer}
        splits['finer'] = _generate(config, 1, wanted, directory / 'finer-parts')['test']
      for split, samples in splits.items():
        npz.save_npz(directory / f'{split}.npz', samples)
      manifest.write(directory, [f'{split}.npz' for split in splits], {'recipe': recipe})
      collect.discard(directory / 'parts')
      collect.discard(directory / 'finer-parts')
  read = lambda split: npz.load_npz(directory / f'{split}.npz')
  splits = {split: read(split) for split in _SPLITS}
  _check_first(directory, made[0], config.data.seed, splits['test'])
  sizes = made[0].complex.sizes.tolist()
  return Data(
    task=made[0],
    **splits,
    finer_task=made[1] if config.data.finer else None,
    finer=read('finer') if config.data.finer else None,
    facts={
      'task': config.task.name,
      **dict(zip(('vertices', 'edges', 'faces', 'tetrahedra'), sizes, strict=True)),
      **{split: counts[split] for split in ('train', 'valid', 'test')},
      'finer': config.data.finer,
      'origin': str(directory),
    },
  )


def _generate(
  config: Any, refine: int, counts: Mapping[str, int], parts: pathlib.Path
) -> dict[str, record.Samples]:
  mesh = 'a finer mesh' if refine else 'its mesh'
  return collect.collect(
    functools.partial(_sampler, tasks.options(config.task), refine),
    counts,
    config.data.seed,
    parts,
    config.data.workers,
    progress.Progress(f'Solving {config.task.name} on {mesh}', 'sample'),
  )


def _sampler(
  options: Mapping[str, Any], refine: int
) -> Callable[[np.random.SeedSequence], record.Samples]:
  """What a worker process does."""
  jax.config.update('jax_platforms', 'cpu')  # accelerators belong to the main process
  task = tasks.make(options, refine)
  return lambda seed: record.generate(task, [seed])


def _check_first(
  directory: pathlib.Path, task: record.Task, seed: int, samples: record.Samples
) -> None:
  """Raises if the first sample is another one by now, as other versions may make it."""
  first = record.generate(task, [seeding.seed_sequence(seed, 0, 0)])
  for name, array in first.items():
    if name not in samples or not np.allclose(array, samples[name][:1], rtol=1e-6, atol=1e-9):
      raise ValueError(
        f'{directory}: {name!r} of the first sample is not what the task makes; '
        'delete the directory to remake it.'
      )


def _mesh_digest(task: record.Task) -> str:
  cells = task.complex.tets if len(task.complex.tets) else task.complex.faces
  return hashlib.sha256(task.points.tobytes() + cells.tobytes()).hexdigest()[:12]
