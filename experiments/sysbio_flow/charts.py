"""Pictures of forecasts, and of whether they know what they do not."""

from typing import Any

import numpy as np
from matplotlib import figure

from experiments.sysbio_flow import data, evaluate
from lib.flow import regimes
from lib.io import npz
from lib.stats import charts
from lib.train import app

Pictures = dict[str, tuple[figure.Figure, str]]


def draw(run: app.Run, split: data.Split, scores: dict[str, Any]) -> Pictures:
  """All pictures of a run, by file, each with its caption."""
  sampled = {name: own for name, own in scores.items() if 'covered' in own}
  pictures = {
    'errors.png': (errors(split, scores), 'The share of systems whose CRPS is below a value.'),
    'horizon.png': (horizon(split, scores), 'CRPS by thirds of the horizon.'),
  }
  if sampled:
    pictures['calibration.png'] = (
      calibration(split, sampled),
      'How often central intervals hold the truth, against how often they should.',
    )
    pictures['ranks.png'] = (
      ranks(split, sampled),
      'The place of the truth among the samples: flat where the spread is right, high at both ends '
      'where it is too small.',
    )
  if (shown := run.workdir / run.config.methods[0] / 'shown.npz').is_file():
    pictures['fans.png'] = (
      fans(**npz.load_npz(shown)),
      f'Forecasts of {run.config.methods[0]}: the median, and intervals of 50 % and 90 %.',
    )
  return pictures


def errors(split: data.Split, scores: dict[str, Any]) -> figure.Figure:
  """Distribution functions over systems."""
  drawing = figure.Figure(figsize=(6, 4), layout='constrained')
  axis = drawing.subplots()
  for i, (name, own) in enumerate(scores.items()):
    crps = np.sort(
      np.mean([evaluate.by_system(split, x).mean(axis=1) for x in own['crps']], axis=0)
    )
    style = '-' if i < 10 else '--'
    axis.step(crps, np.arange(1, len(crps) + 1) / len(crps), style, color=f'C{i % 10}', label=name)
  axis.set(xscale='log', xlabel='CRPS of a system', ylabel='share of systems', ylim=(0, 1))
  axis.set_xlim(left=1e-2)  # a system at rest is forecast exactly by some
  axis.legend(frameon=False, fontsize=8)
  return drawing


def horizon(split: data.Split, scores: dict[str, Any]) -> figure.Figure:
  """Lines over thirds."""
  drawing = figure.Figure(figsize=(6, 4), layout='constrained')
  axis = drawing.subplots()
  for i, (name, own) in enumerate(scores.items()):
    means = np.mean([evaluate.by_system(split, x).mean(axis=0) for x in own['crps']], axis=0)
    style = '-' if i < 10 else '--'
    axis.plot(range(1, len(means) + 1), means, style, color=f'C{i % 10}', marker='.', label=name)
  axis.set(xlabel='third of the horizon', ylabel='CRPS', xticks=range(1, evaluate.BUCKETS + 1))
  axis.legend(frameon=False, fontsize=8)
  return drawing


def calibration(split: data.Split, scores: dict[str, Any]) -> figure.Figure:
  """Coverage against its level."""
  drawing = figure.Figure(figsize=(4.5, 4.5), layout='constrained')
  axis = drawing.subplots()
  axis.plot([0, 1], [0, 1], color='0.7', linewidth=1)
  for i, (name, own) in enumerate(scores.items()):
    covered = np.mean([evaluate.by_system(split, x).mean(axis=0) for x in own['covered']], axis=0)
    style = '-' if i < 10 else '--'
    axis.plot(evaluate.LEVELS, covered, style, color=f'C{i % 10}', marker='.', label=name)
  axis.set(xlabel='asked', ylabel='covered', xlim=(0.45, 1), ylim=(0.25, 1))
  axis.legend(frameon=False, fontsize=8)
  return drawing


def ranks(split: data.Split, scores: dict[str, Any]) -> figure.Figure:
  """Histograms of the probability integral transform."""
  drawing, axes = charts.panels(len(scores), 3, 2.2, 4)
  edges = np.arange(evaluate.BINS) / evaluate.BINS
  for axis, (name, own) in zip(axes, scores.items(), strict=True):
    shares = np.mean([evaluate.by_system(split, x).mean(axis=0) for x in own['rank']], axis=0)
    axis.bar(edges, shares * evaluate.BINS, width=1 / evaluate.BINS, align='edge')
    axis.axhline(1.0, color='0.3', linewidth=1)
    axis.set(title=name, xlim=(0, 1), xlabel='place')
  return drawing


def fans(
  context: np.ndarray, future: np.ndarray, samples: np.ndarray, label: np.ndarray
) -> figure.Figure:
  """A panel a series: what was seen (N, L_c), what came (N, H), and samples (S, N, H)."""
  drawing, axes = charts.panels(len(context), 4, 2.6, 3)
  length = context.shape[1]
  ahead = np.arange(length, length + future.shape[1])
  for i, axis in enumerate(axes):
    for low, high, alpha in ((5, 95, 0.2), (25, 75, 0.35)):
      bounds = np.percentile(samples[:, i], (low, high), axis=0)
      axis.fill_between(ahead, *bounds, color='C0', alpha=alpha, linewidth=0)
    axis.plot(ahead, np.median(samples[:, i], axis=0), color='C0')
    axis.plot(np.arange(length), context[i], color='0.2')
    axis.plot(ahead, future[i], color='0.2', linestyle=':')
    axis.axvline(length - 0.5, color='0.8', linewidth=1)
    axis.set(title=regimes.CLASSES[label[i]], xlabel='point')
  return drawing


def choose_shown(split: data.Split, count: int) -> np.ndarray:
  """Rows of series to look at: of each class in turn, from systems apart."""
  by_class = [np.flatnonzero(split.label == label) for label in range(len(regimes.CLASSES))]
  by_class = [
    rows[np.linspace(0, len(rows) - 1, count).astype(int)] for rows in by_class if len(rows)
  ]
  return np.array([rows[i] for i in range(count) for rows in by_class][:count])
