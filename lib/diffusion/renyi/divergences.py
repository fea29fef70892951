"""Traced. Rényi divergences of order α, between laws, between samples and along diffusions.

  D_α(P‖Q) = 1/(α - 1) log E_P[(dP/dQ)^{α - 1}],  D_1 = KL(P‖Q),  D_∞ = log ess sup dP/dQ

van Erven & Harremoës (2014), arXiv:1206.2459. It does not fall as α grows. With P the data, an
order above 1 punishes what the model misses, and one below ½ behaves like the reversed KL, since
D_α(P‖Q) = α/(1 - α) D_{1-α}(Q‖P) for α in (0, 1).

Orders are traced numbers in [0, ∞]. At α = 1 the functions are smooth: their values and gradients
are those of the limit. D_0 is -log Q(dP/dQ > 0), which is 0 where P has a positive density.
"""

import math

import chex
import jax
import jax.numpy as jnp

from lib.diffusion import sde as sdes

# Beyond it an order is infinite: what is left of the limit is below rounding.
_LARGEST_ORDER = 1e15

# Where |c x| stays below it, means of exp(c x) are taken by a series.
_SERIES_REACH = 0.125


def gaussian(
  alpha: chex.Numeric, mean0: chex.Array, cov0: chex.Array, mean1: chex.Array, cov1: chex.Array
) -> chex.Array:
  """D_α of two normal laws, in nats.

    α/2 Δᵀ S*⁻¹ Δ - 1/(2(α - 1)) log(|S*| / (|S_0|^{1-α} |S_1|^α)),
    Δ = m_1 - m_0,  S* = α S_1 + (1 - α) S_0

  Gil, Alajaji & Linder (2013), https://doi.org/10.1016/j.ins.2013.06.018. It is infinite where S*
  is not positive definite, which needs α > 1 and a model narrower than the data in some direction.
  Up to rounding, that is: at α = ∞ it is infinite unless S_1 - S_0 is positive definite. Its error
  is some roundings times the condition number of S_1⁻¹ S_0.

  Args:
    alpha: α in [0, ∞].
    mean0: m_0 (d,), of P.
    cov0: S_0 (d, d), positive definite.
    mean1: m_1 (d,), of Q.
    cov1: S_1 (d, d), positive definite.

  Returns:
    The divergence, a scalar. Where it is infinite its gradients are zero.
  """
  _check_gaussians(mean0, cov0, mean1, cov1)
  alpha = _order(alpha, cov1.dtype)
  chol0, chol1 = jnp.linalg.cholesky(cov0), jnp.linalg.cholesky(cov1)
  # In the coordinates where S_1 = I, S_0 has the eigenvalues ν and S* the eigenvalues `blend`.
  root = jax.scipy.linalg.solve_triangular(chol1, chol0, lower=True)
  ratio = root @ root.T
  nu = jnp.linalg.eigvalsh(ratio)
  blend = alpha + (1.0 - alpha) * nu
  rounding = 4 * len(nu) * jnp.finfo(nu.dtype).eps * alpha
  infinite = (alpha > 1) & (jnp.min(blend) <= rounding)
  # From here on, P is taken for Q where the answer is infinite.
  eye = jnp.eye(len(nu), dtype=nu.dtype)
  nu, blend = (jnp.where(infinite, 1.0, value) for value in (nu, blend))
  star = jnp.where(infinite, eye, alpha * eye + (1.0 - alpha) * ratio)
  gap = jax.scipy.linalg.solve_triangular(chol1, mean1 - mean0, lower=True)
  gap = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(star), gap, lower=True)
  # log(blend)/(1 - α) tends to ν - 1 as α → 1.
  shift = (1.0 - alpha) * (nu - 1.0)
  near = jnp.abs(shift) < _SERIES_REACH
  series = (nu - 1.0) * _log1p_ratio(jnp.where(near, shift, 0.0))
  direct = jnp.log(jnp.where(near, 1.0, blend)) / jnp.where(near, 1.0, 1.0 - alpha)
  log_det = 2.0 * jnp.sum(jnp.log(jnp.diagonal(chol0)) - jnp.log(jnp.diagonal(chol1)))
  spread = jnp.sum(jnp.where(near, series, direct)) - log_det
  return jnp.where(infinite, jnp.inf, 0.5 * (alpha * jnp.sum(gap**2) + spread))


