"""How good forecasts are: of each series, of systems, and whether they know what they do not."""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.sysbio_flow import data
from experiments.sysbio_flow.methods import learner
from lib.stats import forecasts
from lib.train import signals

LEVELS = (0.5, 0.8, 0.9, 0.95)
BUCKETS = 3  # of lead times, equally long
BINS = 20  # of ranks
Scores = dict[str, np.ndarray]


SPREADS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0)


def forecaster(
  method: learner.Method, num_samples: int, block: int = 512
) -> Callable[[Any, data.Split, Any, float], Scores]:
  """Returns `score(params, split, key, spread)`, the scores of all series for one seed.

  Samples are first drawn away from their median by the factor `spread`, see `choose_spread`.
  Its arrays: `mae` and `crps` (N, BUCKETS), of the samples' median and of the samples; `energy`
  (N,), the score of whole futures, with root mean squares as norms; and where samples have a spread
  `covered` and `width` (N, K) at LEVELS, and `rank` (N, BINS), the share of lead times by their
  place among the samples.
  """

  @jax.jit
  def scores(params, context, future, key, spread):
    samples = draw(method, params, context, key, num_samples)
    samples = widened(samples, spread)
    by_bucket = lambda x: jnp.mean(x.reshape(len(context), BUCKETS, -1), axis=-1)
    found = {
      'mae': by_bucket(abs(jnp.median(samples, axis=0) - future)),
      'crps': by_bucket(forecasts.crps_samples(samples, future)),
      'energy': jax.lax.map(
        lambda pair: forecasts.energy_score(*pair) / math.sqrt(future.shape[-1]),
        (samples.swapaxes(0, 1), future),
      ),
    }
    if len(samples) > 1:
      levels = jnp.asarray(LEVELS)
      found['covered'] = forecasts.coverage(samples, future, levels).mean(axis=-1).T
      found['width'] = forecasts.width(samples, levels).mean(axis=-1).T
      rank = jnp.clip((forecasts.pit(samples, future, key) * BINS).astype(int), 0, BINS - 1)
      found['rank'] = jax.nn.one_hot(rank, BINS).mean(axis=1)
    return found

  return lambda params, split, key, spread: _blocks(
    functools.partial(scores, params, spread=spread), split, key, block
  )


def draw(
  method: learner.Method, params: Any, context: Any, key: Any, num_samples: int
) -> jax.Array:
  """Samples (S, B, H) of a method, whichever it is; (1, B, H) of one that has no law."""
  if isinstance(method, learner.Network):
    return method.forecast(params, context, key, num_samples)
  return method.forecast(context, key, num_samples)


def widened(samples: Any, spread: Any) -> Any:
  """Samples (S, ...) drawn away from their median by a factor."""
  median = jnp.median(samples, axis=0)
  return median + spread * (samples - median)


def choose_spread(
  method: learner.Method, num_samples: int, block: int = 512
) -> Callable[[Any, data.Split, Any], float]:
  """Returns `choose(params, split, key)`: the spread of SPREADS whose intervals cover best."""

  @jax.jit
  def scores(params, context, future, key):
    samples = draw(method, params, context, key, num_samples)
    ends = jnp.stack(forecasts.central_intervals(samples, jnp.asarray(LEVELS)))
    median = jnp.median(samples, axis=0)
    within = []
    for spread in SPREADS:  # the ends of widened samples are the widened ends
      low, high = median + spread * (ends - median)
      within.append(jnp.mean((low <= future) & (future <= high), axis=-1).T)
    return {'covered': jnp.stack(within, axis=1)}

  def choose(params: Any, split: data.Split, key: Any) -> float:
    found = _blocks(functools.partial(scores, params), split, key, block)['covered']
    covered = by_system(split, found).mean(axis=0)  # (spreads, levels)
    return SPREADS[int(abs(covered - np.array(LEVELS)).mean(axis=1).argmin())]

  return choose


def _blocks(
  scores: Callable[..., dict[str, jax.Array]], split: data.Split, key: Any, block: int
) -> Scores:
  """Scores of all series, block by block."""
  parts = []
  for i, begin in enumerate(range(0, len(split.system), block)):
    rows = np.arange(begin, begin + block) % len(split.system)  # one shape, compiled once
    own = scores(split.context[rows], split.future[rows], jax.random.fold_in(key, i))
    parts.append({name: np.asarray(x) for name, x in own.items()})
    signals.check()
  whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
  return {name: x[: len(split.system)] for name, x in whole.items()}


def by_system(split: data.Split, values: np.ndarray) -> np.ndarray:
  """Means (S, ...) over the series of each system of values (N, ...)."""
  sums = np.add.reduceat(values.astype(np.float64), split.first, axis=0)
  return sums / split.count.reshape(-1, *[1] * (values.ndim - 1))


def summary(split: data.Split, scores: Mapping[str, np.ndarray]) -> dict[str, float]:
  """The numbers of the table: means over systems of means over their series, and medians."""
  of_systems = {name: by_system(split, x) for name, x in scores.items()}
  found = {}
  for name in ('mae', 'crps'):
    whole = of_systems[name].mean(axis=1)
    found[name], found[f'{name}_median'] = float(whole.mean()), float(np.median(whole))
    for i, late in enumerate(of_systems[name].mean(axis=0)):
      found[f'{name}_third_{i + 1}'] = float(late)
  found['energy'] = float(of_systems['energy'].mean())
  if 'covered' in of_systems:
    covered = of_systems['covered'].mean(axis=0)
    found |= {f'coverage_{100 * c:g}': float(x) for c, x in zip(LEVELS, covered, strict=True)}
    found['calibration_error'] = float(abs(covered - np.array(LEVELS)).mean())
    found['width_90'] = float(np.median(of_systems['width'][:, LEVELS.index(0.9)]))
  return found
