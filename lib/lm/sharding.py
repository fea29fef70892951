"""Host. Where parameters and batches lie on a mesh with axes 'data' and 'model', by named rules."""

from collections.abc import Mapping, Sequence

import chex
import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from lib.lm import transformer

# By the last word of a parameter's name, which axis each of its own dimensions is split over: heads
# and the MLP's units over 'model', so that each layer needs two sums over devices.
RULES: Mapping[str, tuple[str | None, ...]] = {
  'embed': ('model', None),
  'head': ('model', None),
  'q': ('model', None),
  'k': ('model', None),
  'v': ('model', None),
  'o': (None, 'model'),
  'gate': ('model', None),
  'up': ('model', None),
  'down': (None, 'model'),
  'q_bias': ('model',),
  'k_bias': ('model',),
  'v_bias': ('model',),
}


def mesh(data: int, model: int, devices: Sequence[jax.Device] | None = None) -> Mesh:
  """Makes a mesh of data × model devices; batches are split over the first axis."""
  axis_types = (AxisType.Auto, AxisType.Auto)
  return jax.make_mesh((data, model), ('data', 'model'), axis_types, devices=devices)


def specs(
  params: transformer.Params, on: Mesh, rules: Mapping[str, tuple[str | None, ...]] = RULES
) -> chex.ArrayTree:
  """Finds the partition of each parameter.

  Args:
    params: of a model, stacked or not; arrays or their shapes.
    on: the mesh.
    rules: by the last word of a name; what has no rule lies on all devices whole, and so does a
      dimension that does not divide evenly.

  Returns:
    A tree of PartitionSpecs as `params`.
  """

  def spec(path, x) -> PartitionSpec:
    names = [str(getattr(key, 'key', getattr(key, 'name', ''))) for key in path]
    own = next((rules[name] for name in reversed(names) if name in rules), ())
    lead = (None,) * (x.ndim - len(own))  # of the stack
    axes = (*lead, *own)
    if len(axes) != x.ndim:
      return PartitionSpec()
    fits = (a is not None and x.shape[i] % on.shape[a] == 0 for i, a in enumerate(axes))
    return PartitionSpec(*(a if fit else None for a, fit in zip(axes, fits, strict=True)))

  return jax.tree_util.tree_map_with_path(spec, params)


def place(params: transformer.Params, on: Mesh, **options) -> transformer.Params:
  """Puts the parameters on the mesh, as `specs` says."""
  shardings = jax.tree.map(
    lambda spec: NamedSharding(on, spec),
    specs(params, on, **options),
    is_leaf=lambda x: isinstance(x, PartitionSpec),
  )
  return jax.device_put(params, shardings)


def place_batch(batch: chex.ArrayTree, on: Mesh) -> chex.ArrayTree:
  """Splits the rows of arrays (B, ...) over the mesh's data axis, which divides B."""
  return jax.device_put(batch, NamedSharding(on, PartitionSpec('data')))
