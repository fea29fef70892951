"""PQL from a config to a report: load, train each method in turn, score, compare."""

import contextlib
import functools

import jax
import jax.numpy as jnp
import ml_collections

from experiments.pql import checks, data, evaluate, figures, methods, online, report
from lib.envs import evaluate as rollout
from lib.rl import batches
from lib.train import app, checkpoint, console, devices, loop, metrics

SAMPLED = (
  'observations',
  'actions',
  'rewards',
  'masks',
  'next_observations',
  'next_actions',
  'next_action_masks',
)


def prepare(config: ml_collections.ConfigDict) -> data.Data:
  """Checks the config, then loads or generates the data set."""
  checks.check(config)
  return data.load(config.data)


def train(run: app.Run, dataset: data.Data) -> None:
  """Trains and scores every method under one budget, then writes the report."""
  console.say(f'data: {dataset.summary}')
  first = jax.process_index() == 0  # of several hosts, one scores and reports
  pending = [
    name for name in run.config.methods if run.config.eval_only or not report.is_finished(run, name)
  ]
  # The environments take time and memory: none where nothing is left to score.
  scores = first and pending
  with evaluate.environments(run.config) if scores else contextlib.nullcontext() as pool:
    score = evaluate.scorer(run.config, dataset, pool) if scores else None
    for name in pending:
      train_method(run, name, dataset, pool, score)
  trained = figures.restore(run, dataset.spec)
  if first:
    report.write(run, dataset, trained)


def train_method(
  run: app.Run,
  name: str,
  dataset: data.Data,
  pool: rollout.EnvPool | None,
  score: evaluate.Score | None,
) -> None:
  """Trains one method, all seeds at once, in WORKDIR/NAME, and scores it on the way."""
  config, workdir = run.config, run.workdir / name
  method = methods.make(config, name, dataset.spec)
  keys = jax.vmap(jax.random.key)(jnp.arange(config.seed, config.seed + config.num_seeds))
  split = functools.partial(jax.random.split, num=3)
  init_keys, train_keys, online_keys = jax.vmap(split, out_axes=1)(keys)
  state = jax.jit(jax.vmap(method.init))(init_keys)
  rows = {column: dataset.train[column] for column in SAMPLED}
  checkpoints = checkpoint.Checkpoints(workdir)
  with metrics.Writer(workdir) as writer:
    if config.eval_only:
      if (found := checkpoints.restore(state)) is None:
        raise checkpoint.CheckpointError(f'{workdir}: nothing trained to evaluate')
      step, state = found
      if step < config.steps:
        raise checkpoint.CheckpointError(f'{workdir}: only {step} of {config.steps} updates done')
      if score:
        evaluate.write_scores(writer, step, score(method, state.params))
      return
    trained = loop.chunks(
      method.update,
      functools.partial(batches.sample_batch, batch_size=config.batch_size),
      rows,
      state,
      train_keys,
      num_steps=config.steps,
      chunk_steps=config.chunk_steps,
      writer=writer,
      checkpoints=checkpoints,
      checkpoint_every=config.checkpoint_every,
    )
    with contextlib.closing(trained):
      for step, state in trained:
        due = step % config.eval_every == 0 and step >= config.eval_from
        if step and (due or step == config.steps):
          params = devices.gather(state.params)
          if score:
            evaluate.write_scores(writer, step, score(method, params))
  if config.online.steps and pool and score:
    online.fine_tune(run, name, method, rows, pool, score, state, online_keys)