def discrete(alpha: chex.Numeric, p: chex.Array, q: chex.Array) -> chex.Array:
  """D_α of two laws on k outcomes, 1/(α - 1) log Σ p^α q^{1-α}, in nats.

  Args:
    alpha: α in [0, ∞].
    p: probabilities (k,), of sum 1; zeros are allowed.
    q: probabilities (k,), of sum 1; zeros are allowed.

  Returns:
    The divergence, a scalar: infinite if no outcome has both p and q positive, and for α >= 1 if
    some outcome has p > 0 = q. Its gradients take zeros of p and q for constants, and are zero
    where it is infinite.
  """
  return _renyi(alpha, _log_ratios(p, q), p)


def from_log_ratios(alpha: chex.Numeric, log_ratios: chex.Array) -> chex.Array:
  """Estimates D_α(P‖Q) from log dP/dQ at points of P: 1/(α - 1) log mean exp((α - 1) log dP/dQ).

  It is the mean at α = 1 and the largest at α = ∞. The estimate does not fall as α grows. Its mean
  over samples is too low for α > 1, too high for α < 1. Orders far above 1 rest on few points.

  Args:
    alpha: α in [0, ∞].
    log_ratios: log dP/dQ (n,); ∞ where dQ = 0, and -∞ where a density of P was rounded to 0.

  Returns:
    The estimate, a scalar. Its gradient in the log ratios is the softmax of (α - 1) log dP/dQ.
  """
  chex.assert_rank(log_ratios, 1)
  chex.assert_axis_dimension_gt(log_ratios, 0, 0)
  return _renyi(alpha, log_ratios, jnp.ones_like(log_ratios))


def escort_discrete(alpha: chex.Numeric, p: chex.Array, q: chex.Array) -> chex.Array:
  """The escort law r ∝ p^α q^{1-α} of outcomes, a geometric mixture of P and Q.

  The gradient of D_α(P‖Q_θ) is -E_r[∇ log q_θ].

  Args:
    alpha: α in [0, ∞].
    p: probabilities (k,); r is zero where p is.
    q: probabilities (k,).

  Returns:
    Probabilities (k,): P itself at α = 1; NaN where D_α(P‖Q) is infinite otherwise.
  """
  log_ratios = _log_ratios(p, q)
  tilt = _order(alpha, log_ratios.dtype) - 1.0
  on = p > 0
  lost = jnp.isposinf(log_ratios)
  kept = on & ~lost
  safe = jnp.where(kept, log_ratios, 0.0)
  # From the largest, which is at least 0, so that log p is not lost beside a large tilt.
  tilted = tilt * (safe - jnp.max(safe))
  there = jnp.where(tilt < 0, -jnp.inf, jnp.where(tilt > 0, jnp.nan, 0.0))
  logits = jnp.log(jnp.where(on, p, 1.0)) + jnp.where(lost, there, jnp.where(kept, tilted, 0.0))
  return jax.nn.softmax(jnp.where(on, logits, -jnp.inf))


def escort_gaussian(
  alpha: chex.Numeric, mean0: chex.Array, cov0: chex.Array, mean1: chex.Array, cov1: chex.Array
) -> tuple[chex.Array, chex.Array]:
  """The escort law r ∝ p^α q^{1-α} of two normal laws, which is normal.

    cov = (α S_0⁻¹ + (1 - α) S_1⁻¹)⁻¹ = S_0 S*⁻¹ S_1,  mean = m_0 + (1 - α) S_0 S*⁻¹ (m_1 - m_0)

  with S* of `gaussian`.

  Args:
    alpha: α in [0, ∞).
    mean0: m_0 (d,), of P.
    cov0: S_0 (d, d), positive definite.
    mean1: m_1 (d,), of Q.
    cov1: S_1 (d, d), positive definite.

  Returns:
    The mean (d,) and the covariance (d, d); NaN where D_α is infinite and there is no such law.
  """
  _check_gaussians(mean0, cov0, mean1, cov1)
  factor = jax.scipy.linalg.cho_factor(alpha * cov1 + (1.0 - alpha) * cov0, lower=True)
  sides = jnp.concatenate([cov1, (mean1 - mean0)[:, None]], axis=1)
  solved = cov0 @ jax.scipy.linalg.cho_solve(factor, sides)
  cov = 0.5 * (solved[:, :-1] + solved[:, :-1].T)
  return mean0 + (1.0 - alpha) * solved[:, -1], cov


