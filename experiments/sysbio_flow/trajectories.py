"""Trajectories of one model by libroadrunner (CVODE): a horizon, a nominal run, perturbed runs.

Somogyi et al. (2015), doi:10.1093/bioinformatics/btv363. It computes in C++, which nothing can
interrupt: `experiments/sysbio_flow/build.py` runs it in processes that it can end.
"""

import re
from typing import Any, NamedTuple

import numpy as np

_SET = {  # by what an identifier is set
  kind: re.compile(rb'<%b\s[^>]*?\b%b\s*=\s*"([^"]+)"' % (kind.encode(), attribute))
  for kind, attribute in (
    ('rateRule', b'variable'),
    ('assignmentRule', b'variable'),
    ('initialAssignment', b'symbol'),
    ('eventAssignment', b'variable'),
  )
}
_ACTIVE = 0.01  # relative range, above which a channel moves
_HUGE = 1e100


class Recipe(NamedTuple):
  """How trajectories are made.

  Attributes:
    horizons: of which the most telling is taken, in the model's unit of time.
    points: L, on a uniform grid with both ends.
    context: of these, what a forecast is given.
    runs: with perturbed starts, beside the nominal one.
    amounts: standard deviation of the logarithm of what initial amounts are multiplied with.
    parameters: likewise, of constant parameters.
    range: relative, that a channel must exceed.
    channels: of a model, at most.
    least_after, most_after: the share of a channel's total variation that is to lie after the
      context, for a horizon to be telling of it. Nor may it turn more often than every 8 points,
      which is too fast for the grid.
    rtol, atol: tolerances of the solver.
  """

  horizons: tuple[float, ...] = (1.0, 10.0, 100.0, 1e3, 1e4)
  points: int = 128
  context: int = 32
  runs: int = 5
  amounts: float = 0.25
  parameters: float = 0.0
  range: float = 0.02
  channels: int = 6
  least_after: float = 0.15
  most_after: float = 0.97
  rtol: float = 1e-6
  atol: float = 1e-9


class Trajectories(NamedTuple):
  """Of one model.

  Attributes:
    values: (runs, channels, L), the nominal run first; runs that failed are left out.
    names: of the channels.
    horizon: the time of the last point.
  """

  values: np.ndarray
  names: tuple[str, ...]
  horizon: float


def make(text: bytes, recipe: Recipe, seed: np.random.SeedSequence) -> Trajectories:
  """Simulates a model.

  Args:
    text: of its SBML file.
    recipe: how.
    seed: of the perturbations, and of which channels are kept where there are more than wanted.

  Returns:
    Its trajectories.

  Raises:
    ValueError: with the reason, if there are none that move.
  """
  import roadrunner

  roadrunner.Logger.setLevel(roadrunner.Logger.LOG_CRITICAL)
  try:
    model = roadrunner.RoadRunner(text.decode())
  except Exception as error:  # of C++, of any kind
    raise ValueError(f'not loaded: {_first_line(error)}') from error
  rng = np.random.default_rng(seed)
  names = _states(model, text)
  if not names:
    raise ValueError('no state that changes by reactions or rate rules')
  model.integrator.setValue('relative_tolerance', recipe.rtol)
  model.integrator.setValue('absolute_tolerance', recipe.atol)
  model.timeCourseSelections = [
    f'[{name}]' if name in model.model.getFloatingSpeciesIds() else name for name in names
  ]
  scanned, failures = {}, []
  for horizon in recipe.horizons:
    try:
      scanned[horizon] = _simulate(model, horizon, recipe.points)
    except Exception as error:  # likewise
      failures.append(_first_line(error))
  if not scanned:
    raise ValueError(f'not simulated: {failures[0]}')
  horizon = max(scanned, key=lambda time: (score(scanned[time], recipe), time))
  nominal = scanned[horizon]
  if score(nominal, recipe) == 0:
    raise ValueError('nothing moves')
  values = [nominal]
  for _ in range(recipe.runs):
    amounts = np.exp(recipe.amounts * rng.normal(size=len(model.model.getFloatingSpeciesIds())))
    constants = _constants(model, text) if recipe.parameters else []
    factors = np.exp(recipe.parameters * rng.normal(size=len(constants)))
    try:
      values.append(_simulate(model, horizon, recipe.points, amounts, constants, factors))
    except Exception:  # likewise; the others remain
      continue
  stacked = np.stack(values)
  usable = np.isfinite(stacked).all(axis=(0, 2)) & (abs(stacked).max(axis=(0, 2)) < _HUGE)
  moving = usable & (relative_range(nominal) > recipe.range)
  chosen = np.flatnonzero(moving)
  if not len(chosen):
    raise ValueError('nothing that moves stays finite')
  if len(chosen) > recipe.channels:
    chosen = np.sort(rng.choice(chosen, recipe.channels, replace=False))
  return Trajectories(stacked[:, chosen], tuple(names[i] for i in chosen), horizon)


