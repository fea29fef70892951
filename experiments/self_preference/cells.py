"""From votes on single items to cells, and what every test says of each cell."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from lib.io import vote_records
from lib.judging import baseline, categories, votes
from lib.lm import generate
from lib.stats import hypotheses, intervals

LEVELS = {
  'triplet (J, K, R)': ('judge', 'proxy', 'reference'),
  '(J, R)': ('judge', 'reference'),
  'J': ('judge',),
}
_BLOCK, _SMALLEST = 8, 256  # cells at once, and their least size: few programs are compiled
Policy = Callable[[Any], Any]


class Pairs(NamedTuple):
  """Pairs of votes (m,), of any judges, references, proxies and items.

  Attributes:
    example: codes of items.
    judge: codes of models, like the next two.
    reference: whose answer is compared with.
    proxy: whose answer stands for the judge's.
    s_judge: position-averaged votes for the judge's own answer.
    s_proxy: those for the proxy's.
    category: as lib.judging.categories has it.
    same: 1 where both answers are the same error, 0 where not, -1 where nobody knows.
  """

  example: np.ndarray
  judge: np.ndarray
  reference: np.ndarray
  proxy: np.ndarray
  s_judge: np.ndarray
  s_proxy: np.ndarray
  category: np.ndarray
  same: np.ndarray


def from_games(games: vote_records.GamePairs, policy: Policy = votes.keep_ties) -> Pairs:
  """Averages both games of every pair, ties counted by one of lib.judging.votes' policies."""
  own, other = (
    np.asarray(votes.position_average(policy(probs[:, 0]), policy(probs[:, 1])))
    for probs in (games.judge_games, games.proxy_games)
  )
  return Pairs(
    games.example, games.judge, games.reference, games.proxy, own, other, games.category,
    games.same_error,
  )  # fmt: skip


def take(pairs: Pairs, rows: np.ndarray) -> Pairs:
  """Some of the pairs."""
  return Pairs(*(column[rows] for column in pairs))


def harmful(pairs: Pairs, min_ilsp: int = 0, min_lsp: int = 0) -> Pairs:
  """The harmful pairs of those triplets that have as many of them, and of legitimate ones."""
  kept = np.zeros(len(pairs.example), bool)
  for rows in split(pairs, LEVELS['triplet (J, K, R)'])[1]:
    bad, good = (
      (pairs.category[rows] == sort).sum() for sort in (categories.HARMFUL, categories.LEGITIMATE)
    )
    kept[rows] = bad >= min_ilsp and good >= min_lsp
  return take(pairs, kept & (pairs.category == categories.HARMFUL))


def split(pairs: Pairs, columns: Sequence[str]) -> tuple[np.ndarray, list[np.ndarray]]:
  """Divides pairs into cells: their codes (cells, columns), and the rows of each."""
  codes = np.stack([getattr(pairs, name) for name in columns], axis=1)
  if not len(codes):
    return codes, []
  keys, cell = np.unique(codes, axis=0, return_inverse=True)
  order = np.argsort(cell.reshape(-1), kind='stable')
  ends = np.cumsum(np.bincount(cell.reshape(-1)))
  return keys, np.split(order, ends[:-1])


