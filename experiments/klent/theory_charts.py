"""Figures of the theory."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib import colors, figure
from numpy.typing import ArrayLike

from experiments.klent.theory_measures import Judged
from lib.stats import charts

_FLOOR = 1e-12  # distances and errors below are rounding
_JOINED = 25  # points of a path with a line between them


class Map(NamedTuple):
  """A game's distances (A, B) over the centres of cells; α goes along the first axis.

  Attributes:
    name: of the game.
    grid: centres of cells along both axes.
    distance: to the equilibrium, of the last strategies.
    coupling: σ at the equilibrium of each α.
    norm: ‖R‖₂.
    largest: end of both axes.
  """

  name: str
  grid: np.ndarray
  distance: np.ndarray
  coupling: ArrayLike
  norm: float
  largest: float


def maps(panels: Sequence[Map]) -> figure.Figure:
  """Images of the last distance, and the boundaries of the conditions."""
  drawing, axes = charts.panels(len(panels), 5, 4, len(panels))
  for axis, panel in zip(axes, panels, strict=True):
    image = axis.imshow(
      np.maximum(panel.distance, _FLOOR).T, origin='lower', cmap='viridis', aspect='equal',
      extent=(0, panel.largest, 0, panel.largest), norm=colors.LogNorm(_FLOOR, 1.0),
    )  # fmt: skip
    a = np.linspace(panel.largest / 1000, panel.largest, 1000)
    limit = panel.norm**2 / 4
    axis.plot(a, (limit / a - a) / 2, color='white', linewidth=2, label='theorem')
    axis.plot(a, limit / a, color='white', linewidth=2, linestyle=':', label='mirror descent')
    exact = (np.square(panel.coupling) / panel.grid - panel.grid) / 2
    axis.plot(panel.grid, exact, color='C3', linewidth=2, linestyle='--', label='exact, local')
    axis.set(
      title=panel.name, xlabel='α, entropy', ylabel='β, KL to the last policy',
      xlim=(0, panel.largest), ylim=(0, panel.largest),
    )  # fmt: skip
  drawing.colorbar(image, ax=axes, label='distance to the equilibrium', shrink=0.9)
  legend = axes[0].legend(loc='upper right', facecolor='0.3', framealpha=0.9)
  for text in legend.get_texts():
    text.set_color('white')
  return drawing


def paths(curves: Mapping[str, np.ndarray]) -> figure.Figure:
  """Curves (T + 1, 2) of both players' first probabilities in the unit square."""
  drawing, axes = charts.panels(len(curves), 4, 4, len(curves))
  for axis, (name, points) in zip(axes, curves.items(), strict=True):
    axis.plot(*points[:_JOINED].T, color='0.7', linewidth=0.8)
    axis.scatter(*points.T, c=np.arange(len(points)) ** 0.5, cmap='Blues', s=9, vmin=-8, zorder=2)
    axis.plot(*points[0], 'o', color='C1', markersize=8, label='start')
    axis.plot(0.5, 0.5, '+', color='C3', markersize=14, markeredgewidth=2, label='equilibrium')
    axis.set(title=name, xlim=(0, 1), ylim=(0, 1), aspect='equal')
    axis.set(xlabel='x, first action of the row', ylabel='y, first action of the column')
  axes[0].legend(loc='lower left', frameon=False)
  return drawing


def rates(found: Mapping[str, Judged]) -> figure.Figure:
  """Measured against exact rates, and relative differences."""
  drawing, (left, right) = charts.panels(2, 5, 4.2, 2)
  for number, (name, judged) in enumerate(found.items()):
    color = f'C{number}'
    for inside in (False, True):
      some = judged.inside == inside
      left.scatter(
        judged.exact[some], judged.rate[some], s=16, edgecolors=color, linewidths=0.7,
        facecolors=color if inside else 'none', label=name if inside else None,
      )  # fmt: skip
    off = np.maximum(np.abs(judged.rate / judged.exact - 1), _FLOOR)
    right.scatter(judged.exact, off, s=10, color=color, linewidths=0)
  ends = [min(judged.exact.min() for judged in found.values()),
          max(judged.exact.max() for judged in found.values())]  # fmt: skip
  left.plot(ends, ends, color='0.5', linewidth=0.8, zorder=0)
  for axis in (left, right):
    axis.axvline(1, color='0.5', linestyle=':', linewidth=1)
    axis.set(xlabel='exact rate √(β² + σ²)/(α + β)', xscale='log', yscale='log')
  left.set(ylabel='measured rate a step')
  right.set(ylabel='relative difference')
  left.scatter([], [], s=16, edgecolors='0.3', facecolors='none', label='no promise')
  left.legend(frameon=False, title='rows × columns', alignment='left')
  return drawing


