"""Traced. Simulation of compiled models by an implicit Runge-Kutta method.

All is double precision: call these functions under `jax.enable_x64()`.
"""

import functools
from typing import Any

import chex
import diffrax
import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
import optimistix

from lib.sbml import compiler
from lib.sbml import events as happenings

_NEAR = 1e-9  # relative difference of times that are one for events
_RTOL, _ATOL = 1e-13, 1e-12  # of the times at which conditions change
_LOOKS = 100  # least steps of a simulation with events, whose conditions are looked at after each


def simulate(
  compiled: compiler.Compiled,
  ts: chex.Array,
  y0: chex.Array,
  c: chex.Array,
  rtol: float = 1e-6,
  atol: float = 1e-9,
  max_steps: int = 20_000,
  max_events: int = 128,
  num_slots: int = 4,
  key: chex.PRNGKey | None = None,
) -> tuple[chex.Array, chex.Array]:
  """Integrates dy/dt = rhs(t, y, c) by Kvaerno's method of order 5.

  Steps end at the times at which conditions on the time alone change. With events, there are a
  hundred steps or more; conditions are looked at after each, and the time of a change is found on
  the step's interpolant, but what changes twice within a step is missed. Gradients are those of the
  discretised equations, by checkpointed adjoints.

  Kvaerno (2004), doi:10.1023/B:BITN.0000046811.70614.38.

  Args:
    compiled: the model.
    ts: rising times (T), of which the first is that of y0.
    y0: states (D).
    c: constants (P).
    rtol: relative tolerance of a step.
    atol: absolute tolerance of a step, in the states' units.
    max_steps: after so many steps between two events the simulation is given up.
    max_events: after so many events, counting both the beginning and the end of their conditions
      and their execution, likewise.
    num_slots: how often one event may wait to be executed at once.
    key: typed PRNG key, for the order of events of one time and priority; None for that of the
      model.

  Returns:
    States (T, D), after the events of each time, and whether the simulation came to its end; if
    not, the states from there on are NaN.

  Raises:
    ValueError: if a tolerance or number is not positive.
  """
  if min(rtol, atol) <= 0 or min(max_steps, max_events, num_slots) <= 0:
    raise ValueError(
      f'Tolerances and numbers must be positive, got {rtol=}, {atol=}, {max_steps=}, '
      f'{max_events=}, {num_slots=}.'
    )
  ts, y0, c = (jnp.asarray(x, np.float64) for x in (ts, y0, c))
  if not y0.size:
    return jnp.zeros((ts.size, 0)), jnp.asarray(True)
  integrate = functools.partial(_integrate, compiled, ts, c, rtol, atol, max_steps)
  if compiled.events is None:
    ys, _, _, done, _ = integrate(ts[0], ts[-1], y0, None)
    return ys, done
  return _between_events(compiled.events, integrate, ts, y0, c, max_events, num_slots, key)


