"""Host. SBML of levels 1 to 3, read by libsbml into plain data.

Before libsbml sees a byte, the document has been through expat: it is well-formed, of bounded
depth, and declares no document type, hence no entities. Nothing of libsbml leaves this file, whose
objects die with their document.
"""

import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from xml.parsers import expat

from lib.sbml import model as records

_MAX_DEPTH = 256  # of elements; the deepest curated model of BioModels has 57
_MAX_FORMULA = 2**16  # characters, of formulas in level 1
_MAX_BRACKETS = 64  # open at once in such a formula
_MAX_EXPRESSION = 192  # levels of an expression
_MAX_MESSAGE = 300  # characters
_MAX_NUMBER = 100  # characters
_NO_MATH = {10201, 10202, 10205, 10207, *range(99219, 99225)}  # libsbml's errors
_MATH = 'http://www.w3.org/1998/Math/MathML'
_REAL = r'\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*'
_WHOLE = r'\s*[+-]?\d+\s*'
_NUMBERS = {  # parts of a number by its type
  'real': (_REAL,),
  'integer': (_WHOLE,),
  'e-notation': (_REAL, _WHOLE),
  'rational': (_WHOLE, _WHOLE),
}
_ENCODINGS = ('utf-8', 'us-ascii', 'ascii', 'iso-8859-1', 'latin-1', 'utf-16')
_URL = 'http://www.sbml.org/sbml/level'
_NAMESPACES = {
  **dict.fromkeys((('1', '1'), ('1', '2')), f'{_URL}1'),
  ('2', '1'): f'{_URL}2',
  **{('2', str(version)): f'{_URL}2/version{version}' for version in range(2, 6)},
  **{('3', str(version)): f'{_URL}3/version{version}/core' for version in (1, 2)},
}
_NAME = re.compile(r'[A-Za-z_]\w*', re.ASCII)
_DECLARATION = re.compile(r'\A\ufeff?\s*<\?xml[^>]*\?>')
_OPERATORS = {  # names in libsbml, where they are not those of MathML
  'DIVIDE': 'divide',
  'MINUS': 'minus',
  'PLUS': 'plus',
  'POWER': 'power',
  'TIMES': 'times',
  'FUNCTION_RATE_OF': 'rateOf',
  'CONSTANT_E': 'exponentiale',
  'NAME_AVOGADRO': 'avogadro',
  'NAME_TIME': 'time',
}
_READ_PACKAGES = {'l3v2extendedmath'}  # as the core's mathematics of level 3 version 2
_CHAINS = ('plus', 'times', 'and', 'or')  # associative, and often nested as deep as they are long


def parse(source: str | os.PathLike | bytes, max_bytes: int = 2**26) -> records.Model:
  """Reads a model; trusts nothing in it.

  Args:
    source: a path, or the document itself as bytes.
    max_bytes: the most that the document may take.

  Returns:
    The model, in which symbols may be unknown or expressions cyclic: compiling tells.

  Raises:
    OSError: if the file cannot be opened.
    ModuleNotFoundError: if python-libsbml is not installed.
    ValueError: naming the file and the element: the document is too large or too deep, is not
      well-formed XML, declares a document type, or is no SBML that could be read.
  """
  if isinstance(source, bytes):
    name, content = 'SBML', source
  else:
    path = pathlib.Path(source)
    with open(path, 'rb') as stream:
      name, content = str(path), stream.read(max_bytes + 1)
  if len(content) > max_bytes:
    raise ValueError(f'{name}: takes more than {max_bytes} bytes.')
  try:
    return _read(_checked(content), name)
  except ValueError as error:
    raise ValueError(f'{name}: {" ".join(str(error).split())[:_MAX_MESSAGE]}') from error


