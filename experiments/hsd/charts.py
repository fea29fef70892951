"""Pictures of predictions: fields on the mesh, their Hodge parts, and their spectra."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import figure, ticker, tri
from mpl_toolkits.mplot3d import art3d

from experiments.hsd import data, evaluate
from experiments.hsd import space as spaces
from experiments.hsd.tasks import record
from lib.hodge import matrices, spectra
from lib.io import npz
from lib.train import app

Values = Mapping[str, Mapping[str, np.ndarray]]  # by method and metric, one number a seed
Pictures = dict[str, tuple[figure.Figure, str]]
SHOWN = 4  # methods of the picture of fields, the best ones
MODES = 60  # of the picture of spectra
_RANGE = 1e-9  # of energies, from the largest one down
_COLORS = ('viridis', 'RdBu_r')  # of sizes, and of values with a sign
_VIEW = (42, -60)  # elevation and azimuth of surfaces in space, in degrees


def draw(run: app.Run, loaded: data.Data, values: Values) -> Pictures:
  """Returns the figures, with a caption each, by file name."""
  task = loaded.task
  found = {
    name: npz.load_npz(run.workdir / name / 'shown.npz')['output'][0, 0].astype(np.float64)
    for name in values
  }
  truth = loaded.test[task.output.name][0]
  best = sorted(values, key=lambda name: values[name]['error'].mean())[:SHOWN]
  pictures = {
    'errors.png': (errors(values), 'Relative errors; circles are means, points are seeds.'),
    'fields.png': (
      fields(task, truth, {name: found[name] for name in best}),
      f'{_quantity(task)} of the first test sample: the truth, the {len(best)} best methods of '
      'the table, and below them the size of their errors on one scale.',
    ),
  }
  if task.output.degree:
    pictures['parts.png'] = (
      hodge_parts(task, truth, found[best[0]], best[0]),
      f'The Hodge parts of the truth and of the error of {best[0]}, same sample.',
    )
  pictures['spectra.png'] = (
    power(task, truth, {name: found[name] for name in best}),
    'Energy of the truth and of errors by eigenvalue of the Hodge Laplacian, same sample.',
  )
  return pictures


def errors(values: Values) -> figure.Figure:
  """Draws the error of each method."""
  drawing = figure.Figure(figsize=(7, 0.32 * len(values) + 1), layout='constrained')
  axis = drawing.subplots()
  names = sorted(values, key=lambda name: -values[name]['error'].mean())
  for place, name in enumerate(names):
    of_seeds = values[name]['error']
    axis.axhline(place, color='0.9', linewidth=1, zorder=0)
    axis.plot(of_seeds.mean(), place, 'o', color='C0', markersize=8, alpha=0.6)
    axis.plot(of_seeds, np.full(len(of_seeds), place), '.', color='0.2', markersize=4)
  axis.set(yticks=range(len(names)), yticklabels=names, xlabel='relative error', xscale='log')
  low, high = axis.get_xlim()
  axis.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if high < 50 * low else (1,)))
  axis.xaxis.set_major_formatter('{x:g}')
  axis.xaxis.set_minor_formatter(ticker.NullFormatter())
  return drawing


def fields(task: record.Task, truth: np.ndarray, found: Mapping[str, np.ndarray]) -> figure.Figure:
  """Draws cochains (n,): the truth and predictions, and the errors below them."""
  drawing, axes = _grid(task, 2, 1 + len(found))
  whole = {'truth': truth, **found}
  scale = _limits(task, list(whole.values()))
  for axis, (name, w) in zip(axes[0], whole.items(), strict=True):
    image = paint(axis, task, w, *scale, _COLORS[_is_signed(task)])
    axis.set_title(name.replace('_', ' '))
  drawing.colorbar(image, ax=axes[0], shrink=0.8)
  gaps = {name: w - truth for name, w in found.items()}
  top = _limits(task, list(gaps.values()))[1]
  axes[1][0].remove()
  star = task.stars[task.output.degree]
  for axis, gap in zip(axes[1][1:], gaps.values(), strict=True):
    image = paint(axis, task, gap, 0, top, 'magma', absolute=True)
    axis.set_title(f'error {evaluate.norm(star, gap) / evaluate.norm(star, truth):.3f}')
  drawing.colorbar(image, ax=axes[1][1:], shrink=0.8)
  return drawing


def hodge_parts(
  task: record.Task, truth: np.ndarray, found: np.ndarray, name: str
) -> figure.Figure:
  """Draws the parts of the truth and of the error."""
  rows = np.stack([truth, found - truth])
  split = evaluate.parts(task, rows)
  drawing, axes = _grid(task, 2, 1 + len(split))
  for i, label in enumerate(('truth', f'error of {name}')):
    line, parts = axes[i], {label: rows[i], **{k: part[i] for k, part in split.items()}}
    scale = _limits(task, list(parts.values()))
    for axis, (part, v) in zip(line, parts.items(), strict=True):
      image = paint(axis, task, v, *scale, _COLORS[0])
      axis.set_title(part.replace('_', ' '))
    drawing.colorbar(image, ax=line, shrink=0.8)
  return drawing


def power(task: record.Task, truth: np.ndarray, found: Mapping[str, np.ndarray]) -> figure.Figure:
  """Draws the squared coefficients of cochains over eigenvalues."""
  degree, star = task.output.degree, task.stars[task.output.degree]
  operator = matrices.laplacian(task.complex, task.stars, degree)
  basis = spectra.eigenbasis(operator, star, min(MODES, len(star) - 1))
  drawing = figure.Figure(figsize=(7, 3.4), layout='constrained')
  axis = drawing.subplots()
  x = np.arange(len(basis.values))
  energies = lambda w: (basis.vectors.T @ (star * w)) ** 2
  of_truth = energies(truth)
  axis.bar(x, of_truth, width=0.9, color='0.85', label='truth')
  for marker, (name, w) in zip('o+x.', found.items(), strict=False):
    axis.plot(x, energies(w - truth), marker, fillstyle='none', label=f'error of {name}')
  top = of_truth.max()
  axis.set(xlabel='mode, by eigenvalue', ylabel='energy', yscale='log', xlim=(-0.5, len(x) - 0.5))
  axis.set_ylim(_RANGE * top, 3 * top)
  drawing.legend(frameon=False, fontsize='small', loc='outside upper center', ncols=5)
  return drawing


def paint(
  axis, task: record.Task, w: np.ndarray, low: float, high: float, colors: str, absolute=False
):
  """Draws the field of a cochain (n,) on the mesh; of volumes, a half of it."""
  values = spaces.on_host(spaces.to_vertices, task, task.output.degree, w)
  values = values[:, 0] if _is_signed(task) and not absolute else _sizes(values)
  axis.set_axis_off()
  if task.points.shape[1] == 2:
    mesh = tri.Triangulation(*task.points.T, task.complex.faces)
    image = axis.tripcolor(
      mesh, values, shading='gouraud', cmap=colors, vmin=low, vmax=high, rasterized=True
    )
    axis.set_aspect('equal')
    return image
  corners = task.complex.faces if not len(task.complex.tets) else cut(task)
  image = art3d.Poly3DCollection(task.points[corners], cmap=colors, linewidth=0, antialiased=False)
  image.set_array(values[corners].mean(axis=1))
  image.set_clim(low, high)
  axis.add_collection3d(image)
  span = [(x.min(), x.max()) for x in task.points[corners].reshape(-1, 3).T]
  axis.set(xlim=span[0], ylim=span[1], zlim=span[2])
  axis.set_box_aspect([high - low for low, high in span], zoom=1.3)
  axis.view_init(*_VIEW)
  return image


def cut(task: record.Task) -> np.ndarray:
  """The triangles (n, 3) around those tetrahedra whose middle has y > 0."""
  tets = np.asarray(task.complex.tets)
  kept = tets[task.points[tets].mean(axis=1)[:, 1] > 0]
  faces = kept[:, [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]].reshape(-1, 3)
  _, first, counts = np.unique(
    np.sort(faces, axis=1), axis=0, return_index=True, return_counts=True
  )
  return faces[first[counts == 1]]


def _sizes(values):
  return np.linalg.norm(values, axis=-1)


def _is_signed(task: record.Task) -> bool:
  return task.output.degree == 0


def _limits(task: record.Task, cochains: Sequence[np.ndarray]) -> tuple[float, float]:
  w = np.stack(cochains)
  sizes = _sizes(spaces.on_host(spaces.to_vertices, task, task.output.degree, w))
  high = float(sizes.max())
  return (-high if _is_signed(task) else 0.0), high


def _grid(task: record.Task, rows: int, columns: int) -> tuple[figure.Figure, np.ndarray]:
  drawing = figure.Figure(figsize=(2.6 * columns + 0.6, 2.6 * rows), layout='constrained')
  kind = {} if task.points.shape[1] == 2 else {'projection': '3d'}
  return drawing, drawing.subplots(rows, columns, squeeze=False, subplot_kw=kind)


def _quantity(task: record.Task) -> str:
  sign = 'Value' if _is_signed(task) else 'Size'
  return f'{sign} of `{task.output.name}`'