def fisher_rate(
  alpha: chex.Numeric,
  diffusion_sq: chex.Numeric,
  score_gaps_sq: chex.Array,
  log_ratios: chex.Array,
) -> chex.Array:
  """The rate -d/dt D_α(p_t‖q_t) at which one diffusion brings two laws together.

    α/2 g(t)² E_r‖∇ log p_t - ∇ log q_t‖²,  r ∝ p_t^α q_t^{1-α}

  Its integral over [0, T] is D_α(p_0‖q_0) - D_α(p_T‖q_T): de Bruijn's identity, which at α = 1 is
  what maximum likelihood training of scores rests on (Song et al., 2021, arXiv:2101.09258, theorem
  2). Here E_r is a self-normalised mean over points of p_t.

  Args:
    alpha: α in [0, ∞).
    diffusion_sq: g(t)².
    score_gaps_sq: ‖∇ log p_t - ∇ log q_t‖² (n,), at points of p_t.
    log_ratios: log p_t/q_t (n,) at the same points; they matter up to a constant only.

  Returns:
    The rate, a scalar, >= 0.
  """
  chex.assert_rank(log_ratios, 1)
  chex.assert_equal_shape([score_gaps_sq, log_ratios])
  weights = jax.nn.softmax((alpha - 1.0) * log_ratios)
  return 0.5 * alpha * diffusion_sq * jnp.sum(weights * score_gaps_sq)


def path_log_ratios(
  data_score: sdes.Field,
  model_score: sdes.Field,
  sde: sdes.SDE,
  start: chex.Array,
  start_log_ratios: chex.Array,
  key: chex.PRNGKey,
  times: chex.Array,
) -> chex.Array:
  """Log dP/dQ of reverse diffusions P, of the data's score, against Q, of the model's (Girsanov).

    log p_T/π(x_T) + Σ δ·√h ξ + ½ ‖δ‖² h,  δ = g (∇ log p_t - s_θ)

  along Euler–Maruyama steps x - h (a x - g² ∇ log p_t) + g √h ξ from T down. That is exact for the
  two chains that such steps make, so that `from_log_ratios` estimates their D_α. It tends to D_α of
  the diffusions as the grid is refined, and is never below that of the laws of the ends.

  Args:
    data_score: ∇ log p_t(x), rows (n, D) and times (n, 1) to (n, D).
    model_score: s_θ, likewise.
    sde: the diffusion.
    start: points of p_T (n, D), whose paths are independent.
    start_log_ratios: log p_T/π (n,) at them; zeros if both start alike.
    key: typed PRNG key.
    times: (N + 1,), rising, the last is that of `start`.

  Returns:
    Log ratios (n,).
  """
  chex.assert_rank([start, times], [2, 1])
  chex.assert_shape(start_log_ratios, (len(start),))

  def step(carry: tuple[chex.Array, chex.Array], inputs) -> tuple[tuple, None]:
    x, log_ratios = carry
    time, h, step_key = inputs
    column = jnp.full((len(x), 1), time, x.dtype)
    g = jnp.sqrt(sde.diffusion_sq(time))
    score = data_score(x, column)
    noise = jnp.sqrt(h) * jax.random.normal(step_key, x.shape, x.dtype)
    delta = g * (score - model_score(x, column))
    log_ratios = log_ratios + jnp.sum(delta * (noise + 0.5 * h * delta), axis=-1)
    return (x - h * (sde.rate(time) * x - g**2 * score) + g * noise, log_ratios), None

  inputs = (times[1:], jnp.diff(times), jax.random.split(key, len(times) - 1))
  (_, log_ratios), _ = jax.lax.scan(step, (start, start_log_ratios), inputs, reverse=True)
  return log_ratios


def _order(alpha: chex.Numeric, dtype: jnp.dtype) -> chex.Array:
  return jnp.minimum(jnp.asarray(alpha, dtype), _LARGEST_ORDER)


