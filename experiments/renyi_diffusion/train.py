"""From a config to a report: load, train each objective in turn, score, compare."""

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from experiments.renyi_diffusion import checks, data, evaluate, methods, report
from lib.io import fields, npz
from lib.train import app, checkpoint, console, devices, loop, metrics


def prepare(config: ml_collections.ConfigDict) -> data.Data:
  """Checks the config, loads the data, and sees that every method suits them."""
  checks.check(config)
  dataset = data.load(config.data, config.batch_size, config.seed)
  evaluate.check(config, dataset)
  for name in config.methods:
    methods.make(config, name, dataset.shape)
  return dataset


def train(run: app.Run, dataset: data.Data) -> None:
  """Trains and scores every method under one budget, then writes the report."""
  console.say(f'data: {dataset.summary}')
  config = run.config
  pending = [n for n in config.methods if config.eval_only or not report.is_finished(run, n)]
  first = jax.process_index() == 0  # of several hosts, one scores and reports
  model = evaluate.prepare_features(config, dataset) if first and pending else None
  for name in pending:
    train_method(run, name, dataset, model)
  if first:
    report.write(run, dataset)


def train_method(run: app.Run, name: str, dataset: data.Data, model: Any) -> None:
  """Trains one method, all seeds at once, in WORKDIR/NAME, and scores it at the end."""
  config, workdir = run.config, run.workdir / name
  method = methods.make(config, name, dataset.shape)
  keys = jax.vmap(jax.random.key)(jnp.arange(config.seed, config.seed + config.num_seeds))
  init_keys, train_keys = jax.vmap(jax.random.split, out_axes=1)(keys)
  reference = _reference(run, name)
  state = jax.jit(jax.vmap(method.init, (0, None if reference is None else 0)))(
    init_keys, reference
  )
  checkpoints = checkpoint.Checkpoints(workdir)
  with metrics.Writer(workdir) as writer:
    if config.eval_only:
      if (found := checkpoints.restore(state)) is None or found[0] < config.steps:
        raise checkpoint.CheckpointError(f'{workdir}: not trained to the end')
      state = found[1]
    else:
      trained = loop.chunks(
        method.update,
        dataset.sample,
        dataset.train,
        state,
        train_keys,
        num_steps=config.steps,
        chunk_steps=config.chunk_steps,
        writer=writer,
        checkpoints=checkpoints,
        checkpoint_every=config.checkpoint_every,
        vmapped=config.vmapped,
      )
      with contextlib.closing(trained):
        for _, state in trained:  # noqa: B007 - the last one is scored
          pass
    params = devices.gather(state.ema)
    if jax.process_index() == 0:
      network = methods.network(config, dataset.shape, name)
      scores, samples = evaluate.score(config, dataset, network, params, model)
      npz.save_npz(workdir / 'samples.npz', {'samples': samples.astype(np.float32)})
      writer.write(config.steps, 'eval', **scores)


def _reference(run: app.Run, name: str) -> Any:
  """The averaged parameters, of all seeds, of the method that this one needs; or None."""
  if fields.kind(run.config, name) not in methods.NEED_REFERENCE:
    return None
  other = fields.varied(run.config, name).objective.reference
  return checkpoint.restore(run.workdir / other)[1]['ema']
