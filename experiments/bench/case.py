"""A computation to measure, and the loop of training that several cases are."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import ml_collections

from lib.rl import batches
from lib.train import devices


class Case(NamedTuple):
  """A computation to measure.

  Attributes:
    fn: a function that `jax.jit` takes.
    args: its arguments.
    updates: steps of training in one call, of each seed.
    seeds: seeds that it trains at once.
    unit: what is counted as an update.
    work: operations of one call, where XLA cannot count them.
    traffic: bytes that one call has to read from memory, at least.
    counts: what else one call does, of each seed, by the metric's name.
  """

  fn: Callable[..., Any]
  args: tuple[Any, ...]
  updates: int = 1
  seeds: int = 1
  unit: str = 'update'
  work: float | None = None
  traffic: float | None = None
  counts: dict[str, float] | None = None


def training(method: Any, data: chex.ArrayTree, sizes: ml_collections.ConfigDict) -> Case:
  """The inner loop of training, as the experiments run it.

  Args:
    method: its `init(key) -> state` and `update(state, batch, key) -> (state, metrics)` are of one
      seed.
    data: arrays with a leading axis of rows.
    sizes: `num_seeds`, `updates` (in one call), `batch_size`.

  Returns:
    A function of (states, keys, data), the first two with a leading axis of seeds: a scan over
    updates, in which every seed draws its batch and trains, under `vmap`.
  """
  init_key, train_key = jax.random.split(jax.random.key(0))
  states = jax.jit(jax.vmap(method.init))(jax.random.split(init_key, sizes.num_seeds))
  mesh = devices.mesh(sizes.num_seeds)

  def train(states: chex.ArrayTree, keys: chex.PRNGKey, data: chex.ArrayTree):
    sample = functools.partial(batches.sample_batch, data, batch_size=sizes.batch_size)

    def step(states, index):
      now = jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, index)))(keys)
      batch = devices.constrain_batch(jax.vmap(sample)(now[:, 0]), mesh, seeded=True)
      return jax.vmap(method.update)(states, batch, now[:, 1])

    return jax.lax.scan(step, states, jnp.arange(sizes.updates))

  keys = jax.random.split(train_key, sizes.num_seeds)
  states, keys = devices.place((states, keys), mesh, 'seed')
  args = (states, keys, devices.place(data, mesh))
  return Case(train, args, sizes.updates, sizes.num_seeds)
