"""Traced. Ensembles of critics with a leading parameter axis."""

from collections.abc import Callable
from typing import Any

import chex
import jax

Params = Any


def ensemble_init(
  init: Callable[..., Params], key: chex.PRNGKey, size: int, *inputs: chex.Array
) -> Params:
  """Draws the parameters of `size` independent networks.

  Args:
    init: `init(key, *inputs) -> params` of one network.
    key: typed PRNG key.
    size: number of members, > 0.
    *inputs: example inputs, as `init` takes them.

  Returns:
    The parameters, every leaf with a leading axis of length `size`.

  Raises:
    ValueError: if `size` is not positive.
  """
  if size <= 0:
    raise ValueError(f'An ensemble needs at least one member, got {size=}.')
  return jax.vmap(lambda k: init(k, *inputs))(jax.random.split(key, size))


def ensemble_apply(
  apply: Callable[..., chex.Array], params: Params, *inputs: chex.Array
) -> chex.Array:
  """Evaluates every member on the same inputs.

  Args:
    apply: `apply(params, *inputs) -> outputs` of one network.
    params: parameters with a leading ensemble axis, from `ensemble_init`.
    *inputs: inputs that all members share.

  Returns:
    Outputs with a leading ensemble axis.
  """
  return jax.vmap(lambda p: apply(p, *inputs))(params)
