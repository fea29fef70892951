"""Host. Policies at work in many environments at once, the environments in worker processes."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import gymnasium
import numpy as np

from lib.envs import seeding, workers

Act = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


class Episodes(NamedTuple):
  """What became of n episodes."""

  success: np.ndarray  # (n,) bool: the environment's own `info['success']` at the last step
  returns: np.ndarray  # (n,) float64: undiscounted sum of rewards
  lengths: np.ndarray  # (n,) int64: steps
  terminated: np.ndarray  # (n,) bool: whether its own rules ended it, rather than the clock
  # What follows is there if it was recorded.
  observations: list[np.ndarray]  # (length + 1, o) float32
  actions: list[np.ndarray]  # (length, a) float32
  rewards: list[np.ndarray]  # (length,) float64


class EnvPool:
  """Environments that step side by side; `with EnvPool(...) as pool:` ends their processes.

  Making an environment takes up to a second, so one pool serves all evaluations of a run.

  Args:
    make_env: picklable; makes one environment, with vectors for observations and actions.
    num_envs: how many of them.
    num_workers: processes to spread them over; 0 for one for each core.

  Attributes:
    num_envs: how many environments there are.
    observation_size: o, the length of an observation.
    action_low, action_high: bounds of an action, each (a,).

  Raises:
    ValueError: if `num_envs` is not positive.
    RuntimeError: if an environment cannot be made.
  """

  def __init__(self, make_env: Callable[[], gymnasium.Env], num_envs: int, num_workers: int = 0):
    if num_envs < 1:
      raise ValueError(f'A pool needs at least one environment, got {num_envs=}.')
    self.num_envs = num_envs
    num_workers = min(num_workers or workers.num_cores(), num_envs)
    self._owners = np.arange(num_envs) % num_workers
    self._workers = workers.Workers(
      [functools.partial(_slice, make_env, int(n)) for n in np.bincount(self._owners)]
    )
    try:
      for worker in range(num_workers):
        self._workers.send(worker, ('spaces', None, None))
      spaces = [self._workers.receive(worker) for worker in range(num_workers)]
    except BaseException:
      self.close()
      raise
    self.observation_size, self.action_low, self.action_high = spaces[0]

  def __enter__(self) -> Self:
    return self

  def __exit__(self, *exception) -> None:
    self.close()

  def close(self) -> None:
    """Ends the processes."""
    self._workers.close()

  def reset(self, slots: np.ndarray, seeds: Sequence[np.random.SeedSequence]) -> np.ndarray:
    """Starts an episode in some of the environments.

    Args:
      slots: (m,) which ones, each in [0, num_envs).
      seeds: m seeds.

    Returns:
      First observations, (m, o), float32.
    """
    (observations,) = self._call('reset', slots, seeds)
    return observations

  def step(self, slots: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, ...]:
    """Steps some of the environments.

    Args:
      slots: (m,) which ones, each reset before and not ended since.
      actions: (m, a), within the bounds.

    Returns:
      Observations (m, o), float32; rewards (m,), float64; whether the episode ended by its own
      rules, and whether by the clock, each (m,), bool; whether the task is solved, (m,), bool.
    """
    return self._call('step', slots, actions)

  def _call(self, method: str, slots: np.ndarray, values: Any) -> tuple[np.ndarray, ...]:
    owners = self._owners[slots]
    places = {int(owner): np.flatnonzero(owners == owner) for owner in np.unique(owners)}
    for owner, where in places.items():
      local = slots[where] // (self._owners.max() + 1)
      self._workers.send(owner, (method, local.tolist(), [values[i] for i in where]))
    answers = [self._workers.receive(owner) for owner in places]
    order = np.argsort(np.concatenate(list(places.values())))
    return tuple(np.concatenate(parts)[order] for parts in zip(*answers, strict=True))


def run_episodes(
  pool: EnvPool,
  act: Act,
  num_episodes: int,
  seed: int,
  record: bool = False,
  progress: Callable[[int, int], object] | None = None,
) -> Episodes:
  """Lets a policy act until episodes 0, 1, ..., num_episodes - 1 have ended.

  Episode i starts from `seed_sequence(seed, i)`, so if the policy's randomness depends on (episode,
  time) alone, the result depends neither on the number of environments nor on that of workers.

  Args:
    pool: the environments.
    act: `act(observations, episodes, times) -> actions`, from (num_envs, o) float32, and the
      episode and the step that each row belongs to, (num_envs,) int64, to (num_envs, a), clipped
      to the action bounds here. Always called with all rows, so that it compiles once; the rows
      of environments that have nothing left to do are repeated, and their actions ignored.
    num_episodes: how many episodes.
    seed: of the evaluation.
    record: keep the observations, actions and rewards.
    progress: called as `progress(done, total)` whenever episodes end.

  Returns:
    The outcome of every episode, in order.

  Raises:
    ValueError: if the policy returns another shape, or a value that is not finite.
    RuntimeError: if a worker fails or dies.
  """
  n = pool.num_envs
  slots = np.arange(min(n, num_episodes))  # the environments that are busy
  episodes = np.minimum(np.arange(n), num_episodes - 1)  # what each is busy with
  times = np.zeros(n, np.int64)
  started, finished = len(slots), 0
  observations = np.zeros((n, pool.observation_size), np.float32)
  success = np.zeros(num_episodes, bool)
  returns = np.zeros(num_episodes)
  lengths = np.zeros(num_episodes, np.int64)
  terminated = np.zeros(num_episodes, bool)
  visited: list[list[np.ndarray]] = [[] for _ in range(num_episodes)]
  taken: list[list[np.ndarray]] = [[] for _ in range(num_episodes)]
  paid: list[list[float]] = [[] for _ in range(num_episodes)]

  def begin(slots: np.ndarray) -> None:
    seeds = [seeding.seed_sequence(seed, int(i)) for i in episodes[slots]]
    observations[slots] = pool.reset(slots, seeds)
    times[slots] = 0
    note(slots)

  def note(slots: np.ndarray) -> None:
    if record:
      for slot in slots:
        visited[episodes[slot]].append(observations[slot].copy())

  begin(slots)
  while slots.size:
    actions = np.asarray(act(observations.copy(), episodes.copy(), times.copy()), np.float32)
    _check_actions(actions, (n, len(pool.action_low)), slots, episodes, times)
    actions = np.clip(actions, pool.action_low, pool.action_high)
    busy_with = episodes[slots]
    observations[slots], rewards, over, late, solved = pool.step(slots, actions[slots])
    ended = over | late
    times[slots] += 1
    returns[busy_with] += rewards
    lengths[busy_with] = times[slots]
    success[busy_with] = solved
    terminated[busy_with] = over
    note(slots)
    if record:
      for slot, reward in zip(slots, rewards, strict=True):
        taken[episodes[slot]].append(actions[slot])
        paid[episodes[slot]].append(reward)
    free = slots[ended]
    again = free[: num_episodes - started]
    slots = np.setdiff1d(slots, free[len(again) :])
    if again.size:
      episodes[again] = np.arange(started, started + len(again))
      started += len(again)
      begin(again)
    if free.size and progress:
      finished += len(free)
      progress(finished, num_episodes)
  return Episodes(
    success,
    returns,
    lengths,
    terminated,
    [np.stack(rows) for rows in visited if record],
    [np.stack(rows) for rows in taken if record],
    [np.array(rows) for rows in paid if record],
  )


def _check_actions(
  actions: np.ndarray,
  shape: tuple[int, int],
  slots: np.ndarray,
  episodes: np.ndarray,
  times: np.ndarray,
) -> None:
  if actions.shape != shape:
    raise ValueError(f'The policy returned actions of shape {actions.shape}, expected {shape}.')
  for slot in slots[~np.isfinite(actions[slots]).all(axis=-1)]:
    raise ValueError(
      f'The policy returned {actions[slot]} at step {times[slot]} of episode {episodes[slot]}.'
    )


def _slice(make_env: Callable[[], gymnasium.Env], num_envs: int) -> workers.Handler:
  simulators = [seeding.Simulator(make_env()) for _ in range(num_envs)]

  def spaces(*_) -> tuple[int, np.ndarray, np.ndarray]:
    env = simulators[0].env
    (size,) = env.observation_space.shape  # type: ignore[misc]
    action: Any = env.action_space
    return size, action.low, action.high

  def reset(slots: list[int], seeds: list[np.random.SeedSequence]) -> tuple[np.ndarray]:
    first = [simulators[slot].reset(seed)[0] for slot, seed in zip(slots, seeds, strict=True)]
    return (np.asarray(first, np.float32),)

  def step(slots: list[int], actions: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    rows = []
    for slot, action in zip(slots, actions, strict=True):
      observation, reward, terminated, truncated, info = simulators[slot].step(action)
      rows.append((observation, reward, terminated, truncated, info['success']))
    observations, rewards, *flags = zip(*rows, strict=True)
    return (
      np.asarray(observations, np.float32),
      np.asarray(rewards, np.float64),
      *(np.asarray(flag, bool) for flag in flags),
    )

  methods: dict[str, Callable] = {'spaces': spaces, 'reset': reset, 'step': step}
  return lambda request: methods[request[0]](*request[1:])
