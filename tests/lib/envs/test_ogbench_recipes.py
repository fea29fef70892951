"""Tests of lib.envs.ogbench_recipes."""

import itertools
from unittest import mock

import numpy as np
import pytest
from absl.testing import absltest, parameterized

from lib.envs import ogbench_recipes as recipes
from lib.envs import seeding

SIZES = {  # observations, actions, qpos, qvel, buttons
  'pointmaze-medium': (2, 2, 2, 2, None),
  'pointmaze-large': (2, 2, 2, 2, None),
  'cube-single': (28, 5, 21, 20, None),
  'cube-double': (37, 5, 28, 26, None),
  'scene': (40, 5, 25, 24, 2),
  'puzzle-3x3': (55, 5, 23, 23, 9),
}
FAST = ('pointmaze-medium-navigate-v0', 'cube-single-noisy-v0', 'puzzle-3x3-play-v0')


class RecipesTest(parameterized.TestCase):
  def assert_is_as_published(self, name, steps):
    """An episode has the published layout, depends on its seed alone, and is no other one."""
    collect = recipes.collector(name, steps)
    episode, other, again = (collect(seeding.seed_sequence(0, 0, i)) for i in (0, 1, 0))
    sizes = dict(zip(('observations', 'actions', 'qpos', 'qvel'), SIZES[name.rsplit('-', 2)[0]]))  # noqa: B905
    for key, size in sizes.items():
      self.assertEqual(episode[key].shape, (steps, size))
      self.assertEqual(episode[key].dtype, np.float32)
      self.assertTrue(np.isfinite(episode[key]).all())
    buttons = SIZES[name.rsplit('-', 2)[0]][-1]
    self.assertEqual('button_states' in episode, buttons is not None)
    if buttons:
      self.assertEqual(episode['button_states'].shape, (steps, buttons))
      self.assertTrue(np.isin(episode['button_states'], (0, 1)).all())
    self.assertEqual(np.flatnonzero(episode['terminals']).tolist(), [steps - 1])
    self.assertLessEqual(np.abs(episode['actions']).max(), 1.0)
    for key, column in episode.items():
      np.testing.assert_array_equal(again[key], column)
    self.assertFalse((other['observations'] == episode['observations']).all())
    return episode

  @parameterized.parameters(*FAST)
  def test_episode_is_as_published(self, name):
    self.assert_is_as_published(name, steps=30)

  @parameterized.parameters(*recipes.RECIPES)
  @pytest.mark.slow  # innermost: absl's decorator would lose the mark
  def test_whole_episode_is_as_published(self, name):
    self.assert_is_as_published(name, recipes.EPISODE_STEPS)

  def test_observations_are_of_the_stored_state(self):
    episode = recipes.collector('cube-single-play-v0', 20)(seeding.seed_sequence(0))
    np.testing.assert_allclose(episode['observations'][:, :6], episode['qpos'][:, :6], atol=1e-6)
    cube = episode['qpos'][:, 14:17] - [0.425, 0.0, 0.0]
    np.testing.assert_allclose(episode['observations'][:, 19:22], 10 * cube, atol=1e-5)

  def test_plans_bring_the_cube_to_its_targets(self):
    collect = recipes.collector('cube-single-play-v0', 350)
    env = collect.args[1].env.unwrapped
    outcomes = []
    with mock.patch.object(
      env,
      'set_new_target',
      side_effect=lambda return_info=True, p_stack=0.5: (
        outcomes.append(env._success),
        type(env).set_new_target(env, return_info, p_stack),
      )[1],
    ):
      collect(seeding.seed_sequence(0))
    _, *at_the_end_of_a_plan = outcomes  # the first target is set by the reset
    self.assertGreaterEqual(len(at_the_end_of_a_plan), 2)
    self.assertGreaterEqual(np.mean(at_the_end_of_a_plan), 0.5)

  def test_walk_stays_in_the_maze_and_gets_about(self):
    collect = recipes.collector('pointmaze-medium-navigate-v0', 600)
    maze = collect.args[1].env.unwrapped
    episode = collect(seeding.seed_sequence(0))
    cells = [maze.xy_to_ij(xy) for xy in episode['observations']]
    self.assertTrue(all(maze.maze_map[cell] == 0 for cell in cells))
    self.assertGreaterEqual(len(set(cells)), 8)
    moves = {abs(a[0] - b[0]) + abs(a[1] - b[1]) for a, b in itertools.pairwise(cells)}
    self.assertLessEqual(max(moves), 2)

  def test_goals_are_never_in_corridors(self):
    maze_map = np.array([[1, 1, 1, 1, 1], [1, 0, 0, 0, 1], [1, 0, 1, 0, 1], [1, 1, 1, 1, 1]])
    corridors = {
      (i, j)
      for i, j in np.argwhere(maze_map == 0).tolist()
      if recipes._is_corridor(maze_map, (i, j))
    }
    self.assertEqual(corridors, {(1, 2)})  # corners and dead ends are goals

  def test_scene_whose_cube_is_lost_is_made_again(self):
    good = np.zeros((3, 25))
    lost = good.copy()
    lost[1, 15] = 0.3
    seeds = []
    with mock.patch.object(recipes, '_manipulate_once') as once:
      once.side_effect = lambda recipe, simulator, oracles, seed: (
        seeds.append(tuple(seed.spawn_key)),
        {'qpos': good if len(seeds) == 3 else lost},
      )[1]
      recipe = recipes.RECIPES['scene-play-v0']
      recipes._manipulate(recipe, None, {}, seeding.seed_sequence(0, 1, 7))
    self.assertEqual(seeds, [(1, 7, 0), (1, 7, 1), (1, 7, 2)])

  @parameterized.parameters(
    (0.0, 0.02, True), (0.29, 0.02, False), (-0.3, 0.02, False), (-0.3, 0.07, True)
  )
  def test_cube_is_in_sight_on_the_table_and_in_the_drawer(self, y, z, in_sight):
    qpos = np.zeros((4, 25))
    qpos[2, 15:17] = y, z
    self.assertEqual(recipes._is_in_sight(qpos), in_sight)


if __name__ == '__main__':
  absltest.main()
