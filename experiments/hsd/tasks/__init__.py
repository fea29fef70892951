"""The tasks: solution operators on meshes, by name."""

import difflib
import math
import os
from collections.abc import Iterable, Mapping
from typing import Any

from experiments.hsd.tasks import allen_cahn, circulation, darcy, domains, record, shell, transport

TASKS = {
  'darcy': darcy,
  'circulation': circulation,
  'allen_cahn': allen_cahn,
  'transport': transport,
  'shell': shell,
}
_CHOICES = {'surface': domains.SURFACES, 'holes': tuple(domains.HOLES)}
_LEAST = {'size': 2, 'steps': 1}
_POSITIVE = ('length', 'viscosity', 'step', 'inner', 'outer')


def options(config: Mapping[str, Any]) -> dict[str, Any]:
  """What a task is made from, checked without making it.

  Args:
    config: `name`, and values for fields of the task's `DEFAULTS`; the others keep theirs.

  Returns:
    `name`, and a value for each field.

  Raises:
    ValueError: naming the field that is unknown or has a bad value.
    FileNotFoundError: naming the mesh.
  """
  _check_choice('name', config['name'], TASKS)
  defaults = TASKS[config['name']].DEFAULTS
  chosen = {'name': config['name'], **defaults, **config}
  for field, value in chosen.items():
    if field == 'name':
      continue
    if field not in defaults:
      _check_choice(f'{config["name"]} has no {field!r}', field, defaults)
    if isinstance(defaults[field], float):
      if not math.isfinite(value) or value < 0 or (field in _POSITIVE and not value):
        least = 'positive' if field in _POSITIVE else 'at least 0'
        raise ValueError(f'config.task.{field} must be finite and {least}, got {value}.')
    elif field in _CHOICES:
      _check_choice(field, value, _CHOICES[field])
    elif field == 'mesh':
      if value and not os.path.isfile(value):
        raise FileNotFoundError(f'config.task.mesh: no file {value!r}.')
    elif value < _LEAST[field]:
      raise ValueError(f'config.task.{field} must be at least {_LEAST[field]}, got {value}.')
  if config['name'] == 'shell' and chosen['inner'] >= chosen['outer']:
    raise ValueError(
      f'config.task.inner must be below outer, got {chosen["inner"]} and {chosen["outer"]}.'
    )
  return chosen


def make(config: Mapping[str, Any], refine: int = 0) -> record.Task:
  """Makes a task.

  Args:
    config: as for `options`, which is called first.
    refine: 1 for the same continuous problem on a mesh that is 1.5 to 2 times finer.

  Returns:
    The task; equal seeds draw equal functions of space on both meshes.

  Raises:
    ModuleNotFoundError: if a package is missing that makes or reads the mesh.
    OSError: if the mesh cannot be read.
    ValueError: also if the mesh is not fit, naming its file.
  """
  chosen = options(config)
  return TASKS[chosen['name']].make(chosen, refine)


def _check_choice(field: str, value: Any, choices: Iterable[Any]) -> None:
  if value not in choices:
    names = [str(choice) for choice in choices]
    near = difflib.get_close_matches(str(value), names, n=3, cutoff=0.0)
    raise ValueError(f'config.task.{field}: no {value!r}; the nearest are {", ".join(near)}.')
