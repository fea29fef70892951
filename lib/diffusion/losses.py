"""Traced. Denoising score matching, as numbers for each datum and time."""

import chex
import jax.numpy as jnp

from lib.diffusion import sde as sdes


def denoising_errors(
  noise: sdes.Field, sde: sdes.SDE, x0: chex.Array, eps: chex.Array, t: chex.Array
) -> chex.Array:
  """The squared errors ‖ε̂(x_t, t) - ε‖² of every datum at K times of its own.

  Weighted by 1/σ² they are those of the score, ‖s(x_t, t) + ε/σ‖² (Vincent, 2011).

  Args:
    noise: the network, rows (B K, D) and times (B K, 1) to (B K, D).
    sde: the diffusion.
    x0: data (B, D).
    eps: noise ε (B, K, D).
    t: times (B, K).

  Returns:
    Squared errors (B, K), sums over dimensions.
  """
  chex.assert_shape(eps, (*t.shape, x0.shape[-1]))
  rows = eps.reshape(-1, eps.shape[-1])
  times = t.reshape(-1, 1)
  points = sdes.perturb(sde, jnp.repeat(x0, t.shape[1], axis=0), rows, times)
  return jnp.sum((noise(points, times) - rows) ** 2, axis=-1).reshape(t.shape)


def likelihood_losses(errors: chex.Array, normalizer: chex.Numeric) -> chex.Array:
  """Each datum's bound ℓ(x_0) = Z/2 · mean_k ‖ε̂ - ε‖² at importance-sampled times.

  An unbiased estimate of ½ ∫ g² E‖s(x_t, t) + ε/σ‖² dt, which is -log q(x_0) at least, up to
  C(x_0), which does not depend on the network (`likelihood.nelbo` has it). Song et al. (2021),
  arXiv:2101.09258, theorem 3.

  Args:
    errors: (B, K), of `denoising_errors` at `times.importance_times`.
    normalizer: Z, of `times.importance_normalizer`.

  Returns:
    Losses (B,), in nats.
  """
  return 0.5 * normalizer * jnp.mean(errors, axis=-1)


def likelihood_weights(sde: sdes.SDE, t: chex.Array) -> chex.Array:
  """g(t)²/σ(t)², by which errors of noise at uniform times count in the likelihood."""
  return sde.diffusion_sq(t) / sde.std(t) ** 2


def min_snr_weights(sde: sdes.SDE, t: chex.Array, gamma: float = 5.0) -> chex.Array:
  """The weights min(SNR, γ)/SNR of errors of noise. Hang et al. (2023), arXiv:2303.09556.

  Args:
    sde: the diffusion.
    t: times, of any shape.
    gamma: γ, > 0.

  Returns:
    Weights in (0, 1], of the shape of t.

  Raises:
    ValueError: if γ is not positive.
  """
  if not gamma > 0:
    raise ValueError(f'The largest signal-to-noise ratio must be positive, got {gamma=}.')
  return jnp.minimum(1.0, gamma * jnp.exp(-sde.log_snr(t)))
