"""Traced. Sources of flows to a series' future, made from its past.

In place of N(0, I) a flow may start near its end: from a mixture over the extrapolations of
regimes, or from the posterior of a Gaussian process. Any source is valid, for the flow that is
learnt transports it to the data; a near one has a lower loss (`paths.gaussian_loss`), and needs
fewer steps. Contexts, horizons and times are those of `regimes`.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from lib.flow import regimes

# A covariance function `kernel(s, t) -> (N, M)` of times (N,) and (M,).
Kernel = Callable[[chex.Array, chex.Array], chex.Array]


class Draw(NamedTuple):
  """A sample of a structured source: x_0 (..., H), its mean (..., H) and its regime (...)."""

  x0: chex.Array
  mean: chex.Array
  regime: chex.Array


def lead_scale(context_length: int, horizon: int, s0: float, s1: float) -> np.ndarray:
  """Standard deviations s0 + s1 min(1, s) (H,) that grow with the lead time s of a horizon."""
  return s0 + s1 * np.minimum(1.0, np.arange(1, horizon + 1) / context_length)


def correlated_noise(key: chex.PRNGKey, root: chex.Array) -> chex.Array:
  """Stationary Gaussian noise of unit variance by a fast Fourier transform.

  Dietrich & Newsam (1997): on a circle of 2 H points the covariance is diagonal.

  Args:
    key: typed PRNG key.
    root: (..., H + 1), the square root of the spectrum, such as `regimes.Family.noise`.

  Returns:
    Noise (..., H).
  """
  horizon = root.shape[-1] - 1
  white = jax.random.normal(key, (*root.shape[:-1], 2 * horizon), root.dtype)
  return jnp.fft.irfft(root * jnp.fft.rfft(white), 2 * horizon)[..., :horizon]


def structured_source(
  key: chex.PRNGKey,
  fits: regimes.Fits,
  weights: chex.Array,
  scale: chex.Array,
  families: Sequence[regimes.Family],
) -> Draw:
  """Samples x_0 = μ_r + σ K_r^½ z of a mixture over regimes, r ~ w.

  Args:
    key: typed PRNG key.
    fits: μ and what K depends on; see `regimes.bases`.
    weights: w (..., R), such as `regimes.posterior`; one of them 1 where the regime is given.
    scale: σ (..., H), such as `lead_scale`.
    families: that were fitted.

  Returns:
    The draw, (..., H).
  """
  key_regime, key_noise = jax.random.split(key)
  regime = jax.random.categorical(key_regime, jnp.log(weights))
  pick = lambda x: jnp.take_along_axis(x, regime[..., None], axis=-1)[..., 0]
  mean = jnp.take_along_axis(fits.means, regime[..., None, None], axis=-2)[..., 0, :]
  sizes = [len(family.noise) for family in families]
  first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
  roots = jnp.concatenate([jnp.asarray(family.noise, mean.dtype) for family in families])
  noise = correlated_noise(key_noise, roots[pick(fits.members + first)])
  return Draw(mean + jnp.asarray(scale, mean.dtype) * noise, mean, regime)


def gaussian_source(
  key: chex.PRNGKey, mean: chex.Array, scale: chex.Array, root: chex.Array
) -> chex.Array:
  """Samples x_0 = μ + σ K^½ z, such as of `gp_posterior` with σ = 1.

  With μ = 0, σ = 1 and K = I it is the noise z itself, bit for bit.

  Args:
    key: typed PRNG key of z.
    mean: μ (..., H).
    scale: σ, that broadcasts to it.
    root: K^½ (H, H), such as a Cholesky factor.

  Returns:
    Points (..., H).
  """
  noise = jax.random.normal(key, mean.shape, mean.dtype)
  return mean + scale * _product(noise, root.T)


def iso(s: chex.Array, t: chex.Array) -> chex.Array:
  """White noise, 1 where s = t."""
  return (s[:, None] == t).astype(jnp.result_type(s, jnp.float32))


def squared_exponential(s: chex.Array, t: chex.Array, rate: float) -> chex.Array:
  """exp(-γ (s - t)²)."""
  return jnp.exp(-rate * (s[:, None] - t) ** 2)


def ornstein_uhlenbeck(s: chex.Array, t: chex.Array, rate: float) -> chex.Array:
  """exp(-γ |s - t|)."""
  return jnp.exp(-rate * jnp.abs(s[:, None] - t))


def periodic(s: chex.Array, t: chex.Array, rate: float, frequency: float) -> chex.Array:
  """exp(-γ sin²(π f (s - t)))."""
  return jnp.exp(-rate * jnp.sin(jnp.pi * frequency * (s[:, None] - t)) ** 2)


def gp_posterior(
  context: chex.Array,
  kernel: Kernel,
  times_context: chex.Array,
  times_horizon: chex.Array,
  noise: float = 0.0,
  jitter: float = 1e-4,
) -> tuple[chex.Array, chex.Array]:
  """The posterior of a Gaussian process of mean 0 at a horizon, given a context.

    μ = K_hc (K_cc + ν I)⁻¹ c,  Σ = K_hh - K_hc (K_cc + ν I)⁻¹ K_ch

  Σ does not depend on the context, so that it is factorised once for all. The source of Kollovieh
  et al. (2025), arXiv:2410.03024, with times in units of the season.

  Args:
    context: c (..., L).
    kernel: covariances of times.
    times_context: (L,).
    times_horizon: (H,).
    noise: ν >= 0, the variance of the observations' errors.
    jitter: > 0, added to both diagonals, for rounding; 1e-4 suits float32.

  Returns:
    μ (..., H), and the Cholesky factor (H, H) of Σ. Both are NaN where the jitter is too small.

  Raises:
    ValueError: if the noise is negative or the jitter not positive.
  """
  if not (noise >= 0 and jitter > 0):
    raise ValueError(f'Needs noise >= 0 and jitter > 0, got {noise=}, {jitter=}.')
  chex.assert_shape(times_context, context.shape[-1:])
  inside, across = kernel(times_context, times_context), kernel(times_context, times_horizon)
  prior = kernel(times_horizon, times_horizon)
  diagonal = lambda x, value: x + value * jnp.eye(len(x), dtype=x.dtype)
  root = jnp.linalg.cholesky(diagonal(inside, noise + jitter))
  half = jax.scipy.linalg.solve_triangular(root, across, lower=True)
  gain = jax.scipy.linalg.solve_triangular(root, half, lower=True, trans=1)
  covariance = diagonal(prior - _product(half.T, half), jitter)
  return _product(context, gain), jnp.linalg.cholesky(covariance)


def _product(a: chex.Array, b: chex.Array) -> chex.Array:
  return jnp.matmul(a, b, precision='highest')
