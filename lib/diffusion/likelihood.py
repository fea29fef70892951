"""Traced. Likelihoods of diffusion models, in nats, and what makes bits per dimension of them.

A model that starts at a time ε > 0 has a density p_ε at that time, which the probability flow gives
exactly. That of the data at time 0 is only bounded: `truncation_correction` is what lies between.
"""

import math
from collections.abc import Callable

import chex
import diffrax
import jax
import jax.numpy as jnp

from lib.diffusion import losses
from lib.diffusion import sde as sdes
from lib.diffusion import times as laws
from lib.flow import integrate, regularizers


def log_likelihood(
  score: sdes.Field,
  sde: sdes.SDE,
  x: chex.Array,
  start: float,
  divergence: Callable[[regularizers.Map, chex.Array], chex.Array] = regularizers.divergence_exact,
  rtol: float = 1e-5,
  atol: float = 1e-5,
  solver: diffrax.AbstractSolver | None = None,
) -> tuple[chex.Array, chex.Array]:
  """The log-density log p_ε(x) of the probability flow's model, and the noise it comes from.

    log p_ε(x) = log N(z; 0, prior_std² I) + ∫_ε^T ∇·u dt,  u(x, t) = a(t) x - g(t)²/2 s(x, t),

  along the flow from x at ε to z at T. Song et al. (2021), arXiv:2011.13456, equation 39. Papers
  often put data in the place of x without noising them, and call it the likelihood at 0; the model
  promises nothing about that.

  The tolerances hold for each row. Tsit5 takes 20 to 140 steps at 1e-5 for data of a few sharp
  modes, in float32 as well, and log p then errs by about 1e-3.

  Args:
    score: the score.
    sde: the diffusion.
    x: points (B, D) at `start`.
    start: ε, in (0, T).
    divergence: `divergence(f, x) -> tr J (B,)`. `divergence_exact` costs D Jacobian-vector
      products; `functools.partial(divergence_hutchinson, key=key, num_probes=n)` costs n, is
      unbiased, and with its one key has the same probes at all times.
    rtol: relative tolerance of a step.
    atol: absolute tolerance of a step.
    solver: diffrax solver, Tsit5 by default.

  Returns:
    log p_ε(x) (B,) and noise z (B, D); NaN if the solver fails.

  Raises:
    ValueError: unless 0 < start < T.
  """
  laws.check_start(sde, start)
  chex.assert_rank(x, 2)
  z, change = integrate.flow_map_with_log_density(
    sdes.probability_flow(sde, score),
    x,
    jnp.zeros(x.shape[:1], x.dtype),
    divergence,
    rtol,
    atol,
    solver,
    t0=start,
    t1=sde.horizon,
    norm=integrate.worst_row,
  )
  prior = jax.scipy.stats.norm.logpdf(z, scale=sde.prior_std)
  return jnp.sum(prior, axis=-1) - change, z


def truncation_correction(
  noise: sdes.Field, sde: sdes.SDE, x: chex.Array, key: chex.PRNGKey, start: float
) -> chex.Array:
  """Estimates what a bound on -log p_0(x) adds to E[-log p_ε(x_ε)], x_ε = m x + σ n.

  The model ends with a Gaussian around the denoised x_ε, p(x | x_ε) = N(x̂_0(x_ε), (σ/m)² I). Then

    -log p_0(x) <= E[-log p_ε(x_ε)] + E[log q(x_ε | x) - log p(x | x_ε)],

  whose second part, the reconstruction less the entropy of the perturbation, is

    ½ E‖ε̂(x_ε, ε) - n‖² - D/2 - D log m(ε).

  It may have either sign and vanishes with ε where the data have a smooth density; on data near a
  surface it does not. It corrects for the time that the flow leaves out, not for the noise that
  replaces whole levels (`dequantize`), nor for the prior. Song et al. (2021), arXiv:2101.09258,
  and Kim et al. (2022), arXiv:2106.05527, whose implementations have the same variance.

  Args:
    noise: network that predicts the noise.
    sde: the diffusion.
    x: data (B, D), at time 0.
    key: typed PRNG key; the perturbation n is `jax.random.normal(key, x.shape)`, so that
      `lib.diffusion.sde.perturb` makes the same x_ε of it.
    start: ε, in (0, T).

  Returns:
    Unbiased estimates (B,), in nats.

  Raises:
    ValueError: unless 0 < start < T.
  """
  laws.check_start(sde, start)
  chex.assert_rank(x, 2)
  n = jax.random.normal(key, x.shape, x.dtype)
  t = jnp.full((x.shape[0], 1), start, x.dtype)
  errors = losses.denoising_errors(noise, sde, x, n[:, None], t)[:, 0]
  return 0.5 * errors - x.shape[-1] * (0.5 + jnp.log(sde.mean(t[:, 0])))


