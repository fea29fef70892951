"""Pictures of trained models: their samples, and what α trades."""

import math
from collections.abc import Mapping

import numpy as np
from matplotlib import figure

from experiments.renyi_diffusion.data import Data, ring_centres
from lib.io import fields, npz
from lib.stats import charts, intervals
from lib.train import app

SHOWN = 2000  # points of a scatter
IMAGES = 8  # a side of a grid of images
TRADED = ('nll', 'rare_nll', 'bpd', 'bound_bpd', 'rare_bpd', 'rare_bound_bpd', 'precision',
          'density', 'recall', 'coverage', 'fd_cnn', 'rare_mass')  # fmt: skip
Values = Mapping[str, Mapping[str, np.ndarray]]  # by method and metric, one number a seed
Pictures = dict[str, tuple[figure.Figure, str]]


def draw(run: app.Run, dataset: Data, values: Values) -> Pictures:
  """Returns the figures that suit the data, with a caption each, by file name."""
  orders = {name: x for name in values if (x := order(run.config, name)) is not None}
  samples = {
    name.replace('_', ' ') if name not in orders else f'α = {orders[name]:g}': npz.load_npz(
      run.workdir / name / 'samples.npz'
    )['samples'][0]
    for name in values
  }
  if dataset.levels:
    pictures = {'samples.png': (grids(samples, dataset), 'Samples of seed 0, unselected.')}
  else:
    pictures = {
      'samples.png': (
        scatters(samples, dataset),
        f'Held-out data (grey) and {min(SHOWN, run.config.eval.samples):,} samples of seed 0, '
        'those within 2.6; crosses are the rare modes.',
      )
    }
  if len(orders) > 2:
    pictures['alpha.png'] = (
      over_alpha(values, orders),
      'What α trades: means over seeds with 95 % intervals; α = 1 is maximum likelihood.',
    )
  classes = [m for m in values.get('likelihood', {}) if m.startswith('bpd_class_')]
  if classes and len(values) > 1:
    pictures['classes.png'] = (
      by_class(values, classes, dataset),
      'Bits per dimension of each class, less those of maximum likelihood, paired by seed; the '
      'share of the class falls to the right.',
    )
  return pictures


def order(config, name: str) -> float | None:
  """The α of a method of the sweep: objective A, or maximum likelihood; None of another."""
  changed = fields.varied(config, name)
  same = changed.network.to_dict() == config.network.to_dict()
  kind = fields.kind(config, name)
  if kind == 'likelihood' and same and changed.objective.times == 'importance':
    return 1.0
  plain = changed.objective.to_dict() | {'alpha': 0, 'fraction': 0}
  sweep = config.objective.to_dict() | {'alpha': 0, 'fraction': 0}
  return changed.objective.alpha if kind == 'renyi' and same and plain == sweep else None


def scatters(samples: Mapping[str, np.ndarray], dataset: Data) -> figure.Figure:
  """Draws points of each method over held-out data."""
  drawing, axes = charts.panels(len(samples), 3, 3.1, columns=4)
  rare = ring_centres()[list(dataset.rare)]
  for (name, points), axis in zip(samples.items(), axes, strict=True):
    axis.scatter(*dataset.test[:SHOWN].T, s=2, color='0.8', linewidths=0)
    axis.scatter(*points[:SHOWN].T, s=2, color='C0', alpha=0.5, linewidths=0)
    axis.plot(*rare.T, 'x', color='C3', markersize=6)
    axis.set(title=name, xlim=(-2.6, 2.6), ylim=(-2.6, 2.6), xticks=(), yticks=())
    axis.set_aspect('equal')
  return drawing


