"""Fine-tuning with the environment: the replay buffer begins as the data set, and goes on growing.

Before each chunk of updates every seed plays some episodes, so that a chunk is one compiled call;
FQL's authors alternate single steps.
"""

import contextlib
import functools
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from experiments.pql import evaluate
from experiments.pql.methods import agent
from lib.envs import evaluate as rollout
from lib.rl import batches, replay
from lib.train import app, checkpoint, loop, metrics, signals

SUFFIX = '_online'


def phase(name: str) -> str:
  """Returns the name, and the directory, of a method's fine-tuning."""
  return name + SUFFIX


class State(NamedTuple):
  """What fine-tuning carries: the method's state, and what the environment showed."""

  agent: agent.State
  buffer: replay.Buffer


def update_with(method: agent.Method, config: ml_collections.ConfigDict, num_offline: int):
  """Builds `update(state, batch, key)` of a method whose batches are mixed with its own steps.

  Args:
    method: the method.
    config: the fields of `config.online`.
    num_offline: transitions in the data set, from which the loop draws its batches.
  """

  def update(state: State, batch: agent.Batch, key: chex.PRNGKey) -> tuple[State, agent.Metrics]:
    mix_key, update_key = jax.random.split(key)
    size = state.buffer.size
    share = jnp.where(config.balanced, 0.5, size / (num_offline + size))
    batch = replay.mix(state.buffer, batch, share, mix_key)
    trained, metrics = method.update(state.agent, batch, update_key)
    return State(trained, state.buffer), metrics

  return update


def fine_tune(
  run: app.Run,
  name: str,
  method: agent.Method,
  data: agent.Batch,
  pool: rollout.EnvPool,
  score: evaluate.Score,
  trained: agent.State,
  keys: chex.PRNGKey,
) -> None:
  """Goes on training in WORKDIR/NAME_online, and scores on the way.

  Args:
    run: the run.
    name: of the method.
    method: the method.
    data: the columns of the data set that batches have.
    pool: environments.
    score: `score(method, params) -> metrics`.
    trained: what training on the data set ended with, with a leading axis of seeds.
    keys: typed keys (S,).
  """
  config = run.config.online
  num_seeds, num_offline = run.config.num_seeds, len(data['rewards'])
  buffers = jax.vmap(lambda _: replay.empty(data, config.capacity))(jnp.arange(num_seeds))
  add = jax.jit(jax.vmap(replay.add))
  with metrics.Writer(run.workdir / phase(name)) as writer:
    tuned = loop.chunks(
      update_with(method, config, num_offline),
      functools.partial(batches.sample_batch, batch_size=run.config.batch_size),
      data,
      State(trained, buffers),
      keys,
      num_steps=config.steps,
      chunk_steps=config.chunk_steps,
      writer=writer,
      checkpoints=checkpoint.Checkpoints(run.workdir / phase(name)),
      checkpoint_every=config.eval_every,
    )
    with contextlib.closing(tuned):
      step, state = next(tuned)
      while True:
        if step and (step % config.eval_every == 0 or step == config.steps):
          evaluate.write_scores(writer, step, score(method, state.agent.params))
        if step == config.steps:
          return
        rows, valid = play(run, method, state.agent.params, pool, step)
        step, state = tuned.send(state._replace(buffer=add(state.buffer, rows, valid)))


def play(
  run: app.Run, method: agent.Method, params: agent.Params, pool: rollout.EnvPool, step: int
) -> tuple[agent.Batch, np.ndarray]:
  """Lets each seed play its episodes, which the run's seed and the step determine.

  Returns:
    Transitions (S, n, ...), padded to the longest, and which of them are valid (S, n).
  """
  num_seeds, count = run.config.num_seeds, run.config.online.episodes
  seed = int(np.random.SeedSequence((run.config.seed, step + 1)).generate_state(1)[0])
  act = evaluate.rollout_policy(method, params, seed, num_seeds, count)
  check = lambda done, total: signals.check()
  episodes = rollout.run_episodes(pool, act, num_seeds * count, seed, record=True, progress=check)
  by_seed = [
    transitions(episodes, range(first, first + count))
    for first in range(0, num_seeds * count, count)
  ]
  # A few lengths, so that few programs are compiled: whole multiples of the longest chunk.
  longest = max(len(rows['rewards']) for rows in by_seed)
  room = -(-longest // run.config.online.chunk_steps) * run.config.online.chunk_steps
  pad = lambda x: np.concatenate([x, np.zeros((room - len(x), *x.shape[1:]), np.float32)])
  padded = [jax.tree.map(pad, rows) for rows in by_seed]
  valid = np.array([np.arange(room) < len(rows['rewards']) for rows in by_seed])
  return jax.tree.map(lambda *seeds: np.stack(seeds), *padded), valid


def transitions(episodes: rollout.Episodes, which: range) -> agent.Batch:
  """Turns recorded episodes into transitions with the columns of the data set, float32."""
  columns: dict[str, list[np.ndarray]] = {}
  for i in which:
    observations, actions = episodes.observations[i], episodes.actions[i]
    last = np.arange(len(actions)) == len(actions) - 1
    next_actions, next_action_masks = batches.next_actions(actions, last)
    rows = {
      'observations': observations[:-1],
      'actions': actions,
      'rewards': episodes.rewards[i],
      'masks': 1.0 - last * episodes.terminated[i],
      'next_observations': observations[1:],
      'next_actions': next_actions,
      'next_action_masks': next_action_masks,
    }
    for column, values in rows.items():
      columns.setdefault(column, []).append(np.asarray(values, np.float32))
  return {column: np.concatenate(parts) for column, parts in columns.items()}