def evaluate(
  pairs: Pairs, rows: Sequence[np.ndarray], num_draws: int, seed: int
) -> dict[str, np.ndarray]:
  """Tests of each cell (cells,), by name; see `_evaluate`."""
  if not rows:
    raise ValueError('There is no harmful item: nobody failed where a reference was right.')
  padded = -(-len(rows) // _BLOCK) * _BLOCK
  width = generate.bucket(max(map(len, rows)), _SMALLEST)
  own, other = np.zeros((2, padded, width), np.float32)
  item = np.zeros((padded, width), np.int32)
  keep, same = np.zeros((2, padded, width), bool)
  for i, cell in enumerate(rows):
    at = slice(len(cell))
    own[i, at], other[i, at], keep[i, at] = pairs.s_judge[cell], pairs.s_proxy[cell], True
    item[i, at] = np.unique(pairs.example[cell], return_inverse=True)[1]
    same[i, at] = pairs.same[cell] == 1
  num_items = generate.bucket(int(item.max()) + 1, _SMALLEST)
  cells = (jax.random.split(jax.random.key(seed), padded), own, other, item, keep, same)
  blocks = []
  for first in range(0, padded, _BLOCK):
    block = [column[first : first + _BLOCK] for column in cells]
    blocks.append(jax.device_get(_evaluate(block, num_items, num_draws)))
  return {name: np.concatenate([b[name] for b in blocks])[: len(rows)] for name in blocks[0]}


@functools.partial(jax.jit, static_argnums=(1, 2))
def _evaluate(cells, num_items: int, num_draws: int) -> dict[str, Any]:
  def one(cell):
    key, own, other, item, keep, same = cell
    verdict_key, key = jax.random.split(key)
    verdict = baseline.evaluate_cell(verdict_key, own, other, item, num_items, num_draws, keep)
    best = baseline.recommended(key, own, other, item, num_items, num_draws, same)
    filtered = hypotheses.paired_t(baseline.excess(own, other), same)
    return {
      'n': verdict.paired.n,
      'raw': verdict.judge_mean,
      # Whether the judge votes for its own wrong answer rather than for the right one.
      'raw_p': hypotheses.paired_t(own - 0.5, keep).p_greater,
      'proxy': verdict.proxy_mean,
      'excess': verdict.paired.mean,
      'std': verdict.paired.std,
      't_p': verdict.paired.p_greater,
      't_p_less': verdict.paired.p_less,
      'ks_p': verdict.ks.p,
      'paper_p': verdict.p_paper,
      'flip_p': verdict.sign_flip.p_greater,
      'flip_p_two': verdict.sign_flip.p_two,
      'correlation': verdict.correlation,
      'dz': verdict.effect_dz,
      'same_n': filtered.n,
      'filtered': filtered.mean,
      'filtered_p': filtered.p_greater,
      'items': best.items,
      'best': best.excess,
      'best_low': best.low,
      'best_high': best.high,
      'best_p': best.p_greater,
      'best_p_two': best.p_two,
    }

  return jax.lax.map(one, cells)


def averaged_p(pairs: Pairs, rows: Sequence[np.ndarray]) -> np.ndarray:
  """One-sided p-values of t, with one pair an item: its votes averaged over proxies."""
  width = generate.bucket(max(map(len, rows)), _SMALLEST)
  d = np.zeros((len(rows), width), np.float32)
  keep = np.zeros((len(rows), width), bool)
  for i, cell in enumerate(rows):
    _, item = np.unique(pairs.example[cell], return_inverse=True)
    excess = pairs.s_judge[cell] - pairs.s_proxy[cell]
    means = np.bincount(item, excess) / np.bincount(item)
    d[i, : len(means)], keep[i, : len(means)] = means, True
  return np.asarray(_t_p(d, keep))


_t_p = jax.jit(jax.vmap(lambda d, keep: hypotheses.paired_t(d, keep).p_greater))


def ratio_interval(
  numerator: np.ndarray, denominator: np.ndarray, example: np.ndarray, draws: int, seed: int
) -> intervals.Interval:
  """Σ numerator / Σ denominator, with an interval from items drawn with replacement."""
  _, item = np.unique(example, return_inverse=True)
  sums = np.stack([np.bincount(item, numerator), np.bincount(item, denominator)])
  count = sums.shape[1]
  method = 'bootstrap of items'
  whole = sums.sum(axis=1)
  mean = float(whole[0] / whole[1])
  if count < 2:
    return intervals.Interval(mean, np.nan, np.nan, method)
  rng = np.random.default_rng(seed)
  weights = rng.multinomial(count, np.full(count, 1 / count), size=draws)
  drawn = weights @ sums.T
  drawn = drawn[drawn[:, 1] > 0]
  low, high = np.quantile(drawn[:, 0] / drawn[:, 1], (0.025, 0.975))
  return intervals.Interval(mean, float(low), float(high), method)


def share(p: np.ndarray, alpha: float) -> intervals.Interval:
  """The share of cells that are significant; NaN, from too few pairs, is not."""
  return intervals.proportion_interval(int((np.asarray(p) <= alpha).sum()), len(p))
