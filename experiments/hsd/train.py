"""From a config to a report: data, then each method in turn on them, errors, comparison."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax

from experiments.hsd import checks, data, evaluate, methods, problems, report
from experiments.hsd.methods import learner
from lib.io import fields, npz
from lib.nn import optimizers
from lib.train import app, checkpoint, console, devices, loop, metrics


class State(NamedTuple):
  """Parameters, and the state of their optimiser."""

  params: Any
  opt_state: optax.OptState


def prepare(config: ml_collections.ConfigDict) -> data.Data:
  """Checks the config, then loads the samples or makes them."""
  checks.check(config)
  try:
    loaded = data.load(config)
    for name in config.methods:
      problems.written(config, name, loaded.task)
    return loaded
  except ModuleNotFoundError as error:
    raise ValueError(f'config.task: {error} (experiments/hsd/requirements.txt)') from error


def train(run: app.Run, loaded: data.Data) -> None:
  """Trains and scores every method on the same samples, then writes the report."""
  console.say(f'data: {loaded.summary}')
  for name in run.config.methods:
    if run.config.eval_only or not report.is_finished(run, name):
      train_method(run, name, loaded)
  if jax.process_index() == 0:
    report.write(run, loaded)


def train_method(run: app.Run, name: str, loaded: data.Data) -> None:
  """Trains one method, all seeds at once, in WORKDIR/NAME, and scores it at the end."""
  config = run.config
  problem = problems.build(config, name, loaded)
  method = methods.make(config, name, problem)
  predict = evaluate.predictor(problem, method)
  with metrics.Writer(run.workdir / name) as writer:
    if isinstance(method, learner.Solver):
      params = jax.tree.map(lambda x: jnp.asarray(x)[None], method.fit())
    else:
      params = fit(run, name, problem, method, writer, predict)
    if jax.process_index() == 0:
      scores, shown = evaluate.score(config, name, loaded, problem, method, predict, params)
      npz.save_npz(run.workdir / name / 'shown.npz', shown)
      writer.write(methods.steps(config, name), 'eval', **scores)


def fit(
  run: app.Run,
  name: str,
  problem: learner.Problem,
  network: learner.Network,
  writer: metrics.Writer,
  predict: Callable[..., np.ndarray],
) -> Any:
  """Trains a network from all seeds; returns its parameters with a leading axis of seeds."""
  config = run.config
  optimizer = optimizers.adamw_cosine(config.steps, **fields.varied(config, name).optimizer)
  keys = jax.vmap(jax.random.key)(jnp.arange(config.seed, config.seed + config.num_seeds))
  init_keys, train_keys = jax.vmap(jax.random.split, out_axes=1)(keys)

  def init(key):
    params = network.init(key)
    return State(params, optimizer.init(params))

  def sample(samples, key):
    rows = jax.random.randint(key, (config.batch_size,), 0, len(samples['output']))
    return {label: x[rows] for label, x in samples.items()}

  def update(state, batch, key):
    def loss(params):
      found = network.apply(params, problem.space, evaluate.inputs(problem, batch))
      error = jnp.mean(evaluate.relative_errors(problem, batch, found.output))
      return error + found.penalty, error

    (total, error), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    return State(params, opt_state), {'loss': total, 'error': error}

  state = jax.jit(jax.vmap(init))(init_keys)
  checkpoints = checkpoint.Checkpoints(run.workdir / name)
  if config.eval_only:
    if (found := checkpoints.restore(state)) is None or found[0] < config.steps:
      raise checkpoint.CheckpointError(f'{run.workdir / name}: not trained to the end')
    return devices.gather(found[1].params)
  trained = loop.chunks(
    update,
    sample,
    problem.train,
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
    for done, state in trained:
      params = devices.gather(state.params)
      if done and jax.process_index() == 0:
        error = evaluate.validation_error(problem, predict, params)
        writer.write(done, 'valid', error=error)
  return params
