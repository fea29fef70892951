"""Whether lib.sbml and libroadrunner agree on a model at time 0."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from experiments.sysbio_flow import biomodels, outcomes

AMOUNTS = 1e-6  # relative error of initial amounts
RATES = 1e-5  # relative error of rates


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

  from lib.io import sbml
  from lib.sbml import compiler

  ours = compiler.compile_rhs(sbml.parse(text))
  t = np.float64(0.0)
  with jax.enable_x64(True):
    rates = np.asarray(jax.jit(ours.rhs)(t, ours.y0, ours.c))
  if not np.isfinite(rates).all():
    raise ValueError('the rates at time 0 are not finite.')
  values = ours.observe(t, ours.y0, ours.c)
  return _compared(
    text,
    dict(zip(ours.names.observables, values, strict=True)),
    dict(zip(ours.names.states, rates, strict=True)),
  )


def _compared(text: bytes, values: dict[str, Any], rates: dict[str, Any]) -> str:
  import roadrunner

  with warnings.catch_warnings():
    warnings.simplefilter('ignore')
    try:
      theirs = roadrunner.RoadRunner(text.decode())
    except RuntimeError as error:
      return f'compiles, but libroadrunner does not: {str(error)[:80]}'
  model = theirs.model
  floating = [*model.getFloatingSpeciesIds()]
  species = [*floating, *model.getBoundarySpeciesIds()]
  amounts = [*model.getFloatingSpeciesAmounts(), *model.getBoundarySpeciesAmounts()]
  moving = [name for name in (*floating, *theirs.getRateRuleIds()) if name in rates]
  if wrong := _differing(values, species, amounts, AMOUNTS):
    return f'another amount of {wrong}'
  if wrong := _differing(rates, moving, [theirs.getValue(f"{name}'") for name in moving], RATES):
    return f'another rate of {wrong}'
  return 'agrees'


def _differing(
  ours: dict[str, float], names: Sequence[str], theirs: Sequence[float], tolerance: float
) -> str:
  """The first that differs, relative to itself, or by rounding relative to the largest."""
  scale = 1e-12 * max([abs(x) for x in theirs if np.isfinite(x)], default=0.0)
  for name, value in zip(names, theirs, strict=True):
    if not np.isclose(ours[name], value, rtol=tolerance, atol=scale, equal_nan=True):
      return f"'{name}', {ours[name]} instead of {value}"
  return ''
