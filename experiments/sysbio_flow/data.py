"""Series of the benchmark as forecasters see them: split by groups of systems, normalised."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.sysbio_flow import benchmark, biomodels
from lib.flow import regimes

SPLITS = ('train', 'valid', 'test')
_GROWTH = 3.0  # the most that a mixture is magnified, for what cancels leaves only errors


class Split(NamedTuple):
  """The series of some systems, those of one after another.

  Attributes:
    context: (N, L_c) float32, what is seen, in units of its own.
    future: (N, H) float32, what is forecast, in the same units.
    system: (N,) int32, index in `Data.systems`, ascending.
    first: (S,) int32, of each system's series.
    count: (S,) int32, how many they are.
    label: (N,) int32, the class of the whole trajectory, of `regimes.CLASSES`.
  """

  context: np.ndarray
  future: np.ndarray
  system: np.ndarray
  first: np.ndarray
  count: np.ndarray
  label: np.ndarray


class Data(NamedTuple):
  """The splits, and what the systems are.

  Attributes:
    train: to learn from.
    valid: to choose by.
    test: to measure.
    systems: of the benchmark.
    failures: why other models have no series, by name.
    facts: for the report.
  """

  train: Split
  valid: Split
  test: Split
  systems: list[dict[str, Any]]
  failures: dict[str, str]
  facts: dict[str, Any]

  @property
  def summary(self) -> str:
    """The facts in one line."""
    return ', '.join(f'{name} {fact}' for name, fact in self.facts.items())


def check(config: Any) -> None:
  """Refuses a config whose data could not be made, without making any."""
  benchmark.recipe(config)
  data = config.data
  for name in ('seconds', 'gigabytes', 'limit'):
    if not data[name] > 0:
      raise ValueError(f'config.data.{name} must be positive, got {data[name]}.')
  for name in ('seed', 'workers', 'models', 'noise'):
    if not data[name] >= 0:
      raise ValueError(f'config.data.{name} must be zero or more, got {data[name]}.')
  for name in ('valid', 'test'):
    if not 0 < data[name] < 1:
      raise ValueError(f'config.data.{name} must be in (0, 1), got {data[name]}.')
  if not data.valid + data.test < 1:
    raise ValueError('config.data: valid and test leave nothing to train on.')


def load(config: Any) -> Data:
  """Builds the benchmark where it is not on disk yet, and splits it.

  Args:
    config: as of `benchmark.build`; `data` has the shares `valid` and `test` of the groups, the
      `noise` of what is observed in units of the context's deviation, and the `limit` of series.

  Returns:
    The data; no group of systems is in two splits.

  Raises:
    ValueError: if a split has no system; and as `benchmark.build`, like OSError and
      ModuleNotFoundError.
  """
  check(config)
  built = benchmark.build(config)
  length, options = config.recipe.context, config.data
  rng = np.random.default_rng(options.seed)
  context, future = normalise(
    built.values[:, :length], built.values[:, length:], options.noise, rng
  )
  kept = (abs(context) <= options.limit).all(axis=1) & (abs(future) <= options.limit).all(axis=1)
  shares = {
    'train': 1.0 - options.valid - options.test,
    'valid': options.valid,
    'test': options.test,
  }
  of_groups = {system['name']: system['group'] for system in built.systems}
  dealt = biomodels.split(of_groups, shares, options.seed)
  where = np.array([dealt[system['name']] for system in built.systems])[built.system]
  labels = _labels(built.values)
  splits = {}
  for name in SPLITS:
    rows = np.flatnonzero(kept & (where == name))
    if not len(rows):
      raise ValueError(f'config.data: {len(built.systems)} systems leave none for {name}.')
    system = built.system[rows]
    _, first, count = np.unique(system, return_index=True, return_counts=True)
    arrays = context[rows], future[rows], system, first, count, labels[rows]
    splits[name] = Split(*(x.astype(np.float32 if x.dtype == float else np.int32) for x in arrays))
  facts = {
    'models': len(built.systems) + len(built.failures),
    'systems': len(built.systems),
    'groups': len(set(of_groups.values())),
    **{name: f'{len(x.count)} systems of {len(x.system):,} series' for name, x in splits.items()},
    'dropped': int((~kept).sum()),
    'origin': built.origin,
  }
  return Data(**splits, systems=built.systems, failures=built.failures, facts=facts)


def normalise(
  context: np.ndarray, future: np.ndarray, noise: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
  """Takes (z - m) / s with m and s of the context alone: its mean, and its deviation + 5 % |mean|.

  Args:
    context: (N, L_c).
    future: (N, H).
    noise: standard deviation of errors of observation, in units of the context's; only contexts
      have them.
    rng: of the errors.

  Returns:
    Both in the new units; those of a forecast are turned back by the same m and s.
  """
  if noise:
    context = context + noise * context.std(axis=1, keepdims=True) * rng.normal(size=context.shape)
  mean, std = context.mean(axis=1, keepdims=True), context.std(axis=1, keepdims=True)
  scale = std + 0.05 * abs(context).mean(axis=1, keepdims=True) + np.finfo(float).tiny
  with np.errstate(over='ignore'):  # of a constant zero that grows, which is dropped
    return (context - mean) / scale, (future - mean) / scale


def sample(
  split: Split, key: Any, size: int, flip: bool = False, mix: float = 0.0
) -> dict[str, Any]:
  """Draws series, each system as likely as any other. Traced.

  Args:
    split: of traced arrays.
    key: typed PRNG key.
    size: B.
    flip: turn each upside down with probability ½.
    mix: probability that a second series is mixed into one, w x + (1 - w) x' with w ~ U(0, 1), as
      another quantity that one might observe; the sum is in the unit of the first one's context.
      TSMixup of Ansari et al. (2024), arXiv:2403.07815.

  Returns:
    `context` (B, L_c) and `future` (B, H).
  """
  key_first, key_second, key_weight, key_mixed = jax.random.split(key, 4)
  length = split.context.shape[1]
  first = _draw(split, key_first, size, flip)
  if mix:
    second = _draw(split, key_second, size, flip)
    weight = jax.random.uniform(key_weight, (size, 1))
    both = weight * first + (1.0 - weight) * second
    both -= both[:, :length].mean(axis=1, keepdims=True)
    spread = lambda x: x[:, :length].std(axis=1, keepdims=True)
    grown = spread(first) / jnp.maximum(spread(both), 1e-6)
    mixed = jax.random.bernoulli(key_mixed, mix, (size, 1)) & (grown > 0) & (grown < _GROWTH)
    inside = abs(grown * both).max(axis=1, keepdims=True) <= abs(split.future).max()
    first = jnp.where(mixed & inside, grown * both, first)
  return {'context': first[:, :length], 'future': first[:, length:]}


def _draw(split: Split, key: Any, size: int, flip: bool) -> jax.Array:
  """Series (B, L_c + H)."""
  key_system, key_row, key_sign = jax.random.split(key, 3)
  system = jax.random.randint(key_system, (size,), 0, len(split.first))
  fraction = jax.random.uniform(key_row, (size,))
  last = split.count[system] - 1
  row = split.first[system] + jnp.minimum(last, (fraction * (last + 1)).astype(jnp.int32))
  sign = jnp.where(jax.random.bernoulli(key_sign, 0.5, (size, 1)), 1.0, -1.0) if flip else 1.0
  return sign * jnp.concatenate([split.context[row], split.future[row]], axis=1)


def _labels(values: np.ndarray) -> np.ndarray:
  """The class of each trajectory (N,), scaled so that float32 holds it."""
  scale = abs(values).max(axis=1, keepdims=True)
  scaled = (values / np.where(scale > 0, scale, 1.0)).astype(np.float32)
  label = jax.jit(functools.partial(jax.lax.map, regimes.label, batch_size=1024))
  return np.asarray(label(scaled))
