"""How often a pool of personas is strictly unanimous: by group, outcomes and weights."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from lib.pooling import pools, welfare
from lib.stats import intervals, tables


def restrict(logp: np.ndarray, count: int) -> np.ndarray:
  """The beliefs (C, n, V) over the `count` outcomes that are likeliest on average, normalised.

  The average over members, so that no member's own list is favoured; 0 keeps all outcomes.
  """
  if not 0 < count < logp.shape[-1]:
    return logp
  mean = np.exp(logp).mean(axis=1)
  chosen = np.argpartition(mean, -count, axis=-1)[:, -count:]
  picked = np.take_along_axis(logp, chosen[:, None], axis=-1)
  return np.asarray(jax.nn.log_softmax(jnp.asarray(picked), axis=-1))


@jax.jit
def least_gap(logp, beta):
  """The smallest welfare gap (C,) in the log pool of members (C, n, K)."""
  return jnp.min(welfare.welfare_gaps(logp, pools.log_pool(logp, beta)), axis=-1)


@jax.jit
def linear_gap(logp, beta):
  """The group's gap (C,) in the linear pool, which is never positive."""
  return welfare.weighted_gap(logp, pools.linear_pool(logp, beta), beta)


@jax.jit
def best_gap(logp, weights):
  """The largest `least_gap` (C,) of two members over weights (W, 2)."""
  return jnp.max(jax.lax.map(lambda beta: least_gap(logp, beta), weights), axis=0)


def rows(
  logp: np.ndarray,
  names: list[str],
  named: tuple[str, ...],
  sizes: tuple[int, ...],
  grid: int,
) -> list[tables.Row]:
  """Counts, in float64, over groups and contexts.

  Args:
    logp: beliefs (C, n, V).
    names: of the members.
    named: members of a group that gets a row of its own.
    sizes: how many outcomes to keep; 0 for all.
    grid: weights of the first member of a pair that are tried.

  Returns:
    For the named group, all pairs, all triples and all members: the share of contexts in which the
    group is strictly unanimous under equal weights, the best of their smallest gaps, and the
    largest group gap of the linear pool; for all pairs also the first two under the best weights.
  """
  members = range(len(names))
  kinds = {'+'.join(named): [tuple(names.index(name) for name in named)]}
  for kind, count in (('pairs', 2), ('triples', 3)):
    kinds[kind] = list(itertools.combinations(members, count))
  if len(names) > 3:
    kinds['all members'] = [tuple(members)]
  first = np.arange(1, grid + 1) / (grid + 1)
  weights = jnp.asarray(np.stack([first, 1 - first], axis=1))
  found = []
  for size in sizes:
    beliefs = restrict(logp, size)
    keys = {'outcomes': size or logp.shape[-1]}
    chosen = lambda group, beliefs=beliefs: jnp.asarray(beliefs[:, list(group)])
    for kind, groups in kinds.items():
      equal = jnp.full(len(groups[0]), 1.0 / len(groups[0]))
      gaps = np.concatenate([least_gap(chosen(group), equal) for group in groups])
      linear = np.concatenate([linear_gap(chosen(group), equal) for group in groups])
      found += _counted(f'{kind}, equal weights', gaps, keys)
      found.append(fact(f'{kind}, equal weights', 'largest_linear_gap', linear, keys))
    gaps = np.concatenate([best_gap(chosen(pair), weights) for pair in kinds['pairs']])
    found += _counted('pairs, best weights', gaps, keys)
  return found


def _counted(name: str, gaps: np.ndarray, keys: dict) -> list[tables.Row]:
  strict = np.asarray(welfare.strictly_unanimous(gaps[:, None]))
  return [share(name, 'strict_share', strict, keys), fact(name, 'largest_gap', gaps, keys)]


def share(method: str, metric: str, holds: np.ndarray, keys: dict) -> tables.Row:
  """A row of a share with Wilson's interval."""
  interval = intervals.proportion_interval(int(holds.sum()), len(holds))
  return tables.row(method, metric, interval, n=len(holds), seeds=1, **keys)


def fact(method: str, metric: str, values: np.ndarray, keys: dict) -> tables.Row:
  """A row of the largest of some values."""
  largest = intervals.Interval(float(values.max()), np.nan, np.nan, 'largest')
  return tables.row(method, metric, largest, n=len(values), seeds=1, **keys)
