"""Gaussians fitted by Rényi divergence: where α leads when the model cannot reach the data.

In one dimension everything is an integral, so that the best single Gaussian for two modes shows the
mathematics without a network.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib import figure

ALPHAS = (0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 2.0, 5.0)
SHOWN = {0.1: '-', 0.5: '--', 1.0: '-', 5.0: '--'}  # and how their lines look
MODES = ((0.7, -2.0, 0.5), (0.3, 2.0, 0.5))  # weight, mean, standard deviation
_STARTS = ((-2.0, 0.5), (0.0, 2.0), (2.0, 0.5))  # the divergence has a minimum at each mode
_STEPS = 2000


class Fit(NamedTuple):
  """The best Gaussian, and its divergence from the data in nats."""

  mean: float
  std: float
  divergence: float


def log_density(x):
  """The log-density of the two modes at points x, of any shape."""
  terms = [
    jnp.log(weight) + jax.scipy.stats.norm.logpdf(x, mean, std) for weight, mean, std in MODES
  ]
  return jax.nn.logsumexp(jnp.stack(terms), axis=0)


def best_gaussian(alpha: float) -> Fit:
  """Minimises D_α(p‖N(μ, σ²)) by gradient descent on quadrature, from several starts."""
  params, values = _descend(alpha, jnp.array([(mean, np.log(std)) for mean, std in _STARTS]))
  best = int(jnp.argmin(values))
  return Fit(float(params[best, 0]), float(jnp.exp(params[best, 1])), float(values[best]))


@jax.jit
def _descend(alpha, starts):
  """Returns where descents from (μ, log σ) (S, 2) end, and the divergences there (S,)."""
  x, spacing = np.linspace(-12.0, 12.0, 1201, retstep=True)  # in float32 the spacing would be off
  log_p = log_density(x)
  log_mass = log_p + np.log(spacing)
  one = alpha == 1

  def divergence(params):
    log_ratio = log_p - jax.scipy.stats.norm.logpdf(x, params[0], jnp.exp(params[1]))
    tilt = jnp.where(one, 1.0, alpha - 1.0)
    renyi = jax.nn.logsumexp(log_mass + tilt * log_ratio) / tilt
    return jnp.where(one, jnp.sum(jnp.exp(log_mass) * log_ratio), renyi)

  optimizer = optax.adam(optax.cosine_decay_schedule(0.05, _STEPS))

  def descend(params):
    def step(carry, _):
      params, state = carry
      updates, state = optimizer.update(jax.grad(divergence)(params), state)
      return (optax.apply_updates(params, updates), state), None

    carry = (params, optimizer.init(params))
    params = jax.lax.scan(step, carry, None, _STEPS)[0][0]
    return params, divergence(params)

  return jax.vmap(descend)(starts)


def figure_of_fits() -> figure.Figure:
  """Draws the two modes, the best Gaussian of each order, and their means and widths over α."""
  fits = {alpha: best_gaussian(alpha) for alpha in ALPHAS}
  drawing = figure.Figure(figsize=(9, 3.2), layout='constrained')
  left, right = drawing.subplots(1, 2, width_ratios=(2, 1))
  x = np.linspace(-7.0, 7.0, 1001)
  left.fill_between(x, np.exp(log_density(x)), color='0.85', label='data')
  for number, (alpha, style) in enumerate(SHOWN.items()):
    fit = fits[alpha]
    y = np.exp(-0.5 * ((x - fit.mean) / fit.std) ** 2) / (fit.std * np.sqrt(2 * np.pi))
    left.plot(x, y, style, color=f'C{number}', label=f'α = {alpha:g}')
  left.set(xlabel='x', title='best single Gaussian')
  left.legend(frameon=False, fontsize='small')
  right.plot(ALPHAS, [fit.mean for fit in fits.values()], '.-', label='mean')
  right.plot(ALPHAS, [fit.std for fit in fits.values()], '.-', label='standard deviation')
  right.set(xscale='log', xlabel='α', title='its mean and width')
  right.set_xticks((0.1, 0.3, 1.0, 3.0), ('0.1', '0.3', '1', '3'))
  right.legend(frameon=False, fontsize='small')
  return drawing
