"""Tests of lib.envs.evaluate."""

import numpy as np
from absl.testing import absltest, parameterized

from lib.envs import evaluate, seeding
from tests.lib.envs import toys

NUM_EPISODES = 7


def _act(observations, episodes, times):
  """A random policy with feedback, whose noise depends on the episode and the time alone."""
  noise = [
    np.random.default_rng([e, t]).uniform(-1, 1, 2) for e, t in zip(episodes, times, strict=True)
  ]
  return np.array(noise) + np.array([0.5, 0.0]) - 0.1 * observations[:, 1:]


class EvaluateTest(parameterized.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.pool = evaluate.EnvPool(toys.make_walk, num_envs=3, num_workers=2)

  @classmethod
  def tearDownClass(cls):
    cls.pool.close()
    super().tearDownClass()

  def run_alone(self, episode, seed):
    """One episode in this process, without the pool."""
    simulator = seeding.Simulator(toys.make_walk())
    observation, _ = simulator.reset(seeding.seed_sequence(seed, episode))
    rows, total, ended = [np.float32(observation)], 0.0, False
    while not ended:
      action = _act(rows[-1][None], [episode], [len(rows) - 1])[0]
      action = np.clip(np.float32(action), -1, 1)
      observation, reward, terminated, truncated, info = simulator.step(action)
      rows.append(np.float32(observation))
      total += reward
      ended = terminated or truncated
    return np.stack(rows), total, bool(info['success'])

  def assert_as_alone(self, episodes, seed):
    for i in range(len(episodes.success)):
      observations, total, success = self.run_alone(i, seed)
      np.testing.assert_array_equal(episodes.observations[i], observations)
      self.assertLen(episodes.actions[i], episodes.lengths[i])
      self.assertLen(observations, episodes.lengths[i] + 1)
      self.assertEqual(episodes.returns[i], total)
      self.assertEqual(episodes.success[i], success)

  def test_pool_gives_what_each_episode_gives_alone(self):
    episodes = evaluate.run_episodes(self.pool, _act, NUM_EPISODES, seed=5, record=True)
    self.assert_as_alone(episodes, seed=5)
    self.assertTrue(episodes.success.any())  # some solve the task,
    self.assertTrue((episodes.lengths[~episodes.success] == 12).all())  # the clock ends the others

  def test_rewards_of_each_episode_sum_to_its_return(self):
    episodes = evaluate.run_episodes(self.pool, _act, NUM_EPISODES, seed=5, record=True)
    for i, rewards in enumerate(episodes.rewards):
      self.assertEqual(rewards.dtype, np.float64)
      self.assertLen(rewards, episodes.lengths[i])
      np.testing.assert_allclose(rewards.sum(), episodes.returns[i], rtol=1e-12, atol=1e-12)
      # Each is of its own step: the walk pays the second coordinate of where it led.
      np.testing.assert_allclose(rewards, episodes.observations[i][1:, 1], rtol=1e-6)

  def test_terminated_by_its_own_rules_or_by_the_clock(self):
    episodes = evaluate.run_episodes(self.pool, _act, NUM_EPISODES, seed=5)
    np.testing.assert_array_equal(episodes.terminated, episodes.success)
    self.assertTrue((episodes.lengths[~episodes.terminated] == 12).all())
    self.assertEqual({*episodes.terminated}, {False, True})
    self.assertEmpty(episodes.rewards)

  @parameterized.parameters((1, 1), (10, 3))
  def test_sizes_of_the_pool_change_nothing(self, num_envs, num_workers):
    with evaluate.EnvPool(toys.make_walk, num_envs, num_workers) as pool:
      episodes = evaluate.run_episodes(pool, _act, NUM_EPISODES, seed=5, record=True)
    self.assert_as_alone(episodes, seed=5)

  def test_seeds_give_other_episodes(self):
    first, second = (
      evaluate.run_episodes(self.pool, _act, 3, seed=seed, record=True) for seed in (1, 2)
    )
    for a, b in zip(first.observations, second.observations, strict=True):
      self.assertFalse(np.isclose(a[0], b[0]).any())

  def test_policy_sees_one_shape_and_valid_rows(self):
    shapes = set()

    def act(observations, episodes, times):
      shapes.add((observations.shape, observations.dtype, episodes.shape, times.shape))
      self.assertTrue((episodes < 4).all())
      self.assertTrue((times <= 12).all())
      return _act(observations, episodes, times)

    seen = []
    episodes = evaluate.run_episodes(
      self.pool, act, 4, seed=5, progress=lambda done, total: seen.append((done, total))
    )
    self.assertEqual(shapes, {((3, 3), np.dtype(np.float32), (3,), (3,))})
    self.assertEqual(seen[-1], (4, 4))
    self.assertEmpty(episodes.observations)

  def test_actions_are_clipped_to_the_bounds(self):
    big = evaluate.run_episodes(self.pool, lambda o, e, t: np.full((3, 2), 9.0), 2, 5, record=True)
    one = evaluate.run_episodes(self.pool, lambda o, e, t: np.full((3, 2), 1.0), 2, 5, record=True)
    np.testing.assert_array_equal(big.observations[1], one.observations[1])
    self.assertLess(big.lengths.max(), 12)

  @parameterized.parameters((np.nan,), (np.inf,))
  def test_policy_that_is_not_finite_is_named(self, value):
    def act(observations, episodes, times):
      return np.where((episodes == 1) & (times == 2), value, 0.0)[:, None] * np.ones(2)

    with self.assertRaisesRegex(ValueError, 'at step 2 of episode 1'):
      evaluate.run_episodes(self.pool, act, 3, seed=5)

  def test_other_shapes_are_refused(self):
    with self.assertRaisesRegex(ValueError, r'shape \(3, 4\), expected \(3, 2\)'):
      evaluate.run_episodes(self.pool, lambda o, e, t: np.zeros((3, 4)), 3, seed=5)
    with self.assertRaisesRegex(ValueError, 'num_envs=0'):
      evaluate.EnvPool(toys.make_walk, 0)

  def test_environment_that_cannot_be_made_is_reported(self):
    with self.assertRaisesRegex(RuntimeError, 'no such maze'):
      evaluate.EnvPool(toys.make_broken, 2, 2)


if __name__ == '__main__':
  absltest.main()
