"""A regression that trains in microseconds, with momentum, random rows and random noise."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

# numpy's arrays: the import must not start jax's devices
X = np.linspace(-1.0, 1.0, 60, dtype=np.float32).reshape(20, 3) ** 3
DATA = {'x': X, 'y': X @ np.float32([1.0, -2.0, 0.5])}


class State(NamedTuple):
  params: dict[str, chex.Array]
  momentum: dict[str, chex.Array]
  steps: chex.Array


def init(key: chex.PRNGKey) -> State:
  params = {'w': jax.random.uniform(key, (3,)), 'b': jnp.zeros(())}
  return State(params, jax.tree.map(jnp.zeros_like, params), jnp.int32(0))


def sample(data, key: chex.PRNGKey):
  rows = jax.random.bits(key, (8,)) % 20  # compiles faster than randint
  return jax.tree.map(lambda x: x[rows], data)


def step(state: State, batch, key: chex.PRNGKey):
  noise = 0.1 * jax.random.uniform(key, batch['y'].shape)

  def loss_fn(params):
    return ((batch['x'] @ params['w'] + params['b'] + noise - batch['y']) ** 2).mean()

  loss, grads = jax.value_and_grad(loss_fn)(state.params)
  momentum = jax.tree.map(lambda m, g: 0.9 * m + g, state.momentum, grads)
  params = jax.tree.map(lambda p, m: p - 0.05 * m, state.params, momentum)
  return State(params, momentum, state.steps + 1), {'loss': loss, 'noise': noise.mean()}