def _checked(content: bytes) -> str:
  """The document as text without XML declaration, or a ValueError."""
  encodings = ['utf-16' if content[:2] in (b'\xff\xfe', b'\xfe\xff') else 'utf-8']
  parser = expat.ParserCreate(namespace_separator=' ')
  depth = 0
  kind, parts = '', ['']  # of the number that is being read

  def start(name: str, attributes: dict[str, str]) -> None:
    nonlocal depth, kind, parts
    if not depth:
      _check_root(name, attributes)
    depth += 1
    if depth > _MAX_DEPTH:
      raise ValueError(f'element {name[:50]!r} is nested more than {_MAX_DEPTH} deep.')
    if formula := attributes.get('formula'):
      _check_formula(formula)
    if name == f'{_MATH} cn':
      if attributes.get('base', '10') != '10':
        raise ValueError(f'numbers of the base {attributes["base"][:20]!r} are not read.')
      kind, parts = attributes.get('type', 'real'), ['']
    elif kind:
      parts.append('')

  def text(data: str) -> None:
    if kind and len(parts[-1]) <= _MAX_NUMBER:
      parts[-1] += data

  def end(name: str) -> None:
    nonlocal depth, kind
    depth -= 1
    if name == f'{_MATH} cn':
      _check_number(kind, parts)
      kind = ''

  def declaration(version: str, encoding: str | None, standalone: int) -> None:
    del version, standalone
    if encoding:
      encodings.append(encoding.lower())

  def refuse(name: str, *_: Any) -> None:
    raise ValueError(f'declares the document type {name[:50]!r}, which is refused.')

  parser.StartElementHandler = start
  parser.EndElementHandler = end
  parser.CharacterDataHandler = text
  parser.XmlDeclHandler = declaration
  parser.StartDoctypeDeclHandler = refuse
  try:
    parser.Parse(content, True)
  except (expat.ExpatError, LookupError) as error:
    raise ValueError(f'not well-formed XML: {error}.') from error
  if encodings[-1] not in _ENCODINGS:
    raise ValueError(f'the encoding {encodings[-1][:50]!r} is not read.')
  return _DECLARATION.sub('', content.decode(encodings[-1]), count=1)


def _check_root(name: str, attributes: dict[str, str]) -> None:
  """libsbml aborts where the namespace, level and version do not agree."""
  level, version = attributes.get('level', ''), attributes.get('version', '')
  if name != f'{_NAMESPACES.get((level, version))} sbml':
    raise ValueError(
      f'element {name[-50:]!r} of level {level[:10]!r}, version {version[:10]!r} is no SBML.'
    )


def _check_number(kind: str, parts: list[str]) -> None:
  """libsbml makes something of whatever is no number, and cuts off what is too large."""
  whole = ' '.join(parts)
  patterns = _NUMBERS.get(kind, ())
  if len(whole) > _MAX_NUMBER or len(parts) != len(patterns):
    raise ValueError(f'{whole[:50]!r} is no number of the type {kind[:20]!r}.')
  for part, pattern in zip(parts, patterns, strict=True):
    if not re.fullmatch(pattern, part, re.ASCII):
      raise ValueError(f'{whole!r} is no number of the type {kind!r}.')
    if abs(float(part)) == float('inf') or (pattern == _WHOLE and abs(int(part)) >= 2**31):
      raise ValueError(f'the number {whole!r} is too large.')


def _check_formula(formula: str) -> None:
  depth = deepest = 0
  for character in formula:
    depth += (character == '(') - (character == ')')
    deepest = max(deepest, depth)
  # Signs and powers nest without brackets.
  runs = max(map(len, re.findall(r'[-^!+\s]+', formula)), default=0)
  if len(formula) > _MAX_FORMULA or max(deepest, runs, formula.count('^')) > _MAX_BRACKETS:
    raise ValueError(f'the formula {formula[:50]!r}... is too long or too deep.')


def _read(text: str, source: str) -> records.Model:
  try:
    import libsbml
  except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f'{source}: SBML is read by python-libsbml: {error}') from error
  document = libsbml.readSBMLFromString('<?xml version="1.0" encoding="UTF-8"?>' + text)
  for i in range(document.getNumErrors()):
    fault = document.getError(i)
    fatal = fault.getSeverity() >= libsbml.LIBSBML_SEV_FATAL or fault.isXML()
    if fatal or fault.getErrorId() in _NO_MATH:
      raise ValueError(f'line {fault.getLine()}: {fault.getMessage()}')
  model = document.getModel()
  if model is None:
    raise ValueError('there is no model.')
  return _Reader(libsbml, document, model).model(source)


