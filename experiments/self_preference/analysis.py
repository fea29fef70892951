"""Everything that pairs of votes say, wherever they come from: tables of one source."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.self_preference import cells
from lib.io import vote_records
from lib.judging import aggregate, categories, entropy, votes
from lib.lm import generate
from lib.stats import intervals, regression, tables

POLICIES = {'keep': votes.keep_ties, 'drop': votes.drop_ties, 'split': votes.split_ties}
_NONE = (np.nan, np.nan)


class Analysis(NamedTuple):
  """What is found.

  Attributes:
    groups: rows of tables, by title.
    by_judge: numbers of `cells.evaluate` by judge, for a figure.
    judges: names of these judges.
    gaps: entropy gap and original self-preference of each (J, R), (cells, 2).
  """

  groups: dict[str, list[tables.Row]]
  by_judge: dict[str, np.ndarray]
  judges: list[str]
  gaps: np.ndarray


def of_pairs(config: Any, pairs: cells.Pairs, names: Sequence[str], source: str) -> Analysis:
  """Tables of one source; a ValueError says that there are no harmful items."""
  chosen = cells.harmful(pairs, config.min_ilsp, config.min_lsp)
  found = {level: _level(config, chosen, columns) for level, columns in cells.LEVELS.items()}
  groups = {'All pairs': overall(config, chosen, source)}
  groups['Share of cells that are significant, by level'] = [
    _row(level, f'share_{name}', cells.share(of[p], config.alpha), len(of['n']), source)
    for level, (_, of) in found.items()
    for name, p in _DECISIONS.items()
  ]
  keys, of = found['J']
  judges = [names[key[0]] for key in keys]
  groups['By judge'] = _by_judge(chosen, of, keys, judges, source, config)
  groups['Proxies of an item: concatenated or averaged'] = _repeated(
    config, chosen, found['(J, R)'][1], source
  )
  groups['Number of proxies'] = _stability(config, chosen, source)
  keys, of = found['triplet (J, K, R)']
  groups['Most robust proxy'] = _robust(keys, of, names, source)
  groups['Another judge on the same answers'] = _other_judges(config, chosen, source)
  groups['Entropy of votes'], gaps = _entropy(pairs, chosen, source)
  return Analysis(groups, found['J'][1], judges, gaps)


def overall(config: Any, chosen: cells.Pairs, source: str) -> list[tables.Row]:
  """Means over all harmful pairs; the interval is over items."""
  d, one = chosen.s_judge - chosen.s_proxy, np.ones(len(chosen.same))
  same, other, known = chosen.same == 1, chosen.same == 0, chosen.same >= 0
  measured = {
    'raw': (chosen.s_judge, one),
    'excess': (d, one),
    'mass_removed': (chosen.s_judge - d, chosen.s_judge),
    'same_error_share': (same, known),
    'same_error_excess': (d * same, same),
    'other_error_excess': (d * other, other),
  }
  rows = []
  for name, parts in measured.items():
    if np.any(parts[1]):
      numerator, denominator = (np.asarray(part, np.float64) for part in parts)
      interval = cells.ratio_interval(
        numerator, denominator, chosen.example, config.num_draws, config.seed
      )
      rows.append(_row('all', name, interval, len(d), source))
  return rows


_DECISIONS = {
  'raw': 'raw_p',
  'paper': 'paper_p',
  't': 't_p',
  't_negative': 't_p_less',
  'sign_flip': 'flip_p',
  'same_error_t': 'filtered_p',
  'recommended': 'best_p',
  'recommended_two_sided': 'best_p_two',
}


def _level(config: Any, chosen: cells.Pairs, columns: Sequence[str]):
  keys, rows = cells.split(chosen, columns)
  return keys, cells.evaluate(chosen, rows, config.num_draws, config.seed)


def _by_judge(chosen, of, keys, judges, source, config) -> list[tables.Row]:
  rows = []
  for i, (key, judge) in enumerate(zip(keys, judges, strict=True)):
    mine = cells.take(chosen, chosen.judge == key[0])
    d, one = mine.s_judge - mine.s_proxy, np.ones(len(mine.same))
    n = int(of['n'][i])
    for name, value in (('raw', mine.s_judge), ('excess', d)):
      interval = cells.ratio_interval(value, one, mine.example, config.num_draws, config.seed)
      rows.append(_row(judge, name, interval, n, source))
    for name, key_ in (
      ('paper_p', 'paper_p'), ('sign_flip_p', 'flip_p'), ('sign_flip_p_two_sided', 'flip_p_two'),
      ('correlation', 'correlation'), ('d_z', 'dz'),
    ):  # fmt: skip
      rows.append(_row(judge, name, _number(of[key_][i]), n, source))
    if of['items'][i]:
      best = intervals.Interval(
        *(float(of[name][i]) for name in ('best', 'best_low', 'best_high')), 'bootstrap of items'
      )
      rows.append(_row(judge, 'recommended_excess', best, int(of['items'][i]), source))
    rows.append(_row(judge, 'recommended_p', _number(of['best_p'][i]), n, source))
  return rows


def _repeated(config, chosen, of, source) -> list[tables.Row]:
  """Repeating an item's vote for every proxy makes t too sure."""
  _, rows = cells.split(chosen, cells.LEVELS['(J, R)'])
  averaged = cells.averaged_p(chosen, rows)
  tests = {
    't, proxies concatenated': of['t_p'],
    't, proxies averaged': averaged,
    'sign flips of items': of['flip_p'],
  }
  found = [
    _row(name, 'share_significant', cells.share(p, config.alpha), len(p), source)
    for name, p in tests.items()
  ]
  for name, p in tests.items():
    tail = np.clip(np.nan_to_num(p, nan=1.0), 1e-4, 1.0)  # what the flips can resolve, about
    found.append(_row(name, 'median_p', _number(np.median(tail)), len(p), source))
  return found


