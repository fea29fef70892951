"""Traced. How far apart two flows end: a field's Lipschitz constants and Grönwall's inequality."""

import chex
import jax
import jax.numpy as jnp

from lib.flow import regularizers

_TINY = 1e-30


def spectral_norm_power_iteration(
  f: regularizers.Map, x: chex.Array, key: chex.PRNGKey, num_iterations: int
) -> chex.Array:
  """Estimates the spectral norm ‖∂f/∂x‖₂ from below, by power iteration on JᵀJ.

  Args:
    f: map (B, A) -> (B, A), row by row.
    x: points (B, A).
    key: typed PRNG key of the first vectors.
    num_iterations: > 0; the norm's error shrinks by (σ₂/σ₁)⁴ in each, with the two largest
      singular values σ₁ > σ₂.

  Returns:
    Norms (B,).

  Raises:
    ValueError: if the number of iterations is not positive.
  """
  if num_iterations <= 0:
    raise ValueError(f'Power iteration needs at least one step, got {num_iterations=}.')
  _, push = jax.linearize(f, x)
  _, pullback = jax.vjp(f, x)

  def iterate(v: chex.Array, _) -> tuple[chex.Array, None]:
    (v,) = pullback(push(v))
    return v / jnp.maximum(jnp.linalg.norm(v, axis=-1, keepdims=True), _TINY), None

  v = jax.random.normal(key, x.shape, x.dtype)
  v, _ = jax.lax.scan(iterate, v / jnp.linalg.norm(v, axis=-1, keepdims=True), None, num_iterations)
  return jnp.linalg.norm(push(v), axis=-1)


def logarithmic_norm(f: regularizers.Map, x: chex.Array) -> chex.Array:
  """λ_max((J + Jᵀ)/2) (B,): the fastest rate at which trajectories separate; it may be negative."""
  jac = regularizers.jacobian(f, x)
  return jnp.linalg.eigvalsh(0.5 * (jac + jac.mT))[..., -1]


def wasserstein_gronwall_bound(
  rates: chex.Array, errors: chex.Array, times: chex.Array
) -> chex.Array:
  """Bounds the 2-Wasserstein distance at the last time between the flows of two fields.

    W₂ <= ∫ exp(∫_t^T ℓ_r dr) ε_t dt,  ε_t = ‖u*_t - u_t‖ in L²(ρ*_t)

  from one initial law, by Grönwall's inequality; the integrals are trapezoid sums.

  Args:
    rates: ℓ_t (T,), the largest `logarithmic_norm` of the second field at each time, or any
      Lipschitz constant of it. The largest over a sample is a lower estimate of ℓ_t.
    errors: ε_t (T,), root mean squares under the first flow's law.
    times: (T,), rising.

  Returns:
    The bound, a scalar.
  """
  chex.assert_equal_shape([rates, errors, times])
  steps = jnp.diff(times) * 0.5 * (rates[1:] + rates[:-1])
  growth = jnp.concatenate([jnp.cumsum(steps[::-1])[::-1], jnp.zeros_like(steps[:1])])
  return jnp.trapezoid(jnp.exp(growth) * errors, times)


def wasserstein_exponential_bound(
  rates: chex.Array, errors: chex.Array, times: chex.Array
) -> chex.Array:
  """The cruder bound W₂ <= e^L (∫ ε_t² dt)^½ with L = ∫ ℓ_t dt over unit time, for ℓ_t >= 0.

  With constant rates, the largest Lipschitz constant over time, it is the form usually quoted.

  Args:
    rates: Lipschitz constants ℓ_t >= 0 (T,).
    errors: ε_t (T,).
    times: (T,), rising from 0 to 1.

  Returns:
    The bound, a scalar, never below `wasserstein_gronwall_bound` of the same arguments.
  """
  chex.assert_equal_shape([rates, errors, times])
  lipschitz = jnp.trapezoid(rates, times)
  return jnp.exp(lipschitz) * jnp.sqrt(jnp.trapezoid(errors**2, times))
