"""Traced. Penalties on a velocity field that the continuity equation motivates.

A density under the flow of u obeys ∂_t ρ + ∇·(ρ u) = 0. With the Jacobian J = ∂u/∂x it changes
along a trajectory at the rate -tr J, and two trajectories separate at a rate of at most
λ_max((J + Jᵀ)/2) <= ‖J‖_F: what bounds J bounds both.

Functions take `f(x) -> u` from points (B, A) to velocities (B, A), row by row, and return a number
a row, (B,). Those that need the time take `field(x, t)` with t (B, 1). A penalty is differentiated
again when it is trained on, so that f wants a smooth activation: ReLU's Jacobian is piecewise
constant.
"""

from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp

from lib.flow import paths

Map = Callable[[chex.Array], chex.Array]
Field = Callable[[chex.Array, chex.Array], chex.Array]
# `probe(key, shape, dtype)` draws independent entries of mean 0 and variance 1; another choice is
# jax.random.normal, whose estimates vary more.
Probe = Callable[..., chex.Array]


def jacobian(f: Map, x: chex.Array) -> chex.Array:
  """The Jacobians J = ∂f/∂x (B, A, A), column by column with A Jacobian-vector products."""
  basis = jnp.eye(x.shape[-1], dtype=x.dtype)

  def column(direction: chex.Array) -> chex.Array:
    return jax.jvp(f, (x,), (jnp.broadcast_to(direction, x.shape),))[1]

  return jax.vmap(column, out_axes=-1)(basis)


def frobenius_sq_exact(f: Map, x: chex.Array) -> chex.Array:
  """‖J‖_F² (B,), with A Jacobian-vector products."""
  return jnp.sum(jacobian(f, x) ** 2, axis=(-2, -1))


def velocity_and_frobenius_sq(
  f: Map,
  x: chex.Array,
  key: chex.PRNGKey,
  num_probes: int = 1,
  probe: Probe = jax.random.rademacher,
) -> tuple[chex.Array, chex.Array]:
  """The velocity f(x), and Hutchinson's unbiased estimate (1/n) Σ_k ‖J ε_k‖² of ‖J‖_F².

  A Jacobian-vector product computes the velocity anyway, so that flow matching and its penalty
  share one pass. The variance of one probe is 2 (‖JᵀJ‖_F² - Σ_i (JᵀJ)_ii²) for Rademacher probes,
  and 2 ‖JᵀJ‖_F² for Gaussian ones (Hutchinson, 1989).

  Args:
    f: velocity field at fixed times, (B, A) -> (B, A).
    x: points (B, A).
    key: typed PRNG key.
    num_probes: n, > 0.
    probe: law of the probes.

  Returns:
    Velocities (B, A) and estimates (B,).

  Raises:
    ValueError: if `num_probes` is not positive.
  """
  probes = _probes(key, num_probes, x, probe)
  velocity, products = jax.vmap(lambda e: jax.jvp(f, (x,), (e,)), out_axes=(None, 0))(probes)
  return velocity, jnp.mean(jnp.sum(products**2, axis=-1), axis=0)


def frobenius_sq_hutchinson(
  f: Map,
  x: chex.Array,
  key: chex.PRNGKey,
  num_probes: int = 1,
  probe: Probe = jax.random.rademacher,
) -> chex.Array:
  """Estimates ‖J‖_F² (B,); see `velocity_and_frobenius_sq`."""
  return velocity_and_frobenius_sq(f, x, key, num_probes, probe)[1]


def strain_sq_exact(f: Map, x: chex.Array) -> chex.Array:
  """‖(J + Jᵀ)/2‖_F² (B,): the strain, which separates trajectories, without the rotation."""
  jac = jacobian(f, x)
  return jnp.sum((0.5 * (jac + jac.mT)) ** 2, axis=(-2, -1))


def strain_sq_hutchinson(
  f: Map,
  x: chex.Array,
  key: chex.PRNGKey,
  num_probes: int = 1,
  probe: Probe = jax.random.rademacher,
) -> chex.Array:
  """Estimates ‖(J + Jᵀ)/2‖_F² = ½ E[‖J ε‖² + (Jᵀ ε)·(J ε)] without bias.

  One probe's estimate may be negative; the mean is not.

  Args:
    f: velocity field at fixed times, (B, A) -> (B, A).
    x: points (B, A).
    key: typed PRNG key.
    num_probes: > 0; each costs a Jacobian-vector and a vector-Jacobian product.
    probe: law of the probes.

  Returns:
    Estimates (B,).

  Raises:
    ValueError: if `num_probes` is not positive.
  """
  _, pullback = jax.vjp(f, x)

  def estimate(e: chex.Array) -> chex.Array:
    forward = jax.jvp(f, (x,), (e,))[1]
    (backward,) = pullback(e)
    return 0.5 * jnp.sum(forward**2 + forward * backward, axis=-1)

  return jnp.mean(jax.vmap(estimate)(_probes(key, num_probes, x, probe)), axis=0)


def divergence_exact(f: Map, x: chex.Array) -> chex.Array:
  """tr J (B,), with A Jacobian-vector products."""
  return jnp.trace(jacobian(f, x), axis1=-2, axis2=-1)


