"""Traced. The evaluator quality baseline: a judge's votes for itself less those for a proxy.

On items that the judge J and a proxy K both failed and the reference R solved, the null hypothesis
is E[s_J] = E[s_K], for whoever cannot solve an item is a poor judge of it. Everything here has
p-values; a cell is significant at α where its p-value is at most α.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from lib.stats import hypotheses


class Verdict(NamedTuple):
  """What a cell's pairs (s_J, s_K) say.

  Attributes:
    judge_mean: mean s_J, the original self-preference.
    judge_std: standard deviation of s_J (with n - 1).
    proxy_mean: mean s_K.
    proxy_std: standard deviation of s_K.
    paired: Student's test of the excess s_J - s_K, whose mean is the corrected self-preference.
    ks: Kolmogorov and Smirnov's test of s_J against s_K.
    correlation: Pearson's, of s_J and s_K.
    effect_dz: Cohen's d of the pairs.
    effect_pooled: Cohen's d with the pooled deviation.
    p_paper: the larger of the one-sided p-value of t and that of `ks`: the paper has a cell keep
      its significance where both are at most α. It takes pairs for independent.
    sign_flip: the excess tested with whole items flipped, which does not.
  """

  judge_mean: chex.Array
  judge_std: chex.Array
  proxy_mean: chex.Array
  proxy_std: chex.Array
  paired: hypotheses.PairedTest
  ks: hypotheses.TwoSampleTest
  correlation: chex.Array
  effect_dz: chex.Array
  effect_pooled: chex.Array
  p_paper: chex.Array
  sign_flip: hypotheses.SignFlipTest


class Recommended(NamedTuple):
  """The analysis to trust: same errors only, one value an item.

  Attributes:
    pairs: how many pairs share their error.
    items: how many items have one.
    judge_mean: mean over items of s_J.
    excess: mean over items of the excess; its interval is [low, high].
    low: lower bound, NaN below two items.
    high: upper bound.
    p_greater: sign-flip p-value against self-preference; 1 with no item, like the next.
    p_two: against self-preference and self-deprecation.
  """

  pairs: chex.Array
  items: chex.Array
  judge_mean: chex.Array
  excess: chex.Array
  low: chex.Array
  high: chex.Array
  p_greater: chex.Array
  p_two: chex.Array


def excess(s_judge: chex.Array, s_proxy: chex.Array) -> chex.Array:
  """The excess d = s_J - s_K (...), in [-1, 1]: what J's votes for J have over those for K."""
  return s_judge - s_proxy


def evaluate_cell(
  key: chex.PRNGKey,
  s_judge: chex.Array,
  s_proxy: chex.Array,
  item: chex.Array,
  num_items: int,
  num_draws: int,
  mask: chex.Array | None = None,
) -> Verdict:
  """The paper's tests of a cell, and the calibrated one beside them.

  Args:
    key: typed PRNG key, of the sign flips.
    s_judge: (n,) votes for J's own answers; an item's vote again for every proxy.
    s_proxy: (n,) votes for the proxies' answers.
    item: integers (n,) in [0, num_items), the item of each pair.
    num_items: number of items.
    num_draws: sign patterns drawn.
    mask: (n,) booleans, which pairs count, such as the harmful ones; all by default.

  Returns:
    The verdict. Votes that are equal pair by pair have t = 0 and all p-values 1; with fewer than
    two pairs t and its p-values, hence `p_paper`, are NaN.

  Raises:
    ValueError: as `hypotheses.sign_flip_test`.
  """
  d = excess(s_judge, s_proxy)
  sign_flip = hypotheses.sign_flip_test(key, d, item, num_items, num_draws, mask)
  paired = hypotheses.paired_t(d, mask)
  ks = hypotheses.ks_2samp(s_judge, s_proxy, mask, mask)
  judge, proxy = (hypotheses.paired_t(s, mask) for s in (s_judge, s_proxy))
  return Verdict(
    judge_mean=judge.mean,
    judge_std=judge.std,
    proxy_mean=proxy.mean,
    proxy_std=proxy.std,
    paired=paired,
    ks=ks,
    correlation=hypotheses.pearson(s_judge, s_proxy, mask),
    effect_dz=hypotheses.cohens_dz(d, mask),
    effect_pooled=hypotheses.cohens_d_pooled(s_judge, s_proxy, mask),
    p_paper=jnp.maximum(paired.p_greater, ks.p),
    sign_flip=sign_flip,
  )


