"""Host. Checks on the fields of a config; every complaint names the field and its value."""

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import ml_collections


def flatten(config: Any, prefix: str = '') -> dict[str, Any]:
  """Returns a config's values by dotted name: {'a': {'b': 1}} gives 'a.b'."""
  flat: dict[str, Any] = {}
  for name, value in config.items():
    if isinstance(value, (ml_collections.ConfigDict, ml_collections.FrozenConfigDict)):
      flat |= flatten(value, f'{prefix}{name}.')
    else:
      flat[prefix + name] = value
  return flat


def check_ranges(
  flat: Mapping[str, Any],
  positive: Iterable[str] = (),
  not_negative: Iterable[str] = (),
  unit_interval: Iterable[str] = (),
  open_unit_interval: Iterable[str] = (),
) -> None:
  """Raises a ValueError for the first number out of its range; all of them are finite."""
  for name in positive:
    require(name, flat[name], 0 < flat[name] < math.inf, 'positive')
  for name in not_negative:
    require(name, flat[name], 0 <= flat[name] < math.inf, 'zero or more')
  for name in unit_interval:
    require(name, flat[name], 0 <= flat[name] <= 1, 'in [0, 1]')
  for name in open_unit_interval:
    require(name, flat[name], 0 < flat[name] < 1, 'in (0, 1)')


def require(name: str, value: Any, holds: bool, what: str) -> None:
  """Raises a ValueError unless `holds`, a comparison of the value, which NaN never satisfies."""
  if not holds:
    raise ValueError(f'config.{name} must be {what}, got {value}.')


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
  """Raises a ValueError, with what there is, if the value is none of them."""
  if value not in choices:
    raise ValueError(f'config.{name} must be one of {", ".join(choices)}, got {value!r}.')


def check_methods(config: Any, methods: Collection[str], may_vary: Collection[str]) -> list[str]:
  """Checks `config.methods` and the methods and sections of `config.variants`.

  Args:
    config: `methods` are names; `variants` are records of a `method` and of sections with changes.
    methods: what there is.
    may_vary: the sections that a variant may change.

  Returns:
    The names that `config.methods` may hold.

  Raises:
    ValueError: naming the first that is unknown, or a section that all methods share.
  """
  if not config.methods:
    raise ValueError('config.methods is empty: there is nothing to train.')
  known = [*methods, *config.variants]
  for name in config.methods:
    check_choice('methods', name, known)
  require('methods', config.methods, len({*config.methods}) == len(config.methods), 'each once')
  for name, changes in config.variants.items():
    if name in methods:
      raise ValueError(f'config.variants.{name} has the name of a method.')
    check_choice(f'variants.{name}.method', changes.get('method'), methods)
    if beyond := set(changes) - {'method', *may_vary}:
      raise ValueError(f'config.variants.{name}: {min(beyond)} is the same for all methods.')
  return known