def _check_gaussians(
  mean0: chex.Array, cov0: chex.Array, mean1: chex.Array, cov1: chex.Array
) -> None:
  chex.assert_rank(mean0, 1)
  chex.assert_equal_shape([mean0, mean1])
  chex.assert_shape([cov0, cov1], (len(mean0), len(mean0)))


def _log_ratios(p: chex.Array, q: chex.Array) -> chex.Array:
  """log p/q (k,) where p > 0, ∞ where q = 0; 0 where p = 0."""
  chex.assert_rank(p, 1)
  chex.assert_equal_shape([p, q])
  both = (p != 0) & (q != 0)
  log_ratios = jnp.log(jnp.where(both, p, 1.0)) - jnp.log(jnp.where(both, q, 1.0))
  return jnp.where((p != 0) & (q == 0), jnp.inf, log_ratios)


def _renyi(alpha: chex.Numeric, log_ratios: chex.Array, weights: chex.Array) -> chex.Array:
  """1/(α - 1) log Σ w e^{(α - 1) log dP/dQ} / Σ w, with the weights of P (n,)."""
  tilt = _order(alpha, log_ratios.dtype) - 1.0
  on = (weights != 0) & ~jnp.isinf(log_ratios)
  kept = jnp.sum(jnp.where(on, weights, 0.0))
  disjoint = ~jnp.any(on)
  normalised = jnp.where(on, weights, 0.0) / jnp.where(disjoint, 1.0, kept)
  normalised = jnp.where(disjoint, 1.0 / len(weights), normalised)
  mean = _tilted_mean(tilt, jnp.where(on, log_ratios, 0.0), normalised)
  # What P has where Q has nothing adds 0 to the sum if α < 1, and ∞ otherwise. A ratio of -∞ adds 0
  # if α > 1, and ∞ otherwise, where the divergence is -∞.
  above = jnp.any((weights != 0) & jnp.isposinf(log_ratios))
  below = jnp.any((weights != 0) & jnp.isneginf(log_ratios))
  high = above & ((tilt >= 0) | (disjoint & ~below))
  low = below & ~high & ((tilt <= 0) | disjoint)
  partly = (above | below) & ~high & ~low
  share = jnp.where(partly, kept / jnp.sum(weights), 1.0)
  found = mean + jnp.log(share) / jnp.where(partly, tilt, 1.0)
  return jnp.where(high | (disjoint & ~low), jnp.inf, jnp.where(low, -jnp.inf, found))


def _tilted_mean(tilt: chex.Array, values: chex.Array, weights: chex.Array) -> chex.Array:
  """1/c log Σ w e^{c v} over (n,), with the limit Σ w v at c = 0; weights have sum 1."""
  centre = jax.lax.stop_gradient(jnp.sum(weights * values))
  values = jnp.where(weights != 0, values - centre, 0.0)
  near = jnp.max(jnp.abs(tilt * values)) < _SERIES_REACH
  # Near: u = Σ w (e^{c v} - 1) is c times `slope`, so that log(1 + u)/c has no division by c.
  close = jnp.where(near, values, 0.0)
  slope = jnp.sum(weights * close) + tilt * jnp.sum(weights * close**2 * _exp_rest(tilt * close))
  by_series = slope * _log1p_ratio(tilt * slope)
  # Far: from the largest exponent.
  wide, divisor = jnp.where(near, 0.0, values), jnp.where(near, 1.0, tilt)
  peak = jax.lax.stop_gradient(jnp.where(tilt > 0, jnp.max(wide), jnp.min(wide)))
  direct = peak + jnp.log(jnp.sum(weights * jnp.exp(divisor * (wide - peak)))) / divisor
  return centre + jnp.where(near, by_series, direct)


def _exp_rest(x: chex.Array) -> chex.Array:
  """(e^x - 1 - x)/x² for |x| <= ⅛, by its series."""
  total = jnp.zeros_like(x)
  for k in range(11, 1, -1):
    total = total * x + 1.0 / math.factorial(k)
  return total


def _log1p_ratio(x: chex.Array) -> chex.Array:
  """log(1 + x)/x for |x| <= 0.14, by the series of artanh(s)/s at s = x/(2 + x)."""
  square = (x / (2.0 + x)) ** 2
  total = jnp.zeros_like(x)
  for k in range(13, 0, -2):
    total = total * square + 1.0 / k
  return 2.0 / (2.0 + x) * total
