"""Small simulators and requests that worker processes of the tests can import."""

import os
import signal
import time

import gymnasium
import numpy as np


class Walk(gymnasium.Env):
  """A walk whose steps are disturbed by every source of randomness that simulators use.

  The episode is solved, and ends, when the walker passes 3 on its first axis. Each step pays where
  he then is on the second.
  """

  def __init__(self):
    self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,))
    self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    self.state = np.zeros(3)
    self._move(self.action_space.sample())
    return self.state.copy(), {}

  def step(self, action):
    self._move(action)
    solved = bool(self.state[0] > 3.0)
    return self.state.copy(), self.state[1], solved, False, {'success': float(solved)}

  def _move(self, action):
    self.state[:2] += action + 0.1 * self.np_random.normal(size=2)
    self.state[2] += np.random.uniform()  # noqa: NPY002 (as simulators do)


def make_walk() -> gymnasium.Env:
  return gymnasium.wrappers.TimeLimit(Walk(), 12)


class PaintedWalk(Walk):
  """A walk that can be drawn without any graphics library: as its clock."""

  def render(self):
    return np.full((4, 6, 3), round(10 * self.state[2]), np.uint8)


def make_painted_walk() -> gymnasium.Env:
  return PaintedWalk()


def make_broken() -> gymnasium.Env:
  raise ValueError('no such maze')


def make_doubler():
  return lambda x: 2 * x


def make_worker(pause: float = 0.0):
  """A handler that can also fail, die or stall."""

  def handle(request):
    if request == 'fail':
      raise KeyError('asked to')
    if request == 'stall':
      time.sleep(60.0)
    if request == 'die':
      os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(pause)
    return os.getpid()

  return handle


def make_collector(pause: float = 0.0):
  """Episodes of 1 to 5 rows."""

  def collect(seed):
    time.sleep(pause)
    rng = np.random.default_rng(seed)
    n = rng.integers(1, 6)
    return {'x': rng.normal(size=(n, 2)), 'last': np.arange(n) == n - 1}

  return collect
