"""The networks that pgx publishes as opponents: of its checkpoints, without haiku or unpickling.

Koyamada et al. (2023), arXiv:2303.17503; `pgx.make_baseline_model` is their own reader. Here a
checkpoint is converted once, by `experiments.klent.convert`; arrays keep the names that haiku gave.
"""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import flax.traverse_util
import jax.numpy as jnp
import numpy as np

from lib.io import checks, npz, pickles

# Of a network, by pgx's names; what it has where a checkpoint does not say, and the most.
SIZES = {'num_actions': None, 'num_channels': 128, 'num_layers': 6, 'resnet_v2': True}
_MOST = {'num_actions': 2**20, 'num_channels': 2**16, 'num_layers': 2**10, 'resnet_v2': 1}
_COMMAND = 'python -m experiments.klent.convert'


class _Entry(NamedTuple):
  """The path of an array of a checkpoint here, and its shape there (see `checks.check_shapes`)."""

  path: tuple[str, ...]
  shape: tuple[int | str, ...]


class Model(NamedTuple):
  """A network with its weights.

  Attributes:
    apply: `apply(variables, observation (B, H, W, C)) -> logits (B, A), values (B,)`, of pgx's own
      observation and of the player to move.
    variables: its weights.
    num_actions: A.
    cells: H times W.
    planes: C.
  """

  apply: Callable[[Any, chex.Array], tuple[chex.Array, chex.Array]]
  variables: Any
  num_actions: int
  cells: int
  planes: int


class AZNet(nn.Module):
  """The residual network of pgx's `_create_az_model_v0`, with the averages of its training.

  Its parts have haiku's names, so that a name in a checkpoint is a path here.
  """

  num_actions: int
  num_channels: int
  num_layers: int
  resnet_v2: bool

  @nn.compact
  def __call__(self, observation: chex.Array) -> tuple[chex.Array, chex.Array]:
    """Maps (B, H, W, C) to logits (B, A) and values (B,)."""
    x = _convolution(self.num_channels, 3, 'conv2_d')(observation.astype(jnp.float32))
    if not self.resnet_v2:
      x = nn.relu(_norm('batch_norm')(x))
    for i in range(self.num_layers):
      x = Block(self.num_channels, self.resnet_v2, name=f'block_{i}')(x)
    if self.resnet_v2:
      x = nn.relu(_norm('batch_norm')(x))
    logits = nn.relu(_norm('batch_norm_1')(_convolution(2, 1, 'conv2_d_1')(x)))
    logits = nn.Dense(self.num_actions, name='linear')(logits.reshape(len(x), -1))
    value = nn.relu(_norm('batch_norm_2')(_convolution(1, 1, 'conv2_d_2')(x)))
    value = nn.relu(nn.Dense(self.num_channels, name='linear_1')(value.reshape(len(x), -1)))
    return logits, jnp.tanh(nn.Dense(1, name='linear_2')(value))[:, 0]


class Block(nn.Module):
  """Two convolutions: each after its normalisation (He et al., 2016), or in v1 before it."""

  num_channels: int
  resnet_v2: bool

  @nn.compact
  def __call__(self, x: chex.Array) -> chex.Array:
    """Maps (B, H, W, num_channels) to the same."""
    first, second = (_convolution(self.num_channels, 3, name) for name in ('conv2_d', 'conv2_d_1'))
    before, after = (_norm(name) for name in ('batch_norm', 'batch_norm_1'))
    if self.resnet_v2:
      return x + second(nn.relu(after(first(nn.relu(before(x))))))
    return nn.relu(x + after(second(nn.relu(before(first(x))))))


def _convolution(width: int, size: int, name: str) -> nn.Conv:
  return nn.Conv(width, (size, size), name=name)


def _norm(name: str) -> nn.BatchNorm:
  return nn.BatchNorm(use_running_average=True, epsilon=1e-5, name=name)


def convert(path: str | os.PathLike, out: str | os.PathLike) -> Model:
  """Writes the weights of one of pgx's checkpoints, NAME.ckpt, as an `.npz`, and reads that.

  Raises:
    OSError: if a file cannot be opened or written.
    ValueError: naming the file, and the array where one is at fault: no pickle of plain data, or
      of another network.
  """
  checkpoint = _items(path, 'the whole', pickles.load(path))
  for part in ('args', 'params', 'state'):
    if part not in checkpoint:
      raise ValueError(f'{path}: holds no {part!r}.')
  sizes = _sizes(path, checkpoint['args'])
  arrays: dict[str, np.ndarray] = {}
  for part in ('params', 'state'):
    for module, group in _items(path, part, checkpoint[part]).items():
      for key, array in _items(path, module, group).items():
        if (name := f'{module}/{key}') in arrays:
          raise ValueError(f'{path}: there are two arrays {name!r}.')
        arrays[name] = array
  for norm in {name.rpartition('/~/')[0] for name in _entries(**sizes)} - {''}:
    for unused in ('mean_ema/hidden', 'mean_ema/counter', 'var_ema/hidden', 'var_ema/counter'):
      arrays.pop(f'{norm}/~/{unused}', None)  # training alone reads them
  _check(path, sizes, arrays)
  floats = {name: array.astype(np.float32) for name, array in arrays.items()}
  npz.save_npz(out, {name: np.array(size) for name, size in sizes.items()} | floats)
  return load(out)


