"""Host. OGBench's data sets, made again by their own recipes (Park et al., arXiv 2410.20092).

The package brings the simulators and the scripted oracles; the loops here follow the recipes by
which the published `navigate`, `play` and `noisy` sets were collected.
"""

import functools
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from lib.envs import ogbench, seeding
from lib.envs.collect import Collector, Episode

EPISODE_STEPS = 1001  # the last has no successor and is dropped by who reads the set


class Navigate(NamedTuple):
  """A noisy walk through a maze, from goal to goal."""

  env: str
  noise: float = 0.5  # standard deviation, in units of the largest action


class Play(NamedTuple):
  """Pick-and-place and the like along precomputed plans, one random target after another."""

  env: str
  stack: tuple[float, float]  # range of an episode's probability of aiming at another cube's top
  noise: float = 0.1  # of the plan, in units of the oracle's own scales
  smoothing: float = 0.5  # of that noise in time, in steps


class Noisy(NamedTuple):
  """The same targets by a closed-loop oracle under heavy noise."""

  env: str
  stack: tuple[float, float]
  random: float  # probability of a uniform action
  noise: float = 0.1  # upper end of an episode's standard deviation
  min_norm: float = 0.4  # shortest step that the oracle aims for


Recipe = Navigate | Play | Noisy

RECIPES: dict[str, Recipe] = {
  'pointmaze-medium-navigate-v0': Navigate('pointmaze-medium-v0'),
  'pointmaze-large-navigate-v0': Navigate('pointmaze-large-v0'),
  'cube-single-play-v0': Play('cube-single-v0', stack=(0.0, 0.0)),
  'cube-single-noisy-v0': Noisy('cube-single-v0', stack=(0.0, 0.0), random=0.1),
  'cube-double-play-v0': Play('cube-double-v0', stack=(0.0, 0.25)),
  'cube-double-noisy-v0': Noisy('cube-double-v0', stack=(0.0, 0.25), random=0.1),
  'scene-play-v0': Play('scene-v0', stack=(0.5, 0.5)),
  'scene-noisy-v0': Noisy('scene-v0', stack=(0.5, 0.5), random=0.1),
  'puzzle-3x3-play-v0': Play('puzzle-3x3-v0', stack=(0.5, 0.5)),
  'puzzle-3x3-noisy-v0': Noisy('puzzle-3x3-v0', stack=(0.5, 0.5), random=0.2),
}


def collector(name: str, episode_steps: int = EPISODE_STEPS) -> Collector:
  """Makes the function that collects one episode of a data set.

  Args:
    name: a key of `RECIPES`.
    episode_steps: steps in an episode.

  Returns:
    `collect(seed)`: `observations` (n, o), `actions` (n, a), `qpos` and `qvel`, float32;
    `terminals` (n,), bool, true at the end; where there are buttons `button_states`, int64.
    Each row holds the state before its action.
  """
  recipe = RECIPES[name]
  options: dict[str, Any] = {'terminate_at_goal': False, 'max_episode_steps': episode_steps}
  if isinstance(recipe, Navigate):
    return functools.partial(_navigate, recipe, _Recorder(ogbench.make_env(recipe.env, **options)))
  env = ogbench.make_env(recipe.env, mode='data_collection', **options)
  oracles = _plan_oracles(env, recipe) if isinstance(recipe, Play) else _markov_oracles(env, recipe)
  return functools.partial(_manipulate, recipe, _Recorder(env), oracles)


class _Recorder(seeding.Simulator):
  """A simulator that keeps what the published files hold."""

  def reset(self, seed: np.random.SeedSequence, **options: Any) -> tuple[np.ndarray, dict]:
    self._rows: dict[str, list] = {}
    self._observation, info = super().reset(seed, **options)
    return self._observation, info

  def step(self, action: np.ndarray):
    observation, reward, terminated, truncated, info = super().step(action)
    done = terminated or truncated
    row = {'observations': self._observation, 'actions': action, 'terminals': done}
    for key in ('qpos', 'qvel', 'button_states'):
      if f'prev_{key}' in info:
        row[key] = info[f'prev_{key}']
    for key, value in row.items():
      self._rows.setdefault(key, []).append(value)
    self._observation = observation
    return observation, reward, terminated, truncated, info

  def episode(self) -> Episode:
    dtypes = {'terminals': np.bool_, 'button_states': np.int64}
    return {key: np.array(rows, dtypes.get(key, np.float32)) for key, rows in self._rows.items()}


