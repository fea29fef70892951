"""The theorems as pictures: where unanimity is possible, where it is not, and how open it is."""

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib import figure

from lib.pooling import constructions, pools, welfare

MEMBER = (0.14, 0.85, 0.01)  # of the simplex's picture; its mirror image is a partner that gains
CELLS = 160
SHIFTS = 2_000


def unanimous_region() -> figure.Figure:
  """Partners of one belief over three outcomes, by the smaller of the two gaps, equal weights."""
  first = jnp.log(jnp.asarray(MEMBER))
  line = (np.arange(CELLS) + 0.5) / CELLS
  a, b = np.meshgrid(line, line)
  inside = a + b < 1
  points = np.stack([a, b, 1 - a - b], axis=-1)[inside]
  partners = jnp.log(jnp.asarray(points))
  members = jnp.stack([jnp.broadcast_to(first, partners.shape), partners], axis=1)
  beta = jnp.array([0.5, 0.5])
  gaps = welfare.welfare_gaps(members, pools.log_pool(members, beta)).min(axis=-1)
  linear = welfare.welfare_gaps(members, pools.linear_pool(members, beta)).min(axis=-1)
  drawing = figure.Figure(figsize=(9, 4), layout='constrained')
  for axis, values, title in zip(
    drawing.subplots(1, 2), (gaps, linear), ('log pool', 'linear pool'), strict=True
  ):
    x = points[:, 1] + 0.5 * points[:, 2]
    y = np.sqrt(0.75) * points[:, 2]
    drawn = axis.scatter(x, y, c=values, s=4, cmap='RdBu', vmin=-0.3, vmax=0.3, marker='s')
    gains = np.asarray(values) > 0
    axis.scatter(x[gains], y[gains], s=1, color='black')
    axis.plot(MEMBER[1] + 0.5 * MEMBER[2], np.sqrt(0.75) * MEMBER[2], '*', color='gold', ms=12)
    axis.set(
      title=f'{title}: both gain in {gains.mean():.1%}', aspect='equal', xticks=[], yticks=[]
    )
    for x0, y0, name in ((0, 0, '$o_1$'), (1, 0, '$o_2$'), (0.5, np.sqrt(0.75), '$o_3$')):
      axis.annotate(name, (x0, y0), ha='center', va='bottom' if y0 else 'top')
    axis.spines[:].set_visible(False)
  drawing.colorbar(drawn, ax=drawing.axes, label='smaller gap, nats', shrink=0.8, extend='min')
  return drawing


def binary_impossibility() -> figure.Figure:
  """The smaller gap of two members with two outcomes, the best over weights: never positive."""
  p = np.linspace(0.01, 0.99, 99)
  logit = np.log(p / (1 - p))
  beta = np.linspace(0.05, 0.95, 19)[:, None, None]
  q = 1 / (1 + np.exp(-(beta * logit[:, None] + (1 - beta) * logit[None])))
  gaps = np.minimum(
    constructions.binary_gap(p[:, None], q), constructions.binary_gap(p[None], q)
  ).max(axis=0)
  drawing = figure.Figure(figsize=(5, 4), layout='constrained')
  axis = drawing.subplots()
  drawn = axis.imshow(gaps, origin='lower', extent=(0, 1, 0, 1), cmap='Reds_r', vmax=0)
  axis.set(xlabel='$p_1$', ylabel='$p_2$', title=f'two outcomes: never above {gaps.max():.0e}')
  drawing.colorbar(drawn, label='smaller gap, best weights, nats')
  return drawing


def openness() -> figure.Figure:
  """The smaller gap of a unanimous pool under random tilts, the bound, and the radius it proves."""
  members = jnp.log(jnp.asarray([MEMBER, MEMBER[::-1]]))
  beta = jnp.array([0.5, 0.5])
  gaps = welfare.welfare_gaps(members, pools.log_pool(members, beta))
  radius = float(constructions.openness_radius(members, gaps))
  size_key, sign_key = jax.random.split(jax.random.key(0))
  eta = jnp.geomspace(radius / 10, radius * 100, SHIFTS)
  tilts = eta[:, None, None] * jnp.sign(jax.random.normal(sign_key, (SHIFTS, 2, 3)))
  tilts = tilts * jnp.where(jax.random.bernoulli(size_key, 0.5, (SHIFTS, 1, 1)), 1.0, 0.5)
  tilted = jax.nn.log_softmax(members + tilts, axis=-1)
  smallest = welfare.welfare_gaps(tilted, pools.log_pool(tilted, beta)).min(axis=-1)
  bound = (gaps - constructions.gap_change_bound(members, eta[:, None])).min(axis=-1)
  drawing = figure.Figure(figsize=(5.5, 4), layout='constrained')
  axis = drawing.subplots()
  axis.plot(eta, smallest, '.', ms=3, color='C0', label='random tilts of both members')
  axis.plot(eta, bound, color='C3', label='what the bound allows')
  axis.axvline(radius, color='0.4', linestyle='--', label=f'radius {radius:.4f}')
  axis.axhline(0, color='0.7', linewidth=1)
  axis.set(xscale='log', xlabel=r'size of the tilt $\eta$', ylabel='smaller gap, nats')
  axis.set_ylim(-3 * float(gaps.min()), 3 * float(gaps.min()))
  axis.legend(frameon=False)
  return drawing


PICTURES = {
  'unanimous_region.png': (
    unanimous_region,
    'Three outcomes: partners of the starred belief, coloured by the smaller gap of the two; black '
    'where both gain (Theorem 9), nowhere under the linear pool (Theorem 10).',
  ),
  'binary.png': (
    binary_impossibility,
    'Two outcomes: the smaller gap under the best of 19 weights is never positive (Theorem 8).',
  ),
  'openness.png': (
    openness,
    'Strict unanimity is open (Theorem 17): within the radius no tilt can break it.',
  ),
}
