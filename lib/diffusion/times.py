"""Traced. Laws of the times at which denoising looks at the diffusion."""

import math

import chex
import jax
import jax.numpy as jnp

from lib.diffusion.sde import SDE


def stratified(key: chex.PRNGKey, shape: tuple[int, ...]) -> chex.Array:
  """Samples u in [0, 1), one in each of K equal strata along the last axis.

  Each is uniform in its stratum, so that a mean over the K is unbiased for a uniform law and varies
  less than with K independent numbers.

  Args:
    key: typed PRNG key.
    shape: (..., K).

  Returns:
    Numbers of `shape`; the k-th lies in [k/K, (k+1)/K], the upper end by rounding alone.
  """
  strata = jnp.arange(shape[-1], dtype=jnp.float32)
  return (strata + jax.random.uniform(key, shape)) / shape[-1]


def uniform_times(sde: SDE, u: chex.Array, start: float) -> chex.Array:
  """Maps uniform u to times start + u (T - start), of the shape of u."""
  check_start(sde, start)
  return start + u * (sde.horizon - start)


def importance_times(sde: SDE, u: chex.Array, start: chex.Numeric) -> chex.Array:
  """Maps uniform u to times of density g²/(σ² Z): the importance sampling of likelihood training.

  With a linear drift g²/σ² is -dλ/dt, so that this law is uniform in the log SNR λ. Song et al.
  (2021), arXiv:2101.09258, give it for VP.

  Args:
    sde: the diffusion.
    u: uniform numbers in [0, 1], of any shape; 0 gives `start`, 1 the horizon.
    start: the earliest time, in (0, T): the density has no finite integral down to 0. It may be
      an array that broadcasts to u, such as a truncation time; only a number is checked.

  Returns:
    Times, of the shape of u.

  Raises:
    ValueError: unless 0 < start < T.
  """
  check_start(sde, start)
  first = sde.log_snr(jnp.asarray(start, jnp.float32))
  # Rounding must not leave the interval, beyond whose ends the network was never trained.
  times = sde.time(first - u * importance_normalizer(sde, start))
  return jnp.clip(times, start, sde.horizon)


def importance_normalizer(sde: SDE, start: chex.Numeric) -> chex.Array:
  """Z = ∫ g²/σ² dt from `start` to T, which is λ(start) - λ(T); `start` may be an array."""
  start = jnp.asarray(start, jnp.float32)
  return sde.log_snr(start) - sde.log_snr(jnp.full_like(start, sde.horizon))


def soft_truncation(sde: SDE, u: chex.Array, start: float, exponent: float = 1.0) -> chex.Array:
  """Maps uniform u to truncation times τ of density ∝ τ^{-k} on [start, T].

  Soft Truncation draws one τ a batch and then trains the likelihood objective on [τ, T]. Kim et al.
  (2022), arXiv:2106.05527.

  Args:
    sde: the diffusion.
    u: uniform numbers in [0, 1], of any shape; 0 gives `start`, 1 the horizon.
    start: the earliest time, in (0, T).
    exponent: k, >= 0.

  Returns:
    Truncation times, of the shape of u.

  Raises:
    ValueError: unless 0 < start < T and k >= 0.
  """
  check_start(sde, start)
  if not exponent >= 0:
    raise ValueError(f'The exponent must not be negative, got {exponent=}.')
  power, width = exponent - 1.0, math.log(sde.horizon / start)
  if abs(power) * width < 1e-7:
    log_ratio = u * width
  else:
    # The inverse of the distribution function (1 - (start/τ)^{k-1}) / (1 - (start/T)^{k-1}).
    log_ratio = -jnp.log1p(u * math.expm1(-power * width)) / power
  # Where the law ends long before T, u = 1 would leave the interval.
  return jnp.clip(start * jnp.exp(log_ratio), start, sde.horizon)


def check_start(sde: SDE, start: chex.Numeric) -> None:
  """Raises ValueError unless the first time, where it is a Python number, lies in (0, T)."""
  if isinstance(start, (int, float)) and not 0 < start < sde.horizon:
    raise ValueError(f'The first time must lie in (0, {sde.horizon}), got {start=}.')
