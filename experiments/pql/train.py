"""PQL from a config to a report: load, train each method in turn, score, compare."""

import contextlib
import functools

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from experiments.pql import checks, data, evaluate, figures, methods, report
from lib.rl import batches
from lib.train import app, checkpoint, console, devices, loop, metrics

SAMPLED = ('observations', 'actions', 'rewards', 'masks', 'next_observations')


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
  with evaluate.scorer(run.config, dataset) if scores else contextlib.nullcontext() as score:
    for name in pending:
      train_method(run, name, dataset, score)
  trained = figures.restore(run, dataset.spec)
  if first:
    report.write(run, dataset, trained)


def train_method(run: app.Run, name: str, dataset: data.Data, score: evaluate.Score | None) -> None:
  """Trains one method, all seeds at once, in WORKDIR/NAME, and scores it on the way."""
  config, workdir = run.config, run.workdir / name
  method = methods.make(config, name, dataset.spec)
  keys = jax.vmap(jax.random.key)(jnp.arange(config.seed, config.seed + config.num_seeds))
  init_keys, train_keys = jax.vmap(jax.random.split, out_axes=1)(keys)
  state = jax.jit(jax.vmap(method.init))(init_keys)
  checkpoints = checkpoint.Checkpoints(workdir)
  with metrics.Writer(workdir) as writer:
    if config.eval_only:
      if (found := checkpoints.restore(state)) is None:
        raise checkpoint.CheckpointError(f'{workdir}: nothing trained to evaluate')
      step, state = found
      if step < config.steps:
        raise checkpoint.CheckpointError(f'{workdir}: only {step} of {config.steps} updates done')
      if score:
        write_scores(writer, step, score(method, state.params))
      return
    trained = loop.chunks(
      method.update,
      functools.partial(batches.sample_batch, batch_size=config.batch_size),
      {column: dataset.train[column] for column in SAMPLED},
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
        if step and (step % config.eval_every == 0 or step == config.steps):
          params = devices.gather(state.params)
          if score:
            write_scores(writer, step, score(method, params))


def write_scores(writer: metrics.Writer, step: int, scores: dict[str, np.ndarray]) -> None:
  """Writes the scores (S,) after `step` updates; one that is not finite is a divergence."""
  for name, values in scores.items():
    if not np.isfinite(values).all():
      raise loop.Diverged(step, name, int(np.isfinite(values).argmin()))
  writer.write(step, 'eval', **scores)
