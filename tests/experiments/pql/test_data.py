"""Tests of the data sources."""

import json
import os
import pathlib
import tempfile
from unittest import mock

import chex
import h5py
import ml_collections
import numpy as np
from absl.testing import parameterized

from configs.pql import ogbench as paper_config
from experiments.pql import bandit, data
from lib.envs import collect, ogbench, ogbench_recipes
from lib.io import npz

TASK = 'pointmaze-medium-navigate-singletask-task1-v0'
LIMIT = np.float32(1 - 1e-5)


def config_of(**fields) -> ml_collections.ConfigDict:
  config = paper_config.get_config().data
  config.update(fields)
  return config


def episodes(count=2, steps=6, seed=0) -> dict[str, np.ndarray]:
  """Pointmaze data as OGBench publishes them: each row has the state before its action."""
  rng = np.random.default_rng(seed)
  n = count * steps
  places = rng.uniform(0, 20, size=(n, 2)).astype(np.float32)
  return {
    'observations': places,
    'actions': rng.uniform(-1, 1, size=(n, 2)).astype(np.float32),
    'terminals': np.arange(n) % steps == steps - 1,
    'qpos': places,
    'qvel': rng.normal(size=(n, 2)).astype(np.float32),
  }


class DataTest(chex.TestCase):
  def setUp(self):
    super().setUp()
    directory = tempfile.TemporaryDirectory()
    self.addCleanup(directory.cleanup)
    self.dir = pathlib.Path(directory.name)

  def assert_transitions(self, columns, size, observation_dim, action_dim):
    chex.assert_shape(columns['observations'], (size, observation_dim))
    chex.assert_shape(columns['next_observations'], (size, observation_dim))
    chex.assert_shape(columns['actions'], (size, action_dim))
    chex.assert_shape([columns[name] for name in ('rewards', 'masks', 'terminals')], (size,))
    for name, column in columns.items():
      self.assertEqual(column.dtype, np.float32, name)


class CheckTest(parameterized.TestCase):
  @parameterized.parameters(
    ({'source': 'generated'}, r"config\.data\.source: no 'generated'; the nearest are generate"),
    (
      {'env': 'pointmaze-medium-navigate-singletask-task6-v0'},
      r"config\.data\.env: no .*task6-v0'; the nearest are pointmaze-medium-navigate-singletask",
    ),
    ({'env': 'antmaze-large-navigate-singletask-v0'}, r'config\.data\.env.*large-navigate'),
    ({'env': ''}, r"config\.data\.env: no ''; the nearest are "),
    ({'source': 'npz', 'env': 'cube-quadrupel-play-singletask-v0'}, r'env.*cube-quadruple-play'),
    ({'source': 'synthetic', 'env': 'eight_mode'}, r'config\.data\.env.*nearest are eight_modes'),
    ({'episodes': 0}, r'config\.data\.episodes must be at least 1, got 0'),
    ({'seed': -1}, r'config\.data\.seed must be at least 0, got -1'),
    ({'workers': -2}, r'config\.data\.workers must be at least 0, got -2'),
    ({'source': 'npz', 'path': '/nowhere/set.zip'}, r"no file '/nowhere/set\.zip'"),
    ({'source': 'npz', 'path': '/nowhere/set.npz'}, r"config\.data\.path: no file '/nowhere/set"),
    (
      {'source': 'd4rl', 'env': 'pen-human-v1', 'path': '/nowhere/set.hdf5'},
      r"config\.data\.path: no file '/nowhere/set",
    ),
    ({'source': 'd4rl'}, r'config\.data\.env must name a D4RL set.*cube-single'),
    ({'source': 'd4rl', 'env': 'pen-human-v1'}, r"config\.data\.path: no file ''"),
  )
  def test_names_the_field_and_the_nearest_names(self, fields, message):
    with (
      mock.patch.object(collect, 'collect', side_effect=AssertionError('generates')),
      self.assertRaisesRegex((ValueError, FileNotFoundError), message) as raised,
    ):
      data.load(config_of(**fields))
    self.assertNotIn('\n', str(raised.exception))

  def test_every_recipe_has_its_tasks(self):
    for name in ogbench_recipes.RECIPES:
      for task in ('', '-task5'):
        data.check(config_of(env=name.replace('-v0', f'-singletask{task}-v0')))