def _integrate(
  compiled: compiler.Compiled,
  ts: chex.Array,
  c: chex.Array,
  rtol: float,
  atol: float,
  max_steps: int,
  t0: chex.Array,
  t1: chex.Array,
  y0: chex.Array,
  waiting: happenings.Waiting | None,
) -> tuple[chex.Array, chex.Array, chex.Array, chex.Array, Any]:
  """Integrates from t0 to t1, or until a condition changes.

  Returns:
    States at those of the times that it passed (T, D), the last time, the states then (D), whether
    the solver succeeded, and the events whose conditions changed (E).
  """
  controller: Any = diffrax.PIDController(
    rtol,
    atol,
    pcoeff=0.3,
    icoeff=0.4,
    dtmax=None if waiting is None else (ts[-1] - ts[0]) / _LOOKS,
  )
  jumps = compiled.jumps(c)
  if jumps.size:
    controller = diffrax.ClipStepSizeController(controller, jump_ts=jnp.sort(jumps))
  condition = None
  if compiled.events is not None and waiting is not None:
    distance = functools.partial(happenings.distances, compiled.events, waiting, c=c)
    # One that has just changed starts anew, and one at rest on its threshold is below it.
    margins = jnp.maximum(distance(t0, y0), 0.0) + np.finfo(np.float64).tiny
    condition = diffrax.Event(
      lambda t, y, args, **_: jnp.max(distance(t, y) - margins),
      _Bisection(_RTOL, _ATOL, flip=False),  # type: ignore[call-arg]
      direction=True,
    )
  solution = diffrax.diffeqsolve(
    diffrax.ODETerm(lambda t, y, args: compiled.rhs(t, y, args)),
    diffrax.Kvaerno5(),
    t0=t0,
    t1=t1,
    dt0=None,
    y0=y0,
    args=c,
    saveat=diffrax.SaveAt(
      subs=[diffrax.SubSaveAt(ts=jnp.clip(ts, t0, t1)), diffrax.SubSaveAt(t1=True)]
    ),
    stepsize_controller=controller,
    event=condition,
    max_steps=max_steps,
    throw=False,
  )
  done = solution.result == diffrax.RESULTS.successful
  ys, last = solution.ys[0], solution.ys[1][-1]
  if condition is None:
    return jnp.where(jnp.isinf(ys), jnp.nan, ys), t1, last, done, None
  # On to where the condition has certainly changed, for it may do so by a jump.
  t, changed = solution.ts[1][-1], solution.event_mask
  beyond = jnp.where(changed, 4.0 * (_ATOL + _RTOL * jnp.abs(t)), 0.0)
  t, last = t + beyond, last + beyond * compiled.rhs(t, last, c)
  found = distance(t, last) - margins
  which = changed & ((found == jnp.max(found)) | (found > 0.0))
  return ys, t, last, done | changed, which


class _Bisection(optimistix.Bisection):
  """Finds where a condition changes; in a batch, also that nothing does in some of its members.

  For these diffrax asks for the root of t1 - t, which is no condition that rises above zero.
  """

  def init(self, fn: Any, y: Any, args: Any, options: Any, *rest: Any) -> Any:
    """The interval of a step, or its end alone if the function is not positive there."""
    state = super().init(fn, y, args, options, *rest)
    last, _ = fn(state.upper, args)
    return eqx.tree_at(lambda s: s.lower, state, jnp.where(last > 0, state.lower, state.upper))


def _between_events(events, integrate, ts, y0, c, max_events, num_slots, key):
  end = ts[-1]
  near = lambda t: jnp.abs(ts - t) <= _NEAR * jnp.maximum(1.0, jnp.abs(t))

  def goes_on(carry):
    _, t, _, _, ok, waiting = carry
    return ok & ~waiting.lost & ((t < end) | jnp.any(waiting.times <= end))

  def advance(carry):
    i, t, y, ys, ok, waiting = carry
    # Either an event is due and happens now, or there is time to the next one.
    following = jnp.clip(jnp.min(waiting.times), t, end)
    passed, t1, y1, done, changed = integrate(t, following, y, waiting)
    moving = following > t
    ok &= done | ~moving
    t1, y1 = jnp.where(moving, t1, t), jnp.where(moving, y1, y)
    ys = jnp.where((ok & moving & (ts > t) & (ts <= t1))[:, None], passed, ys)
    holds = waiting.holds ^ (moving & changed)
    waiting = happenings.change(events, waiting, holds, t1, y1, c)
    now = None if key is None else jax.random.fold_in(key, i)
    waiting, after = happenings.happen(events, waiting, t1, y1, c, now)
    ys = jnp.where((ok & near(t1))[:, None], after, ys)
    return i + 1, t1, after, ys, ok, waiting

  waiting = happenings.start(events, ts[0], y0, c, num_slots)
  ys = jnp.full((ts.size, y0.size), jnp.nan).at[0].set(y0)
  carry = jnp.asarray(0), ts[0], y0, ys, jnp.asarray(True), waiting
  carry = eqxi.while_loop(goes_on, advance, carry, max_steps=max_events, kind='checkpointed')
  _, _, _, ys, ok, waiting = carry
  return ys, ok & ~waiting.lost & ~goes_on(carry)
