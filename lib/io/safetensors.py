"""Host. Models in Hugging Face's layout: config.json and weights in one or several safetensors."""

import os
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import safetensors

from lib.io import json_objects

CONFIG = 'config.json'
WEIGHTS = 'model.safetensors'
INDEX = 'model.safetensors.index.json'
_SUFFIX = '.safetensors'
_DTYPES = {
  'F64': np.float64, 'F32': np.float32, 'F16': np.float16, 'BF16': ml_dtypes.bfloat16,
  'I64': np.int64, 'I32': np.int32, 'I16': np.int16, 'I8': np.int8,
  'U64': np.uint64, 'U32': np.uint32, 'U16': np.uint16, 'U8': np.uint8, 'BOOL': np.bool_,
}  # fmt: skip


class Tensor(NamedTuple):
  """Where a tensor is, and what.

  Attributes:
    file: the file that holds it.
    shape: its sizes.
    kind: the format's name of its type, such as 'BF16'.
  """

  file: pathlib.Path
  shape: tuple[int, ...]
  kind: str


class Directory(NamedTuple):
  """A model's directory.

  Attributes:
    path: where it is.
    config: what config.json holds.
    tensors: the index, by name.
  """

  path: pathlib.Path
  config: dict[str, Any]
  tensors: dict[str, Tensor]


def open_directory(path: str | os.PathLike) -> Directory:
  """Reads a model's config and the index of its tensors, and no tensor.

  Args:
    path: the directory; the weights are in model.safetensors, or else in the files that
      model.safetensors.index.json lists. Pickled weights (.bin, .pt, .pth) are never read.

  Raises:
    OSError: if config.json or the index cannot be opened.
    ValueError: naming the file, and the tensor where one is at fault: malformed JSON or
      safetensors, no such weights, a file that is missing or lies elsewhere, a tensor that is
      missing from its file or that two files hold.
  """
  path = pathlib.Path(path)
  config = json_objects.read_object(path / CONFIG)
  if (path / WEIGHTS).is_file():
    return Directory(path, config, _read_index(path / WEIGHTS))
  if not (path / INDEX).is_file():
    raise ValueError(
      f'{path}: holds neither {WEIGHTS} nor {INDEX}; only safetensors are read, never pickles '
      '(.bin, .pt, .pth), which can run code.'
    )
  where = json_objects.read_object(path / INDEX).get('weight_map')
  if not isinstance(where, dict) or not where:
    raise ValueError(f"{path / INDEX}: 'weight_map' is no object that lists tensors.")
  tensors = {}
  for file in _shards(path, where):
    for name, tensor in _read_index(file).items():
      listed = where.get(name)
      if listed == file.name:
        tensors[name] = tensor
      elif listed is not None:
        raise ValueError(f'{file}: also holds tensor {name!r}, which {INDEX} finds in {listed}.')
  for name, file_name in where.items():
    if name not in tensors:
      raise ValueError(f'{path / file_name}: tensor {name!r} is missing, though {INDEX} lists it.')
  return Directory(path, config, tensors)


def read_tensor(directory: Directory, name: str) -> np.ndarray:
  """Reads a tensor in the type that it is stored in; BF16 gives `ml_dtypes.bfloat16`.

  Raises:
    OSError: if its file cannot be opened.
    ValueError: naming the file and the tensor: there is none of that name, it is of a type that
      NumPy has not (such as F8_E4M3), or its file has changed and is malformed.
  """
  if name not in directory.tensors:
    count = len(directory.tensors)
    raise ValueError(f'{directory.path}: there is no tensor {name!r}; there are {count}.')
  file, shape, kind = directory.tensors[name]
  if kind not in _DTYPES:
    raise ValueError(f'{file}: tensor {name!r} is {kind}; only {", ".join(_DTYPES)} are read.')
  try:
    with safetensors.safe_open(file, 'np') as stream:
      array = stream.get_tensor(name)
  except (safetensors.SafetensorError, ValueError) as error:
    raise ValueError(f'{file}: tensor {name!r}: {error}.') from error
  if (array.shape, array.dtype) != (shape, _DTYPES[kind]):
    raise ValueError(
      f'{file}: tensor {name!r} has changed from {kind} {shape} since it was opened.'
    )
  return array


def _shards(path: pathlib.Path, where: Mapping[str, Any]) -> list[pathlib.Path]:
  """Returns the files of an index, each once, after checking that they are in its directory."""
  for name, file_name in where.items():
    if not isinstance(file_name, str) or not file_name.endswith(_SUFFIX):
      raise ValueError(f'{path / INDEX}: tensor {name!r}: {file_name!r} is no {_SUFFIX} file.')
    if file_name != os.path.basename(file_name) or '\0' in file_name or '\\' in file_name:
      raise ValueError(f'{path / INDEX}: tensor {name!r}: {file_name!r} is in another directory.')
  files = [path / file_name for file_name in dict.fromkeys(where.values())]
  for file in files:
    if not file.is_file():
      raise ValueError(f'{file}: is missing, though {INDEX} lists it.')
  return files


def _read_index(file: pathlib.Path) -> dict[str, Tensor]:
  try:
    with safetensors.safe_open(file, 'np') as stream:
      parts = {name: stream.get_slice(name) for name in stream.keys()}  # noqa: SIM118
      return {
        name: Tensor(file, tuple(part.get_shape()), part.get_dtype())
        for name, part in parts.items()
      }
  except safetensors.SafetensorError as error:
    raise ValueError(f'{file}: not a whole safetensors file: {error}.') from error
