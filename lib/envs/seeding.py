"""Host. Episodes that depend on nothing but their seed and their actions."""

from typing import Any, Self

import gymnasium
import numpy as np


def seed_sequence(seed: int, *key: int) -> np.random.SeedSequence:
  """Returns the seed of one thing among many, such as episode `key`, whoever computes it."""
  return np.random.SeedSequence(seed, spawn_key=key)


class GlobalRng:
  """A state for NumPy's global generator, in force within `with` and kept between.

  Simulators draw from `np.random`; each gets its own stream, and the caller's stays untouched.

  Args:
    seed: of the stream.
  """

  def __init__(self, seed: int):
    self._state: Any = np.random.RandomState(np.random.MT19937(seed)).get_state()
    self._outer: Any = None

  def __enter__(self) -> Self:
    self._outer = np.random.get_state()  # noqa: NPY002 (the global generator is the subject)
    np.random.set_state(self._state)  # noqa: NPY002
    return self

  def __exit__(self, *exception) -> None:
    self._state = np.random.get_state()  # noqa: NPY002
    np.random.set_state(self._outer)  # noqa: NPY002


class Simulator:
  """A gymnasium environment whose every source of randomness is seeded at reset.

  Args:
    env: the environment; it may draw from its own generator, from its action space, which must be
      the same at every access, and from `np.random`.
  """

  def __init__(self, env: gymnasium.Env):
    self.env = env

  def reset(
    self, seed: np.random.SeedSequence, **options: Any
  ) -> tuple[np.ndarray, dict[str, Any]]:
    """Starts an episode.

    Args:
      seed: of everything random in this episode.
      **options: passed to the environment.

    Returns:
      Its first observation and info.
    """
    env_seed, space_seed, rng_seed = (int(word) for word in seed.generate_state(3, np.uint64))
    self.rng = GlobalRng(rng_seed)  # for whoever else draws on behalf of this episode
    self.env.action_space.seed(space_seed)
    with self.rng:
      return self.env.reset(seed=env_seed, options=options or None)

  def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
    """Takes one step, as `gymnasium.Env.step`."""
    with self.rng:
      return self.env.step(action)  # type: ignore[return-value]