def _navigate(recipe: Navigate, simulator: _Recorder, seed: np.random.SeedSequence) -> Episode:
  rng = np.random.default_rng(seed)
  maze: Any = simulator.env.unwrapped
  cells = [tuple(cell) for cell in np.argwhere(maze.maze_map == 0)]
  goals = [cell for cell in cells if not _is_corridor(maze.maze_map, cell)]
  start, goal = cells[rng.integers(len(cells))], goals[rng.integers(len(goals))]
  simulator.reset(seed, task_info={'init_ij': start, 'goal_ij': goal})
  done = False
  while not done:
    position = maze.get_xy()
    subgoal, _ = maze.get_oracle_subgoal(position, maze.cur_goal_xy)
    direction = (subgoal - position) / (np.linalg.norm(subgoal - position) + 1e-6)
    action = np.clip(direction + recipe.noise * rng.standard_normal(2), -1, 1)
    *_, terminated, truncated, info = simulator.step(action)
    done = terminated or truncated
    if info['success']:
      with simulator.rng:
        centre = maze.ij_to_xy(goals[rng.integers(len(goals))])
        maze.set_goal(goal_xy=maze.add_noise(centre))
  return simulator.episode()


def _is_corridor(maze_map: np.ndarray, cell: tuple[int, int]) -> bool:
  i, j = cell
  vertical = maze_map[i - 1, j], maze_map[i + 1, j]
  horizontal = maze_map[i, j - 1], maze_map[i, j + 1]
  return (vertical, horizontal) in (((0, 0), (1, 1)), ((1, 1), (0, 0)))


def _manipulate(
  recipe: Play | Noisy,
  simulator: _Recorder,
  oracles: dict[str, Any],
  seed: np.random.SeedSequence,
) -> Episode:
  # A scene whose cube leaves the camera's sight is made again, from the next seed.
  attempt = 0
  while True:
    retry = np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, attempt))
    episode = _manipulate_once(recipe, simulator, oracles, retry)
    if not recipe.env.startswith('scene') or _is_in_sight(episode['qpos']):
      return episode
    attempt += 1


def _manipulate_once(
  recipe: Play | Noisy,
  simulator: _Recorder,
  oracles: dict[str, Any],
  seed: np.random.SeedSequence,
) -> Episode:
  rng = np.random.default_rng(seed)
  env: Any = simulator.env.unwrapped
  observation, info = simulator.reset(seed)
  p_stack = rng.uniform(*recipe.stack)
  p_random = recipe.random if isinstance(recipe, Noisy) else 0.0
  # Position, yaw, gripper. Plans carry their own noise.
  scales = np.array([1, 1, 1, 3, 10]) * (
    rng.uniform(0, recipe.noise) if isinstance(recipe, Noisy) else 0.0
  )

  def begin(observation, info):
    oracle = oracles[info['privileged/target_task']]
    oracle.reset(observation, info)
    return oracle

  with simulator.rng:
    oracle = begin(observation, info)
  done = False
  while not done:
    if rng.random() < p_random:
      action = rng.uniform(-1, 1, size=5)
    else:
      with simulator.rng:
        action = np.asarray(oracle.select_action(observation, info))
      action = np.clip(action + scales * rng.standard_normal(5), -1, 1)
    observation, _, terminated, truncated, info = simulator.step(action)
    done = terminated or truncated
    if oracle.done:
      with simulator.rng:
        oracle = begin(*env.set_new_target(p_stack=p_stack))
  return simulator.episode()


def _is_in_sight(qpos: np.ndarray) -> bool:
  y, z = qpos[:, 15], qpos[:, 16]  # of the cube
  in_drawer = (z >= 0.06) & (z <= 0.08)
  return not ((y >= 0.29) | ((y <= -0.3) & ~in_drawer)).any()


def _plan_oracles(env: gymnasium.Env, recipe: Play) -> dict[str, Any]:
  from ogbench.manipspace.oracles.plan import button_plan, cube_plan, drawer_plan, window_plan

  noise = {'noise': recipe.noise, 'noise_smoothing': recipe.smoothing}
  oracles = {
    'cube': cube_plan.CubePlanOracle,
    'button': functools.partial(button_plan.ButtonPlanOracle, **_gripper(recipe)),
    'drawer': drawer_plan.DrawerPlanOracle,
    'window': window_plan.WindowPlanOracle,
  }
  return {target: make(env=env, **noise) for target, make in oracles.items()}


def _markov_oracles(env: gymnasium.Env, recipe: Noisy) -> dict[str, Any]:
  from ogbench.manipspace.oracles.markov import (
    button_markov,
    cube_markov,
    drawer_markov,
    window_markov,
  )

  oracles = {
    'cube': cube_markov.CubeMarkovOracle,
    'button': functools.partial(button_markov.ButtonMarkovOracle, **_gripper(recipe)),
    'drawer': drawer_markov.DrawerMarkovOracle,
    'window': window_markov.WindowMarkovOracle,
  }
  return {target: make(env=env, min_norm=recipe.min_norm) for target, make in oracles.items()}


def _gripper(recipe: Play | Noisy) -> dict[str, bool]:
  return {'gripper_always_closed': recipe.env.startswith('puzzle')}
