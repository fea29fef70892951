"""Host. Checkpoints: whole and verified, or as if they were not there."""

import json
import os
import pathlib
import re
import shutil
from typing import Any

import jax
import ml_collections
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

from lib.io import manifest
from lib.nn import trees
from lib.train import console


class CheckpointError(ValueError):
  """There is no checkpoint, or it is of something else."""


class Checkpoints:
  """The checkpoints of one run, in WORKDIR/checkpoints/STEP.

  A checkpoint gets its name once it is written, with a digest of all its files that reading
  compares; orbax alone notices most damage, but no flipped bit in an array.

  Args:
    workdir: directory of the run.
    keep: how many of the newest checkpoints to keep, > 0.
  """

  def __init__(self, workdir: str | os.PathLike, keep: int = 2):
    if keep <= 0:
      raise ValueError(f'At least one checkpoint must be kept, got {keep=}.')
    self.directory = pathlib.Path(workdir).absolute() / 'checkpoints'
    self._keep = keep

  def steps(self) -> list[int]:
    """Returns the steps that have a checkpoint, rising."""
    names = os.listdir(self.directory) if self.directory.is_dir() else []
    return sorted(int(name) for name in names if name.isdecimal())

  def save(self, step: int, state: Any) -> None:
    """Saves a tree of arrays, none of them empty; typed keys may be among them.

    All hosts must call it together. Raises OSError if the disk is full or fails; the older
    checkpoints are still there then.
    """
    path, saving = self.directory / str(step), self.directory / 'saving'
    first = jax.process_index() == 0
    if first:
      self._sweep()
    try:
      with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(saving, state)
    except ValueError as error:
      self._sweep()
      if code := re.search(r"os_error_code='(\d+)'", str(error)):  # tensorstore's way to tell
        raise OSError(int(code[1]), os.strerror(int(code[1])), str(path)) from error
      raise
    if first:
      manifest.seal(saving)
      shutil.rmtree(path, ignore_errors=True)
      saving.rename(path)
      kept = [other for other in self.steps() if other <= step][-self._keep :]
      for other in set(self.steps()) - set(kept):  # a later one was damaged: the run went back
        shutil.rmtree(self.directory / str(other))
    if jax.process_count() > 1:
      multihost_utils.sync_global_devices(f'saved {path}')

  def restore(self, like: Any = None, step: int | None = None) -> tuple[int, Any] | None:
    """Reads the latest checkpoint that is intact, and warns of those that are not.

    Args:
      like: a state with the structure, shapes and placement to return; without it records come
        back as dicts, on one device.
      step: which checkpoint to read, instead of the latest.

    Returns:
      (step, state), or None if there is no intact checkpoint.

    Raises:
      CheckpointError: if the checkpoint is of a state of another structure, shape or type.
    """
    here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    for candidate in reversed(self.steps() if step is None else [step]):
      path = self.directory / str(candidate)
      if not manifest.is_sealed(path):
        console.say(f'warning: {path} is missing or damaged')
        continue
      reader = ocp.Checkpointer(ocp.StandardCheckpointHandler())
      stored = reader.metadata(path).item_metadata.tree
      abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
      if like is None:  # where the arrays once were, which orbax restores, may be another machine
        abstract = jax.tree.map(
          lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here), stored
        )
      # orbax would convert types, and complain of shapes at great length
      if differing := _signature(stored) ^ _signature(abstract):
        raise CheckpointError(f'{path} does not fit this run, first in {min(differing)[0]}')
      try:
        return candidate, reader.restore(path, args=ocp.args.StandardRestore(abstract))
      except ValueError as error:
        raise CheckpointError(f'{path} does not fit this run: {error}') from error
    return None

  def _sweep(self) -> None:
    for leftover in self.directory.glob('saving*'):
      shutil.rmtree(leftover, ignore_errors=True)


def restore(
  workdir: str | os.PathLike, step: int | None = None
) -> tuple[ml_collections.FrozenConfigDict, Any]:
  """Reads the config and the state of a run, the latest or that of `step`, on one device.

  `config.json` lies in the workdir or one level above. Records in the state, such as NamedTuples,
  come back as dicts. Raises CheckpointError if there is no such checkpoint or no config.
  """
  workdir = pathlib.Path(workdir)
  config = next((p for d in (workdir, workdir.parent) if (p := d / 'config.json').is_file()), None)
  if config is None:
    raise CheckpointError(f'{workdir}: no config.json there or one level above')
  if (found := Checkpoints(workdir).restore(step=step)) is None:
    raise CheckpointError(f'{workdir}: no intact checkpoint')
  return ml_collections.FrozenConfigDict(json.loads(config.read_text())), found[1]


def _signature(state: Any) -> set[tuple[str, str]]:
  return {(name, f'{x.dtype}{x.shape}') for name, x in trees.named_leaves(state).items()}