def learning(
  curves: Mapping[str, Mapping[str, tuple[np.ndarray, np.ndarray]]],
) -> figure.Figure:
  """Exploitability of last and average strategies over steps, a column a game."""
  drawing, axes = charts.panels(2 * len(curves), 3.4, 2.9, len(curves))
  for kind in range(2):
    for column, (name, rules) in enumerate(curves.items()):
      axis = axes[kind * len(curves) + column]
      for number, (rule, both) in enumerate(rules.items()):
        steps = np.unique(np.geomspace(1, len(both[kind]), 300).astype(int))
        shown = np.maximum(both[kind][steps - 1], _FLOOR)
        dashed = '--' if rule == 'moving magnet' else '-'  # it may hide KLENT
        axis.plot(steps, shown, dashed, color=f'C{number}', linewidth=1.3, label=rule)
      axis.set(xscale='log', yscale='log')
      if kind == 0:
        axis.set(title=name)
      else:
        axis.set(xlabel='steps')
      if column == 0:
        axis.set(ylabel=f'exploitability, {("last", "average")[kind]} strategies')
  handles, labels = axes[0].get_legend_handles_labels()
  drawing.legend(handles, labels, loc='outside lower center', ncols=len(labels), frameon=False)
  return drawing


def temperatures(
  curves: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]],
) -> figure.Figure:
  """Exploitability (G, A) of equilibria over α (A,), and its bound (A,), by game."""
  drawing, (axis,) = charts.panels(1, 5.4, 4, 1)
  for number, (name, (alphas, found, bound)) in enumerate(curves.items()):
    if not (found > _FLOOR).any():
      continue  # uniform play at every α
    color = f'C{number}'
    axis.plot(alphas, np.nanmean(found, axis=0), color=color, marker='.', label=name)
    axis.fill_between(
      alphas, np.nanmin(found, axis=0), np.nanmax(found, axis=0), color=color, alpha=0.2,
      linewidth=0,
    )  # fmt: skip
    label = f'its bound α log {round(float(np.exp(bound[0] / alphas[0])))}'
    axis.plot(alphas, bound, color=color, linestyle='--', linewidth=1, label=label)
  axis.set(xscale='log', yscale='log', xlabel='α, in units of payoff', ylabel='exploitability')
  axis.legend(frameon=False)
  return drawing


def trees(curves: Mapping[str, tuple[np.ndarray, float]]) -> figure.Figure:
  """Errors (G, T + 1, H) by height, and c of each panel."""
  drawing, axes = charts.panels(len(curves), 3.8, 3.4, len(curves))
  for axis, (name, (errors, shrink)) in zip(axes, curves.items(), strict=True):
    mean = errors.mean(axis=0)
    depth = mean.shape[1]
    steps = np.arange(len(mean)) if shrink else np.arange(min(len(mean), 2 * depth + 1))
    palette = matplotlib.colormaps['viridis'](np.linspace(0, 0.85, depth))
    for h in range(depth):
      shown = np.maximum(mean[steps, h], 1e-16)
      mark = {} if shrink else {'marker': '.'}
      axis.plot(steps, shown, color=palette[h], label=f'height {h + 1}', **mark)
    if shrink:
      axis.plot(steps, mean[0, 0] * shrink**steps, color='C3', linestyle='--', label='$c^k$')
    axis.set(title=name, yscale='log', xlabel='updates k', ylim=(1e-16, None))
  axes[0].set(ylabel='error of the log policy')
  axes[0].legend(frameon=False)
  return drawing
