"""Traced. Bounds: of a Rényi divergence from the errors of scores, and of the log likelihood."""

import math

import chex
import jax
import jax.numpy as jnp

from lib.diffusion import sde as sdes
from lib.diffusion.renyi import divergences


def holder_bound(integrals: chex.Array, alpha: chex.Numeric, p: float = 2.0) -> chex.Array:
  """Bounds D_α of the data's reverse diffusion from the model's, by points of the data's alone.

    1/(q(α - 1)) log E_P exp(½ q (α - 1) (p(α - 1) + 1) I),  q = p/(p - 1),
    I = ∫ g² ‖s_θ - ∇ log p_t‖² dt

  for one start law. It follows from Girsanov's theorem and Hölder's inequality, so that no path of
  the model is needed. As α → 1 it tends to E_P[I]/2, the KL divergence of the paths (Song et al.,
  2021, arXiv:2101.09258, theorem 1), for every p.

  Args:
    integrals: I (n,), one a path of the data's diffusion.
    alpha: α >= 1.
    p: Hölder's exponent, > 1.

  Returns:
    The estimated bound, a scalar; no bound at all for α < 1.

  Raises:
    ValueError: if p is not above 1.
  """
  if not 1 < p < math.inf:
    raise ValueError(f"Hölder's exponent must lie above 1, got {p=}.")
  # 1/c log E e^{c (h I)} with c = q (α - 1).
  half = 0.5 * (p * (alpha - 1.0) + 1.0)
  tilt = p / (p - 1.0) * (alpha - 1.0)
  return divergences.from_log_ratios(1.0 + tilt, half * integrals)


def variational_renyi_bound(log_weights: chex.Array, alpha: chex.Numeric) -> chex.Array:
  """The variational Rényi bound L_α = 1/(1 - α) log mean_k R_k^{1-α} of log p(x).

  Li & Turner (2016), arXiv:1602.02311. It does not rise as α grows: α = 1 is the ELBO, α = 0 the
  importance-weighted bound (Burda et al., 2016, arXiv:1509.00519). Its mean over paths is at most
  log p(x) for α >= 0. With one path it does not depend on α.

  Args:
    log_weights: log R (K, n), of K paths for each datum.
    alpha: α, any number.

  Returns:
    Bounds (n,).
  """
  chex.assert_rank(log_weights, 2)
  return jax.vmap(divergences.from_log_ratios, (None, 1))(2.0 - alpha, log_weights)


def denoising_log_weights(
  noise: sdes.Field,
  sde: sdes.SDE,
  x0: chex.Array,
  key: chex.PRNGKey,
  times: chex.Array,
  num_paths: int,
) -> chex.Array:
  """Log weights log p_θ(x_0, x_{t_0}, …, x_{t_N}) / q(x_{t_0}, …, x_{t_N} | x_0) of forward paths.

  The model is that of DDPM (Ho et al., 2020, arXiv:2006.11239): p_θ(x_s | x_t) is the posterior
  q(x_s | x_t, x̂_0) of the forward process at the predicted data x̂_0, the prior N(0, prior_std² I).
  The decoder p_θ(x_0 | x_{t_0}) is N(x̂_0, (σ/m)² I) at t_0, the law of x_0 under a flat prior.
  For s before t, with the noise ε_t in x_t,

    log p_θ(x_s | x_t) - log q(x_s | x_t, x_0) = ζ·γ - ½ ‖γ‖²,  γ = (SNR_s/SNR_t - 1)^½ (ε_t - ε̂)

  whose mean is the step's part of the ELBO (Kingma et al., 2021, arXiv:2107.00630). The noise along
  a forward path is a stationary chain, here drawn from T down without differences of large numbers:
  ε_s = ρ ε_t + (1 - ρ²)^½ ζ with ρ² = SNR_t/SNR_s.

  Args:
    noise: ε̂, rows (K B, D) and times (K B, 1) to (K B, D).
    sde: the diffusion.
    x0: data (B, D).
    key: typed PRNG key.
    times: (N + 1,), rising, in (0, T]; the last should be T.
    num_paths: K, > 0.

  Returns:
    Log weights (K, B), in nats, for densities of x_0.

  Raises:
    ValueError: if the number of paths is not positive.
  """
  if num_paths <= 0:
    raise ValueError(f'Weights need at least one path, got {num_paths=}.')
  chex.assert_rank([x0, times], [2, 1])
  rows = jnp.tile(x0, (num_paths, 1))
  log_snr = sde.log_snr(times)
  keys = jax.random.split(key, len(times))

  def error(eps: chex.Array, time: chex.Array) -> chex.Array:
    column = jnp.full((len(rows), 1), time, rows.dtype)
    return eps - noise(sdes.perturb(sde, rows, eps, column), column)

  def step(carry: tuple[chex.Array, chex.Array], inputs) -> tuple[tuple, None]:
    eps, log_weights = carry
    time, drop, step_key = inputs  # log SNR_s - log SNR_t
    zeta = jax.random.normal(step_key, eps.shape, eps.dtype)
    gamma = jnp.sqrt(jnp.expm1(drop)) * error(eps, time)
    log_weights = log_weights + jnp.sum(gamma * (zeta - 0.5 * gamma), axis=-1)
    return (jnp.exp(-0.5 * drop) * eps + jnp.sqrt(-jnp.expm1(-drop)) * zeta, log_weights), None

  eps = jax.random.normal(keys[0], rows.shape, rows.dtype)
  end = sdes.perturb(sde, rows, eps, jnp.full((len(rows), 1), times[-1], rows.dtype))
  # log π(x_T) - log q(x_T | x_0), dimension by dimension.
  prior = 0.5 * (eps**2 - (end / sde.prior_std) ** 2) + jnp.log(sde.std(times[-1]) / sde.prior_std)
  log_weights = jnp.sum(prior, axis=-1)
  inputs = (times[1:], -jnp.diff(log_snr), keys[1:])
  (eps, log_weights), _ = jax.lax.scan(step, (eps, log_weights), inputs, reverse=True)
  decoder = -0.5 * (error(eps, times[0]) ** 2 + math.log(2.0 * math.pi) - log_snr[0])
  return (log_weights + jnp.sum(decoder, axis=-1)).reshape(num_paths, len(x0))