class _Reader:
  """Copies what libsbml has read; alive as long as its document."""

  def __init__(self, libsbml: Any, document: Any, model: Any):
    self._document, self._model = document, model
    self._types = {
      getattr(libsbml, name): name.removeprefix('AST_')
      for name in sorted(dir(libsbml))
      if name.startswith('AST_') and isinstance(getattr(libsbml, name), int)
    }

  def model(self, source: str) -> records.Model:
    m = self._model
    rules = list(_items(m.getNumRules, m.getRule))
    read = records.Model(
      source=source,
      level=self._document.getLevel(),
      version=self._document.getVersion(),
      functions=tuple(
        self._function(f) for f in _items(m.getNumFunctionDefinitions, m.getFunctionDefinition)
      ),
      compartments=tuple(map(_compartment, _items(m.getNumCompartments, m.getCompartment))),
      species=tuple(map(_species, _items(m.getNumSpecies, m.getSpecies))),
      parameters=tuple(map(_parameter, _items(m.getNumParameters, m.getParameter))),
      reactions=tuple(map(self._reaction, _items(m.getNumReactions, m.getReaction))),
      initial_assignments=tuple(
        self._assignment(a, a.getSymbol(), 'initial assignment')
        for a in _items(m.getNumInitialAssignments, m.getInitialAssignment)
      ),
      assignment_rules=tuple(
        self._assignment(r, r.getVariable(), 'assignment rule') for r in rules if r.isAssignment()
      ),
      rate_rules=tuple(
        self._assignment(r, r.getVariable(), 'rate rule') for r in rules if r.isRate()
      ),
      algebraic_rules=tuple(self._math(r, 'an algebraic rule') for r in rules if r.isAlgebraic()),
      events=tuple(
        self._event(e, str(i)) for i, e in enumerate(_items(m.getNumEvents, m.getEvent))
      ),
      conversion_factor=m.getConversionFactor() or None,
      packages=self._packages(),
    )
    _check_names(read)
    return read

  def _packages(self) -> tuple[str, ...]:
    d = self._document
    if d.getLevel() < 3:
      return ()
    known = [d.getPlugin(i).getPackageName() for i in range(d.getNumPlugins())]
    needed = [name for name in known if d.getPackageRequired(name)]
    unknown = [d.getUnknownPackagePrefix(i) for i in range(d.getNumUnknownPackages())]
    needed += [name for name in unknown if d.getPackageRequired(name)]
    return tuple(sorted(set(needed) - _READ_PACKAGES))

  def _function(self, f: Any) -> records.Function:
    element = f'function {f.getId()!r}'
    body = f.getBody()
    return records.Function(
      id=f.getId(),
      arguments=tuple(a.getName() for a in _items(f.getNumArguments, f.getArgument)),
      body=None if body is None else self._expression(body, element),
    )

  def _reaction(self, r: Any) -> records.Reaction:
    element = f'reaction {r.getId()!r}'
    law = r.getKineticLaw()
    local: tuple[records.Parameter, ...] = ()
    if law is not None:
      if law.getNumLocalParameters():
        items = _items(law.getNumLocalParameters, law.getLocalParameter)
      else:
        items = _items(law.getNumParameters, law.getParameter)
      local = tuple(map(_parameter, items))
    return records.Reaction(
      id=r.getId(),
      reactants=tuple(
        self._reference(s, element) for s in _items(r.getNumReactants, r.getReactant)
      ),
      products=tuple(self._reference(s, element) for s in _items(r.getNumProducts, r.getProduct)),
      law=None if law is None else self._math(law, element),
      parameters=local,
      fast=bool(r.isSetFast() and r.getFast()),
    )

  def _reference(self, s: Any, element: str) -> records.Reference:
    math = s.getStoichiometryMath() if s.isSetStoichiometryMath() else None
    if not s.getDenominator():
      raise ValueError(f'{element}: the stoichiometry of {s.getSpecies()!r} has the denominator 0.')
    number = s.getStoichiometry() / s.getDenominator() if s.isSetStoichiometry() else None
    if number is None and s.getLevel() < 3:
      number = 1.0
    return records.Reference(
      id=s.getId(),
      species=s.getSpecies(),
      stoichiometry=number,
      math=None if math is None else self._math(math, element),
    )

  def _assignment(self, a: Any, symbol: str, kind: str) -> records.Assignment:
    return records.Assignment(symbol, self._math(a, f'the {kind} of {symbol!r}'))

  def _event(self, e: Any, number: str) -> records.Event:
    name = e.getId() or number
    element = f'event {name!r}'
    trigger = e.getTrigger()
    new_style = trigger is not None and e.getLevel() > 2
    return records.Event(
      id=name,
      trigger=None if trigger is None else self._math(trigger, element),
      initial=bool(trigger.getInitialValue()) if new_style else True,
      persistent=bool(trigger.getPersistent()) if new_style else True,
      delay=self._math(e.getDelay(), element) if e.isSetDelay() else None,
      priority=self._math(e.getPriority(), element) if e.isSetPriority() else None,
      early=bool(e.getUseValuesFromTriggerTime()),
      assignments=tuple(
        self._assignment(a, a.getVariable(), f'assignment by {element}')
        for a in _items(e.getNumEventAssignments, e.getEventAssignment)
      ),
    )

  def _math(self, holder: Any, element: str) -> records.Expression | None:
    math = holder.getMath()
    return None if math is None else self._expression(math, element)

  def _expression(self, node: Any, element: str, depth: int = 0) -> records.Expression:
    if depth > _MAX_EXPRESSION:
      raise ValueError(f'{element}: an expression is nested more than {_MAX_EXPRESSION} deep.')
    kind = self._types.get(node.getType(), 'UNKNOWN')
    if kind in ('INTEGER', 'REAL', 'REAL_E', 'RATIONAL'):
      return float(node.getValue())
    if kind == 'NAME':
      return node.getName()
    operator = _operator(kind)
    children = self._children(node, operator)
    if kind == 'FUNCTION':
      return ('call', node.getName(), *(self._expression(c, element, depth + 1) for c in children))
    known = kind in _OPERATORS or kind.startswith(
      ('FUNCTION_', 'CONSTANT_', 'LOGICAL_', 'RELATIONAL_')
    )
    if not known or kind.startswith('CONSTANTS_'):
      raise ValueError(f'{element}: the mathematics {kind.lower()!r} is not read.')
    return (operator, *(self._expression(c, element, depth + 1) for c in children))

  def _children(self, node: Any, operator: str) -> list[Any]:
    """The operands, those of nested chains in one list."""
    result: list[Any] = []
    stack = list(reversed(_children(node)))
    while stack:
      child = stack.pop()
      kind = self._types.get(child.getType(), 'UNKNOWN')
      if operator in _CHAINS and _operator(kind) == operator:
        stack.extend(reversed(_children(child)))
      else:
        result.append(child)
    return result


