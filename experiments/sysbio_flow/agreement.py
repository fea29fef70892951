"""Whether lib.sbml and libroadrunner agree on a model, at time 0 and with other states."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.sysbio_flow import biomodels, outcomes
from lib.sbml import model as records

TOLERANCE = 1e-6  # relative error of amounts and rates
_SPREAD = 0.3  # of the logarithms of the other states


def make_worker() -> Callable[[tuple[str, biomodels.Source]], str]:
  """What tries models in a process of its own."""
  outcomes.confine()

  def handle(request: tuple[str, biomodels.Source]) -> str:
    try:
      return outcome_of(request[1].read())
    except (ValueError, MemoryError) as error:
      return ' '.join((str(error) or type(error).__name__).split())

  return handle


def outcome_of(text: bytes) -> str:
  """What becomes of a model: `agrees`, or what does not.

  Raises:
    ValueError: if the model cannot be compiled.
  """
  import jax  # not in the parent of the processes
  import roadrunner

  from lib.io import sbml
  from lib.sbml import compiler

  model = sbml.parse(text)
  ours = compiler.compile_rhs(model)
  if not ours.names.states:
    return 'compiles, but has no states'
  y, rhs = ours.y0, jax.jit(ours.rhs)
  with jax.enable_x64(True):
    if ours.events and ((ours.events.triggers(0.0, y, ours.c) != 0) & ~ours.events.initial).any():
      y = np.asarray(_after_events(ours, y))
  try:
    theirs = roadrunner.RoadRunner(_with_boundaries(text))
  except RuntimeError as error:
    return f'compiles, but libroadrunner does not: {str(error)[:80]}'
  for what, states in (('', y), (' with other states', _others(y, ours.names.states))):
    with jax.enable_x64(True):
      rates = np.asarray(rhs(0.0, states, ours.c))
    if what:
      _set(theirs, dict(zip(ours.names.states, states, strict=True)), ours.names.concentrations)
    elif not np.isfinite(rates).all():
      raise ValueError('the rates at time 0 are not finite.')
    values = dict(
      zip(ours.names.observables, ours.observe(np.float64(0.0), states, ours.c), strict=True)
    )
    changes = _of_amounts(
      model, ours.names, dict(zip(ours.names.states, rates, strict=True)), values
    )
    if wrong := _differing(theirs, values, changes):
      return f'another {wrong}{what}'
  return 'agrees'


def _after_events(ours: Any, y: Any) -> Any:
  """The states after the events of the first time."""
  import jax.numpy as jnp

  from lib.sbml import events

  y, c, t = jnp.asarray(y), jnp.asarray(ours.c), jnp.zeros(())
  waiting = events.start(ours.events, t, y, c, num_slots=1)
  while (waiting.times <= t).any():
    waiting, y = events.happen(ours.events, waiting, t, y, c)
  return y


def _others(y: np.ndarray, names: Sequence[str]) -> np.ndarray:
  """States in which nothing is zero, of the size of the others."""
  rng = np.random.default_rng(0)
  size = np.median(abs(y[y != 0])) if y.any() else 1.0
  factors, fresh = np.exp(_SPREAD * rng.normal(size=y.size)), size * rng.uniform(size=y.size)
  fixed = np.array(names) == 'time'  # for libroadrunner no name but that of the time
  return np.where(fixed, y, np.where(y == 0, fresh, y * factors))


def _set(theirs: Any, states: Mapping[str, float], concentrations: Sequence[str]) -> None:
  """Volumes and parameters first, for amounts depend on them."""
  model = theirs.model
  species = {*model.getFloatingSpeciesIds(), *model.getBoundarySpeciesIds()}
  for name in sorted(states, key=lambda name: name in species):
    theirs.setValue(f'[{name}]' if name in concentrations else name, float(states[name]))


def _of_amounts(
  model: records.Model, names: Any, rates: dict[str, float], values: Mapping[str, float]
) -> dict[str, float]:
  """Rates of amounts, which are those that libroadrunner has, where ours are of concentrations."""
  homes = {s.id: s.compartment for s in model.species}
  result = dict(rates)
  for name in names.concentrations:
    growth = values[f'[{name}]'] * rates.get(homes[name], 0.0)
    result[name] = rates[name] * values[homes[name]] + growth
  return result


def _with_boundaries(text: bytes) -> str:
  """The model, in which species with rate rules are boundary ones, or their rates are not told."""
  import libsbml

  document = libsbml.readSBMLFromString(text.decode())
  model = document.getModel()
  for i in range(model.getNumRules()):
    species = model.getSpecies(model.getRule(i).getVariable())
    if species is not None and model.getRule(i).isRate():
      species.setBoundaryCondition(True)
  return libsbml.writeSBMLToString(document)


def _differing(theirs: Any, values: Mapping[str, float], rates: Mapping[str, float]) -> str:
  """The first amount or rate that differs by more than the tolerance."""
  model = theirs.model
  floating = [*model.getFloatingSpeciesIds()]
  species = [*floating, *model.getBoundarySpeciesIds()]
  amounts = [*model.getFloatingSpeciesAmounts(), *model.getBoundarySpeciesAmounts()]
  moving = [name for name in (*floating, *theirs.getRateRuleIds()) if name in rates]
  expected = [theirs.getValue(f"{name}'") for name in moving]
  flows = [abs(x) for x in (*model.getReactionRates(), *expected) if np.isfinite(x)]
  rounding = 1e-12 * max(flows, default=0.0)  # of rates that cancel
  for kind, ours, names, numbers, absolute in (
    ('amount', values, species, amounts, 0.0),
    ('rate', rates, moving, expected, rounding),
  ):
    for name, number in zip(names, numbers, strict=True):
      if not np.isclose(ours[name], number, TOLERANCE, absolute, equal_nan=True):
        return f"{kind} of '{name}', {ours[name]} instead of {number},"
  return ''
