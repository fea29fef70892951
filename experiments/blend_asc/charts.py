"""Figures of the report."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import figure

from lib.stats import intervals


def errors(
  budgets: Sequence[int], curves: Mapping[str, np.ndarray], sc: np.ndarray, default: str
) -> figure.Figure:
  """Error against budget, and samples of self-consistency for the same error over the budget."""
  drawing = figure.Figure(figsize=(11, 4.2), layout='constrained')
  left, right = drawing.subplots(1, 2)
  for number, (name, values) in enumerate(curves.items()):
    found = [intervals.mean_interval(column) for column in values.T]
    style = {
      'color': 'black' if name == default else f'C{number % 10}',
      'linewidth': 2.5 if name == default else 1.2,
      'linestyle': '-' if number < 10 else '--',
    }
    left.plot(budgets, [x.mean for x in found], label=name, **style)
    left.fill_between(
      budgets, [x.low for x in found], [x.high for x in found], color=style['color'], alpha=0.15,
      linewidth=0,
    )  # fmt: skip
    ratio = values.mean(0) / np.interp(budgets, np.arange(len(sc.T)), sc.mean(0))
    right.plot(budgets, ratio, **style)
  for axis in (left, right):
    axis.set(xscale='log', xlabel='mean samples a question', xticks=budgets, xticklabels=budgets)
    axis.minorticks_off()
  left.set(yscale='log', ylabel='disagreement with the limiting answer')
  right.set(ylabel="error over self-consistency's")
  drawing.legend(*left.get_legend_handles_labels(), loc='outside right center', frameon=False)
  return drawing