def _operator(kind: str) -> str:
  return _OPERATORS.get(kind) or kind.rsplit('_', 1)[-1].lower()


def _children(node: Any) -> list[Any]:
  return [node.getChild(i) for i in range(node.getNumChildren())]


def _items(count: Callable[[], int], get: Callable[[int], Any]) -> Iterator[Any]:
  return (get(i) for i in range(count()))


def _compartment(c: Any) -> records.Compartment:
  dimensions = c.getSpatialDimensionsAsDouble() if c.getLevel() > 1 else 3.0
  if dimensions != dimensions:
    dimensions = 3.0  # not given
  if c.isSetSize():
    size = c.getSize()
  elif c.isSetVolume() or c.getLevel() == 1:
    size = c.getVolume()
  else:
    size = None
  return records.Compartment(c.getId(), size, dimensions, c.getConstant())


def _species(s: Any) -> records.Species:
  return records.Species(
    id=s.getId(),
    compartment=s.getCompartment(),
    amount=s.getInitialAmount() if s.isSetInitialAmount() else None,
    concentration=s.getInitialConcentration() if s.isSetInitialConcentration() else None,
    only_substance=s.getHasOnlySubstanceUnits(),
    boundary=s.getBoundaryCondition(),
    constant=s.getConstant(),
    conversion_factor=s.getConversionFactor() or None,
  )


def _parameter(p: Any) -> records.Parameter:
  return records.Parameter(p.getId(), p.getValue() if p.isSetValue() else None, p.getConstant())


def _check_names(model: records.Model) -> None:
  """Raises if one name stands for two things, or something has none."""
  seen: set[str] = set()
  references = [s for r in model.reactions for s in (*r.reactants, *r.products) if s.id]
  for kind, items in (
    ('functions', model.functions),
    ('compartments', model.compartments),
    ('species', model.species),
    ('parameters', model.parameters),
    ('reactions', model.reactions),
    ('species references', references),
  ):
    _check_unique(f'of the {kind}', [item.id for item in items], seen)
  for function in model.functions:
    _check_unique(f'of the arguments of {function.id!r}', function.arguments, set())
  for reaction in model.reactions:
    _check_unique(
      f'of the parameters of {reaction.id!r}', [p.id for p in reaction.parameters], set()
    )


def _check_unique(where: str, names: Iterable[str], seen: set[str]) -> None:
  """Raises if a name is none, or was seen before; adds the names to those seen."""
  for name in names:
    if not _NAME.fullmatch(name):
      raise ValueError(f'one {where} has no name but {name[:50]!r}.')
    if name in seen:
      raise ValueError(f'{name[:50]!r} {where} is the id of something else too.')
    seen.add(name)
