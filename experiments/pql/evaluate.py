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
from lib.flow import bounds, integrate, losses, paths, regularizers
from lib.stats import distances
from lib.train import loop, metrics, signals

Score = Callable[[agent.Method, agent.Params], dict[str, np.ndarray]]
VALIDATION_ROWS = 1_024
BANDIT_SAMPLES = 2_000
EULER_STEPS = (1, 2, 10, 100)
POWER_ITERATIONS = 20
PATH_TIMES = 21  # at which the field is looked at along the path
PATH_ROWS = 256
BOUND_TIMES = 101


@contextlib.contextmanager
def environments(config: ml_collections.ConfigDict) -> Iterator[rollout.EnvPool | None]:
  """Yields the environments of an OGBench task, side by side; None where the data have none.

  D4RL's environments cannot be installed any more.
  """
  if config.data.source in ('generate', 'npz') and (config.eval_episodes or config.online.steps):
    make_env = functools.partial(ogbench.make_env, config.data.env)
    with rollout.EnvPool(make_env, config.eval_envs, config.data.workers) as pool:
      yield pool
  else:
    yield None


def scorer(config: ml_collections.ConfigDict, dataset: Data, pool: rollout.EnvPool | None) -> Score:
  """Returns `score(method, params) -> metrics` for the source of the data.

  Held-out transitions show how the method works; a bandit also how close its samples come to the
  data; an environment how often its task is solved.
  """
  rows = held_out(dataset, VALIDATION_ROWS)
  scores: list[Score] = [_over_seeds(functools.partial(mechanism, config, rows))]
  if config.data.source == 'synthetic':
    law = held_out(dataset, BANDIT_SAMPLES)
    task = bandit.BANDITS[config.data.env]
    scores.append(_over_seeds(functools.partial(bandit_law, config, task, law)))
  if pool and config.eval_episodes:
    scores.append(functools.partial(success, config, pool))
  return lambda *args: _join(scores, *args)


def write_scores(writer: metrics.Writer, step: int, scores: dict[str, np.ndarray]) -> None:
  """Writes the scores (S,) after `step` updates; one that is not finite is a divergence."""
  for name, values in scores.items():
    if not np.isfinite(values).all():
      raise loop.Diverged(step, name, int(np.isfinite(values).argmin()))
  writer.write(step, 'eval', **scores)


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
    The mean squared distance of the policy's actions to the data's. Where there is a flow: the
    flow-matching loss; the mean squared Frobenius norm of the Jacobian ∂u/∂a and its largest
    spectral norm in the batch; the integral over time of the largest one, by whose exponential the
    Wasserstein bound grows; and, for distilled policies, their squared distance to the flow's.
  """
  path_key, time_key, power_key, noise_key = jax.random.split(key, 4)
  actions, observations = batch['actions'], batch['observations']
  acted = method.act(params, observations, noise_key)
  metrics = {'action_error': jnp.mean((acted - actions) ** 2)}
  if method.flow is None:
    return metrics
  times = jax.random.uniform(time_key, (actions.shape[0], 1))
  path = bc_flow.interpolate(actions, times, path_key)
  field = lambda a: method.flow(params, observations, a, path.times)
  metrics |= {
    'flow_loss': losses.flow_matching_loss(field(path.points), path.velocities),
    **jacobian_norms(field, path.points, power_key),
  }
  times, norms = norms_along_path(method, params, jax.tree.map(lambda x: x[:PATH_ROWS], batch))
  metrics['lipschitz_integral'] = jnp.trapezoid(norms['spectral_norm_max'], times)
  if method.one_step is not None:
    noise = jax.random.normal(noise_key, actions.shape)
    teacher = bc_flow.integrate_flow(
      method.flow, params, observations, noise, config.agent.flow_steps
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


def norms_along_path(
  method: agent.Method, params: agent.Params, batch: agent.Batch
) -> tuple[chex.Array, agent.Metrics]:
  """Times (T,) from 0 to 1, and the `jacobian_norms` (T,) on the path to the batch's actions."""
  actions, observations = batch['actions'], batch['observations']
  times = jnp.linspace(0.0, 1.0, PATH_TIMES)

  def norms(time):
    column = jnp.full((actions.shape[0], 1), time)
    path = bc_flow.interpolate(actions, column, jax.random.key(0))
    f = lambda a: method.flow(params, observations, a, column)
    return jacobian_norms(f, path.points, jax.random.key(1))

  return times, jax.lax.map(norms, times)


