"""Traced. Which events of a model happen when, between the stretches of integration.

An event is triggered when its condition becomes true, and waits in one of a few slots until its
delay has passed. Of events that are due at one time that of the largest priority goes first; of
equal ones any, by chance, as SBML has it, or else that which was due first, then that which comes
first in the model. Each may trigger others.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from lib.sbml import compiler


class Waiting(NamedTuple):
  """Conditions, and events that were triggered but have not happened; E events of Q slots.

  Attributes:
    holds: whether the condition of an event holds (E), bool.
    times: when events are due (E, Q), inf where a slot is free.
    states: to be assigned (E, Q, D), as they were at the trigger.
    lost: an event found no free slot.
  """

  holds: chex.Array
  times: chex.Array
  states: chex.Array
  lost: chex.Array


def start(
  events: compiler.Events, t: chex.Numeric, y: chex.Array, c: chex.Array, num_slots: int
) -> Waiting:
  """What waits at the first time.

  Args:
    events: of the model.
    t: the first time.
    y: states (D).
    c: constants (P).
    num_slots: Q, how often an event can wait at once.

  Returns:
    The conditions, and the events that they trigger.
  """
  num_events = len(events.initial)
  waiting = Waiting(
    holds=jnp.asarray(events.initial),
    times=jnp.full((num_events, num_slots), jnp.inf, y.dtype),
    states=jnp.zeros((num_events, num_slots, y.size), y.dtype),
    lost=jnp.asarray(False),
  )
  return change(events, waiting, events.triggers(t, y, c) != 0, t, y, c)


def distances(
  events: compiler.Events, waiting: Waiting, t: chex.Numeric, y: chex.Array, c: chex.Array
) -> chex.Array:
  """Functions (E) that rise above zero when a condition begins or ceases to hold."""
  return jnp.where(waiting.holds, events.falls(t, y, c), events.rises(t, y, c))


def change(
  events: compiler.Events,
  waiting: Waiting,
  holds: chex.Array,
  t: chex.Numeric,
  y: chex.Array,
  c: chex.Array,
) -> Waiting:
  """Notes which conditions hold now; those that begin to hold trigger, those that cease cancel.

  Args:
    events: of the model.
    waiting: until now.
    holds: conditions from now on (E), bool.
    t: now.
    y: states (D).
    c: constants (P).

  Returns:
    What waits from now on.
  """
  triggered = holds & ~waiting.holds
  cancelled = waiting.holds & ~holds & ~jnp.asarray(events.persistent)
  times = jnp.where(cancelled[:, None], jnp.inf, waiting.times)
  free = jnp.isinf(times)
  first = jnp.arange(times.shape[1]) == jnp.argmax(free, axis=1)[:, None]
  taken = triggered[:, None] & free & first
  due = t + jnp.maximum(events.delays(t, y, c), 0.0)
  return Waiting(
    holds=holds,
    times=jnp.where(taken, due[:, None], times),
    states=jnp.where(taken[:, :, None], events.assigned(t, y, c)[:, None], waiting.states),
    lost=waiting.lost | jnp.any(triggered & ~jnp.any(free, axis=1)),
  )


def happen(
  events: compiler.Events,
  waiting: Waiting,
  t: chex.Numeric,
  y: chex.Array,
  c: chex.Array,
  key: chex.PRNGKey | None = None,
) -> tuple[Waiting, chex.Array]:
  """Lets one event happen, if any is due.

  Args:
    events: of the model.
    waiting: until now.
    t: now.
    y: states (D).
    c: constants (P).
    key: typed PRNG key, for the order of events of one priority; None for that of the model.

  Returns:
    What waits from now on, and the states (D).
  """
  due = waiting.times <= t
  priorities = jnp.where(due, events.priorities(t, y, c)[:, None], -jnp.inf)
  first = due & (priorities == jnp.max(priorities))
  order = waiting.times if key is None else jax.random.uniform(key, due.shape)
  slot = jnp.argmin(jnp.where(first, order, jnp.inf))
  event = slot // due.shape[1]
  any_due = jnp.any(due)
  is_slot = (jnp.arange(due.size) == slot).reshape(due.shape)
  early = waiting.states.reshape(due.size, -1)[slot]
  late = events.assigned(t, y, c)[event]
  values = jnp.where(jnp.asarray(events.early)[event], early, late)
  after = jnp.where(any_due & jnp.asarray(events.changes)[event], values, y)
  left = waiting._replace(times=jnp.where(any_due & is_slot, jnp.inf, waiting.times))
  # A condition that has just been reached is within rounding of its threshold: only where the event
  # moved that threshold's distance does its value count.
  moved = events.rises(t, y, c) != events.rises(t, after, c)
  holds = jnp.where(moved, events.triggers(t, after, c) != 0, waiting.holds)
  return change(events, left, holds, t, after, c), after
