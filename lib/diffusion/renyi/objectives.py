"""Traced. Losses that train a diffusion by a Rényi divergence of order α instead of likelihood.

With data p, model q and a datum's likelihood bound ℓ(x) >= -log q(x) + const. (`losses`), there
are three ways to weight denoising. Each is likelihood training at α = 1, where all weights are
exactly 1. The weights never carry a gradient: it would count the tilt twice.

  A   1/(α-1) log E_p exp((α-1) ℓ): `tilt_weights` with tilt c = α - 1.
  A'  the same tilt of ℓ - ℓ_ref, the excess over a frozen reference: `excess_weights`.
  B   D_α(p‖q) as an integral over time: `ratio_weights` and `ratio_loss`.

They do not share an optimum. Over all laws q, with tight bounds,

  A is least at q ∝ p^{1/α}: a temperature. α > 1 flattens the data, α < 1 sharpens them.
  A' is least at q ∝ p^{1/α} p_ref^{1-1/α}. With an exact reference it is D_α(p‖q), least at p;
     with another it is a temperature too, of the data against the reference.
  B rests at q = p for every α.

So where the model can reach p, α changes nothing for A' and B. Where it cannot, A' with an exact
reference still finds the least D_α, and B something near it: see `ratio_loss`.

D_α(p‖q) = 1/(α-1) log E_p (p/q)^{α-1}. A drops its p^{α-1}, which is what moves the optimum. All
this is for the tilt c = α - 1; with another tilt, the order is 1 + c. Van Erven & Harremoës (2014),
arXiv:1206.2459, define D_α.
"""

import math

import chex
import jax
import jax.numpy as jnp

from lib.diffusion import losses as denoising

# Halvings of log |c|, from brackets of at most about 30 octaves.
_BISECTIONS = 36

# The largest tilt, in multiples of the one that Gaussian losses would need.
_LARGEST_TILT = 2.0**20


def tilted_mean(losses: chex.Array, tilt: chex.Numeric) -> chex.Array:
  """The tilted risk (1/c) log (1/n) Σ exp(c ℓ_i), whose gradient in ℓ is softmax(c ℓ).

  It rises with c from min ℓ (c -> -∞) over the mean (c = 0) to max ℓ (c -> ∞). With ℓ >= -log q +
  const. it bounds the same mean of -log q from above for every c, of either sign. Losses that are
  noisy estimates of ℓ keep that bound in expectation only for c >= 0, by Jensen's inequality: they
  add c/2 times the noise's variance. Li et al. (2020), arXiv:2007.01162.

  Args:
    losses: ℓ (n,), finite.
    tilt: c, any finite number.

  Returns:
    Scalar, exactly the mean at c = 0, with finite derivatives in ℓ and in c.
  """
  _check_losses(losses)
  mean = jnp.mean(losses)
  centred = losses - mean
  small = jnp.max(jnp.abs(tilt * centred)) < jnp.finfo(losses.dtype).eps ** 0.25
  # Near zero by cumulants: dividing a rounded logarithm by c would lose all digits.
  z = jnp.where(small, tilt, 0.0) * centred
  series = mean + (jnp.mean(z * centred) / 2 + jnp.mean(z * z * centred) / 6)
  # Elsewhere from the end that dominates, whose exponential is 1. A shift has no gradient.
  shift = _dominant(losses, tilt)
  z = jnp.where(small, 0.0, tilt * (losses - shift))
  few = jnp.mean(jnp.expm1(z))
  log_mean = jnp.where(few > -0.5, jnp.log1p(jnp.maximum(few, -0.5)), jnp.log(jnp.mean(jnp.exp(z))))
  return jnp.where(small, series, shift + log_mean / jnp.where(small, 1.0, tilt))


def tilt_weights(
  losses: chex.Array, tilt: chex.Numeric, max_weight: float = math.inf, mix: float = 0.0
) -> chex.Array:
  """Objective A's weights w_i = n softmax(c ℓ)_i, so that mean(w ℓ) has `tilted_mean`'s gradient.

  The softmax is over this batch, so that the tilt acts less in small batches, a small one like
  c (1 - 1/n). `normalized_weights` do not depend on the batch.

  Args:
    losses: ℓ (n,), finite.
    tilt: c = α - 1.
    max_weight: weights above it are cut, >= 1; their mean is then below 1.
    mix: u in [0, 1], after the cut w <- (1-u) w + u.

  Returns:
    Weights (n,), without a gradient. Exactly 1 where c = 0 or all losses are equal.

  Raises:
    ValueError: if max_weight or mix is out of its range.
  """
  _check_losses(losses)
  return _finish(_softmax(losses, tilt), max_weight, mix)


