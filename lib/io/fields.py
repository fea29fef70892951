"""Host. Fields of a config: checks whose complaints name the field and its value, and variants.

`config.methods` lists names: of methods, or of `config.variants`, each of which is a `method` with
other numbers.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
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


def check_methods(
  config: Any, methods: Collection[str], may_vary: Collection[str] | None = None
) -> list[str]:
  """Checks `config.methods` and the methods and sections of `config.variants`.

  Args:
    config: `methods` are names; `variants` are records of a `method` and of what it changes. A
      variant has another name than the methods, or that of its own, whose place it takes.
    methods: what there is.
    may_vary: the sections that a variant may change; anything by default.

  Returns:
    The names that `config.methods` may hold.

  Raises:
    ValueError: naming the first that is unknown, or a section that all methods share.
  """
  if not config.methods:
    raise ValueError('config.methods is empty: there is nothing to train.')
  known = [*dict.fromkeys((*methods, *config.variants))]
  for name in config.methods:
    check_choice('methods', name, known)
  require('methods', config.methods, len({*config.methods}) == len(config.methods), 'each once')
  for name, changes in config.variants.items():
    check_choice(f'variants.{name}.method', changes.get('method'), methods)
    if name in methods and changes.method != name:
      raise ValueError(f'config.variants.{name} has the name of another method.')
    if may_vary is not None and (beyond := set(changes) - {'method', *may_vary}):
      raise ValueError(f'config.variants.{name}: {min(beyond)} is the same for all methods.')
  return known


def check_variants(variants: Iterable[str], check: Callable[[str], None]) -> None:
  """Calls `check(name)` of each variant; its error becomes a ValueError that names the variant."""
  for name in variants:
    try:
      check(name)
    except (ValueError, KeyError, TypeError) as error:
      raise ValueError(f'config.variants.{name}: {error}') from error


def kind(config: Any, name: str) -> str:
  """Returns the method that one of `config.methods` is, or is a variant of."""
  return config.variants[name].method if name in config.variants else name


def varied(config: Any, name: str) -> Any:
  """The config with the fields changed as one of `config.methods` says, if it is a variant."""
  return vary(config, config.variants[name]) if name in config.variants else config


def merged(variant: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
  """A variant with more changes, by section."""
  own = {
    part: {**variant.get(part, {}), **changed} if isinstance(changed, Mapping) else changed
    for part, changed in changes.items()
  }
  return {**variant, **own}


def vary(section: ml_collections.ConfigDict, changes: Any) -> ml_collections.ConfigDict:
  """Returns a copy of a config's section with changes, nested as it is; 'method' is not one.

  Raises KeyError for a field that the section lacks, and TypeError for one of another type.
  """
  changed = ml_collections.ConfigDict(section.to_dict()).lock()
  changed.update({name: x for name, x in changes.to_dict().items() if name != 'method'})
  return changed
