"""How often each test finds self-preference that is not there, and that which is."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lib.judging import aggregate, baseline, simulate
from lib.stats import hypotheses

TESTS = ('paper', 't', 'recommended')


def check(config: Any) -> None:
  """Raises a ValueError that names the first bad field."""
  for name in ('datasets', 'num_items', 'num_draws'):
    if not config[name] > 1:
      raise ValueError(f'config.calibration.{name} must be two or more, got {config[name]}.')
  for name in ('difficulty', 'noise'):
    if not config[name] >= 0:
      raise ValueError(f'config.calibration.{name} must not be negative, got {config[name]}.')
  if not config.proxies or min(config.proxies) < 1:
    raise ValueError(f'config.calibration.proxies must be positive, got {config.proxies}.')
  if not config.bonuses or config.bonuses[0] != 0:
    raise ValueError(f'config.calibration.bonuses must begin with 0, got {config.bonuses}.')


def p_values(config: Any, num_proxies: int, bonus: float, seed: int) -> dict[str, np.ndarray]:
  """One-sided p-values of every test on simulated data sets (datasets,)."""
  key = jax.random.fold_in(jax.random.key(seed), num_proxies)
  sizes = config.datasets, config.num_items, num_proxies, config.num_draws
  found = _p_values(key, bonus, config.difficulty, config.noise, *sizes)
  return dict(zip(TESTS, map(np.asarray, found), strict=True))


@functools.partial(jax.jit, static_argnums=(4, 5, 6, 7))
def _p_values(key, bonus, difficulty, noise, datasets: int, items: int, proxies: int, draws: int):
  def one(key):
    votes_key, test_key = jax.random.split(key)
    votes = simulate.simulate_votes(votes_key, items, proxies, difficulty, noise, bonus)
    pairs = aggregate.concat_pairs(*votes, jnp.ones(votes.proxy.shape, bool))
    d = baseline.excess(pairs.s_judge, pairs.s_proxy)
    t = hypotheses.paired_t(d).p_greater
    ks = hypotheses.ks_2samp(pairs.s_judge, pairs.s_proxy).p
    # What `baseline.recommended` tests: one value an item. All errors are the same here.
    means = aggregate.mean_over_proxies(pairs, items)
    flip = hypotheses.sign_flip_test(
      test_key, baseline.excess(means.s_judge, means.s_proxy), means.item, items, draws
    )
    return jnp.maximum(t, ks), t, flip.p_greater

  return jax.lax.map(one, jax.random.split(key, datasets), batch_size=50)
