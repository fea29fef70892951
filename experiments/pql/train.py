"""PQL from a config to a report: load, train each method in turn, score, compare."""

import functools

import jax
import jax.numpy as jnp
import ml_collections

from experiments.pql import checks, data, evaluate, methods, report
from lib.rl import batches
from lib.train import checkpoint, devices, loop, metrics, signals

SAMPLED = ('observations', 'actions', 'rewards', 'masks', 'next_observations')


def prepare(config: ml_collections.ConfigDict) -> data.Data:
  """Checks the config, then loads or generates the data set."""
  checks.check(config)
  return data.load(config.data)


def train(run, dataset: data.Data) -> None:
  """Trains and scores every method and variant under one budget, then writes the report."""
  with evaluate.scorer(run.config, dataset) as score:
    for name in (*run.config.methods, *run.config.variants):
      train_method(run, name, dataset, score)
  report.write(run, dataset)


def train_method(run, name: str, dataset: data.Data, score) -> None:
  """Trains one method, all seeds at once, in WORKDIR/NAME, and scores it on the way."""
  config = run.config
  method = methods.make(config, name, dataset.spec)
  columns = {column: dataset.train[column] for column in SAMPLED}
  seeds = jnp.arange(config.seed, config.seed + config.num_seeds)
  keys = jax.vmap(jax.random.key)(seeds)
  init_keys, train_keys = jax.vmap(jax.random.split, out_axes=1)(keys)
  workdir = run.workdir / name