def effective_fraction(weights: chex.Array) -> chex.Array:
  """The effective sample size over n, (Σ w)² / (n Σ w²), in [1/n, 1] for weights of any shape.

  For the weights of Gaussian losses of variance s² it is exp(-c² s²). NaN if all weights are zero.
  """
  weights = weights / jnp.max(weights)  # squares of extreme ones would leave the range
  return jnp.mean(weights) ** 2 / jnp.mean(weights**2)


def tilt_for_fraction(losses: chex.Array, fraction: float, sign: float) -> chex.Array:
  """The tilt c of one sign at which the `tilt_weights` have effective fraction ρ.

  The fraction falls with |c|. Gaussian losses have it at |c| = √log(1/ρ) / std, from where it is
  bisected. A tilt so chosen does not depend on the losses' unit or on the dimension of the data.

  Args:
    losses: ℓ (n,), finite.
    fraction: ρ in (0, 1].
    sign: 1 (α > 1), -1 (α < 1), or 0, which gives 0.

  Returns:
    The scalar c, without a gradient; 0 for equal losses. Where m losses tie for the largest (the
    smallest if sign = -1), no tilt goes below m/n; it is then the largest one, 2^20 times that of
    Gaussian losses, whose weights are uniform on the m.

  Raises:
    ValueError: if the fraction or the sign is something else.
  """
  _check_losses(losses)
  if not 0 < fraction <= 1:
    raise ValueError(f'The effective fraction must lie in (0, 1], got {fraction=}.')
  if sign not in (-1, 0, 1):
    raise ValueError(f'The sign must be -1, 0 or 1, got {sign=}.')
  signed = sign * jax.lax.stop_gradient(losses)
  width = jnp.max(signed) - jnp.min(signed)
  safe = jnp.where(width > 0, width, 1.0)
  unit = (signed - jnp.max(signed)) / safe
  # log 1/ρ = c² Var at some tilt in [0, 2c], and a variance is at most width²/4.
  root = math.sqrt(math.log(1.0 / fraction))
  std = jnp.where(width > 0, jnp.std(unit), 1.0)
  bracket = (jnp.full_like(safe, 2.0 * root), _LARGEST_TILT * root / std)

  def halve(_, bracket):
    low, high = bracket
    middle = jnp.sqrt(low) * jnp.sqrt(high)
    above = effective_fraction(jnp.exp(middle * unit)) > fraction
    return jnp.where(above, middle, low), jnp.where(above, high, middle)

  _, tilt = jax.lax.fori_loop(0, _BISECTIONS, halve, bracket)
  return jnp.where(width > 0, sign * tilt / safe, 0.0)


def update_log_normalizer(
  log_normalizer: chex.Array, losses: chex.Array, tilt: chex.Numeric, decay: float
) -> chex.Array:
  """A moving average, in the log domain, of the normaliser E exp(c ℓ) over batches.

    log Z <- log(γ Z + (1-γ) (1/n) Σ exp(c ℓ_i))

  Start from -∞: the first batch then sets Z, so that there is no bias towards a starting value.
  The average must keep up with training. It rises in one step, but where c ℓ falls it forgets by
  -log γ nats a step at most, and all weights are small for as long. Two things drift: losses, so
  pass them less a slowly moving mean (the same for `normalized_weights`), or their excess over a
  reference; and c while it is ramped up, which matters little for losses so centred.

  Args:
    log_normalizer: log Z, a scalar, or -∞.
    losses: ℓ (n,), finite; where the batch is spread over devices, all of it.
    tilt: c.
    decay: γ in (0, 1).

  Returns:
    The next log Z, without a gradient. Exactly 0 from the start if c = 0.

  Raises:
    ValueError: if γ is out of its range.
  """
  chex.assert_rank(log_normalizer, 0)
  if not 0 < decay < 1:
    raise ValueError(f'The decay must lie in (0, 1), got {decay=}.')
  batch = jax.lax.stop_gradient(tilt * tilted_mean(losses, tilt))
  rise = jnp.where(log_normalizer == -jnp.inf, 0.0, batch - log_normalizer)
  # From the larger of the two; equal ones give exactly themselves.
  up = batch + jnp.log1p(decay * jnp.expm1(-jnp.maximum(rise, 0.0)))
  down = batch - rise + jnp.log1p((1.0 - decay) * jnp.expm1(jnp.minimum(rise, 0.0)))
  return jnp.where(rise >= 0, up, down)