def wasserstein(
  task: bandit.Bandit,
  batch: agent.Batch,
  method: agent.Method,
  params: agent.Params,
  key: chex.PRNGKey,
) -> agent.Metrics:
  """How far the flow ends from the data's law, and how far Grönwall's inequality lets it.

  Returns:
    `w2_coupled`, the root mean square distance of the two flows' ends from the same noise: no less
    than their W₂, and no more than the bound; `w2_bound`; and the bound's exponent, the integral
    of the largest logarithmic norm. The velocity of the data's law is known in closed form.
  """
  path_key, noise_key = jax.random.split(key)
  actions, observations = batch['actions'], batch['observations']
  centres = jnp.asarray(task.centres(observations))
  exact = lambda a, t: paths.mixture_marginal_velocity(a, t, centres, bandit.MODE_STD)
  learned = lambda a, t: method.flow(params, observations, a, t)
  times = jnp.linspace(0.0, 1.0, BOUND_TIMES)
  noise = jax.random.normal(noise_key, actions.shape)
  ends = [integrate.euler(field, noise, BOUND_TIMES - 1) for field in (exact, learned)]

  def at(time):
    column = jnp.full((actions.shape[0], 1), time)
    path = bc_flow.interpolate(actions, column, path_key)
    field = lambda a: learned(a, column)
    gaps = jnp.sum((field(path.points) - exact(path.points, column)) ** 2, axis=-1)
    return jnp.max(bounds.logarithmic_norm(field, path.points)), jnp.sqrt(jnp.mean(gaps))

  rates, errors = jax.lax.map(at, times)
  return {
    'w2_coupled': jnp.sqrt(jnp.mean(jnp.sum((ends[0] - ends[1]) ** 2, axis=-1))),
    'w2_bound': bounds.wasserstein_gronwall_bound(rates, errors, times),
    'w2_exponent': jnp.trapezoid(rates, times),
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
  flow_key, act_key, bound_key = jax.random.split(key, 3)
  observations = batch['observations']
  data = jnp.concatenate([observations, batch['actions']], axis=-1)

  def distance(actions):
    return distances.energy_distance(jnp.concatenate([observations, actions], axis=-1), data)

  noise = jax.random.normal(flow_key, batch['actions'].shape)
  metrics = {}
  if method.flow is not None:
    for k in EULER_STEPS:
      samples = flow_samples(method, params, observations, noise, k)
      metrics[f'energy_distance_euler_{k}'] = distance(samples)
    metrics |= wasserstein(task, batch, method, params, bound_key)
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
    rollout_policy(method, params, config.seed, config.num_seeds, config.eval_episodes),
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
  method: agent.Method, params: agent.Params, seed: int, num_seeds: int, episodes_per_seed: int
) -> rollout.Act:
  """The policies of all seeds as one; each acts in its own block of `episodes_per_seed` episodes.

  The noise depends on the episode and the step alone, so that the order in which episodes run does
  not matter.
  """
  act = _seeds_as_one(method, num_seeds, episodes_per_seed)
  return lambda *inputs: np.asarray(act(params, np.uint32(seed), *inputs))


@functools.cache  # compiled once a method, not once an evaluation
def _seeds_as_one(method: agent.Method, num_seeds: int, episodes_per_seed: int):
  @jax.jit
  def act(params, base_seed, observations, episodes, times):
    def one(observation, episode, time):
      seed = jnp.minimum(episode // episodes_per_seed, num_seeds - 1)
      key = jax.random.fold_in(jax.random.fold_in(jax.random.key(base_seed), episode), time)
      # All seeds' policies, and one chosen: cheaper than gathering one's parameters for each row.
      return jax.vmap(lambda p: method.act(p, observation[None], key)[0])(params)[seed]

    return jax.vmap(one)(observations, episodes, times)

  return act


def flow_samples(method, params, observations, noise, num_steps: int) -> chex.Array:
  """Euler steps of the behaviour flow from noise (B, A), before clipping."""
  field = lambda a, t: method.flow(params, observations, a, t)
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
