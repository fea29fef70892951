"""Host. OGBench's environments and single tasks (Park et al., arXiv 2410.20092)."""

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

# Where the manipulation environments keep things in an observation, and in which units.
_EFFECTOR = slice(12, 15)
_FIRST_CUBE = 19
_CUBE_STRIDE = 9
_CENTRE = np.array([0.425, 0.0, 0.0])  # metres
_PER_METRE = 10.0


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
  """Silences what every process would say again: no display; bounds cast to float32."""
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')
    yield


def make_env(name: str, **kwargs: Any) -> gymnasium.Env:
  """Makes an environment from an OGBench name; nothing is downloaded.

  Args:
    name: of an environment, such as `cube-single-v0`, or of a data set with a task, such as
      `cube-single-play-singletask-task1-v0`.
    **kwargs: passed to its constructor.

  Returns:
    The environment.
  """
  with _quiet():
    import ogbench  # it takes seconds, which only the user of an environment should wait

    if 'singletask' in name.split('-'):
      env = ogbench.make_env_and_datasets(name, env_only=True, **kwargs)
    else:
      env = gymnasium.make(name, **kwargs)
    base: Any = env.unwrapped
    if isinstance(getattr(type(base), 'action_space', None), property):
      # The manipulation environments draw from it in `reset`, and make a new one, that nobody could
      # seed, at every access.
      fixed = {'action_space': base.action_space}
      base.__class__ = type(type(base).__name__, (type(base),), fixed)
  return env


def dataset_of(name: str) -> str:
  """Returns the data set that a single task is defined on: `cube-single-play-v0`."""
  words = name.split('-')
  return '-'.join([*words[: words.index('singletask')], words[-1]])


def single_tasks() -> list[str]:
  """Returns the names of all single tasks with vector observations, with every published set."""
  with _quiet():
    import ogbench  # noqa: F401 (registers them)
  kinds = {'maze': ('navigate', 'stitch', 'explore'), 'soccer': ('navigate', 'stitch')}
  names = []
  for env in gymnasium.registry:
    words = env.split('-')
    if 'singletask' in words and words[0] != 'visual':
      place = words.index('singletask')
      family = next((kind for kind in kinds if words[0].endswith(kind)), None)
      for kind in kinds[family] if family else ('play', 'noisy'):
        names.append('-'.join([*words[:place], kind, *words[place:]]))
  return sorted(names)


def positions(name: str, observations: np.ndarray) -> dict[str, np.ndarray]:
  """Finds what moves in the observations of an episode, for a plot.

  Args:
    name: of the environment or task.
    observations: (n, o).

  Returns:
    Positions by what has them, in metres: the `agent` (n, 2) of a maze; elsewhere the
    `effector` (n, 3), and `cube 0` (n, 3) and so on where there are cubes.
  """
  if 'maze' in name:
    return {'agent': observations[:, :2]}
  num_cubes = {
    'cube-single': 1,
    'cube-double': 2,
    'cube-triple': 3,
    'cube-quadruple': 4,
    'scene': 1,
  }
  starts = {'effector': _EFFECTOR.start}
  for prefix, count in num_cubes.items():
    if name.startswith(prefix):
      starts |= {f'cube {i}': _FIRST_CUBE + _CUBE_STRIDE * i for i in range(count)}
  return {
    what: observations[:, start : start + 3] / _PER_METRE + _CENTRE
    for what, start in starts.items()
  }


def goals(name: str) -> dict[str, np.ndarray]:
  """Finds where a single task wants what `positions` finds.

  Args:
    name: of the task.

  Returns:
    Goal positions by the names of `positions`, in metres; those without a goal are left out.
  """
  env: Any = make_env(name)
  env.reset()
  info = env.unwrapped.cur_task_info
  env.close()
  if 'goal_xy' in info:
    return {'agent': np.asarray(info['goal_xy'])}
  cubes = info['goal']['block_xyzs'] if 'goal' in info else info.get('goal_xyzs', ())
  return {f'cube {i}': np.asarray(goal) for i, goal in enumerate(cubes)}
