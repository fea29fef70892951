"""Traced. Diffusions with a linear drift: dx = a(t) x dt + g(t) dw from data to noise.

Time t runs from data at 0 to noise at T (`lib.flow` runs the other way), where

  x_t = m(t) x_0 + σ(t) ε,  ε ~ N(0, I),  log SNR λ(t) = log m(t)² / σ(t)².

Points are (B, D) and a time beside them is (B, 1). A network that predicts the noise is
`noise(x, t) -> ε̂`, a score is `score(x, t) -> ∇ log p_t(x)`, both (B, D).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

Field = Callable[[chex.Array, chex.Array], chex.Array]


class SDE(NamedTuple):
  """A diffusion as functions of time, each elementwise on times of any shape in (0, T].

  Attributes:
    mean: m(t).
    std: σ(t).
    rate: a(t), the drift is a(t) x.
    diffusion_sq: g(t)².
    log_snr: λ(t), falling.
    time: the inverse of `log_snr`.
    horizon: T.
    prior_std: standard deviation of the normal law from which the reverse process starts.
  """

  mean: Callable[[chex.Array], chex.Array]
  std: Callable[[chex.Array], chex.Array]
  rate: Callable[[chex.Array], chex.Array]
  diffusion_sq: Callable[[chex.Array], chex.Array]
  log_snr: Callable[[chex.Array], chex.Array]
  time: Callable[[chex.Array], chex.Array]
  horizon: float
  prior_std: float


def vp(beta_min: float = 0.1, beta_max: float = 20.0, horizon: float = 1.0) -> SDE:
  """The variance-preserving SDE: a = -β/2, g² = β, with β linear from beta_min to beta_max.

  Song et al. (2021), arXiv:2011.13456, the limit of DDPM's forward chain.

  Args:
    beta_min: β(0), > 0.
    beta_max: β(T), > 0; may equal β(0).
    horizon: T, > 0.

  Returns:
    The SDE, with m² + σ² = 1.

  Raises:
    ValueError: if a number is not positive.
  """
  beta, integral, inverse = _linear_schedule(beta_min, beta_max, horizon)
  return SDE(
    mean=lambda t: jnp.exp(-0.5 * integral(t)),
    std=lambda t: jnp.sqrt(-jnp.expm1(-integral(t))),
    rate=lambda t: -0.5 * beta(t),
    diffusion_sq=beta,
    log_snr=lambda t: -_log_expm1(integral(t)),
    time=lambda log_snr: inverse(jax.nn.softplus(-log_snr)),
    horizon=horizon,
    prior_std=1.0,
  )


def sub_vp(beta_min: float = 0.1, beta_max: float = 20.0, horizon: float = 1.0) -> SDE:
  """The sub-VP SDE: VP's drift, with g² = β (1 - e^{-2B}), B = ∫β, so that σ = 1 - e^{-B}.

  Song et al. (2021), arXiv:2011.13456. Its variance stays below VP's at every time.

  Args:
    beta_min: β(0), > 0.
    beta_max: β(T), > 0.
    horizon: T, > 0.

  Returns:
    The SDE.

  Raises:
    ValueError: if a number is not positive.
  """
  beta, integral, inverse = _linear_schedule(beta_min, beta_max, horizon)
  # σ/m = 2 sinh(B/2).
  return SDE(
    mean=lambda t: jnp.exp(-0.5 * integral(t)),
    std=lambda t: -jnp.expm1(-integral(t)),
    rate=lambda t: -0.5 * beta(t),
    diffusion_sq=lambda t: -beta(t) * jnp.expm1(-2.0 * integral(t)),
    log_snr=lambda t: -integral(t) - 2.0 * jnp.log(-jnp.expm1(-integral(t))),
    time=lambda log_snr: inverse(2.0 * jnp.arcsinh(0.5 * jnp.exp(-0.5 * log_snr))),
    horizon=horizon,
    prior_std=1.0,
  )


def ve(sigma_min: float = 0.01, sigma_max: float = 50.0) -> SDE:
  """The variance-exploding SDE: no drift, σ = σ_min (σ_max/σ_min)^t on [0, 1].

  Song et al. (2021), arXiv:2011.13456. At t = 0 the noise is σ_min, not 0.

  Args:
    sigma_min: > 0.
    sigma_max: > sigma_min; large beside the distances in the data.

  Returns:
    The SDE, whose prior is N(0, σ_max² I).

  Raises:
    ValueError: unless 0 < sigma_min < sigma_max.
  """
  if not 0 < sigma_min < sigma_max < math.inf:
    raise ValueError(f'VE needs 0 < sigma_min < sigma_max, got {sigma_min=}, {sigma_max=}.')
  low, ratio = math.log(sigma_min), math.log(sigma_max / sigma_min)
  std = lambda t: jnp.exp(low + ratio * t)
  return SDE(
    mean=jnp.ones_like,
    std=std,
    rate=jnp.zeros_like,
    diffusion_sq=lambda t: 2.0 * ratio * std(t) ** 2,
    log_snr=lambda t: -2.0 * (low + ratio * t),
    time=lambda log_snr: (-0.5 * log_snr - low) / ratio,
    horizon=1.0,
    prior_std=sigma_max,
  )


def cosine(shift: float = 0.008, horizon: float = 0.9946) -> SDE:
  """The cosine schedule: m = cos θ(t) / cos θ(0), θ = (t + s)/(1 + s) π/2, variance preserving.

  Nichol & Dhariwal (2021), arXiv:2102.09672, in continuous time. β = -2 d log m/dt has a pole at
  t = 1, so the process stops a little before (Lu et al., 2022, arXiv:2206.00927).

  Args:
    shift: s, > 0.
    horizon: T, in (0, 1).

  Returns:
    The SDE, with m² + σ² = 1.

  Raises:
    ValueError: if a number is out of its range.
  """
  if not shift > 0 or not 0 < horizon < 1:
    raise ValueError(f'The cosine schedule needs shift > 0, 0 < T < 1, got {shift=}, {horizon=}.')
  speed = 0.5 * math.pi / (1.0 + shift)
  start = speed * shift
  angle = lambda t: start + speed * t

  def std(t: chex.Array) -> chex.Array:
    # 1 - m² = sin(θ - θ₀) sin(θ + θ₀) / cos² θ₀, without cancellation at t = 0.
    square = jnp.sin(speed * t) * jnp.sin(angle(t) + start)
    return jnp.sqrt(square) / math.cos(start)

  mean = lambda t: jnp.cos(angle(t)) / math.cos(start)
  beta = lambda t: 2.0 * speed * jnp.tan(angle(t))

  def time(log_snr: chex.Array) -> chex.Array:
    # tan² θ = tan² θ₀ + (1 + tan² θ₀) / SNR, and the tangent of θ - θ₀ without cancellation.
    first = math.tan(start)
    gap_sq = (1.0 + first**2) * jnp.exp(-log_snr)
    last = jnp.sqrt(first**2 + gap_sq)
    return jnp.arctan(gap_sq / (last + first) / (1.0 + first * last)) / speed

  return SDE(
    mean=mean,
    std=std,
    rate=lambda t: -0.5 * beta(t),
    diffusion_sq=beta,
    log_snr=lambda t: 2.0 * (jnp.log(mean(t)) - jnp.log(std(t))),
    time=time,
    horizon=horizon,
    prior_std=1.0,
  )


def perturb(sde: SDE, x0: chex.Array, noise: chex.Array, t: chex.Array) -> chex.Array:
  """The forward process's point x_t = m(t) x_0 + σ(t) ε.

  Args:
    sde: the diffusion.
    x0: data (B, D).
    noise: ε (B, D).
    t: times (B, 1).

  Returns:
    Points (B, D).
  """
  chex.assert_equal_shape([x0, noise])
  chex.assert_rank(t, x0.ndim)
  return sde.mean(t) * x0 + sde.std(t) * noise


def score_of_noise(sde: SDE, noise: Field) -> Field:
  """The score -ε̂(x, t)/σ(t) of a network that predicts the noise."""
  return lambda x, t: -noise(x, t) / sde.std(t)


def noise_of_score(sde: SDE, score: Field) -> Field:
  """The prediction of the noise -σ(t) s(x, t) that a score makes."""
  return lambda x, t: -sde.std(t) * score(x, t)


def data_of_noise(sde: SDE, noise: Field) -> Field:
  """The prediction of the data (x - σ(t) ε̂(x, t))/m(t) that a noise network makes."""
  return lambda x, t: (x - sde.std(t) * noise(x, t)) / sde.mean(t)


def probability_flow(sde: SDE, score: Field) -> Field:
  """The velocity a(t) x - g(t)²/2 s(x, t), whose flow has the diffusion's marginals.

  Song et al. (2021), arXiv:2011.13456, equation 13.
  """
  return lambda x, t: sde.rate(t) * x - 0.5 * sde.diffusion_sq(t) * score(x, t)


def _linear_schedule(beta_min: float, beta_max: float, horizon: float):
  """Returns β(t), its integral B(t), and the inverse of the latter."""
  for name, number in (('beta_min', beta_min), ('beta_max', beta_max), ('horizon', horizon)):
    if not 0 < number < math.inf:
      raise ValueError(f'{name} must be positive, got {number}.')
  slope = (beta_max - beta_min) / horizon
  beta = lambda t: beta_min + slope * t
  integral = lambda t: t * (beta_min + 0.5 * slope * t)
  # The root of the quadratic that does not cancel where B is small.
  inverse = lambda b: 2.0 * b / (beta_min + jnp.sqrt(beta_min**2 + 2.0 * slope * b))
  return beta, integral, inverse


def _log_expm1(x: chex.Array) -> chex.Array:
  """log(e^x - 1) for x > 0, without overflow."""
  return x + jnp.log(-jnp.expm1(-x))
