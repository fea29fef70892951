"""Tests of lib.envs.ogbench."""

import re
import warnings

import numpy as np
from absl.testing import absltest, parameterized

from lib.envs import ogbench, seeding


class OgbenchTest(parameterized.TestCase):
  @parameterized.parameters(
    ('cube-single-play-singletask-task1-v0', 'cube-single-play-v0'),
    ('puzzle-3x3-noisy-singletask-v0', 'puzzle-3x3-noisy-v0'),
    ('pointmaze-medium-navigate-singletask-task5-v0', 'pointmaze-medium-navigate-v0'),
  )
  def test_data_set_of_a_task(self, task, dataset):
    self.assertIn(task, ogbench.single_tasks())
    self.assertEqual(ogbench.dataset_of(task), dataset)

  def test_single_tasks_have_vector_observations_and_five_tasks(self):
    names = ogbench.single_tasks()
    self.assertFalse([name for name in names if name.startswith('visual')])
    numbered = {int(number) for name in names for number in re.findall(r'task(\d)-v0', name)}
    self.assertEqual(numbered, {1, 2, 3, 4, 5})

  @parameterized.parameters('cube-single', 'scene')
  def test_positions_are_the_simulators_own(self, family):
    name = f'{family}-play-singletask-task1-v0'
    env = ogbench.make_env(name)
    observation, info = env.reset(seed=0)
    positions = ogbench.positions(name, observation[None])
    self.assertEqual(set(positions), {'effector', 'cube 0'})
    np.testing.assert_allclose(positions['effector'][0], info['proprio/effector_pos'], atol=1e-6)
    np.testing.assert_allclose(positions['cube 0'][0], info['privileged/block_0_pos'], atol=1e-6)
    env.close()

  @parameterized.parameters('cube-single-play', 'pointmaze-medium-navigate')
  def test_task_is_solved_where_the_goals_are(self, dataset):
    name = f'{dataset}-singletask-task2-v0'
    env = ogbench.make_env(name)
    env.reset(seed=0)
    base = env.unwrapped
    (goal,) = ogbench.goals(name).values()
    if 'maze' in name:
      base.set_xy(goal)
      solved = base.compute_success()
    else:
      base._data.joint('object_joint_0').qpos[:3] = goal
      solved = all(base._compute_successes())
    self.assertTrue(solved)
    env.close()

  def test_environments_are_quiet_and_their_resets_seeded(self):
    with warnings.catch_warnings():
      warnings.simplefilter('error')
      simulator = seeding.Simulator(ogbench.make_env('cube-single-v0'))
      # The goal observation comes after random actions.
      first, second, again = (
        simulator.reset(seeding.seed_sequence(seed), task_id=1)[1]['goal'] for seed in (1, 2, 1)
      )
    np.testing.assert_array_equal(again, first)
    self.assertFalse((second == first).all())


if __name__ == '__main__':
  absltest.main()