def score(values: np.ndarray, recipe: Recipe) -> float:
  """How telling a horizon is: moving channels times the share of them that go on to move.

  Args:
    values: channels (C, L) of the nominal run.
    recipe: with the bounds.

  Returns:
    Zero where nothing moves; a fraction of a channel where something does, but only within the
    context or only after it.
  """
  usable = np.isfinite(values).all(axis=1) & (abs(values).max(axis=1) < _HUGE)
  values = values[usable]
  active = relative_range(values) > _ACTIVE
  if not active.any():
    return 0.0
  steps = np.diff(values[active], axis=1)
  after = abs(steps[:, recipe.context - 1 :]).sum(axis=1) / abs(steps).sum(axis=1)
  turns = (steps[:, 1:] * steps[:, :-1] < 0).sum(axis=1)
  told = (after > recipe.least_after) & (after < recipe.most_after) & (turns <= len(steps.T) / 8)
  return float(active.sum() * told.mean() + active.mean() * 1e-3)


def relative_range(values: np.ndarray) -> np.ndarray:
  """(max - min) / max |.| of channels (..., L), zero for what is zero throughout."""
  largest = abs(values).max(axis=-1)
  span = values.max(axis=-1) - values.min(axis=-1)
  with np.errstate(invalid='ignore', over='ignore'):
    return np.where(largest > 0, span / np.where(largest > 0, largest, 1.0), 0.0)


def _states(model: Any, text: bytes) -> list[str]:
  """Identifiers of what changes by reactions or by rate rules."""
  ruled, rated = _identifiers(text, 'assignmentRule'), _identifiers(text, 'rateRule')
  species = [name for name in model.model.getFloatingSpeciesIds() if name not in ruled]
  known = {*model.model.getGlobalParameterIds(), *model.model.getCompartmentIds()}
  known |= {*model.model.getBoundarySpeciesIds()}
  return [*species, *(name for name in rated if name in known and name not in species)]


def _constants(model: Any, text: bytes) -> list[str]:
  """Identifiers of parameters that no rule, event or initial assignment sets."""
  set_elsewhere = _identifiers(text, *_SET)
  return [name for name in model.model.getGlobalParameterIds() if name not in set_elsewhere]


def _identifiers(text: bytes, *kinds: str) -> list[str]:
  return [name.decode() for kind in kinds for name in _SET[kind].findall(text)]


def _simulate(
  model: Any,
  horizon: float,
  points: int,
  amounts: np.ndarray | None = None,
  constants: list[str] | None = None,
  factors: np.ndarray | None = None,
) -> np.ndarray:
  """Channels (C, L) from the start, multiplied if so wanted, to the horizon."""
  model.resetAll()
  for name, factor in zip(constants or (), factors if factors is not None else (), strict=True):
    model.model[name] = model.model[name] * factor
  if amounts is not None:
    model.model.setFloatingSpeciesAmounts(model.model.getFloatingSpeciesAmounts() * amounts)
  return np.array(model.simulate(0.0, horizon, points)).T


def _first_line(error: Exception) -> str:
  return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
