"""Host. Pictures of results, as matplotlib's figures."""

from collections.abc import Mapping

import numpy as np
from matplotlib import figure
from numpy.typing import ArrayLike


def panels(count: int, width: float, height: float, columns: int) -> tuple[figure.Figure, list]:
  """Returns a figure and its axes, in rows of at most `columns`, each of a size in inches."""
  rows, columns = -(-count // columns), min(columns, count)
  drawing = figure.Figure(figsize=(width * columns, height * rows), layout='constrained')
  found = list(drawing.subplots(rows, columns, squeeze=False).flat)
  for spare in found[count:]:
    spare.remove()
  return drawing, found[:count]


def learning_curves(
  curves: Mapping[str, Mapping[str, Mapping[float, ArrayLike]]],
  columns: int = 3,
  x_label: str = 'updates',
) -> figure.Figure:
  """Draws a panel a metric: the mean over seeds of each method, and each seed thin behind it.

  Args:
    curves: by metric, method and step, one number a seed (S,).
    columns: panels side by side.
    x_label: what steps count.
  """
  names = list(dict.fromkeys(n for ms in sorted(curves.values(), key=len)[::-1] for n in ms))
  drawing, shown = panels(len(curves), 4, 3, columns)
  for (metric, methods), axis in zip(curves.items(), shown, strict=True):
    for method, by_step in methods.items():
      number = names.index(method)  # a method looks the same in all panels
      steps = sorted(by_step)
      values = np.stack([np.atleast_1d(by_step[step]) for step in steps])
      style = {'color': f'C{number % 10}', 'linestyle': '-' if 2 * number < len(names) else '--'}
      axis.plot(steps, values, **style, linewidth=0.7, alpha=0.35)
      axis.plot(steps, values.mean(axis=1), **style, linewidth=2, label=method, marker='.')
    axis.set(title=metric.replace('_', ' '), xlabel=x_label)
  lines = {line.get_label(): line for axis in drawing.axes for line in axis.get_lines()}
  handles, ncols = [lines[name] for name in names], min(4, len(names))
  drawing.legend(handles, names, loc='outside lower center', ncols=ncols, frameon=False)
  return drawing
