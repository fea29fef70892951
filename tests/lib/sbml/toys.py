"""Small models, written by libsbml from formulas."""

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

import libsbml
import numpy as np
import roadrunner

from lib.io import sbml
from lib.sbml import compiler

WORDS = (
  *(b'A', b'B', b'R', b'V', b'k', b'f', b'', b'true', b'false', b'e-notation', b'rational'),
  *(b'0', b'-1', b'1e308', b'1e999', b'NaN', b'INF', b'9999999999999', b'x' * 5000, b'\xc3\xa9'),
)
roadrunner.Logger.setLevel(roadrunner.Logger.LOG_CRITICAL)


def parts(**named: Any) -> dict[str, Any]:
  """The arguments of `document`, kept for later."""
  return named


def document(
  compartments: Mapping[str, float] | None = None,
  species: Mapping[str, Mapping[str, Any]] | None = None,
  parameters: Mapping[str, float | None] | None = None,
  reactions: Mapping[str, tuple[Mapping[str, float], Mapping[str, float], str]] | None = None,
  local: Mapping[str, Mapping[str, float]] | None = None,
  functions: Mapping[str, str] | None = None,
  initial: Mapping[str, str] | None = None,
  assigned: Mapping[str, str] | None = None,
  rates: Mapping[str, str] | None = None,
  events: Sequence[Mapping[str, Any]] = (),
  conversion: str = '',
) -> bytes:
  """A model of level 3 version 2, whose mathematics are infix formulas of libsbml."""
  whole = libsbml.SBMLDocument(3, 2)
  model = whole.createModel()
  if conversion:
    model.setConversionFactor(conversion)
  for name, formula in (functions or {}).items():
    f = model.createFunctionDefinition()
    f.setId(name)
    f.setMath(math(formula))
  varying = {*(assigned or {}), *(rates or {})}
  varying.update(name for event in events for name in event['assign'])
  for name, size in (compartments or {'V': 1.0}).items():
    c = model.createCompartment()
    c.setId(name)
    c.setSize(size)
    c.setSpatialDimensions(3)
    c.setConstant(name not in varying)
  for name, facts in (species or {}).items():
    s = model.createSpecies()
    s.setId(name)
    s.setCompartment(facts.get('compartment', 'V'))
    s.setHasOnlySubstanceUnits(facts.get('only_substance', False))
    s.setBoundaryCondition(facts.get('boundary', False))
    s.setConstant(facts.get('constant', False))
    if 'amount' in facts:
      s.setInitialAmount(facts['amount'])
    if 'concentration' in facts:
      s.setInitialConcentration(facts['concentration'])
    if 'conversion' in facts:
      s.setConversionFactor(facts['conversion'])
  for name, value in (parameters or {}).items():
    p = model.createParameter()
    p.setId(name)
    p.setConstant(name not in varying)
    if value is not None:
      p.setValue(value)
  for name, formula in (initial or {}).items():
    a = model.createInitialAssignment()
    a.setSymbol(name)
    a.setMath(math(formula))
  for make, rules in ((model.createAssignmentRule, assigned), (model.createRateRule, rates)):
    for name, formula in (rules or {}).items():
      rule = make()
      rule.setVariable(name)
      rule.setMath(math(formula))
  for name, (taken, made, law) in (reactions or {}).items():
    r = model.createReaction()
    r.setId(name)
    r.setReversible(False)
    for create, references in ((r.createReactant, taken), (r.createProduct, made)):
      for symbol, number in references.items():
        reference = create()
        reference.setSpecies(symbol)
        reference.setConstant(not isinstance(number, str))
        if isinstance(number, str):
          reference.setId(number)
        else:
          reference.setStoichiometry(number)
    kinetics = r.createKineticLaw()
    kinetics.setMath(math(law))
    for symbol, value in (local or {}).get(name, {}).items():
      p = kinetics.createLocalParameter()
      p.setId(symbol)
      p.setValue(value)
  for event in events:
    e = model.createEvent()
    e.setUseValuesFromTriggerTime(event.get('early', True))
    trigger = e.createTrigger()
    trigger.setInitialValue(event.get('initial', True))
    trigger.setPersistent(event.get('persistent', True))
    trigger.setMath(math(event['trigger']))
    if 'delay' in event:
      e.createDelay().setMath(math(event['delay']))
    if 'priority' in event:
      e.createPriority().setMath(math(event['priority']))
    for name, formula in event['assign'].items():
      a = e.createEventAssignment()
      a.setVariable(name)
      a.setMath(math(formula))
  return libsbml.writeSBMLToString(whole).encode()