def normalized_weights(
  losses: chex.Array,
  tilt: chex.Numeric,
  log_normalizer: chex.Array,
  max_weight: float = math.inf,
  mix: float = 0.0,
) -> chex.Array:
  """Objective A's weights w_i = exp(c ℓ_i - log Z), with a normaliser from outside the batch.

  For batches too small for `tilt_weights`. Each weight depends on its own datum only, so that the
  weighted gradient is unbiased, up to a factor where Z is off, if Z has not seen this batch: use
  Z first and update it afterwards.

  Args:
    losses: ℓ (n,), finite.
    tilt: c = α - 1.
    log_normalizer: log Z, a finite scalar, of `update_log_normalizer`.
    max_weight: weights above it are cut, >= 1. Worth setting: nothing else bounds them.
    mix: u in [0, 1], after the cut w <- (1-u) w + u.

  Returns:
    Weights (n,), without a gradient; of mean 1 over the data, not over this batch.

  Raises:
    ValueError: if max_weight or mix is out of its range.
  """
  _check_losses(losses)
  chex.assert_rank(log_normalizer, 0)
  return _finish(jnp.exp(tilt * losses - log_normalizer), max_weight, mix)


def excess_weights(
  losses: chex.Array,
  reference_losses: chex.Array,
  tilt: chex.Numeric,
  max_weight: float = math.inf,
  mix: float = 0.0,
) -> chex.Array:
  """Objective A' tilts by the excess, w_i = n softmax(c (ℓ - ℓ_ref))_i, for log p/q.

  Args:
    losses: ℓ (n,), finite.
    reference_losses: ℓ_ref (n,) of a frozen model trained by likelihood, at the same times and
      noise, whose variance then cancels for the most part.
    tilt: c = α - 1.
    max_weight: weights above it are cut, >= 1.
    mix: u in [0, 1], after the cut w <- (1-u) w + u.

  Returns:
    Weights (n,), without a gradient. Exactly 1 where the model is the reference.

  Raises:
    ValueError: if max_weight or mix is out of its range.
  """
  chex.assert_equal_shape([losses, reference_losses])
  return tilt_weights(losses - reference_losses, tilt, max_weight, mix)


def ratio_weights(
  log_ratios: chex.Array, alpha: chex.Numeric, max_weight: float = math.inf
) -> chex.Array:
  """Objective B's weights w_t ∝ (p_t/q_t)^{α-1} at points of p_t, which stand for points of r_t.

  r_t ∝ p_t^α q_t^{1-α}. The k-th times of all data are taken to be alike, as those of one stratum
  are (`times.stratified`), and each k has weights of mean 1 over the batch.

  Args:
    log_ratios: log p_t/q_t (B, K) at the noised data.
    alpha: α > 0.
    max_weight: weights above it are cut, >= 1.

  Returns:
    Weights (B, K), without a gradient. Exactly 1 at α = 1, or where all ratios are equal.

  Raises:
    ValueError: if max_weight is below 1.
  """
  chex.assert_rank(log_ratios, 2)
  return _finish(_softmax(log_ratios, alpha - 1.0), max_weight, 0.0)


