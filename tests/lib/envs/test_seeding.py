"""Tests of lib.envs.seeding."""

import numpy as np
from absl.testing import absltest

from lib.envs import seeding
from tests.lib.envs import toys

ACTIONS = np.linspace(-0.5, 0.4, 20).reshape(10, 2)


class SimulatorTest(absltest.TestCase):
  def play(self, simulator: seeding.Simulator, seed: int) -> np.ndarray:
    first, _ = simulator.reset(seeding.seed_sequence(seed))
    return np.stack([first, *(simulator.step(action)[0] for action in ACTIONS)])

  def test_episode_depends_on_its_seed_alone(self):
    simulator = seeding.Simulator(toys.make_walk())
    first = self.play(simulator, 1)
    second = self.play(simulator, 2)
    again = self.play(simulator, 1)
    fresh = self.play(seeding.Simulator(toys.make_walk()), 1)
    np.testing.assert_array_equal(again, first)
    np.testing.assert_array_equal(fresh, first)
    self.assertFalse(np.isclose(first, second).any())

  def test_interleaved_episodes_do_not_disturb_each_other(self):
    alone = [self.play(seeding.Simulator(toys.make_walk()), seed) for seed in (1, 2)]
    simulators = [seeding.Simulator(toys.make_walk()) for _ in range(2)]
    together = [
      [simulator.reset(seeding.seed_sequence(seed))[0]]
      for seed, simulator in zip((1, 2), simulators, strict=True)
    ]
    for action in ACTIONS:
      for rows, simulator in zip(together, simulators, strict=True):
        rows.append(simulator.step(action)[0])
    np.testing.assert_array_equal(together, alone)

  def test_callers_generator_is_untouched(self):
    np.random.seed(0)  # noqa: NPY002
    expected = np.random.uniform(size=2)  # noqa: NPY002
    np.random.seed(0)  # noqa: NPY002
    first = np.random.uniform()  # noqa: NPY002
    self.play(seeding.Simulator(toys.make_walk()), 1)
    np.testing.assert_array_equal([first, np.random.uniform()], expected)  # noqa: NPY002

  def test_seeds_of_a_run_differ(self):
    words = {
      tuple(seeding.seed_sequence(seed, split, i).generate_state(2))
      for seed in range(3)
      for split in range(2)
      for i in range(50)
    }
    self.assertLen(words, 300)


if __name__ == '__main__':
  absltest.main()