def _stability(config, chosen, source) -> list[tables.Row]:
  """How far the mean excess with k random proxies is from that with all, over (J, R)."""
  distances: dict[int, list[float]] = {}
  _, groups = cells.split(chosen, cells.LEVELS['(J, R)'])
  size = generate.bucket(max(map(len, groups)))
  keys = jax.random.split(jax.random.key(config.seed), len(groups))
  for key, rows in zip(keys, groups, strict=True):
    proxy = np.unique(chosen.proxy[rows], return_inverse=True)[1]
    d, mask = np.zeros((2, proxy.max() + 1, size), np.float32)
    place = np.arange(len(rows))  # the mean over pairs does not ask which item is where
    d[proxy, place], mask[proxy, place] = chosen.s_judge[rows] - chosen.s_proxy[rows], 1
    curve = np.asarray(_curve(key, d, mask > 0, config.stability_draws))
    for k, column in enumerate(np.abs(curve - curve[:, -1:]).T, 1):
      distances.setdefault(k, []).append(float(column.mean()))
  return [
    _row(f'{k} of the proxies', 'distance_from_all', intervals.mean_interval(values), len(values),
         source)
    for k, values in sorted(distances.items())
  ]  # fmt: skip


_curve = jax.jit(aggregate.stability_curve, static_argnums=3)


def _robust(keys, of, names, source) -> list[tables.Row]:
  """Of each judge the proxy with the largest p-value, which explains most, most often."""
  rows = []
  cellwise: dict[tuple[int, int], list[int]] = {}
  for i, (judge, _, reference) in enumerate(keys):
    cellwise.setdefault((judge, reference), []).append(i)
  chosen: dict[int, list[int]] = {}
  for (judge, _), places in cellwise.items():
    best = places[int(aggregate.most_robust_proxy(of['t_p'][places]))]
    chosen.setdefault(judge, []).append(best)
  for judge, places in chosen.items():
    proxies = [int(keys[i][1]) for i in places]
    often = max(sorted(set(proxies)), key=proxies.count)
    method = f'{names[judge]}: {names[often]}'
    share = intervals.proportion_interval(proxies.count(often), len(proxies))
    rows.append(_row(method, 'share_of_references', share, len(proxies), source))
    p = float(np.median([of['t_p'][i] for i in places]))
    rows.append(_row(method, 'median_largest_p', _number(p), len(proxies), source))
    excess = intervals.mean_interval([float(of['excess'][i]) for i in places])
    rows.append(_row(method, 'excess', excess, len(proxies), source))
  return rows


def _other_judges(config, chosen, source) -> list[tables.Row]:
  """Baselines on the same pairs: no proxy but another judge (as DBG), or the gold label."""
  places: dict[tuple[int, int, int], list[float]] = {}
  columns = (chosen.example, chosen.reference, chosen.proxy, chosen.s_proxy)
  for example, reference, author, vote in zip(*columns, strict=True):
    places.setdefault((int(example), int(reference), int(author)), []).append(float(vote))
  found, examples = [], []
  seen = set()
  own = zip(chosen.example, chosen.reference, chosen.judge, chosen.s_judge, strict=True)
  for example, reference, judge, vote in own:
    place = int(example), int(reference), int(judge)
    if place in places and place not in seen:
      found.append((float(vote), float(np.mean(places[place]))))
      examples.append(example)
    seen.add(place)
  if not found:
    return []
  mine, others = np.array(found).T
  one = np.ones(len(mine))
  interval = lambda value: cells.ratio_interval(
    value, one, np.array(examples), config.num_draws, config.seed
  )
  return [
    _row('gold label (0 for a wrong answer)', 'mean_difference', interval(mine), len(mine), source),
    _row('other judges', 'mean_difference', interval(mine - others), len(mine), source),
  ]


