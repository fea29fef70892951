"""Scores of trained policies: in the environment, against the bandit's law, and how they work.

A score is a dict of arrays (S,): parameters carry a leading axis of S seeds.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator

import chex
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from experiments.pql import bandit
from experiments.pql.data import Data
from experiments.pql.methods import agent, bc_flow
from lib.envs import evaluate as rollout
from lib.envs import ogbench
from lib.flow import bounds, integrate, losses, regularizers
from lib.stats import distances
from lib.train import signals

Score = Callable[[agent.Method, agent.Params], dict[str, np.ndarray]]
VALIDATION_ROWS = 1_024
BANDIT_SAMPLES = 2_000
EULER_STEPS = (1, 2, 10, 100)
POWER_ITERATIONS = 20


@contextlib.contextmanager
def scorer(config: ml_collections.ConfigDict, dataset: Data) -> Iterator[Score]:
  """Yields `score(method, params) -> metrics` for the source of the data.

  Held-out transitions show how the method works; a bandit also how close its samples come to the
  data; an OGBench task how often it is solved. D4RL's environments cannot be installed any more.
  """
  rows = held_out(dataset, VALIDATION_ROWS)
  scores: list[Score] = [_over_seeds(functools.partial(mechanism, config, rows))]
  if config.data.source == 'synthetic':
    law = held_out(dataset, BANDIT_SAMPLES)
    task = bandit.BANDITS[config.data.env]
    scores.append(_over_seeds(functools.partial(bandit_law, config, task, law)))
    yield lambda *args: _join(scores, *args)
  elif config.data.source == 'd4rl' or config.eval_episodes == 0:
    yield lambda *args: _join(scores, *args)
  else:
    make_env = functools.partial(ogbench.make_env, config.data.env)
    with rollout.EnvPool(make_env, config.eval_envs, config.data.workers) as pool:
      scores.append(functools.partial(success, config, pool))
      yield lambda *args: _join(scores, *args)


def held_out(dataset: Data, num_rows: int) -> agent.Batch:
  """Picks validation rows, or training rows where there are no others, spread over all of them."""
  columns = dataset.train if dataset.val is None else dataset.val
  total = len(columns['rewards'])
  index = np.arange(min(num_rows, total)) * total // min(num_rows, total)
  return jax.tree.map(lambda column: jnp.asarray(column[index]), columns)


def mechanism(
  config: ml_collections.ConfigDict,
  batch: agent.Batch,
  method: agent.Method,
  params: agent.Params,
  key: chex.PRNGKey,
) -> agent.Metrics:
  """What the regulariser acts on, at uniform times on the path to held-out actions, for one seed.

  Returns:
    The flow-matching loss; the mean squared Frobenius norm of the Jacobian ∂u/∂a and its largest
    spectral norm in the batch; and, for distilled policies, their squared distance to the flow's.
  """
  path_key, time_key, power_key, noise_key = jax.random.split(key, 4)
  actions, observations = batch['actions'], batch['observations']
  times = jax.random.uniform(time_key, (actions.shape[0], 1))
  path = bc_flow.interpolate(actions, times, path_key)
  field = lambda a: method.behaviour(params, observations, a, path.times)
  metrics = {
    'flow_loss': losses.flow_matching_loss(field(path.points), path.velocities),
    **jacobian_norms(field, path.points, power_key),
  }
  if method.one_step is not None:
    noise = jax.random.normal(noise_key, actions.shape)
    teacher = bc_flow.integrate_flow(
      method.behaviour, params, observations, noise, config.agent.flow_steps
    )
    metrics['distillation_error'] = jnp.mean(
      (method.one_step(params, observations, noise) - teacher) ** 2
    )
  return metrics


def jacobian_norms(f: regularizers.Map, points: chex.Array, key: chex.PRNGKey) -> agent.Metrics:
  """The mean ‖∂f/∂a‖_F² over points (B, A), and the largest spectral norm among them."""
  spectral = bounds.spectral_norm_power_iteration(f, points, key, POWER_ITERATIONS)
  return {
    'jacobian_sq': jnp.mean(regularizers.frobenius_sq_exact(f, points)),
    'spectral_norm_max': jnp.max(spectral),
  }


def bandit_law(
  config: ml_collections.ConfigDict,
  task: bandit.Bandit,
  batch: agent.Batch,
  method: agent.Method,
  params: agent.Params,
  key: chex.PRNGKey,
) -> agent.Metrics:
  """Energy distances of (s, a) to the data's law, and the reward that the policy earns.

  The flow is integrated with several numbers of Euler steps; the one-step policy has its own row.
  """
  flow_key, act_key = jax.random.split(key)
  observations = batch['observations']
  data = jnp.concatenate([observations, batch['actions']], axis=-1)

  def distance(actions):
    return distances.energy_distance(jnp.concatenate([observations, actions], axis=-1), data)

  noise = jax.random.normal(flow_key, batch['actions'].shape)
  metrics = {
    f'energy_distance_euler_{k}': distance(flow_samples(method, params, observations, noise, k))
    for k in EULER_STEPS
  }
  if method.one_step is not None:
    metrics['energy_distance_one_step'] = distance(method.one_step(params, observations, noise))
  if task.reward is not None:
    actions = method.act(params, observations, act_key)
    metrics['reward'] = jnp.mean(task.reward(observations, actions))
  return metrics


def success(
  config: ml_collections.ConfigDict,
  pool: rollout.EnvPool,
  method: agent.Method,
  params: agent.Params,
) -> dict[str, np.ndarray]:
  """The share of each seed's `episodes` that are solved, and their mean length."""
  episodes = rollout.run_episodes(
    pool,
    rollout_policy(config, method, params),
    config.num_seeds * config.eval_episodes,
    config.seed,
    progress=lambda done, total: signals.check(),
  )
  by_seed = (config.num_seeds, config.eval_episodes)
  return {
    'success': episodes.success.reshape(by_seed).mean(axis=1),
    'episode_length': episodes.lengths.reshape(by_seed).mean(axis=1),
    'episodes': np.full(config.num_seeds, config.eval_episodes),
  }


