"""What is benchmarked: each case builds a function and its arguments from its config."""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import ml_collections

from lib.nn import mlp


class Case(NamedTuple):
  """A computation to measure.

  Attributes:
    fn: a function that `jax.jit` takes.
    args: its arguments.
  """

  fn: Callable[..., Any]
  args: tuple[Any, ...]


def mlp_gradient(config: ml_collections.ConfigDict) -> Case:
  """Loss and gradient of a regression by a multilayer perceptron.

  Args:
    config: has `batch_size`, `inputs`, `hidden` (a tuple of widths) and `outputs`.

  Returns:
    A function of (params, x, y).
  """
  network = mlp.MLP(hidden=config.hidden, features=config.outputs)
  key_params, key_x, key_y = jax.random.split(jax.random.key(0), 3)
  x = jax.random.normal(key_x, (config.batch_size, config.inputs))
  y = jax.random.normal(key_y, (config.batch_size, config.outputs))

  def loss(params: chex.ArrayTree, x: chex.Array, y: chex.Array) -> chex.Array:
    return ((network.apply(params, x) - y) ** 2).mean()

  return Case(jax.value_and_grad(loss), (jax.jit(network.init)(key_params, x), x, y))


CASES: dict[str, Callable[[ml_collections.ConfigDict], Case]] = {
  'mlp_gradient': mlp_gradient,
}
