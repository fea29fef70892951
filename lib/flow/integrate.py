"""Traced. From a velocity field to its flow: samples, and their densities.

A field is `velocity(x, t) -> u` for points (B, A) and times (B, 1); time runs from 0 to 1 unless
told otherwise.
"""

from collections.abc import Callable

import chex
import diffrax
import jax
import jax.numpy as jnp

from lib.flow import regularizers

Field = regularizers.Field


def euler(velocity: Field, x0: chex.Array, num_steps: int) -> chex.Array:
  """Integrates with Euler steps x ← x + u(x, i/K) / K on a uniform grid, i = 0, ..., K - 1.

  Args:
    velocity: velocity field.
    x0: points (B, A) at time 0.
    num_steps: K, > 0.

  Returns:
    Points (B, A) at time 1, differentiable with respect to everything.

  Raises:
    ValueError: if the number of steps is not positive.
  """
  if num_steps <= 0:
    raise ValueError(f'Integration needs at least one step, got {num_steps=}.')

  def step(x: chex.Array, i: chex.Array) -> tuple[chex.Array, None]:
    return x + velocity(x, _times(x, i / num_steps)) / num_steps, None

  return jax.lax.scan(step, x0, jnp.arange(num_steps))[0]


def flow_map(
  velocity: Field,
  x0: chex.Array,
  rtol: float = 1e-5,
  atol: float = 1e-6,
  solver: diffrax.AbstractSolver | None = None,
  t0: float = 0.0,
  t1: float = 1.0,
) -> chex.Array:
  """Integrates with an adaptive solver, the reference for `euler`.

  Args:
    velocity: velocity field.
    x0: points (B, A) at t0.
    rtol: relative tolerance of a step.
    atol: absolute tolerance of a step.
    solver: diffrax solver, Tsit5 by default.
    t0: first time.
    t1: last time; before t0, the flow is run backwards.

  Returns:
    Points (B, A) at t1.
  """
  return _solve(lambda t, x, _: velocity(x, _times(x, t)), x0, rtol, atol, solver, t0, t1)


def flow_map_with_log_density(
  velocity: Field,
  x0: chex.Array,
  log_density0: chex.Array,
  divergence: Callable[[regularizers.Map, chex.Array], chex.Array] = regularizers.divergence_exact,
  rtol: float = 1e-5,
  atol: float = 1e-6,
  solver: diffrax.AbstractSolver | None = None,
  t0: float = 0.0,
  t1: float = 1.0,
) -> tuple[chex.Array, chex.Array]:
  """Carries points and their log-densities, d log ρ_t(x_t)/dt = -tr J (Chen et al., 2018).

  Args:
    velocity: velocity field.
    x0: points (B, A) at t0.
    log_density0: log ρ_t0(x_0) (B,).
    divergence: `divergence(f, x) -> tr J (B,)`; an estimate must use the same probes at all times.
    rtol: relative tolerance of a step.
    atol: absolute tolerance of a step.
    solver: diffrax solver, Tsit5 by default.
    t0: first time.
    t1: last time; before t0, the flow is run backwards.

  Returns:
    Points (B, A) and log ρ_t1 (B,) at t1.
  """
  chex.assert_shape(log_density0, x0.shape[:-1])

  def rates(t, state, _):
    x, _ = state
    times = _times(x, t)
    return velocity(x, times), -divergence(lambda y: velocity(y, times), x)

  return _solve(rates, (x0, log_density0), rtol, atol, solver, t0, t1)


def _times(x: chex.Array, t: chex.Numeric) -> chex.Array:
  return jnp.full((*x.shape[:-1], 1), t, x.dtype)


def _solve(rates, state, rtol, atol, solver, t0: float, t1: float):
  solution = diffrax.diffeqsolve(
    diffrax.ODETerm(rates),
    solver or diffrax.Tsit5(),
    t0=t0,
    t1=t1,
    dt0=None,
    y0=state,
    stepsize_controller=diffrax.PIDController(rtol=rtol, atol=atol),
  )
  return jax.tree.map(lambda saved: saved[0], solution.ys)