class GenerateTest(DataTest):
  def setUp(self):
    super().setUp()
    self.enter_context(mock.patch.object(ogbench_recipes, 'EPISODE_STEPS', 40))

  def config(self, **fields):
    return config_of(env=TASK, dir=str(self.dir), episodes=2, workers=1, **fields)

  def files(self):
    (directory,) = self.dir.iterdir()
    return directory

  def test_generates_once_and_refuses_what_the_manifest_does_not_list(self):
    first = data.load(self.config())
    self.assert_transitions(first.train, 2 * 39, 2, 2)
    self.assert_transitions(first.val, 39, 2, 2)
    self.assertEqual(first.spec, (2, 2))
    self.assertEqual(first.facts['transitions'], 78)
    self.assertEqual(first.facts['episodes'], 2)
    self.assertEqual(first.facts['val_transitions'], 39)
    # Within an episode a transition ends where the next begins.
    same = first.train['terminals'][:-1] == 0
    np.testing.assert_array_equal(
      first.train['next_observations'][:-1][same], first.train['observations'][1:][same]
    )
    self.assertFalse((first.val['observations'] == first.train['observations'][:39]).all())
    # OGBench's single tasks pay -1 a step until solved.
    np.testing.assert_array_equal(first.train['rewards'], -first.train['masks'])

    directory = self.files()
    manifest = json.loads((directory / 'manifest.json').read_text())
    self.assertEqual(manifest['recipe']['episodes'], {'train': 2, 'val': 1})
    self.assertIn('mujoco', manifest['versions'])
    self.assertFalse(list(directory.glob('episodes-*')))

    with mock.patch.object(collect, 'collect', side_effect=AssertionError('generates again')):
      again = data.load(self.config())
      chex.assert_trees_all_equal(again.train, first.train)
      chex.assert_trees_all_equal(again.val, first.val)
      # Another recipe is another directory: it does not take this one's files.
      for fields in ({'seed': 1}, {'episodes': 3}):
        with self.assertRaisesRegex(AssertionError, 'generates again'):
          data.load(config_of(**(self.config().to_dict() | fields)))

      path = directory / 'pointmaze-medium-navigate-v0-val.npz'
      path.write_bytes(path.read_bytes()[:-1])
      with self.assertRaisesRegex(ValueError, r'navigate-v0-val\.npz: its sha256 differs'):
        data.load(self.config())
      path.unlink()
      with self.assertRaisesRegex(ValueError, r'navigate-v0-val\.npz: missing'):
        data.load(self.config())

  def test_goes_on_from_the_episodes_that_are_there(self):
    full = OSError(28, 'No space left on device')
    with (
      mock.patch.object(npz, 'save_npz', side_effect=full),  # here, not in the workers
      self.assertRaisesRegex(OSError, 'No space left'),
    ):
      data.load(self.config())
    (kept,) = self.files().glob('episodes-*')
    self.assertLen(list(kept.glob('*.npz')), 3)
    (kept / '0-000001.npz').unlink()
    val = npz.load_npz(kept / '1-000000.npz')
    npz.save_npz(kept / '1-000000.npz', val | {'actions': np.full((40, 2), 0.25, np.float32)})
    loaded = data.load(self.config())
    self.assert_transitions(loaded.train, 2 * 39, 2, 2)
    np.testing.assert_array_equal(loaded.val['actions'], 0.25)