def _entropy(pairs, chosen, source) -> tuple[list[tables.Row], np.ndarray]:
  """The gap of entropies of each (J, R), and original self-preference regressed on it."""
  points = []
  keys, groups = cells.split(pairs, cells.LEVELS['(J, R)'])
  kept = {tuple(key) for key in cells.split(chosen, cells.LEVELS['(J, R)'])[0]}
  for key, rows in zip(keys, groups, strict=True):
    own, category = pairs.s_judge[rows], pairs.category[rows]
    both = (category == categories.HARMFUL).any() and (category == categories.LEGITIMATE).any()
    if tuple(key) in kept and both:
      gap = float(_gap(*_padded(own, category)))
      points.append((gap, float(own[category == categories.HARMFUL].mean())))
  gaps = np.array(points).reshape(-1, 2)
  if len(gaps) < 3 or np.ptp(gaps[:, 0]) < 1e-9:
    return [], gaps
  line = regression.linear_regression(*gaps.T)
  n = len(gaps)
  slope = intervals.Interval(line.slope, *line.slope_interval, 't')
  return [
    _row('(J, R)', 'gap_bits', intervals.mean_interval(gaps[:, 0]), n, source),
    _row('(J, R)', 'smallest_gap', _number(gaps[:, 0].min()), n, source),
    _row('(J, R)', 'largest_gap', _number(gaps[:, 0].max()), n, source),
    _row('(J, R)', 'slope_of_raw', slope, n, source),
    _row('(J, R)', 'r_squared', _number(line.r_squared), n, source),
    _row('(J, R)', 'p', _number(line.p_value), n, source),
  ], gaps


_gap = jax.jit(entropy.entropy_gap)


def _padded(own: np.ndarray, category: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Brings votes to a length of few, so that few programs are compiled."""
  more = (0, -len(own) % 1024)
  return np.pad(own, more), np.pad(category, more, constant_values=categories.NEITHER)


def ties(
  config: Any, games: vote_records.GamePairs, source: str, level: str = '(J, R)'
) -> list[tables.Row]:
  """The same cells under each policy of ties."""
  rows = []
  for name, policy in POLICIES.items():
    chosen = cells.harmful(cells.from_games(games, policy), config.min_ilsp, config.min_lsp)
    _, of = _level(config, chosen, cells.LEVELS[level])
    rows += [row | {'method': name} for row in overall(config, chosen, source)
             if row['metric'] in ('raw', 'excess', 'mass_removed')]  # fmt: skip
    share = cells.share(of['paper_p'], config.alpha)
    rows.append(_row(name, 'share_paper', share, len(of['n']), source))
  return rows


def positions(config: Any, games: vote_records.GamePairs, names: Sequence[str], source: str):
  """What a judge's verdicts owe to the order of answers, by judge: rows."""
  rows = []
  harmful = games.category == categories.HARMFUL
  average = cells.from_games(games).s_judge
  agree = [
    np.asarray(votes.swap_consistent(probs[:, 0], probs[:, 1]))
    for probs in (games.judge_games, games.proxy_games)
  ]
  for judge in np.unique(games.judge):
    mine = games.judge == judge
    both = np.concatenate([games.judge_games[mine], games.proxy_games[mine]])
    example = np.concatenate([games.example[mine]] * 2)
    one = np.ones(len(both))
    interval = lambda value, e, w: cells.ratio_interval(
      np.asarray(value, np.float64), w, e, config.num_draws, config.seed
    )
    p_a = both[:, :, 0].mean(axis=1)
    p_b = both[:, :, 1].mean(axis=1)
    consistent = np.concatenate([of[mine] for of in agree])
    measured = {'p_A': p_a, 'p_T': both[:, :, 2].mean(axis=1), 'swap_consistent': consistent}
    for name, value in measured.items():
      rows.append(_row(names[judge], name, interval(value, example, one), len(both), source))
    # A judge that knows positions alone votes half of what it gives to A and B together.
    chosen = mine & harmful
    if chosen.any():
      own = average[chosen]
      flat = float((p_a.mean() + p_b.mean()) / 2)
      ones = np.ones(int(chosen.sum()))
      first = games.judge_games[chosen][:, 0, 0]
      for name, value in (('raw', own), ('raw_less_positions', own - flat), ('raw_game_1', first)):
        found = interval(value, games.example[chosen], ones)
        rows.append(_row(names[judge], name, found, len(ones), source))
  return rows


def _number(value: Any) -> intervals.Interval:
  return intervals.Interval(float(value), *_NONE, 'none')


def _row(method: str, metric: str, interval: intervals.Interval, n: int, source: str) -> tables.Row:
  return tables.row(method, metric, interval, n=n, seeds=1, source=source)
