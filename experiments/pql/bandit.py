"""Synthetic contextual bandits with known optimal behaviour, in the layout of offline RL data.

Every transition ends its episode (mask 0), so that the critic learns the reward itself.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

MODE_RADIUS = 0.8
MODE_STD = 0.05
NUM_MODES = 8
_ANGLES = 2 * np.pi * np.arange(NUM_MODES) / NUM_MODES


class Bandit(NamedTuple):
  """A behaviour and what it is worth.

  Attributes:
    sample: `sample(size, seed) -> transitions`.
    centres: `centres(observations (B, o)) -> (B, K, A)`, of the behaviour's modes.
    reward: `reward(observations, actions) -> rewards`, over the last axis; None: there is none.
  """

  sample: Callable[[int, int], dict[str, np.ndarray]]
  centres: Callable
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
  angle = _ANGLES[rng.integers(NUM_MODES, size=size)]
  return _transitions(np.zeros((size, 1)), _scattered(angle, rng), np.zeros(size))


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
  actions = _scattered(angle + np.pi * rng.integers(2, size=size), rng)
  return _transitions(observations, actions, alignment(observations, actions))


def circle(observations):
  """The modes of `eight_modes`, the same everywhere."""
  return np.broadcast_to(_around(_ANGLES), (len(observations), NUM_MODES, 2))


def poles(observations):
  """The modes of `two_modes`, ±0.8 e."""
  return MODE_RADIUS * np.array([1.0, -1.0])[:, None] * observations[:, None]


def alignment(observations, actions):
  """The reward s·a of `two_modes`."""
  return (observations * actions).sum(-1)


BANDITS = {
  'eight_modes': Bandit(eight_modes, circle, None),
  'two_modes': Bandit(two_modes, poles, alignment),
}


def _around(angle: np.ndarray) -> np.ndarray:
  return MODE_RADIUS * np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def _scattered(angle: np.ndarray, rng: np.random.Generator) -> np.ndarray:
  centre = _around(angle)
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