class NpzTest(DataTest):
  def setUp(self):
    super().setUp()
    self.path = self.dir / 'set.npz'

  def write(self, train=None, val=None):
    npz.save_npz(self.path, train or episodes())
    npz.save_npz(self.dir / 'set-val.npz', val or episodes(count=1, seed=1))

  def load(self, **fields):
    return data.load(config_of(source='npz', env=TASK, path=str(self.path), **fields))

  def test_rows_become_transitions_and_the_last_of_an_episode_goes(self):
    raw = episodes()
    raw['actions'][0] = 1.0, -1.0
    self.write(raw)
    loaded = self.load()
    self.assert_transitions(loaded.train, 10, 2, 2)
    self.assert_transitions(loaded.val, 5, 2, 2)
    now = np.flatnonzero(~raw['terminals'])
    np.testing.assert_array_equal(loaded.train['observations'], raw['observations'][now])
    np.testing.assert_array_equal(loaded.train['next_observations'], raw['observations'][now + 1])
    np.testing.assert_array_equal(loaded.train['actions'][0], [LIMIT, -LIMIT])
    np.testing.assert_array_equal(loaded.train['actions'][1:], raw['actions'][now[1:]])
    np.testing.assert_array_equal(loaded.train['terminals'], [0, 0, 0, 0, 1] * 2)

  def test_task_is_solved_and_paid_where_the_goal_is(self):
    (goal,) = ogbench.goals(TASK).values()
    raw = episodes()
    raw['observations'][:] = raw['qpos'][:] = goal + 5.0
    raw['observations'][3] = raw['qpos'][3] = goal
    self.write(raw)
    loaded = self.load()
    np.testing.assert_array_equal(np.flatnonzero(loaded.train['masks'] == 0), [3])
    np.testing.assert_array_equal(loaded.train['rewards'], -loaded.train['masks'])
    self.assertEqual(loaded.facts['solved'], 1)

  @parameterized.parameters('set.npz', 'set-val.npz')
  def test_truncated_file_is_refused_by_name(self, name):
    self.write()
    content = (self.dir / name).read_bytes()
    for size in (0, 10, len(content) // 2, len(content) - 1):
      (self.dir / name).write_bytes(content[:size])
      with self.assertRaisesRegex(ValueError, f'/{name}: '):
        self.load()

  @parameterized.parameters(
    ('observations', np.zeros((12, 3)), r'shape \(12, 3\), expected \(12, 2\)'),
    ('actions', np.zeros((11, 2)), r'shape \(11, 2\), expected \(12, 2\)'),
    ('terminals', np.zeros((12, 1)), r'shape \(12, 1\)'),
    ('qpos', np.zeros((12, 7)), r'shape \(12, 7\), expected \(12, 2\)'),
    ('qvel', np.full((12, 2), np.nan), r'holds nan at index \(0, 0\)'),
    ('observations', np.full((12, 2), np.inf), r'holds inf at index \(0, 0\)'),
    ('terminals', np.zeros(12), 'where an episode ends'),
    ('terminals', np.ones(12), 'where an episode ends'),
    ('terminals', np.arange(12) / 11, 'must be 0 or 1'),
    ('actions', np.full((12, 2), 1.5), r'reaches 1\.5'),
  )
  def test_other_contents_are_refused_by_name(self, array, column, message):
    good = episodes()
    for name, split in (('set', 'train'), ('set-val', 'val')):
      self.write(**{'train': good, 'val': good, split: good | {array: column}})
      with self.assertRaisesRegex(ValueError, rf"/{name}\.npz: array '{array}'.*{message}"):
        self.load()

  def test_missing_array_is_refused_by_name(self):
    raw = episodes()
    del raw['qpos']
    self.write(raw)
    with self.assertRaisesRegex(ValueError, r"set\.npz: array 'qpos' is missing"):
      self.load()

  def test_missing_twin_is_named_before_anything_is_read(self):
    self.write()
    os.unlink(self.dir / 'set-val.npz')
    self.path.write_bytes(b'')
    with self.assertRaisesRegex(FileNotFoundError, r'set-val\.npz'):
      self.load()

  def test_path_must_let_its_twin_be_found(self):
    # OGBench replaces '.npz' wherever it stands.
    self.path = self.dir / 'a.npz.npz'
    self.path.write_bytes(b'')
    with self.assertRaisesRegex(ValueError, r"'\.npz' at its end and only there"):
      self.load()

  def test_without_a_path_or_a_network_says_what_to_fetch(self):
    import ogbench as package

    failed = OSError('no route to host')
    with (
      mock.patch.object(package, 'download_datasets', side_effect=failed),
      self.assertRaisesRegex(OSError, r'pointmaze-medium-navigate-v0\.npz.*config\.data\.path'),
    ):
      data.load(config_of(source='npz', env=TASK))


class D4rlTest(DataTest):
  def setUp(self):
    super().setUp()
    self.path = self.dir / 'set.hdf5'

  def load(self, env='hopper-medium-v2', **columns):
    rng = np.random.default_rng(0)
    n = 9
    self.columns = {
      'observations': rng.normal(size=(n, 4)).astype(np.float32),
      'actions': rng.uniform(-1, 1, size=(n, 3)).astype(np.float32),
      'rewards': rng.normal(size=n).astype(np.float32),
      'terminals': np.arange(n) == 2,
      'timeouts': np.arange(n) == 6,
      **columns,
    }
    with h5py.File(self.path, 'w') as file:
      for name, column in self.columns.items():
        file[name] = column
    return data.load(config_of(source='d4rl', env=env, path=str(self.path)))

  def test_a_timeout_drops_its_transition_and_a_terminal_is_not_bootstrapped(self):
    loaded = self.load()
    now = np.array([0, 1, 2, 3, 4, 5, 7])  # 6 timed out, 8 has no successor
    self.assert_transitions(loaded.train, 7, 4, 3)
    for name in ('observations', 'actions', 'rewards'):
      np.testing.assert_array_equal(loaded.train[name], self.columns[name][now])
    np.testing.assert_array_equal(
      loaded.train['next_observations'], self.columns['observations'][now + 1]
    )
    np.testing.assert_array_equal(loaded.train['masks'], [1, 1, 0, 1, 1, 1, 1])
    np.testing.assert_array_equal(loaded.train['terminals'], [0, 0, 1, 0, 0, 1, 1])
    self.assertIsNone(loaded.val)
    self.assertEqual(loaded.facts['episodes'], 3)
    self.assertEqual(loaded.facts['val_transitions'], 0)

  def test_antmaze_pays_minus_one_a_step(self):
    loaded = self.load(env='antmaze-large-play-v2', rewards=np.arange(9) == 2)
    np.testing.assert_array_equal(loaded.train['rewards'], [-1, -1, 0, -1, -1, -1, -1])

  def test_actions_are_clipped(self):
    loaded = self.load(actions=np.full((9, 3), 1.0))
    np.testing.assert_array_equal(loaded.train['actions'], np.full((7, 3), LIMIT))

  @parameterized.parameters(
    ('actions', np.zeros((8, 3)), r'shape \(8, 3\)'),
    ('rewards', np.full(9, np.nan), 'holds nan'),
    ('observations', np.array([[b'text']] * 9), 'not numeric'),
    ('timeouts', np.ones(9, bool), 'leaves no transition'),
  )
  def test_other_contents_are_refused_by_name(self, name, column, message):
    with self.assertRaisesRegex(ValueError, rf"/set\.hdf5: array '{name}'.*{message}"):
      self.load(**{name: column})

  def test_corrupt_file_is_refused_by_name(self):
    self.load()
    content = self.path.read_bytes()
    for corrupt in (b'', content[: len(content) // 2], b'\0' * 8 + content[8:]):
      self.path.write_bytes(corrupt)
      with self.assertRaisesRegex(ValueError, r'/set\.hdf5: not a whole HDF5 file'):
        data.load(config_of(source='d4rl', env='pen-human-v1', path=str(self.path)))


class BanditTest(DataTest):
  @parameterized.parameters(('eight_modes', 1), ('two_modes', 2))
  def test_each_transition_is_an_episode(self, env, observation_dim):
    loaded = data.load(config_of(source='synthetic', env=env, episodes=500))
    self.assert_transitions(loaded.train, 500, observation_dim, 2)
    self.assert_transitions(loaded.val, 50, observation_dim, 2)
    self.assertEqual(loaded.spec, (observation_dim, 2))
    for columns in (loaded.train, loaded.val):
      np.testing.assert_array_equal(columns['masks'], 0.0)
      np.testing.assert_array_equal(columns['terminals'], 1.0)
      self.assertLessEqual(np.abs(columns['actions']).max(), LIMIT)
    self.assertEqual(loaded.facts['episodes'], 500)
    self.assertEqual(loaded.facts['origin'], 'synthetic')

  def test_depends_on_its_seed_alone_and_not_on_the_other_split(self):
    def load(seed):
      return data.load(config_of(source='synthetic', env='two_modes', episodes=50, seed=seed))

    first, again, other = load(0), load(0), load(1)
    chex.assert_trees_all_equal(first.train, again.train)
    chex.assert_trees_all_equal(first.val, again.val)
    self.assertFalse((first.train['actions'] == other.train['actions']).any())
    self.assertFalse((first.train['observations'][:5] == first.val['observations']).any())

  def test_clips_actions_at_the_edge_of_the_box(self):
    with mock.patch.object(bandit, 'MODE_RADIUS', 3.0):
      loaded = data.load(config_of(source='synthetic', env='two_modes', episodes=200))
    self.assertEqual(np.abs(loaded.train['actions']).max(), LIMIT)
