"""From a config to a report: the benchmark, then each method in turn on it, scores, comparison."""

import contextlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax

from experiments.sysbio_flow import charts, checks, data, evaluate, methods, networks, report
from experiments.sysbio_flow.methods import learner
from lib.io import fields, npz
from lib.nn import optimizers
from lib.train import app, checkpoint, console, devices, loop, metrics


class State(NamedTuple):
  """Parameters, their running average, and the state of their optimiser."""

  params: Any
  average: Any
  opt_state: optax.OptState


def prepare(config: ml_collections.ConfigDict) -> data.Data:
  """Checks the config, then loads the benchmark or builds it."""
  checks.check(config)
  try:
    return data.load(config)
  except ModuleNotFoundError as error:
    raise ValueError(f'{error} (experiments/sysbio_flow/requirements.txt)') from error


def train(run: app.Run, loaded: data.Data) -> None:
  """Trains and scores every method on the same systems, then writes the report."""
  console.say(f'data: {loaded.summary}')
  for name in run.config.methods:
    if run.config.eval_only or not report.is_finished(run, name):
      train_method(run, name, loaded)
  if jax.process_index() == 0:
    report.write(run, loaded)


def train_method(run: app.Run, name: str, loaded: data.Data) -> None:
  """Trains one method, all seeds at once, in WORKDIR/NAME, and scores it at the end."""
  config = run.config
  split = loaded.test if config.eval.split == 'test' else loaded.valid
  problem = make_problem(config, loaded)
  method = methods.make(config, name, problem)
  score = evaluate.forecaster(method, config.eval.samples)
  with metrics.Writer(run.workdir / name) as writer:
    params = {}
    if trained := isinstance(method, learner.Network):
      params = fit(run, name, method, writer, loaded)
    if jax.process_index() != 0:
      return
    seeds = range(config.num_seeds if trained or name in methods.SAMPLED else 1)
    own = [jax.tree.map(lambda x, i=i: x[i], params) for i in seeds]
    keys = [jax.random.fold_in(jax.random.key(config.seed + i), 1) for i in seeds]
    spreads = [1.0 for _ in seeds]
    if config.eval.calibrate and (trained or name in methods.SAMPLED):
      choose = evaluate.choose_spread(method, config.eval.samples)
      spreads = [choose(p, loaded.valid, key) for p, key in zip(own, keys, strict=True)]
    begin = time.perf_counter()
    scores = [score(*each) for each in zip(own, [split] * len(own), keys, spreads, strict=True)]
    seconds = (time.perf_counter() - begin) / len(own)
    npz.save_npz(
      run.workdir / name / 'scores.npz',
      {key: np.stack([each[key] for each in scores]) for key in scores[0]},
    )
    if name == config.methods[0]:
      rows = charts.choose_shown(split, config.eval.shown)
      seen = split.context[rows], split.future[rows]
      samples = evaluate.draw(method, own[0], seen[0], keys[0], config.eval.samples)
      samples = np.asarray(evaluate.widened(samples, spreads[0]))
      shown = {'context': seen[0], 'future': seen[1], 'samples': samples}
      npz.save_npz(run.workdir / name / 'shown.npz', {**shown, 'label': split.label[rows]})
    found = [evaluate.summary(split, each) for each in scores]
    numbers = {key: np.array([each[key] for each in found]) for key in found[0]}
    numbers |= {'spread': np.array(spreads), 'seconds': np.array([seconds])}
    numbers['parameters'] = np.array([networks.parameter_count(own[0])])
    writer.write(methods.steps(config, name), 'eval', **numbers)


def make_problem(config: ml_collections.ConfigDict, loaded: data.Data) -> learner.Problem:
  """What the methods of a run are made for."""
  horizon = config.recipe.points - config.recipe.context
  return learner.Problem(config.recipe.context, horizon, loaded.train)


def fit(
  run: app.Run,
  name: str,
  network: learner.Network,
  writer: metrics.Writer,
  loaded: data.Data,
) -> Any:
  """Trains a network from all seeds; returns averaged parameters with a leading axis of seeds."""
  config = run.config
  optimizer = optimizers.adamw_cosine(config.steps, **fields.varied(config, name).optimizer)
  keys = jax.vmap(jax.random.key)(jnp.arange(config.seed, config.seed + config.num_seeds))
  init_keys, train_keys = jax.vmap(jax.random.split, out_axes=1)(keys)
  decay = config.average

  def init(key):
    params = network.init(key)
    return State(params, params, optimizer.init(params))

  def update(state, batch, key):
    loss, grads = jax.value_and_grad(network.loss)(state.params, batch, key)
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    average = optax.incremental_update(params, state.average, 1.0 - decay)
    return State(params, average, opt_state), {'loss': loss}

  state = jax.jit(jax.vmap(init))(init_keys)
  checkpoints = checkpoint.Checkpoints(run.workdir / name)
  if config.eval_only:
    if (found := checkpoints.restore(state)) is None or found[0] < config.steps:
      raise checkpoint.CheckpointError(f'{run.workdir / name}: not trained to the end')
    return devices.gather(found[1].average)
  validate = validation(network, loaded.valid, config)
  trained = loop.chunks(
    update,
    lambda split, key: data.sample(split, key, config.batch_size, config.flip, config.mix),
    loaded.train,
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
      average = devices.gather(state.average)
      if done and jax.process_index() == 0:
        writer.write(done, 'valid', loss=validate(average))
  return average


def validation(
  network: learner.Network, split: data.Split, config: ml_collections.ConfigDict
) -> Callable[[Any], np.ndarray]:
  """Returns `params -> losses (S,)` on one draw of the validation systems, the same each time."""
  key = jax.random.key(config.seed)
  batch = data.sample(jax.tree.map(jnp.asarray, split), key, config.eval.valid)
  measure = jax.jit(jax.vmap(network.loss, in_axes=(0, None, None)))
  return lambda params: np.asarray(measure(params, batch, key))