def load(path: str | os.PathLike) -> Model:
  """Reads what `convert` has written.

  Raises:
    OSError: if the file cannot be opened.
    ValueError: naming the file, and the array where one is at fault.
  """
  try:
    arrays = npz.load_npz(path)
  except ValueError as error:
    raise ValueError(f'{error} ({_COMMAND} makes such a file of a checkpoint)') from error
  sizes = _sizes(path, {name: arrays.pop(name).tolist() for name in SIZES if name in arrays})
  found = _check(path, sizes, arrays)
  variables = {}
  for name, entry in _entries(**sizes).items():
    array = jnp.asarray(arrays[name], jnp.float32)
    is_norm = entry.path[-2].startswith('batch_norm')  # whose arrays haiku gives four dimensions
    variables[entry.path] = array.reshape(-1) if is_norm else array
  return Model(
    AZNet(**sizes).apply,
    flax.traverse_util.unflatten_dict(variables),
    sizes['num_actions'],
    found['cells'],
    found['planes'],
  )


def of_game(path: str | os.PathLike, shape: tuple[int, ...], num_actions: int) -> Model:
  """Does as `load`, for a game of an observation's shape and a number of actions.

  Raises:
    OSError: if the file cannot be opened.
    ValueError: likewise, or if the network is another game's.
  """
  model = load(path)
  if num_actions != model.num_actions:
    raise ValueError(f'{path}: has {model.num_actions} actions, and the game {num_actions}.')
  if len(shape) != 3 or (shape[0] * shape[1], shape[2]) != (model.cells, model.planes):
    raise ValueError(
      f'{path}: sees {model.cells} cells of {model.planes} planes, and the game shows {shape}.'
    )
  return model


def _items(path: str | os.PathLike, name: str, group: Any) -> dict[str, Any]:
  if type(group) is not dict:
    raise ValueError(f'{path}: {name} is no dictionary.')
  return group


def _sizes(path: str | os.PathLike, args: Any) -> dict[str, Any]:
  """The numbers of SIZES; a ValueError names the first that is missing or out of range."""
  sizes = SIZES | _items(path, 'args', args)
  if surplus := sizes.keys() - SIZES.keys():
    raise ValueError(f'{path}: {min(surplus)!r} is none of {", ".join(SIZES)}.')
  for name, size in sizes.items():
    least = 0 if name in ('resnet_v2', 'num_layers') else 1
    if not isinstance(size, int | np.integer | np.bool_) or not least <= size <= _MOST[name]:
      raise ValueError(f'{path}: {name!r} is not from {least} to {_MOST[name]}.')
  return {name: bool(n) if name == 'resnet_v2' else int(n) for name, n in sizes.items()}


def _check(
  path: str | os.PathLike, sizes: dict[str, Any], arrays: dict[str, np.ndarray]
) -> dict[str, int]:
  """Checks all arrays of a network; returns how many `cells` and `planes` it sees."""
  entries = _entries(**sizes)
  for wrong, problem in (
    (entries.keys() - arrays.keys(), 'is missing'),
    (arrays.keys() - entries.keys(), 'is none of this network'),
  ):
    if wrong:
      raise ValueError(f'{path}: array {min(wrong)!r} {problem}.')
  for name, array in arrays.items():
    if not isinstance(array, np.ndarray) or array.dtype.kind != 'f':
      raise ValueError(f'{path}: {name!r} is no array of floats.')
  found = checks.check_shapes(path, arrays, {name: entry.shape for name, entry in entries.items()})
  if found['twice'] != 2 * found['cells']:
    raise ValueError(
      f"{path}: array 'az_net/linear/w' has {found['twice']} rows, "
      f'expected two for each of {found["cells"]} cells.'
    )
  with np.errstate(over='ignore'):  # what single precision has no number for is found here
    checks.check_finite(path, {name: array.astype(np.float32) for name, array in arrays.items()})
  for name, array in arrays.items():
    if 'var_ema' in name and (array < 0).any():
      raise ValueError(f'{path}: array {name!r} holds a variance below 0.')
  return found


def _entries(
  num_actions: int, num_channels: int, num_layers: int, resnet_v2: bool
) -> dict[str, _Entry]:
  """Every array by haiku's name, which are the same in both versions."""
  del resnet_v2
  width = num_channels
  weights: dict[str, tuple[int | str, ...]] = {
    'conv2_d': (3, 3, 'planes', width),
    'conv2_d_1': (1, 1, width, 2),
    'conv2_d_2': (1, 1, width, 1),
    'linear': ('twice', num_actions),
    'linear_1': ('cells', width),
    'linear_2': (width, 1),
  }
  norms = {'batch_norm': width, 'batch_norm_1': 2, 'batch_norm_2': 1}
  for i in range(num_layers):
    for end in ('', '_1'):
      weights[f'block_{i}/conv2_d{end}'] = (3, 3, width, width)
      norms[f'block_{i}/batch_norm{end}'] = width
  entries = {}
  for module, shape in weights.items():
    path = ('params', *module.split('/'))
    entries[f'az_net/{module}/w'] = _Entry((*path, 'kernel'), shape)
    entries[f'az_net/{module}/b'] = _Entry((*path, 'bias'), shape[-1:])
  for module, size in norms.items():
    for kind, key, ours in (
      ('params', 'scale', 'scale'),
      ('params', 'offset', 'bias'),
      ('batch_stats', '~/mean_ema/average', 'mean'),
      ('batch_stats', '~/var_ema/average', 'var'),
    ):
      path = (kind, *module.split('/'), ours)
      entries[f'az_net/{module}/{key}'] = _Entry(path, (1, 1, 1, size))
  return entries