def rollout_policy(
  config: ml_collections.ConfigDict, method: agent.Method, params: agent.Params
) -> rollout.Act:
  """The policies of all seeds as one; seed i acts in its own block of `eval_episodes` episodes.

  The noise depends on the episode and the step alone, so that the order in which episodes run does
  not matter.
  """
  act = _seeds_as_one(method, config.seed, config.num_seeds, config.eval_episodes)
  return lambda *inputs: np.asarray(act(params, *inputs))


@functools.cache  # compiled once a method, not once an evaluation
def _seeds_as_one(method: agent.Method, base_seed: int, num_seeds: int, episodes_per_seed: int):
  @jax.jit
  def act(params, observations, episodes, times):
    def one(observation, episode, time):
      seed = jnp.minimum(episode // episodes_per_seed, num_seeds - 1)
      key = jax.random.fold_in(jax.random.fold_in(jax.random.key(base_seed), episode), time)
      # All seeds' policies, and one chosen: cheaper than gathering one's parameters for each row.
      return jax.vmap(lambda p: method.act(p, observation[None], key)[0])(params)[seed]

    return jax.vmap(one)(observations, episodes, times)

  return act


def flow_samples(method, params, observations, noise, num_steps: int) -> chex.Array:
  """Euler steps of the behaviour flow from noise (B, A), before clipping."""
  field = lambda a, t: method.behaviour(params, observations, a, t)
  return integrate.euler(field, noise, num_steps)


def _over_seeds(one_seed) -> Score:
  # The same noise for every seed and step: differences between checkpoints are the policy's own.
  key = jax.random.key(0)

  @functools.partial(jax.jit, static_argnums=0)
  def all_seeds(method, params):
    return jax.lax.map(lambda p: one_seed(method, p, key), params)

  return lambda method, params: jax.tree.map(np.asarray, all_seeds(method, params))


def _join(scores, method, params) -> dict[str, np.ndarray]:
  return {name: value for score in scores for name, value in score(method, params).items()}