def math(formula: str) -> libsbml.ASTNode:
  """The tree of a formula."""
  node = libsbml.parseL3Formula(formula)
  assert node is not None, libsbml.getLastParseL3Error()
  return node


def mutants(text: bytes, seed: int, number: int = 50) -> list[bytes]:
  """Documents with a few bytes, words or elements changed."""
  rng = np.random.default_rng(seed)
  result = []
  for _ in range(number):
    mutant, change = text, (_change_bytes, _change_words, _change_elements)[rng.integers(3)]
    for _ in range(rng.integers(1, 4)):
      mutant = change(mutant, rng) or text
    result.append(mutant)
  return result


def _change_bytes(text: bytes, rng: np.random.Generator) -> bytes:
  start, length = rng.integers(len(text)), rng.integers(40)
  other = rng.integers(len(text))
  return text[:start] + text[other : other + rng.integers(40)] + text[start + length :]


def _change_words(text: bytes, rng: np.random.Generator) -> bytes:
  """Changes an attribute or what stands between tags."""
  places = [
    match.span(1) for match in re.finditer(rb'(?<==")([^"]*)(?=")|(?<=>)([^<>]+)(?=<)', text)
  ]
  start, end = places[rng.integers(len(places))]
  return text[:start] + WORDS[rng.integers(len(WORDS))] + text[end:]


def _change_elements(text: bytes, rng: np.random.Generator) -> bytes:
  """Removes, copies or moves an element, or gives it the name of another."""
  try:
    root = ElementTree.fromstring(text)
  except ElementTree.ParseError:
    return text
  pairs = [(parent, child) for parent in root.iter() for child in parent]
  if not pairs:
    return text
  (parent, child), (other, sister) = (pairs[i] for i in rng.integers(len(pairs), size=2))
  action = rng.integers(4)
  if action in (0, 2):
    parent.remove(child)
  if action in (1, 2) and other not in child.iter():
    other.append(child)
  if action == 3:
    child.tag = sister.tag
  return ElementTree.tostring(root)


def make_reader() -> Callable[[list[bytes]], list[tuple[bytes, str]]]:
  """What compiles documents in a process of its own, and tells how it went."""

  def outcome(text: bytes) -> str:
    try:
      c = compiler.compile_rhs(sbml.parse(text))
    except ValueError as error:
      return str(error)
    finite = np.isfinite(c.rhs(np.float64(0.0), c.y0, c.c)).all()
    return 'finite' if finite else 'not finite'

  return lambda texts: [(text, outcome(text)) for text in texts]


def compiled(**parts) -> compiler.Compiled:
  """The equations of a model that is given as to `document`."""
  return compiler.compile_rhs(sbml.parse(document(**parts)))


def value(formula: str, t: float = 0.0, **parts) -> float:
  """The value of a formula, as a model's assignment rule has it."""
  parts['parameters'] = {**parts.get('parameters', {}), 'value': 0.0}
  parts['assigned'] = {**parts.get('assigned', {}), 'value': formula}
  c = compiled(**parts)
  return float(observed(c, t, c.y0)['value'])


def observed(c: compiler.Compiled, t: float, y: np.ndarray) -> dict[str, float]:
  """Everything that can be observed, by name."""
  return dict(zip(c.names.observables, c.observe(np.float64(t), y, c.c), strict=True))


def course(text: bytes, ts: np.ndarray, names: Sequence[str]) -> np.ndarray:
  """What libroadrunner simulates (len(ts), len(names)); `S` is an amount, `S'` its rate."""
  runner = roadrunner.RoadRunner(text.decode())
  runner.integrator.relative_tolerance = 1e-10
  runner.integrator.absolute_tolerance = 1e-13
  with contextlib.suppress(AttributeError):
    runner.integrator.setValue('maximum_num_steps', 50_000)
  return np.array(runner.simulate(times=list(ts), selections=list(names)))