def nelbo(
  noise: sdes.Field,
  sde: sdes.SDE,
  x: chex.Array,
  key: chex.PRNGKey,
  start: float,
  num_times: int = 1,
) -> chex.Array:
  """Estimates the bound on -log p_0(x) of the model that samples by the reverse SDE.

  The chain rule of the Kullback-Leibler divergence, from T down to ε and on to x, gives

    -log p_0(x) <= KL(q(x_T | x) ‖ N(0, prior_std² I)) + ½ ∫_ε^T g²/σ² E‖ε̂(x_t, t) - n‖² dt
                   + E[-log N(x; x̂_0(x_ε), (σ/m)² I)],

  with the integral by importance sampling: Z/2 times the mean error at times uniform in the log
  SNR λ, Z = λ(ε) - λ(T). The last part is ½ E‖ε̂(x_ε, ε) - n‖² + D/2 (log 2π - λ(ε)). Without it
  and with the entropy of x_ε in its place, the bound is theorem 3 of Song et al. (2021),
  arXiv:2101.09258, on E[-log p_ε(x_ε)]. Compare Kingma et al. (2021), arXiv:2107.00630.

  With the score of some density the bound is tight at every x, up to the mismatches of the prior
  at T and of the Gaussian at ε. Otherwise it bounds the reverse SDE's model, whose density is not
  that of the probability flow.

  Args:
    noise: network that predicts the noise.
    sde: the diffusion.
    x: data (B, D), at time 0.
    key: typed PRNG key.
    start: ε, in (0, T).
    num_times: K, > 0: stratified times of each datum.

  Returns:
    Unbiased estimates (B,) of the bound, in nats.

  Raises:
    ValueError: unless 0 < start < T and K > 0.
  """
  laws.check_start(sde, start)
  if num_times <= 0:
    raise ValueError(f'The bound needs at least one time, got {num_times=}.')
  chex.assert_rank(x, 2)
  batch, dim = x.shape
  time_key, noise_key = jax.random.split(key)
  u = laws.stratified(time_key, (batch, num_times))
  # The start's error rides along as one more time.
  first = jnp.full((batch, 1), start, x.dtype)
  t = jnp.concatenate([first, laws.importance_times(sde, u, start)], axis=1)
  n = jax.random.normal(noise_key, (*t.shape, dim), x.dtype)
  errors = losses.denoising_errors(noise, sde, x, n, t)
  path = losses.likelihood_losses(errors[:, 1:], laws.importance_normalizer(sde, start))
  log_2pi = math.log(2.0 * math.pi)
  reconstruction = 0.5 * (errors[:, 0] + dim * (log_2pi - sde.log_snr(first[:, 0])))
  return _prior_divergence(sde, x) + path + reconstruction


def dequantize(
  levels: chex.Array, key: chex.PRNGKey, num_levels: int, low: float = -1.0, high: float = 1.0
) -> chex.Array:
  """Spreads whole levels uniformly over their bins, x = low + (level + u)/n (high - low).

  A density of x then bounds the levels' probabilities: log P(level) >= E_u log p(x) + D log of the
  bin's width. Theis et al. (2016), arXiv:1511.01844.

  Args:
    levels: whole numbers in [0, n), of any shape and integer dtype.
    key: typed PRNG key.
    num_levels: n, > 0; 256 for bytes, 17 for scikit-learn's digits.
    low: the lower end of the first bin.
    high: the upper end of the last bin.

  Returns:
    Points in [low, high], of the shape of levels, float32.

  Raises:
    ValueError: if there is no level, or the interval is empty.
  """
  width = _bin_width(num_levels, low, high)
  chex.assert_type(levels, int)
  return low + width * (levels + jax.random.uniform(key, levels.shape))


def bits_per_dim(
  log_likelihood: chex.Array, dim: int, num_levels: int, low: float = -1.0, high: float = 1.0
) -> chex.Array:
  """Bits that each of D levels takes, -log p(x)/(D log 2) - log2 (high - low)/n.

  The second number is 7 for bytes in [-1, 1] and 8 for bytes in [0, 1]. A uniform density over the
  box takes log2 n bits.

  Args:
    log_likelihood: log p(x) in nats, of any shape, at points of `dequantize`.
    dim: D, > 0.
    num_levels: n, > 0.
    low: the lower end of the first bin.
    high: the upper end of the last bin.

  Returns:
    Bits per dimension, of the shape of `log_likelihood`.

  Raises:
    ValueError: if there is no dimension or level, or the interval is empty.
  """
  if dim <= 0:
    raise ValueError(f'Points need at least one dimension, got {dim=}.')
  return -log_likelihood / (dim * math.log(2.0)) - math.log2(_bin_width(num_levels, low, high))


def _prior_divergence(sde: sdes.SDE, x: chex.Array) -> chex.Array:
  """KL(N(m x, σ² I) ‖ N(0, prior_std² I)) (B,), at the horizon."""
  end = jnp.asarray(sde.horizon, x.dtype)
  ratio = (sde.std(end) / sde.prior_std) ** 2
  shift = jnp.sum((sde.mean(end) * x / sde.prior_std) ** 2, axis=-1)
  return 0.5 * (shift + x.shape[-1] * (ratio - 1.0 - jnp.log(ratio)))


def _bin_width(num_levels: int, low: float, high: float) -> float:
  if num_levels <= 0:
    raise ValueError(f'Data need at least one level, got {num_levels=}.')
  if not 0 < high - low < math.inf:
    raise ValueError(f'The interval must not be empty, got {low=}, {high=}.')
  return (high - low) / num_levels
