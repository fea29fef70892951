"""Offline data as transitions, by the name of their source.

`generate` makes OGBench's own sets again by their recipes, and keeps them on disk; `npz` reads the
published OGBench files; `d4rl` reads D4RL's HDF5, whose environments cannot be installed any more;
`synthetic` is a bandit.
"""

import difflib
import functools
import hashlib
import json
import os
import pathlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from experiments.pql import bandit
from experiments.pql.methods import agent
from lib.envs import collect, ogbench, ogbench_recipes
from lib.io import checks, files, hdf5, manifest, npz, progress
from lib.rl import batches

_ACTION_LIMIT = 1 - 1e-5
_PACKAGES = ('ogbench', 'mujoco', 'dm_control', 'gymnasium', 'numpy', 'scipy')


class Data(NamedTuple):
  """Transitions, float32: `observations` (n, o), `actions` (n, a) and `next_observations` (n, o);
  `rewards`, `masks` and `terminals`, each (n,). The training set also has `next_actions` (n, a)
  and `next_action_masks` (n,), as `lib.rl.batches.next_actions`.

  A mask is 0 where the task is solved and nothing is bootstrapped; a terminal is 1 at the end of a
  stored episode, whatever ended it.
  """

  train: dict[str, np.ndarray]
  val: dict[str, np.ndarray] | None  # D4RL has none
  facts: dict[str, Any]  # for the report

  @property
  def summary(self) -> str:
    """The facts in one line."""
    return ', '.join(f'{name} {fact}' for name, fact in self.facts.items())

  @property
  def spec(self) -> agent.Spec:
    """What the networks need to know."""
    return agent.Spec(self.train['observations'].shape[1], self.train['actions'].shape[1])


def check(config: Any) -> None:
  """Refuses what could not be loaded, without generating, reading or downloading anything.

  Args:
    config: with the fields `source`, `env`, `path`, `dir`, `episodes`, `seed` and `workers`.

  Raises:
    ValueError: naming the field, with the nearest names where a name is wrong.
    FileNotFoundError: naming the file.
  """
  _check_choice('source', config.source, ('generate', 'npz', 'd4rl', 'synthetic'))
  for field, least in (('episodes', 1), ('seed', 0), ('workers', 0)):
    if config[field] < least:
      raise ValueError(f'config.data.{field} must be at least {least}, got {config[field]}.')
  if config.source == 'generate':
    _check_choice('env', config.env, _generated_tasks())
  elif config.source == 'npz':
    _check_choice('env', config.env, ogbench.single_tasks())
    if config.path:
      _check_is_file(config.path)
      _check_is_file(_twin(config.path))
  elif config.source == 'd4rl':
    if 'singletask' in config.env:  # OGBench's, and the default; the name decides on the rewards
      raise ValueError(
        f'config.data.env must name a D4RL set, as antmaze-large-play-v2 does, got {config.env!r}.'
      )
    _check_is_file(config.path)
  else:
    _check_choice('env', config.env, bandit.BANDITS)


def load(config: Any) -> Data:
  """Loads the data, generating it first where it is not on disk yet.

  Args:
    config: as `check`, which is called first.

  Returns:
    The transitions, with actions clipped to ±(1 - 1e-5).

  Raises:
    ValueError: naming the field, or the file that is truncated, corrupt, of other shapes, not
      finite, or not what the manifest beside it says.
    OSError: naming the file that is missing, or if the disk or the network fails.
  """
  check(config)
  if config.source == 'generate':
    return _load_ogbench(config, _generate(config))
  if config.source == 'npz':
    return _load_ogbench(config, config.path or _download(config.env))
  if config.source == 'd4rl':
    return _load_d4rl(config)
  return _sample_bandit(config)


def _check_choice(field: str, name: str, names: Iterable[str]) -> None:
  names = list(names)
  if name not in names:
    near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.0)
    raise ValueError(f'config.data.{field}: no {name!r}; the nearest are {", ".join(near)}.')


def _check_is_file(path: str) -> None:
  if not os.path.isfile(path):
    raise FileNotFoundError(f'config.data.path: no file {path!r}.')


def _twin(path: str) -> str:
  twin = path.removesuffix('.npz') + '-val.npz'
  if twin != path.replace('.npz', '-val.npz'):  # which is how OGBench finds it
    raise ValueError(f"config.data.path must have '.npz' at its end and only there, got {path!r}.")
  return twin


def _generated_tasks() -> list[str]:
  sets = [name.removesuffix('-v0') for name in ogbench_recipes.RECIPES]
  tasks = ('', '-task1', '-task2', '-task3', '-task4', '-task5')
  return [f'{name}-singletask{task}-v0' for name in sets for task in tasks]


