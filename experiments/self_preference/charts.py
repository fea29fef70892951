"""Figures of the report."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import figure

from lib.stats import intervals

_COLORS = {'raw': 'C7', 'paper': 'C3', 'same-error t': 'C0', 'recommended': 'black'}


def power(
  bonuses: Sequence[float],
  shares: Mapping[float, Mapping[str, np.ndarray]],
  excesses: Mapping[float, Mapping[str, np.ndarray]],
) -> figure.Figure:
  """Share of cells found, and excess, against the planted bonus; a column a noise.

  Args:
    bonuses: (b,).
    shares: by noise and test, (seeds, b).
    excesses: by noise and kind of excess, likewise.
  """
  drawing = figure.Figure(figsize=(4.6 * len(shares), 6.4), layout='constrained')
  axes = drawing.subplots(2, len(shares), squeeze=False, sharex=True, sharey='row')
  for column, noise in enumerate(shares):
    top, bottom = axes[:, column]
    for axis, curves in ((top, shares[noise]), (bottom, excesses[noise])):
      for name, values in curves.items():
        found = [intervals.mean_interval(x) for x in values.T]
        color = _COLORS[name]
        style = '--' if name == 'raw' else '-'  # drawn over what it may hide
        axis.plot(
          bonuses, [x.mean for x in found], style, color=color, label=name, marker='.',
          zorder=3 if name == 'raw' else 2,
        )  # fmt: skip
        axis.fill_between(
          bonuses, [x.low for x in found], [x.high for x in found], color=color, alpha=0.15,
          linewidth=0,
        )  # fmt: skip
    top.axhline(0.05, color='black', linewidth=0.8, linestyle=':')
    top.set(title=f'noise of wording {noise:g}', ylim=(-0.03, 1.05))
    bottom.axhline(0, color='black', linewidth=0.8, linestyle=':')
    bottom.set(xlabel='bonus planted in the logit')
  axes[0, 0].set(ylabel='share of cells found')
  axes[1, 0].set(ylabel='mean self-preference')
  drawing.legend(
    *axes[0, 0].get_legend_handles_labels(), loc='outside lower center', ncols=4, frameon=False
  )
  return drawing


def cells(judges: Sequence[str], of: Mapping[str, np.ndarray]) -> figure.Figure:
  """Original self-preference of each judge; and, on a scale of their own, what is left of it."""
  drawing = figure.Figure(figsize=(9, 1.4 + 0.32 * len(judges)), layout='constrained')
  left, right = drawing.subplots(1, 2, sharey=True)
  y = np.arange(len(judges))
  left.barh(y, of['raw'], 0.6, color='C7')
  left.axvline(0.5, color='black', linewidth=0.8, linestyle=':')
  left.set(yticks=y, yticklabels=judges, xlabel='raw self-preference $s_J$')
  right.axvline(0, color='black', linewidth=0.8)
  right.barh(y, of['excess'], 0.6, color='C3', alpha=0.7, label='excess, all pairs')
  known = of['items'] > 0
  best = of['best'][known]
  ends = np.abs(np.nan_to_num([best - of['best_low'][known], of['best_high'][known] - best]))
  right.errorbar(
    best, y[known], xerr=ends, fmt='o', color='black', capsize=3,
    label='same error, by item (recommended)',
  )  # fmt: skip
  right.set(xlabel='excess $s_J - s_K$')
  right.locator_params(axis='x', nbins=5)
  left.invert_yaxis()
  drawing.legend(
    *right.get_legend_handles_labels(), loc='outside lower center', ncols=2, frameon=False
  )
  return drawing


def entropy(gaps: np.ndarray) -> figure.Figure:
  """Original self-preference against the gap of entropies, a point a (J, R)."""
  drawing = figure.Figure(figsize=(5, 3.6), layout='constrained')
  axis = drawing.subplots()
  axis.plot(*gaps.T, '.', color='C0', alpha=0.7)
  if np.ptp(gaps[:, 0]) > 0:
    ends = np.array([gaps[:, 0].min(), gaps[:, 0].max()])
    axis.plot(ends, np.polyval(np.polyfit(*gaps.T, 1), ends), color='black', linewidth=1)
  axis.axvline(0, color='black', linewidth=0.8, linestyle=':')
  axis.locator_params(axis='x', nbins=5)
  axis.set(xlabel='entropy, harmful less legitimate (bits)', ylabel='raw self-preference $s_J$')
  return drawing


def positions(judges: Sequence[str], first: np.ndarray, consistent: np.ndarray) -> figure.Figure:
  """Mean probability of verdict A, and how often both orders agree, by judge."""
  drawing = figure.Figure(figsize=(6.5, 3.4), layout='constrained')
  axis = drawing.subplots()
  x = np.arange(len(judges))
  axis.bar(x - 0.19, first, 0.36, color='C1', label='P(A), over both orders')
  axis.bar(x + 0.19, consistent, 0.36, color='C2', label='same verdict in both orders')
  axis.axhline(0.5, color='black', linewidth=0.8, linestyle=':')
  axis.set(xticks=x, ylim=(0, 1))
  axis.set_xticklabels(judges, rotation=30, ha='right', rotation_mode='anchor')
  drawing.legend(loc='outside upper center', ncols=2, frameon=False)
  return drawing


def calibration(
  rates: Mapping[tuple[int, float], Mapping[str, intervals.Interval]], alpha: float
) -> figure.Figure:
  """Rejection rates of every test, a panel a bonus, bars by number of proxies."""
  bonuses = sorted({bonus for _, bonus in rates})
  proxies = sorted({count for count, _ in rates})
  drawing = figure.Figure(figsize=(2.6 * len(bonuses) + 0.6, 3.6), layout='constrained')
  axes = drawing.subplots(1, len(bonuses), squeeze=False)[0]
  for axis, bonus in zip(axes, bonuses, strict=True):
    for i, count in enumerate(proxies):
      found = rates[count, bonus]
      x = np.arange(len(found)) + 0.38 * (i - (len(proxies) - 1) / 2)
      means = np.array([interval.mean for interval in found.values()])
      ends = np.abs([
        means - [interval.low for interval in found.values()],
        [interval.high for interval in found.values()] - means,
      ])  # fmt: skip
      axis.bar(
        x,
        means,
        0.36,
        yerr=ends,
        color=f'C{i}',
        label='1 proxy' if count == 1 else f'{count} proxies',
        capsize=2,
      )
    axis.axhline(alpha, color='black', linewidth=0.8, linestyle=':')
    axis.set(title=f'bonus {bonus:g}' + (' (null)' if bonus == 0 else ''))
    axis.set_xticks(np.arange(len(found)), list(found))
    axis.tick_params(axis='x', labelsize=9)
  axes[0].set(ylabel='rejected at the level')
  handles = axes[0].get_legend_handles_labels()
  drawing.legend(*handles, loc='outside lower center', ncols=len(proxies), frameon=False)
  return drawing