def cell_table(
  key: chex.PRNGKey,
  s_judge: chex.Array,
  s_proxy: chex.Array,
  item: chex.Array,
  num_items: int,
  num_draws: int,
  mask: chex.Array,
) -> Verdict:
  """`evaluate_cell` of many cells, one after the other, so that memory stays that of one.

  Args:
    key: typed PRNG key.
    s_judge: (cells, n).
    s_proxy: (cells, n).
    item: (cells, n) integers in [0, num_items).
    num_items: number of items.
    num_draws: sign patterns drawn per cell.
    mask: (cells, n) booleans; a cell with fewer pairs than n hides the rest.

  Returns:
    Verdicts, with a leading axis of cells.

  Raises:
    ValueError: if the shapes differ, or as `evaluate_cell`.
  """
  shapes = {jnp.shape(a) for a in (s_judge, s_proxy, item, mask)}
  if len(shapes) > 1 or len(next(iter(shapes))) != 2:
    raise ValueError(f'All must have one shape (cells, n), got {sorted(shapes)}.')
  keys = jax.random.split(key, len(s_judge))

  def one(cell):
    cell_key, own, other, items, keep = cell
    return evaluate_cell(cell_key, own, other, items, num_items, num_draws, keep)

  return jax.lax.map(one, (keys, *map(jnp.asarray, (s_judge, s_proxy, item, mask))))


def recommended(
  key: chex.PRNGKey,
  s_judge: chex.Array,
  s_proxy: chex.Array,
  item: chex.Array,
  num_items: int,
  num_draws: int,
  same_error: chex.Array,
  level: float = 0.95,
) -> Recommended:
  """Self-preference where J and K made the same error, with an item as the unit.

  A judge believes its own mistake more than another's, even if it cannot tell who made it; only
  pairs with one mistake leave that out. The excesses of an item's proxies are averaged, the
  averages tested by flipping their signs, and their mean's interval is the bootstrap's over items.

  Args:
    key: typed PRNG key.
    s_judge: (n,) votes for J's own answers.
    s_proxy: (n,) votes for the proxies' answers.
    item: integers (n,) in [0, num_items).
    num_items: number of items.
    num_draws: sign patterns and bootstrap draws.
    same_error: (n,) booleans, the harmful pairs in which K failed like J.
    level: coverage of the interval, in (0, 1).

  Returns:
    The analysis; with no such pair the means and the interval are NaN and the p-values 1.

  Raises:
    ValueError: as `hypotheses.sign_flip_test` and `hypotheses.cluster_bootstrap`.
  """
  flip_key, bootstrap_key = jax.random.split(key)
  sums = lambda values: hypotheses.cluster_sums(values, item, num_items, same_error)
  counts = sums(jnp.ones_like(s_judge))
  present = counts > 0
  of_judge, of_excess = (sums(v) / counts for v in (s_judge, excess(s_judge, s_proxy)))
  unit = jnp.arange(num_items)
  test = hypotheses.sign_flip_test(flip_key, of_excess, unit, num_items, num_draws, present)
  interval = hypotheses.cluster_bootstrap(
    bootstrap_key, of_excess, unit, num_items, num_draws, level, present
  )
  return Recommended(
    pairs=counts.sum().astype(jnp.int32),
    items=present.sum(),
    judge_mean=jnp.where(present, of_judge, 0.0).sum() / present.sum(),
    excess=interval.mean,
    low=interval.low,
    high=interval.high,
    p_greater=test.p_greater,
    p_two=test.p_two,
  )
