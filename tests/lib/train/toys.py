"""A regression that trains in microseconds, with momentum, random rows and a random offset."""

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
  words = jnp.float32(jax.random.key_data(key)) / 2.0**32
  params = {'w': jnp.append(words, 0.5), 'b': jnp.zeros(())}
  return State(params, jax.tree.map(jnp.zeros_like, params), jnp.int32(0))


def sample(data, key: chex.PRNGKey):
  first, stride = jax.random.key_data(key)  # random words by themselves, with nothing to compile
  rows = (first + stride * jnp.arange(8, dtype=jnp.uint32)) % 20
  return jax.tree.map(lambda x: x[rows], data)


def step(state: State, batch, key: chex.PRNGKey):
  noise = jnp.float32(jax.random.key_data(key)[0]) / 2.0**35

  def loss_fn(params):
    return ((batch['x'] @ params['w'] + params['b'] + noise - batch['y']) ** 2).mean()

  loss, grads = jax.value_and_grad(loss_fn)(state.params)
  momentum = jax.tree.map(lambda m, g: 0.9 * m + g, state.momentum, grads)
  params = jax.tree.map(lambda p, m: p - 0.05 * m, state.params, momentum)
  return State(params, momentum, state.steps + 1), {'loss': loss, 'noise': noise}