def _generate(config: Any) -> str:
  name = ogbench.dataset_of(config.env)
  counts = {'train': config.episodes, 'val': max(1, config.episodes // 10)}
  recipe = {
    'dataset': name,
    **ogbench_recipes.RECIPES[name]._asdict(),
    'episode_steps': ogbench_recipes.EPISODE_STEPS,
    'episodes': counts,
    'seed': config.seed,
  }
  versions = manifest.versions(_PACKAGES)
  directory = pathlib.Path(config.dir) / f'{name}-{config.episodes}-{_digest(recipe)}'
  paths = {'train': directory / f'{name}.npz', 'val': directory / f'{name}-val.npz'}
  with files.locked(directory / 'lock'):
    if manifest.verify(directory) is None:
      # Episodes by other versions of the simulator never join one set.
      episodes = directory / f'episodes-{_digest(versions)}'
      splits = collect.collect(
        functools.partial(ogbench_recipes.collector, name, recipe['episode_steps']),
        counts,
        config.seed,
        episodes,
        config.workers,
        progress.Progress(f'Generating {name}', 'episode'),
      )
      for split, path in paths.items():
        npz.save_npz(path, splits[split], compress=True)
      seeds = 'episode i of split j: numpy.random.SeedSequence(seed, spawn_key=(j, i))'
      facts = {'recipe': recipe, 'versions': versions, 'seeds': seeds}
      manifest.write(directory, [path.name for path in paths.values()], facts)
      collect.discard(episodes)
  return str(paths['train'])


def _digest(facts: dict[str, Any]) -> str:
  return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]


def _download(env_name: str) -> str:
  import ogbench as package

  name = ogbench.dataset_of(env_name)
  directory = os.path.expanduser(package.utils.DEFAULT_DATASET_DIR)
  try:
    package.download_datasets([name], directory)
  except OSError as error:
    raise OSError(
      f'{name}.npz is not in {directory} and cannot be downloaded ({error}); '
      'fetch it and its -val twin, and set config.data.path.'
    ) from error
  return os.path.join(directory, f'{name}.npz')


def _load_ogbench(config: Any, path: str) -> Data:
  import ogbench as package

  env: Any = ogbench.make_env(config.env)
  env.reset()  # builds the model and sets the task
  for file in (path, _twin(path)):
    _check_ogbench(file, env)
  # It reads the files again: the shift to transitions, the rewards and the masks are OGBench's own.
  train, val = package.make_env_and_datasets(
    config.env, dataset_path=path, dataset_only=True, cur_env=env
  )
  env.close()
  return _finish(config, train, val, path)


def _check_ogbench(path: str, env: Any) -> None:
  arrays = npz.load_npz(path)
  base = env.unwrapped
  shapes: dict[str, tuple[int | str, ...]] = {
    'observations': ('n', *env.observation_space.shape),
    'actions': ('n', *env.action_space.shape),
    'terminals': ('n',),
    'qpos': ('n', base.model.nq),
    'qvel': ('n', base.model.nv),
  }
  if hasattr(base, '_num_buttons'):
    shapes['button_states'] = ('n', base._num_buttons)
  checks.check_shapes(path, arrays, shapes)
  checks.check_finite(path, arrays)
  ends = arrays['terminals'].astype(np.float32)
  if ends.size < 2 or ends[-1] != 1 or not np.isin(ends, (0, 1)).all() or ends.all():
    raise ValueError(f"{path}: array 'terminals' must be 0 or 1, and 1 where an episode ends.")
  largest = np.abs(arrays['actions']).max()
  if largest > 1 + 1e-3:
    raise ValueError(f"{path}: array 'actions' reaches {largest}, outside of [-1, 1].")


def _load_d4rl(config: Any) -> Data:
  raw = hdf5.load_d4rl(config.path)
  # As `d4rl.qlearning_dataset`: where the clock ended an episode, the next state was not stored.
  stored = ~raw['timeouts']
  stored[-1:] = False
  now = np.flatnonzero(stored)
  if not now.size:
    raise ValueError(f"{config.path}: array 'timeouts' leaves no transition.")
  rewards = raw['rewards'][now]
  if config.env.startswith('antmaze'):
    rewards = rewards - 1.0  # -1 a step until solved, as in OGBench's tasks
  train = {
    'observations': raw['observations'][now],
    'actions': raw['actions'][now],
    'rewards': rewards,
    'masks': 1.0 - raw['terminals'][now],
    'terminals': raw['terminals'][now] | ~stored[now + 1],
    'next_observations': raw['observations'][now + 1],
  }
  return _finish(config, train, None, config.path)


def _sample_bandit(config: Any) -> Data:
  sample = bandit.BANDITS[config.env].sample
  train_seed, val_seed = np.random.SeedSequence(config.seed).generate_state(2).tolist()
  val = sample(max(1, config.episodes // 10), val_seed)
  return _finish(config, sample(config.episodes, train_seed), val, 'synthetic')


def _finish(config: Any, train: dict, val: dict | None, origin: str) -> Data:
  train = _plain(train)
  val = _plain(val) if val else None
  train['next_actions'], train['next_action_masks'] = map(
    np.asarray, batches.next_actions(train['actions'], train['terminals'])
  )
  facts = {
    'source': config.source,
    'env': config.env,
    'origin': origin,
    'transitions': len(train['rewards']),
    'episodes': int(train['terminals'].sum()),
    'solved': int((train['masks'] == 0).sum()),
    'mean_reward': float(train['rewards'].mean()),
    'val_transitions': len(val['rewards']) if val else 0,
  }
  return Data(train, val, facts)


def _plain(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
  plain = {name: np.asarray(column, np.float32) for name, column in columns.items()}
  return plain | {'actions': np.clip(plain['actions'], -_ACTION_LIMIT, _ACTION_LIMIT)}
