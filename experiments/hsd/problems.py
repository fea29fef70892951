"""Samples of a task as the methods see them: scaled, on a space, counted from the start."""

from collections.abc import Mapping
from typing import NamedTuple

import ml_collections
import numpy as np

from experiments.hsd import data
from experiments.hsd import space as spaces
from experiments.hsd.methods import learner
from experiments.hsd.tasks import record
from lib.io import fields


class Scales(NamedTuple):
  """What is subtracted from inputs, and what they are divided by; and the output's change."""

  shifts: Mapping[str, float]
  sizes: Mapping[str, float]
  output: float


def scales(task: record.Task, samples: record.Samples) -> Scales:
  """The scales of training samples.

  Values at vertices get mean 0 and variance 1 over the mesh and the samples; the others, and the
  start, only a size. The start is in the units of the output.
  """
  output = root_mean_square(task, task.output.degree, change(task, samples))
  shifts, sizes = {}, {}
  for name, degree in task.inputs:
    shifts[name] = 0.0
    if degree == 0 and name != task.start:
      star = task.stars[0]
      shifts[name] = float((samples[name] @ star).mean() / star.sum())
    sizes[name] = root_mean_square(task, degree, samples[name] - shifts[name])
  sizes[task.start] = output
  return Scales(shifts, sizes, output)


def change(task: record.Task, samples: record.Samples) -> np.ndarray:
  """The output less the start (B, n)."""
  return samples[task.output.name] - samples[task.start]


def root_mean_square(task: record.Task, degree: int, w: np.ndarray) -> float:
  """The root mean square over samples and the mesh of the fields that cochains (B, n) are of."""
  mean = float((w**2 @ task.stars[degree]).mean() / task.stars[0].sum())
  return np.sqrt(mean) if mean > 0 else 1.0


def scaled(task: record.Task, by: Scales, samples: record.Samples) -> dict[str, np.ndarray]:
  """The inputs by name, and the change as `output`, float32."""
  found = {name: (samples[name] - by.shifts[name]) / by.sizes[name] for name, _ in task.inputs}
  found['output'] = change(task, samples) / by.output
  return {name: array.astype(np.float32) for name, array in found.items()}


def build(config: ml_collections.ConfigDict, name: str, loaded: data.Data) -> learner.Problem:
  """The problem of one of `config.methods`."""
  task = loaded.task
  by = scales(task, loaded.train)
  degree = written(config, name, task)
  return learner.Problem(
    degrees={field.name: field.degree for field in task.inputs},
    channels={field.name: spaces.channels(task, field.degree) for field in task.inputs},
    degree=task.output.degree,
    written=degree,
    channels_written=spaces.channels(task, degree),
    start=task.start,
    keeps_harmonic=task.keeps_harmonic,
    space=space(config, name, task),
    train=scaled(task, by, loaded.train),
    valid=scaled(task, by, loaded.valid),
  )


def written(config: ml_collections.ConfigDict, name: str, task: record.Task) -> int:
  """The degree that one of `config.methods` writes, the output's or that of a potential."""
  degree = task.output.degree - fields.varied(config, name).space.potential
  if degree < 0:
    raise ValueError(f'config.space.potential, of {name}: values at vertices are no derivative.')
  return degree


def space(
  config: ml_collections.ConfigDict,
  name: str,
  task: record.Task,
  like: tuple[record.Task, spaces.Space] | None = None,
) -> spaces.Space:
  """The space of a task for one of `config.methods`; `like` as in `spaces.build`."""
  # The released form knows no metric.
  released = fields.kind(config, name) == 'hsd_reference'
  changed = fields.varied(config, name).space
  kind = 'combinatorial' if released else changed.stars
  return spaces.build(task, changed.modes, changed.gap, kind, released, like)
