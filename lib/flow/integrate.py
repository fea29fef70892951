"""Traced. From a velocity field to its flow: samples, and their densities.

A field is `velocity(x, t) -> u` for points (B, A) and times (B, 1); time runs from 0 to 1 unless
told otherwise.

The adaptive solvers take the batch as one system, with the same steps for all rows. By default the
tolerances bound the root mean square of a step's error over the batch, so that a row alone may err
by √B as much; `norm=worst_row` bounds the error of each. Rows under `vmap` would have steps of
their own, but wait for the slowest: no more accurate, and dearer. After 4096 steps the solver gives
up and the whole batch is NaN: a row or the field is not finite, or so stiff that it wants an
implicit `solver`. Common flows of diffusions take fewer than 200.
"""

import functools
from collections.abc import Callable

import chex
import diffrax
import jax
import jax.numpy as jnp

from lib.flow import regularizers

Field = regularizers.Field
# The size of a step's errors, a tree of (B, ...) in units of the tolerance: a step of size < 1 is
# taken.
Norm = Callable[[chex.ArrayTree], chex.Array]


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


def worst_row(errors: chex.ArrayTree) -> chex.Array:
  """The largest root mean square of a row, in each part of the state: points, log-densities."""
  # Step sizes have no gradient, and the root none at zero.
  errors = jax.lax.stop_gradient(errors)
  rows = [jnp.mean(jnp.reshape(e, (e.shape[0], -1)) ** 2, axis=-1) for e in jax.tree.leaves(errors)]
  return jnp.sqrt(jnp.max(jnp.stack(rows)))


def flow_map(
  velocity: Field,
  x0: chex.Array,
  rtol: float = 1e-5,
  atol: float = 1e-6,
  solver: diffrax.AbstractSolver | None = None,
  t0: chex.Numeric = 0.0,
  t1: chex.Numeric = 1.0,
  norm: Norm | None = None,
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
    norm: of a step's errors, the root mean square over the batch by default.

  Returns:
    Points (B, A) at t1; NaN if the solver fails.
  """
  return _solve(lambda t, x, _: velocity(x, _times(x, t)), x0, rtol, atol, solver, t0, t1, norm)


def flow_map_with_log_density(
  velocity: Field,
  x0: chex.Array,
  log_density0: chex.Array,
  divergence: Callable[[regularizers.Map, chex.Array], chex.Array] = regularizers.divergence_exact,
  rtol: float = 1e-5,
  atol: float = 1e-6,
  solver: diffrax.AbstractSolver | None = None,
  t0: chex.Numeric = 0.0,
  t1: chex.Numeric = 1.0,
  norm: Norm | None = None,
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
    norm: of a step's errors, the root mean square over the batch by default.

  Returns:
    Points (B, A) and log ρ_t1 (B,) at t1; NaN if the solver fails.
  """
  chex.assert_shape(log_density0, x0.shape[:-1])

  def rates(t, state, _):
    x, _ = state
    times = _times(x, t)
    return velocity(x, times), -divergence(lambda y: velocity(y, times), x)

  return _solve(rates, (x0, log_density0), rtol, atol, solver, t0, t1, norm)


def _times(x: chex.Array, t: chex.Numeric) -> chex.Array:
  return jnp.full((*x.shape[:-1], 1), t, x.dtype)


def _solve(rates, state, rtol, atol, solver, t0, t1, norm: Norm | None):
  controller = functools.partial(diffrax.PIDController, rtol=rtol, atol=atol)
  solution = diffrax.diffeqsolve(
    diffrax.ODETerm(rates),
    solver or diffrax.Tsit5(),
    t0=t0,
    t1=t1,
    dt0=None,
    y0=state,
    stepsize_controller=controller() if norm is None else controller(norm=norm),
    throw=False,
  )
  done = solution.result == diffrax.RESULTS.successful
  return jax.tree.map(lambda saved: jnp.where(done, saved[0], jnp.nan), solution.ys)
