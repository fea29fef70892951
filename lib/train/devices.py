"""Host. The mesh of all devices, and where states, data and batches lie on it."""

import math

import chex
import jax
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec


def mesh(num_seeds: int) -> Mesh:
  """Returns all devices as a mesh with axes 'seed' and 'data'.

  Seeds never talk to each other, so that they are spread over as many devices as divide them
  evenly; the batches of a seed share the rest. Raises ValueError unless `num_seeds` is positive.
  """
  if num_seeds <= 0:
    raise ValueError(f'A mesh needs at least one seed, got {num_seeds=}.')
  seeds = math.gcd(jax.device_count(), num_seeds)
  axis_types = (AxisType.Auto, AxisType.Auto)
  return jax.make_mesh((seeds, jax.device_count() // seeds), ('seed', 'data'), axis_types)


def place(tree: chex.ArrayTree, mesh: Mesh, *axes: str) -> chex.ArrayTree:
  """Spreads arrays over the devices by their leading axes; without axes, each device has all."""
  sharding = NamedSharding(mesh, PartitionSpec(*axes))
  return jax.jit(lambda x: x, out_shardings=sharding)(tree)  # device_put knows one host alone


def gather(tree: chex.ArrayTree) -> chex.ArrayTree:
  """Returns arrays that each host holds whole; all hosts must call it together."""
  several = jax.process_count() > 1
  return multihost_utils.process_allgather(tree, tiled=True) if several else tree


def constrain_batch(batch: chex.ArrayTree, mesh: Mesh, seeded: bool) -> chex.ArrayTree:
  """Traced. Spreads batches (S, B, ...), or (B, ...) unless `seeded`, by seed and row.

  What a step computes from the rows follows them. Arrays whose rows do not divide evenly stay whole
  on the devices of their seed.
  """
  lead = ('seed',) if seeded else ()

  def constrain(x):
    splits = x.ndim > len(lead) and x.shape[len(lead)] % mesh.shape['data'] == 0
    spec = PartitionSpec(*lead, 'data') if splits else PartitionSpec(*lead)
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))

  return jax.tree.map(constrain, batch)
