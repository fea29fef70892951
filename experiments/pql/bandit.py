"""Synthetic contextual bandits with known optimal behaviour, in the layout of offline RL data.

Every transition ends its episode (mask 0), so that the critic learns the reward itself.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

MODE_RADIUS = 0.8
MODE_STD = 0.05
NUM_MODES = 8


class Bandit(NamedTuple):
  """A behaviour and what it is worth.

  Attributes:
    sample: `sample(size, seed) -> transitions`.
    reward: `reward(observations, actions) -> rewards`, over the last axis; None: there is none.
  """

  sample: Callable[[int, int], dict[str, np.ndarray]]
  reward: Callable | None


def eight_modes(size: int, seed: int) -> dict[str, np.ndarray]:
  """Actions from eight Gaussians on a circle, one constant observation, no reward.

  Args:
    size: number of transitions.
    seed: seed of numpy's generator.

  Returns:
    Transitions with observations (N, 1) and actions (N, 2).
  """
  rng = np.random.default_rng(seed)
  angle = 2 * np.pi * rng.integers(NUM_MODES, size=size) / NUM_MODES
  return _transitions(np.zeros((size, 1)), _around(angle, rng), np.zeros(size))


def two_modes(size: int, seed: int) -> dict[str, np.ndarray]:
  """Actions from two opposite Gaussians whose axis the observation names; one is rewarded.

  The observation is a unit vector e, the modes lie at ±0.8 e, and the reward is a·e: the behaviour
  earns 0 on average, and the better mode 0.8.

  Args:
    size: number of transitions.
    seed: seed of numpy's generator.

  Returns:
    Transitions with observations (N, 2) and actions (N, 2).
  """
  rng = np.random.default_rng(seed)
  angle = 2 * np.pi * rng.random(size)
  observations = np.stack([np.cos(angle), np.sin(angle)], axis=1)
  actions = _around(angle + np.pi * rng.integers(2, size=size), rng)
  return _transitions(observations, actions, alignment(observations, actions))


def alignment(observations, actions):
  """The reward s·a of `two_modes`."""
  return (observations * actions).sum(-1)


BANDITS = {
  'eight_modes': Bandit(eight_modes, None),
  'two_modes': Bandit(two_modes, alignment),
}


def _around(angle: np.ndarray, rng: np.random.Generator) -> np.ndarray:
  centre = MODE_RADIUS * np.stack([np.cos(angle), np.sin(angle)], axis=1)
  return centre + MODE_STD * rng.standard_normal(centre.shape)


def _transitions(observations, actions, rewards) -> dict[str, np.ndarray]:
  columns = {
    'observations': observations,
    'actions': np.clip(actions, -1.0, 1.0),
    'rewards': rewards,
    'masks': np.zeros_like(rewards),
    'terminals': np.ones_like(rewards),
    'next_observations': observations,
  }
  return {name: np.asarray(column, np.float32) for name, column in columns.items()}
