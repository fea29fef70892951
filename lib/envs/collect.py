"""Host. Seeded, parallel, resumable collection of episodes."""

import functools
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from lib.envs import seeding, workers
from lib.io import files, npz

Episode = dict[str, np.ndarray]
Collector = Callable[[np.random.SeedSequence], Episode]


def collect(
  make: Callable[[], Collector],
  counts: Mapping[str, int],
  seed: int,
  directory: str | os.PathLike,
  num_workers: int = 0,
  progress: Callable[[int, int], object] | None = None,
) -> dict[str, dict[str, np.ndarray]]:
  """Collects episodes in worker processes, each kept on disk from the moment it is finished.

  Episode i of split j is `collector(seed_sequence(seed, j, i))`, so neither the number of
  workers nor a restart changes it.

  Args:
    make: picklable; makes a collector in a worker process.
    counts: number of episodes by split, in order.
    seed: of the whole collection.
    directory: where finished episodes are kept; of one collection only, by one call at a
      time.
    num_workers: processes; 0 for one for each core.
    progress: called as `progress(done, total)` after every episode.

  Returns:
    By split, the episodes' arrays concatenated in order.

  Raises:
    RuntimeError: if a worker fails or dies.
    OSError: if the directory cannot be written.
  """
  directory = pathlib.Path(directory)
  keys = [(split, i) for split, name in enumerate(counts) for i in range(counts[name])]
  progress = progress or (lambda done, total: None)
  files.sweep(directory)
  missing = [key for key in keys if not _is_whole(_shard(directory, key))]
  done = len(keys) - len(missing)
  progress(done, len(keys))
  num_workers = min(num_workers or workers.num_cores(), len(missing))
  serve = functools.partial(_keep, make, seed, directory)
  with workers.Workers([serve] * num_workers) as pool:
    for _ in pool.map_unordered(missing):
      done += 1
      progress(done, len(keys))
  return {
    name: _concatenate(_shard(directory, (split, i)) for i in range(counts[name]))
    for split, name in enumerate(counts)
  }


def discard(directory: str | os.PathLike) -> None:
  """Removes the kept episodes of a collection whose result is stored elsewhere by now."""
  shutil.rmtree(directory, ignore_errors=True)


def _keep(
  make: Callable[[], Collector], seed: int, directory: pathlib.Path
) -> Callable[[tuple[int, int]], None]:
  collector = make()

  def handle(key: tuple[int, int]) -> None:
    npz.save_npz(_shard(directory, key), collector(seeding.seed_sequence(seed, *key)))

  return handle


def _shard(directory: pathlib.Path, key: tuple[int, int]) -> pathlib.Path:
  return directory / '{}-{:06d}.npz'.format(*key)


def _is_whole(path: pathlib.Path) -> bool:
  try:
    return bool(npz.load_npz(path))
  except (FileNotFoundError, ValueError):
    return False


def _concatenate(paths: Iterator[pathlib.Path]) -> dict[str, np.ndarray]:
  episodes = [npz.load_npz(path) for path in paths]
  return {name: np.concatenate([episode[name] for episode in episodes]) for name in episodes[0]}