def grids(samples: Mapping[str, np.ndarray], dataset: Data) -> figure.Figure:
  """Draws a grid of images of each method."""
  drawing, axes = charts.panels(len(samples), 3, 3.2, columns=4)
  height, width, channels = dataset.shape
  for (name, flat), axis in zip(samples.items(), axes, strict=True):
    side = min(IMAGES, math.isqrt(len(flat)))
    images = np.clip(flat[: side * side] / 2 + 0.5, 0.0, 1.0)
    images = images.reshape(side, side, height, width, channels)
    images = np.pad(images, [(0, 0), (0, 0), (0, 1), (0, 1), (0, 0)], constant_values=0.5)
    whole = images.swapaxes(1, 2).reshape(side * (height + 1), side * (width + 1), channels)
    axis.imshow(whole if channels == 3 else whole[..., 0], cmap='gray', vmin=0, vmax=1)
    axis.set(title=name, xticks=(), yticks=())
  return drawing


def over_alpha(values: Values, orders: Mapping[str, float]) -> figure.Figure:
  """Draws each metric over α with bands, and likelihood against precision."""
  names = sorted(orders, key=orders.__getitem__)
  metrics = [m for m in TRADED if all(m in values[name] for name in names)]
  traded = 'precision' in metrics
  drawing, axes = charts.panels(len(metrics) + traded, 3.2, 2.7, columns=4)
  x = [orders[name] for name in names]
  for metric, axis in zip(metrics, axes, strict=False):
    found = [intervals.mean_interval(values[name][metric]) for name in names]
    axis.fill_between(x, [i.low for i in found], [i.high for i in found], alpha=0.25, linewidth=0)
    axis.plot(x, [i.mean for i in found], marker='.')
    axis.axvline(1.0, color='0.7', linewidth=0.8, zorder=0)
    axis.set(title=metric.replace('_', ' '), xlabel='α', **_scale('y', metric, values, names))
  if traded:
    axis, likelihood = axes[-1], metrics[0]
    for name in names:
      pairs = values[name][likelihood], values[name]['precision']
      axis.plot(*pairs, '.', alpha=0.4, color='C0')
      axis.annotate(f'{orders[name]:g}', [np.mean(pair) for pair in pairs], color='C3')
    axis.set(title='trade-off, a point a seed', xlabel=likelihood, ylabel='precision')
    axis.set(**_scale('x', likelihood, values, names))
  return drawing


def _scale(axis: str, metric: str, values: Values, names: list[str]) -> dict[str, str]:
  """A logarithmic axis for likelihoods of which some are far worse than the others."""
  found = np.concatenate([values[name][metric] for name in names])
  wide = metric.endswith('nll') and found.min() > 0 and found.max() > 10 * found.min()
  return {f'{axis}scale': 'log'} if wide else {}


def by_class(values: Values, classes: list[str], dataset: Data) -> figure.Figure:
  """Draws the gain of each method over maximum likelihood by class."""
  drawing = figure.Figure(figsize=(8, 3.5), layout='constrained')
  axis = drawing.subplots()
  others = [name for name in values if name != 'likelihood']
  order = [k for k in np.argsort(-dataset.shares, kind='stable') if f'bpd_class_{k}' in classes]
  x = np.arange(len(order))
  for number, name in enumerate(others):
    gaps = [
      intervals.paired_interval(
        values[name][f'bpd_class_{k}'], values['likelihood'][f'bpd_class_{k}']
      )
      for k in order
    ]
    means = np.array([gap.mean for gap in gaps])
    spread = [means - [gap.low for gap in gaps], [gap.high for gap in gaps] - means]
    shift = 0.7 * ((number + 0.5) / len(others) - 0.5)
    style = {'fmt': '.', 'color': f'C{number % 10}', 'elinewidth': 1}
    axis.errorbar(x + shift, means, yerr=spread, label=name.replace('_', ' '), **style)
  axis.axhline(0.0, color='0.7', linewidth=0.8, zorder=0)
  labels = [f'{k}\n{100 * dataset.shares[k]:.0f} %' for k in order]
  axis.set(
    xticks=x, xticklabels=labels, xlabel='class and its share', ylabel='difference in bits per dim.'
  )
  drawing.legend(loc='outside right center', frameon=False, fontsize='small')
  return drawing
