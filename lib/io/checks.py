"""Host. Checks on arrays that came from a file; every complaint names the file and the array."""

import os
from collections.abc import Mapping

import numpy as np


def check_finite(path: str | os.PathLike, arrays: Mapping[str, np.ndarray]) -> None:
  """Refuses NaN and infinity.

  Args:
    path: where the arrays came from, for the message.
    arrays: numeric arrays by name.

  Raises:
    ValueError: naming the file, the array and the index of the first such value.
  """
  for name, array in arrays.items():
    finite = np.isfinite(array)
    if not finite.all():
      index = tuple(int(i) for i in np.argwhere(~finite)[0])
      raise ValueError(f'{path}: array {name!r} holds {array[index]} at index {index}.')


def check_shapes(
  path: str | os.PathLike,
  arrays: Mapping[str, np.ndarray],
  shapes: Mapping[str, tuple[int | str, ...]],
) -> dict[str, int]:
  """Compares shapes with what is expected of them.

  Args:
    path: where the arrays came from, for the message.
    arrays: arrays by name; others than those in `shapes` are ignored.
    shapes: expected shape by name. A number must agree; a letter stands for one size, the same
      wherever it occurs: `{'x': ('n', 3), 'y': ('n',)}`.

  Returns:
    The size that each letter stood for.

  Raises:
    ValueError: naming the file and the array that is missing or has another shape.
  """
  sizes: dict[str, int] = {}
  for name, expected in shapes.items():
    if name not in arrays:
      raise ValueError(f'{path}: array {name!r} is missing; there are {sorted(arrays)}.')
    shape = arrays[name].shape
    agrees = len(shape) == len(expected) and all(
      size == (sizes.setdefault(want, size) if isinstance(want, str) else want)
      for size, want in zip(shape, expected, strict=True)
    )
    if not agrees:
      known = tuple(sizes.get(want, want) if isinstance(want, str) else want for want in expected)
      wanted = '(' + ', '.join(map(str, known)) + ')'
      raise ValueError(f'{path}: array {name!r} has shape {shape}, expected {wanted}.')
  return sizes