def ratio_loss(
  errors: chex.Array, weights: chex.Array, normalizer: chex.Numeric, alpha: chex.Numeric
) -> chex.Array:
  """Objective B, α Z/2 mean(w ‖ε̂ - ε‖²), denoising under r_t ∝ p_t^α q_t^{1-α}.

  For p and q pushed through one diffusion,

    D_α(p_0‖q_0) = D_α(p_T‖q_T) + α/2 ∫ g² E_{r_t} ‖∇log p_t - ∇log q_t‖² dt,

  which is theorem 2 of Song et al. (2021), arXiv:2101.09258, at α = 1. The weighted error of
  denoising is the integral plus a number that depends on the model only through the weights.

  The gradient holds the weights, hence r_t, still. At q = p that is the gradient of D_α, zero; it
  is so everywhere at α = 1 only. A model that cannot reach p rests elsewhere than at the least D_α;
  Gaussian ones, nearer to the fit of likelihood.

  Args:
    errors: ‖ε̂ - ε‖² (B, K), of `losses.denoising_errors` at `times.importance_times`.
    weights: w (B, K), of `ratio_weights`.
    normalizer: Z, of `times.importance_normalizer`.
    alpha: α > 0.

  Returns:
    Scalar loss in nats; with weights 1 and α = 1 the mean of `losses.likelihood_losses`.
  """
  chex.assert_rank(errors, 2)
  chex.assert_equal_shape([errors, weights])
  weights = jax.lax.stop_gradient(weights)
  return alpha * jnp.mean(denoising.likelihood_losses(weights * errors, normalizer))


def proxy_log_ratios(
  errors: chex.Array, reference_errors: chex.Array, scale: chex.Numeric
) -> chex.Array:
  """A rough log p_t/q_t without a discriminator: the excess error, in nats.

  log p_t/q_t at x_t is Z_t/2 times the mean excess at later times, Z_t = λ(t) - λ(T), on paths that
  go on from x_t, in predicting the noise added since. Here the excess at t itself stands for it.
  That is rough: over an exact reference its mean given x_t is ‖ε̂ - ε̂_ref‖², never negative, and
  only its mean given x_0 has the sign of a log ratio. It also depends on ε, so that weights made of
  it shift what the network regresses on, unless the model is the reference, where all are 1.

  Args:
    errors: ‖ε̂ - ε‖² (B, K) of the model.
    reference_errors: those of a frozen reference at the same times and noise (B, K), or one for
      each time (1, K). Means over the batch are of the latter kind, and no reference at all:
      `ratio_weights` do not see what a column has in common.
    scale: nats for each unit of error, broadcast to (B, K): Z_t/2 as above, of
      `times.importance_normalizer` at t; or Z/2, with which the mean over k is the difference of
      `losses.likelihood_losses`.

  Returns:
    Log ratios (B, K), without a gradient.
  """
  chex.assert_rank([errors, reference_errors], 2)
  return jax.lax.stop_gradient(scale * (errors - reference_errors))


def discriminator_loss(logits_data: chex.Array, logits_model: chex.Array) -> chex.Array:
  """The logistic loss -E_p log σ(h) - E_q log σ(-h), least at the logit h = log p_t/q_t.

  The classes weigh the same however many points each has, so that the logit needs no correction.

  Args:
    logits_data: h at noised data, of any shape.
    logits_model: h at noised samples of the model, at times of the same law.

  Returns:
    Scalar loss, 2 log 2 for logits of zero.
  """
  return jnp.mean(jax.nn.softplus(-logits_data)) + jnp.mean(jax.nn.softplus(logits_model))


def _softmax(losses: chex.Array, tilt: chex.Numeric) -> chex.Array:
  """n softmax(c ℓ) along the first axis, with ones that are exact."""
  e = jnp.exp(tilt * (losses - _dominant(losses, tilt)))
  # Not e / mean(e): compiled, a mean multiplies by 1/n, and n times that is not always 1.
  return e * (e.shape[0] / jnp.sum(e, axis=0))


def _dominant(losses: chex.Array, tilt: chex.Numeric) -> chex.Array:
  """The loss that dominates a sum of exp(c ℓ) along the first axis."""
  losses = jax.lax.stop_gradient(losses)
  return jnp.where(tilt > 0, jnp.max(losses, axis=0), jnp.min(losses, axis=0))


def _finish(weights: chex.Array, max_weight: float, mix: float) -> chex.Array:
  """Cuts and mixes weights and stops their gradient."""
  if not max_weight >= 1:
    raise ValueError(f'The largest weight must be at least 1, the mean, got {max_weight=}.')
  if not 0 <= mix <= 1:
    raise ValueError(f'The share of uniform weights must lie in [0, 1], got {mix=}.')
  weights = jnp.minimum(jax.lax.stop_gradient(weights), max_weight)
  return (1.0 - mix) * weights + mix


def _check_losses(losses: chex.Array) -> None:
  chex.assert_rank(losses, 1)
  if not losses.size:
    raise ValueError('There are no losses.')