def divergence_hutchinson(
  f: Map,
  x: chex.Array,
  key: chex.PRNGKey,
  num_probes: int = 1,
  probe: Probe = jax.random.rademacher,
) -> chex.Array:
  """Estimates tr J = E[εᵀ J ε] without bias.

  Args:
    f: velocity field at fixed times, (B, A) -> (B, A).
    x: points (B, A).
    key: typed PRNG key.
    num_probes: > 0.
    probe: law of the probes.

  Returns:
    Estimates (B,).

  Raises:
    ValueError: if `num_probes` is not positive.
  """
  return jnp.mean(_traces(f, x, _probes(key, num_probes, x, probe)), axis=0)


def divergence_sq_hutchinson(
  f: Map,
  x: chex.Array,
  key: chex.PRNGKey,
  num_pairs: int = 1,
  target: chex.Numeric = 0.0,
  probe: Probe = jax.random.rademacher,
) -> chex.Array:
  """Estimates (tr J - d)² = E[(ε₁ᵀ J ε₁ - d)(ε₂ᵀ J ε₂ - d)] without bias.

  The square of a single probe's estimate would add its variance.

  Args:
    f: velocity field at fixed times, (B, A) -> (B, A).
    x: points (B, A).
    key: typed PRNG key.
    num_pairs: pairs of independent probes, > 0.
    target: d, a number or (B,): the divergence to match.
    probe: law of the probes.

  Returns:
    Estimates (B,); one may be negative.

  Raises:
    ValueError: if `num_pairs` is not positive.
  """
  first, second = (_probes(k, num_pairs, x, probe) for k in jax.random.split(key))
  return jnp.mean((_traces(f, x, first) - target) * (_traces(f, x, second) - target), axis=0)


def material_derivative(
  field: Field, x: chex.Array, t: chex.Array, stop_tangent: bool = False
) -> chex.Array:
  """The acceleration ∂_t u + (u·∇) u of a particle in the flow.

  It is zero if and only if trajectories are straight and of constant speed.

  Args:
    field: velocity field (x, t) -> (B, A).
    x: points (B, A).
    t: times (B, 1).
    stop_tangent: whether the u that carries the particle is a constant to the gradient.

  Returns:
    Accelerations (B, A).
  """
  velocity = field(x, t)
  if stop_tangent:
    velocity = jax.lax.stop_gradient(velocity)
  return jax.jvp(field, (x, t), (velocity, jnp.ones_like(t)))[1]


def continuity_residual(
  log_density: Field, field: Field, x: chex.Array, t: chex.Array
) -> chex.Array:
  """The continuity equation's residual ∂_t log ρ + ∇·u + u·∇ log ρ of a density and a field.

  Args:
    log_density: log ρ_t(x), (x, t) -> (B,).
    field: velocity field (x, t) -> (B, A).
    x: points (B, A).
    t: times (B, 1).

  Returns:
    Residuals (B,), zero where the field carries the density.
  """
  divergence = divergence_exact(lambda y: field(y, t), x)
  # ∂_t + u·∇ is one derivative, along the particle.
  along = jax.jvp(log_density, (x, t), (field(x, t), jnp.ones_like(t)))[1]
  return along + divergence


def continuity_residual_score_form(field: Field, x: chex.Array, t: chex.Array) -> chex.Array:
  """The gradient of the continuity equation, with the linear path's own score; no density needed.

    ∂_t g + ∇(tr J + u·g),  g = (t u - x) / (1 - t)

  For the linear path, field and score determine each other, so a field that is some marginal field
  has residual zero. It takes third derivatives once trained on. Another field has a double pole at
  t = 1: multiply by (1 - t)² before squaring. Compare the score's Fokker-Planck equation (Lai et
  al., 2023, arXiv:2210.04296).

  Args:
    field: velocity field (x, t) -> (B, A).
    x: points (B, A).
    t: times (B, 1) in [0, 1).

  Returns:
    Residuals (B, A).
  """

  def score(x: chex.Array, t: chex.Array) -> chex.Array:
    return paths.score_from_velocity(field(x, t), x, t)

  def potential(x: chex.Array) -> chex.Array:
    divergence = divergence_exact(lambda y: field(y, t), x)
    return jnp.sum(divergence + jnp.sum(field(x, t) * score(x, t), axis=-1))  # rows are apart

  time_derivative = jax.jvp(lambda s: score(x, s), (t,), (jnp.ones_like(t),))[1]
  return time_derivative + jax.grad(potential)(x)


def _probes(key: chex.PRNGKey, num_probes: int, x: chex.Array, probe: Probe) -> chex.Array:
  """Draws (n, B, A)."""
  if num_probes <= 0:
    raise ValueError(f'Hutchinson estimates need at least one probe, got {num_probes}.')
  return probe(key, (num_probes, *x.shape), x.dtype)


def _traces(f: Map, x: chex.Array, probes: chex.Array) -> chex.Array:
  """εᵀ J ε of each probe, (n, B)."""
  products = jax.vmap(lambda e: jax.jvp(f, (x,), (e,))[1])(probes)
  return jnp.sum(probes * products, axis=-1)
