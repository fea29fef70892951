"""Traced. From triplets (judge, proxy, reference) to cells, and from cells to shares."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from lib.judging import categories
from lib.stats import hypotheses


class Pairs(NamedTuple):
  """Pairs of votes (n,), of any number of proxies and references.

  Attributes:
    s_judge: votes for the judge's own answers.
    s_proxy: votes for the proxies' answers.
    item: integers, what item each pair is about.
    mask: booleans, which pairs count.
  """

  s_judge: chex.Array
  s_proxy: chex.Array
  item: chex.Array
  mask: chex.Array


class Selection(NamedTuple):
  """Proxies that have enough items.

  Attributes:
    selected: booleans (proxies,).
    order: integers (proxies,), the selected ones first, those with most harmful items in front.
  """

  selected: chex.Array
  order: chex.Array


def concat_pairs(s_judge: chex.Array, s_proxy: chex.Array, mask: chex.Array) -> Pairs:
  """Lines up the pairs of all proxies (and references); a vote for oneself again for each proxy.

  Args:
    s_judge: votes that broadcast to those of the proxies: (items,) for one reference, or
      (references, 1, items).
    s_proxy: (..., items), such as (proxies, items) or (references, proxies, items).
    mask: (..., items) booleans, which pairs count, such as the harmful ones.

  Returns:
    Pairs, the same item for the same place on the last axis.

  Raises:
    ValueError: if the shapes do not fit.
  """
  shape = np.shape(s_proxy)
  if not shape or np.shape(mask) != shape:
    raise ValueError(f's_proxy and the mask must have one shape, got {shape}, {np.shape(mask)}.')
  item = jnp.broadcast_to(jnp.arange(shape[-1]), shape)
  own = jnp.broadcast_to(jnp.asarray(s_judge), shape)
  return Pairs(*(jnp.ravel(a) for a in (own, s_proxy, item, mask)))


def mean_over_proxies(pairs: Pairs, num_items: int) -> Pairs:
  """One pair an item: the means of its votes, over the pairs that count.

  Args:
    pairs: any.
    num_items: number of items.

  Returns:
    Pairs (num_items,); the mask is False where an item had none, and its votes NaN.

  Raises:
    ValueError: as `hypotheses.cluster_sums`.
  """
  own, other, counts = (
    hypotheses.cluster_sums(v, pairs.item, num_items, pairs.mask)
    for v in (pairs.s_judge, pairs.s_proxy, jnp.ones_like(pairs.s_proxy))
  )
  return Pairs(own / counts, other / counts, jnp.arange(num_items), counts > 0)


def share_significant(
  p: chex.Array, alpha: float = 0.05, weights: chex.Array | None = None
) -> chex.Array:
  """The share of cells with p <= α.

  Args:
    p: (cells,) p-values; NaN is not significant.
    alpha: level, in [0, 1].
    weights: (cells,) >= 0 and not all 0, such as the cells' items; equal by default.

  Returns:
    A share in [0, 1], which grows with α.

  Raises:
    ValueError: if α is not in [0, 1], there is no cell, or the shapes differ.
  """
  if not 0 <= alpha <= 1:
    raise ValueError(f'A level must lie in [0, 1], got {alpha=}.')
  weights = _weights(weights, p=p)
  return jnp.where(jnp.asarray(p) <= alpha, weights, 0.0).sum() / weights.sum()


def mass_removed(
  judge_mean: chex.Array, excess_mean: chex.Array, weights: chex.Array | None = None
) -> chex.Array:
  """The share of self-preference that the baseline explains, 1 - Σ w mean(d) / Σ w mean(s_J).

  The paper's versions word their 89.6 % as the measurement error that could be removed, and as the
  mass covered; this is the definition here. With the cells' numbers of pairs as w it is 1 - Σ d /
  Σ s_J over all pairs. Above 1 the judges vote against themselves; scaling all votes changes
  nothing.

  Args:
    judge_mean: (cells,) mean s_J.
    excess_mean: (cells,) mean d.
    weights: (cells,) w >= 0; equal by default. A cell of weight zero may be NaN.

  Returns:
    The share, at most 1 where d is not negative; NaN if there is no mass.

  Raises:
    ValueError: if there is no cell or the shapes differ.
  """
  weights = _weights(weights, judge_mean=judge_mean, excess_mean=excess_mean)
  kept, mass = (
    jnp.where(weights > 0, weights * jnp.asarray(m), 0.0).sum() for m in (excess_mean, judge_mean)
  )
  return 1 - kept / mass


def select_proxies(category: chex.Array, min_lsp: int = 5, min_ilsp: int = 5) -> Selection:
  """Selects the proxies that have enough legitimate and enough harmful items.

  Args:
    category: (proxies, items) as `categories.categorize` gives, NEITHER where a game is missing.
    min_lsp: legitimate items needed, >= 0.
    min_ilsp: harmful items needed, >= 0.

  Returns:
    The selection, in order of the number of harmful items; of the first proxy first among equals.

  Raises:
    ValueError: if `category` is not a matrix or a number is negative.
  """
  if np.ndim(category) != 2:
    raise ValueError(f'Categories must be (proxies, items), got shape {np.shape(category)}.')
  if min_lsp < 0 or min_ilsp < 0:
    raise ValueError(f'Numbers must not be negative, got {min_lsp=} and {min_ilsp=}.')
  legitimate, harmful = (
    (jnp.asarray(category) == kind).sum(axis=1)
    for kind in (categories.LEGITIMATE, categories.HARMFUL)
  )
  selected = (legitimate >= min_lsp) & (harmful >= min_ilsp)
  return Selection(selected, jnp.argsort(jnp.where(selected, -harmful, 1), stable=True))


def most_robust_proxy(p_greater: chex.Array) -> chex.Array:
  """The proxy that explains most: that with the largest one-sided p-value on harmful items.

  Args:
    p_greater: (..., proxies); NaN for a proxy that does not count.

  Returns:
    Its index (...), the first among equals; 0 where all are NaN.

  Raises:
    ValueError: if there is no proxy.
  """
  if np.ndim(p_greater) < 1 or np.shape(p_greater)[-1] == 0:
    raise ValueError(f'There must be a proxy, got shape {np.shape(p_greater)}.')
  p = jnp.asarray(p_greater)
  return jnp.argmax(jnp.where(jnp.isnan(p), -1.0, p), axis=-1)


def stability_curve(
  key: chex.PRNGKey, d: chex.Array, mask: chex.Array, num_draws: int
) -> chex.Array:
  """The mean excess over pairs of k random proxies, for every k.

  Args:
    key: typed PRNG key.
    d: (proxies, items) excesses.
    mask: (proxies, items) booleans, which pairs count.
    num_draws: orders of the proxies drawn, > 0; the first k of an order are its k.

  Returns:
    (num_draws, proxies): for each order, the mean excess with k = 1, 2, ... proxies; NaN before the
    first pair. The last column is the mean over all pairs.

  Raises:
    ValueError: if the shapes are not those of one matrix, or `num_draws` is not positive.
  """
  if np.ndim(d) != 2 or np.shape(d) != np.shape(mask):
    raise ValueError(f'd and mask must be (proxies, items), got {np.shape(d)}, {np.shape(mask)}.')
  if num_draws < 1:
    raise ValueError(f'There must be at least one draw, got {num_draws=}.')
  sums, counts = jnp.where(mask, d, 0.0).sum(axis=1), jnp.sum(mask, axis=1)
  orders = jax.vmap(lambda k: jax.random.permutation(k, len(d)))(jax.random.split(key, num_draws))
  return jnp.cumsum(sums[orders], axis=1) / jnp.cumsum(counts[orders], axis=1)


def _weights(weights: chex.Array | None, **cells: chex.Array) -> chex.Array:
  """Checks that all are vectors of one length >= 1; returns the weights, ones for None."""
  shape = np.shape(next(iter(cells.values())))
  weights = np.ones(shape, np.float32) if weights is None else weights
  for name, value in (*cells.items(), ('weights', weights)):
    if np.shape(value) != shape or len(shape) != 1 or shape[0] == 0:
      raise ValueError(f'{name} must be a vector with a number a cell, got {np.shape(value)}.')
  return jnp.asarray(weights)
