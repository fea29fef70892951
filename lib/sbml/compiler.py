"""Traced. From an SBML model to the right-hand side of its differential equations.

The states are what reactions, rate rules and events change. A species is kept as an amount, but
where a rate rule changes its concentration, as that. The constants are the numbers of the model,
so that they can be perturbed, batched and differentiated: parameters and sizes by their names,
`reaction.parameter` for local ones, and `init(symbol)` for a state's value at the first time, 0.
What initial assignments and assignment rules say follows from them. Where a model does not give
a compartment's size it is 1, and where it does not give a species' amount, 0.

SBML Level 3 Version 2 Core: Hucka et al. (2019), doi:10.1515/jib-2019-0021.
"""

import functools
import graphlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import chex
import jax.numpy as jnp
import numpy as np

from lib.sbml import graphs, operators
from lib.sbml import model as records

_MAX_MESSAGE = 300  # characters, for names may be long
_MAX_WORK = 2**20  # expressions that are built; of curated models of BioModels at most 2**15
_MAX_CHANGES = 2**24  # entries of the matrix of what events change
_ROUNDING = 1e-13  # relative error within which two numbers may be equal
_FOLDED = {'plus': 0.0, 'times': 1.0, 'and': 1.0, 'or': 0.0, 'xor': 0.0, 'min': None, 'max': None}
_RELATIONS = {'eq', 'neq', 'lt', 'leq', 'gt', 'geq'}
_INVERSES = {  # of functions, by the function of the inverse of the argument
  'sec': 'cos',
  'csc': 'sin',
  'cot': 'tan',
  'sech': 'cosh',
  'csch': 'sinh',
  'coth': 'tanh',
}
_UNARY = {
  *('negative', 'abs', 'exp', 'ln', 'floor', 'ceiling', 'factorial', 'not'),
  *('sin', 'cos', 'tan', 'sinh', 'cosh', 'tanh'),
  *('arcsin', 'arccos', 'arctan', 'arcsinh', 'arccosh', 'arctanh'),
}
_NUMBERS = {
  'pi': np.pi,
  'exponentiale': np.e,
  'avogadro': operators.AVOGADRO,
  'true': 1.0,
  'false': 0.0,
}


class Names(NamedTuple):
  """What the entries of vectors are.

  Attributes:
    states: symbols (D).
    concentrations: the states that are concentrations of species.
    constants: as the file's docstring says (P).
    observables: all symbols but functions and events (O): a species' name is its amount, and in
      brackets its concentration.
  """

  states: tuple[str, ...]
  concentrations: tuple[str, ...]
  constants: tuple[str, ...]
  observables: tuple[str, ...]


class Events(NamedTuple):
  """The E events of a model, as functions of time, states (D) and constants (P).

  An equality is seen to hold at the first time, and where the time itself is compared; no others.

  Attributes:
    triggers: whether conditions hold (E), 1 or 0.
    rises: functions that become positive with conditions that begin to hold (E), and
    falls: with those that cease to (E). Within rounding of a threshold neither is positive.
    delays: from trigger to execution (E).
    priorities: the largest goes first (E).
    assigned: the states after each event (E, D).
    initial: the conditions before the first time (E), bool.
    persistent: whether an event happens though its condition has ceased to hold (E), bool.
    early: whether the assigned states are those of the trigger's time (E), bool.
    delayed: whether an event has a delay (E), bool.
    changes: the states that each event assigns (E, D), bool.
  """

  triggers: graphs.Function
  rises: graphs.Function
  falls: graphs.Function
  delays: graphs.Function
  priorities: graphs.Function
  assigned: graphs.Function
  initial: np.ndarray
  persistent: np.ndarray
  early: np.ndarray
  delayed: np.ndarray
  changes: np.ndarray


class Compiled(NamedTuple):
  """A model's equations dy/dt = rhs(t, y, c). Arrays are float64; so must be those of arguments.

  Attributes:
    rhs: `rhs(t, y [D], c [P]) -> dy/dt [D]`.
    y0: states at time 0 (D).
    c: constants (P).
    names: of states, constants and observables.
    initial: `initial(c [P]) -> y0 [D]`.
    observe: `observe(t, y [D], c [P]) -> values [O]` of all symbols.
    jumps: `jumps(c [P]) -> times [J]` at which conditions on the time alone may change.
    events: None if there are none.
  """

  rhs: graphs.Function
  y0: np.ndarray
  c: np.ndarray
  names: Names
  initial: Callable[[Any], Any]
  observe: graphs.Function
  jumps: Callable[[Any], Any]
  events: Events | None


def unsupported(model: records.Model) -> tuple[str, ...]:
  """The features of a model that `compile_rhs` refuses, sorted; empty if there are none."""
  features = set()
  if model.algebraic_rules:
    features.add('algebraic rules')
  if any(reaction.fast for reaction in model.reactions):
    features.add('fast reactions')
  if any('delay' in _operators_of(e) for e in _expressions(model)):
    features.add('delays')
  features.update(f'package {name}' for name in model.packages)
  return tuple(sorted(features))


def compile_rhs(model: records.Model) -> Compiled:
  """Compiles a model; nothing of it is executed but arithmetic.

  Args:
    model: as `lib.io.sbml.parse` reads it.

  Returns:
    The equations.

  Raises:
    ValueError: naming the model's source and the element: a feature is unsupported, a symbol
      unknown, without value, or defined by itself, or a state or its rate is not finite at time 0.
  """
  features = unsupported(model)
  if features:
    raise ValueError(f'{model.source}: not supported: {", ".join(features)}.')
  try:
    return _Compiler(model).compiled()
  except RecursionError:
    raise ValueError(f'{model.source}: the mathematics is nested too deeply.') from None
  except ValueError as error:
    raise ValueError(f'{model.source}: {str(error)[:_MAX_MESSAGE]}') from error


class _Compiler:
  """Builds the graph of a model. Each symbol has a value `now` and one at the start."""

  def __init__(self, model: records.Model):
    self.model = model
    self.graph = graphs.Graph()
    self.functions = {f.id: f for f in model.functions}
    self.compartments = {c.id: c for c in model.compartments}
    self.species = {s.id: s for s in model.species}
    self.parameters = {p.id: p for p in model.parameters}
    self.reactions = {r.id: r for r in model.reactions}
    self.references = {s.id: s for s in _references(model) if s.id}
    self.initial = _table('initial assignment', model.initial_assignments)
    self.assigned = _table('assignment rule', model.assignment_rules)
    self.rates = _table('rate rule', model.rate_rules)
    self._check()
    self.states = self._states()
    self.concentrations = {  # states that are kept as such
      name
      for name in self.states
      if name in self.species and name in self.rates and not self._by_amount(name)
    }
    self.rows = {name: i for i, name in enumerate(self.states)}
    self.constants: dict[str, int] = {}
    self.values: list[float] = []
    self.missing: dict[int, str] = {}
    self._work = 0
    self._cache: dict[tuple[str, bool], int] = {}
    self._rates: dict[tuple[str, bool], int] = {}
    self._calls: dict[tuple, int] = {}
    self._crossings: dict[int, tuple[int, int]] = {}
    self._magnitudes: dict[int, int] = {}
    self._active: list[tuple[str, bool | None]] = []
    self._parts: dict[str, list[tuple[records.Reaction, float, records.Reference]]] = {}
    for r in model.reactions:
      for sign, references in ((-1.0, r.reactants), (1.0, r.products)):
        for reference in references:
          self._parts.setdefault(reference.species, []).append((r, sign, reference))
    self._collect()

  # What there is.

  def _states(self) -> list[str]:
    changed = {s.species for s in _references(self.model)}
    free = lambda s: s.id in changed and not s.boundary and not s.constant
    moved = {s.id for s in self.model.species if free(s) and s.id not in self.assigned}
    moved.update(self.rates)
    moved.update(a.symbol for e in self.model.events for a in e.assignments)
    return [name for name in self._symbols() if name in moved]

  def _symbols(self) -> list[str]:
    return [*self.species, *self.compartments, *self.parameters, *self.references]

  def _check(self) -> None:
    known = set(self._symbols())
    for kind, symbols in (
      ('initial assignment', self.initial),
      ('assignment rule', self.assigned),
      ('rate rule', self.rates),
      ('event assignment', [a.symbol for e in self.model.events for a in e.assignments]),
    ):
      for name in symbols:
        if name not in known:
          raise ValueError(f'the {kind} of {name!r}: there is no such symbol.')
        if kind != 'assignment rule' and name in self.assigned:
          raise ValueError(f'the {kind} of {name!r}: the symbol has an assignment rule as well.')
    for reference in _references(self.model):
      if reference.species not in self.species:
        raise ValueError(f'a reaction has the species {reference.species!r}, which is not there.')
    for s in self.model.species:
      if s.compartment not in self.compartments:
        raise ValueError(f'species {s.id!r}: there is no compartment {s.compartment!r}.')

  def _collect(self) -> None:
    """The constants, in the order of the model."""
    for c in self.model.compartments:
      self._constant(c.id, 1.0 if c.size is None else c.size)
    for s in self.model.species:
      given = s.concentration if s.amount is None else s.amount
      self._constant(s.id, 0.0 if given is None else given)
    for p in self.model.parameters:
      self._constant(p.id, p.value)
    for name, reference in self.references.items():
      if name in self.rows or (reference.stoichiometry is None and reference.math is None):
        self._constant(name, reference.stoichiometry)
    for r in self.model.reactions:
      for p in r.parameters:
        self._constant(f'{r.id}.{p.id}', p.value)

  def _constant(self, name: str, value: float | None) -> None:
    if name in self.initial or name in self.assigned:
      return
    label = f'init({name})' if name in self.rows else name
    self.constants[name] = self.graph.add('constant', len(self.values))
    self.values.append(np.nan if value is None else value)
    if value is None:
      self.missing[self.constants[name]] = label

  # Values of symbols.

  def _by_amount(self, name: str) -> bool:
    return self.species[name].only_substance or not self._has_volume(name)

  def _has_volume(self, name: str) -> bool:
    """Before level 3, a species in a compartment without dimensions had no concentration."""
    return self.model.level > 2 or self.compartments[self.species[name].compartment].dimensions != 0

  def _volume(self, name: str, start: bool) -> int:
    return self.symbol(self.species[name].compartment, start)

  def symbol(self, name: str, start: bool) -> int:
    """What a symbol stands for in expressions."""
    key = (name, start)
    if key not in self._cache:
      self._enter(key)
      self._cache[key] = self._define(name, start)
      self._active.pop()
    return self._cache[key]

  def _enter(self, key: tuple[str, bool | None]) -> None:
    if key in self._active:
      raise _cycle([name for name, _ in (*self._active[self._active.index(key) :], key)])
    self._active.append(key)

  def _define(self, name: str, start: bool) -> int:
    if name in self.assigned:
      return self.build(self.assigned[name], start, f'the assignment rule of {name!r}')
    if name in self.reactions:
      return self._law(self.reactions[name], start)
    if not start:
      return self._now(name)
    if name in self.initial:
      return self.build(self.initial[name], start, f'the initial assignment of {name!r}')
    if name in self.constants:
      return self._given(name)
    reference = self.references[name]
    if reference.math is not None:
      return self.build(reference.math, start, f'the stoichiometry {name!r}')
    assert reference.stoichiometry is not None
    return self.graph.number(reference.stoichiometry)

  def _given(self, name: str) -> int:
    """The value that the model gives for the first time."""
    node = self.constants[name]
    s = self.species.get(name)
    if s is None or not self._has_volume(name):
      return node
    if s.only_substance and s.amount is None:
      return self.graph.add('times', node, self._volume(name, True))
    if not s.only_substance and s.amount is not None:
      return self.graph.add('divide', node, self._volume(name, True))
    return node

  def _now(self, name: str) -> int:
    if name in self.species and not self._by_amount(name) and name not in self.concentrations:
      compartment = self.species[name].compartment
      if name in self.rows or self._varies(compartment):
        return self.graph.add('divide', self.amount(name, False), self._volume(name, False))
    if name in self.rows:
      return self.graph.add('state', self.rows[name])
    if name in self.references and self.references[name].math is not None:
      return self.build(self.references[name].math, False, f'the stoichiometry {name!r}')
    return self.symbol(name, True)

  def _varies(self, name: str) -> bool:
    return name in self.rows or name in self.assigned

  def amount(self, name: str, start: bool) -> int:
    """A species' amount."""
    kept = name in self.rows and name not in self.concentrations
    if kept and not start:
      return self.graph.add('state', self.rows[name])
    if self._by_amount(name):
      return self.symbol(name, start)
    if not start and name not in self.rows and name not in self.assigned:
      return self.amount(name, True)  # whatever happens to the volume
    return self.graph.add('times', self.symbol(name, start), self._volume(name, start))

  def _law(self, reaction: records.Reaction, start: bool) -> int:
    element = f'reaction {reaction.id!r}'
    local = {p.id: self.constants[f'{reaction.id}.{p.id}'] for p in reaction.parameters}
    return self.build(reaction.law, start, element, local)

  # Rates.

  def _changes(self, name: str, start: bool) -> Iterator[tuple[int, float]]:
    """What reactions do to a species' amount: nodes, and numbers by which to multiply them."""
    s = self.species[name]
    factor = s.conversion_factor or self.model.conversion_factor
    for reaction, sign, reference in self._parts.get(name, ()):
      if reaction.law is None or s.boundary or s.constant:
        continue
      rate = self.symbol(reaction.id, start)
      number = self._stoichiometry(reference, reaction, start)
      known = self.graph.value(number)
      if known is None:
        rate = self.graph.add('times', number, rate)
      if factor is not None:
        rate = self.graph.add('times', self._known(factor, start, f'species {name!r}'), rate)
      yield rate, sign * (1.0 if known is None else known)

  def _stoichiometry(
    self, reference: records.Reference, reaction: records.Reaction, start: bool
  ) -> int:
    if reference.id:
      return self.symbol(reference.id, start)
    if reference.math is not None:
      element = f'reaction {reaction.id!r}: stoichiometry of {reference.species!r}'
      return self.build(reference.math, start, element)
    if reference.stoichiometry is None:
      raise ValueError(
        f'reaction {reaction.id!r}: the stoichiometry of {reference.species!r} has no value.'
      )
    return self.graph.number(reference.stoichiometry)

  def rate(self, name: str, start: bool) -> int:
    """The time derivative of what a symbol stands for."""
    key = (name, start)
    if key not in self._rates:
      self._enter((f"{name}'", start))
      self._rates[key] = self._rate(name, start)
      self._active.pop()
    return self._rates[key]

  def _rate(self, name: str, start: bool) -> int:
    if name in self.assigned or name in self.reactions:
      raise ValueError(f'rateOf: {name!r} is neither a state nor a constant.')
    if name in self.rates:
      return self.build(self.rates[name], start, f'the rate rule of {name!r}')
    if name not in self.species or self._by_amount(name):
      return self._amount_rate(name, start)
    compartment = self.species[name].compartment
    rate, volume = self._amount_rate(name, start), self.symbol(compartment, start)
    if self._varies(compartment):
      growth = self.rate(compartment, start)
      lost = self.graph.add('times', self.symbol(name, start), growth)
      rate = self.graph.add('minus', rate, lost)
    return self.graph.add('divide', rate, volume)

  def _amount_rate(self, name: str, start: bool) -> int:
    terms = [self.graph.number(0.0)]
    if name in self.rows and name in self.species:
      terms += [
        self.graph.add('times', self.graph.number(factor), rate)
        for rate, factor in self._changes(name, start)
      ]
    return self.graph.tree('plus', terms)

  # Expressions.

  def build(
    self,
    expression: records.Expression | None,
    start: bool,
    element: str,
    scope: dict[str, int] | None = None,
  ) -> int:
    """The node of an expression, in which the names in `scope` hide others."""
    self._work += 1
    if self._work > _MAX_WORK:
      raise ValueError(f'{element}: functions repeat the mathematics more than {_MAX_WORK} times.')
    if expression is None:
      raise ValueError(f'{element} has no mathematics.')
    if isinstance(expression, float):
      return self.graph.number(expression)
    if isinstance(expression, str):
      if scope and expression in scope:
        return scope[expression]
      return self._known(expression, start, element)
    operator, operands = expression[0], expression[1:]
    if operator in _NUMBERS:
      return self.graph.number(_NUMBERS[operator])
    if operator == 'time':
      return self.graph.number(0.0) if start else self.graph.add('time')
    if operator == 'rateOf':
      if len(operands) != 1 or not isinstance(operands[0], str):
        raise ValueError(f'{element}: rateOf has a symbol for its operand.')
      name = operands[0]
      if scope and name in scope:
        if self.graph.nodes[scope[name]].operator not in ('number', 'constant'):
          raise ValueError(f'{element}: the rate of the argument {name!r} is not known.')
        return self.graph.number(0.0)
      if name not in self._symbols() and name not in self.reactions:
        raise ValueError(f'{element}: there is no symbol {name!r}.')
      return self.rate(name, start)
    if operator == 'call':
      nodes = [self.build(e, start, element, scope) for e in operands[1:]]
      return self._call(operands[0], tuple(nodes), start, element)
    nodes = [self.build(e, start, element, scope) for e in operands]
    return self._operation(operator, nodes, element)

  def _known(self, name: str, start: bool, element: str) -> int:
    if name not in self.reactions and not any(
      name in table for table in (self.species, self.compartments, self.parameters, self.references)
    ):
      raise ValueError(f'{element}: there is no symbol {name!r}.')
    return self.symbol(name, start)

  def _call(self, name: str, nodes: tuple[int, ...], start: bool, element: str) -> int:
    f = self.functions.get(name)
    if f is None:
      raise ValueError(f'{element}: there is no function {name!r}.')
    if len(f.arguments) != len(nodes):
      raise ValueError(
        f'{element}: function {name!r} has {len(f.arguments)} arguments, not {len(nodes)}.'
      )
    key = (name, start, nodes)
    if key not in self._calls:
      self._enter((name, None))
      scope = dict(zip(f.arguments, nodes, strict=True))
      self._calls[key] = self.build(f.body, start, f'function {name!r}', scope)
      self._active.pop()
    return self._calls[key]

  def _operation(self, operator: str, nodes: list[int], element: str) -> int:
    g = self.graph
    count = len(nodes)
    if operator in _FOLDED:
      identity = _FOLDED[operator]
      if not nodes and identity is not None:
        return g.number(identity)
      if count == 1 and operator in ('and', 'or', 'xor'):
        return g.add('neq', nodes[0], g.number(0.0))
      if nodes:
        return g.tree(operator, nodes)
    elif operator in _RELATIONS and count >= 2:
      pairs = itertools.pairwise(nodes)
      return g.tree('and', [g.add(operator, a, b) for a, b in pairs])
    elif operator == 'piecewise' and nodes:
      result = nodes[-1] if count % 2 else g.number(np.nan)
      for i in reversed(range(0, count - 1, 2)):
        result = g.add('piecewise', nodes[i + 1], nodes[i], result)
      return result
    elif count == 1:
      return self._unary(operator, nodes[0], element)
    elif count == 2:
      a, b = nodes
      if operator in ('minus', 'divide', 'quotient'):
        return g.add(operator, a, b)
      if operator == 'rem':
        return g.add('minus', a, g.add('times', b, g.add('quotient', a, b)))
      if operator == 'power':
        return g.power(a, b)
      if operator == 'root':
        return self._root(a, b)
      if operator == 'log':
        if g.value(a) == 10.0:
          return g.add('log10', b)
        return g.add('divide', g.add('ln', b), g.add('ln', a))
      if operator == 'implies':
        return g.add('or', g.add('not', a), b)
    raise ValueError(f'{element}: {operator!r} of {count} operands is not known.')

  def _root(self, degree: int, node: int) -> int:
    g = self.graph
    if g.value(degree) == 2.0:
      return g.add('sqrt', node)
    return g.add('power', node, g.add('divide', g.number(1.0), degree))

  def _unary(self, operator: str, node: int, element: str) -> int:
    g = self.graph
    if operator == 'minus':
      value = g.value(node)
      return g.add('negative', node) if value is None else g.number(-value)
    if operator == 'root':
      return g.add('sqrt', node)
    if operator == 'log':
      return g.add('log10', node)
    if operator in _UNARY:
      return g.add(operator, node)
    if operator in _INVERSES:
      return g.add('divide', g.number(1.0), g.add(_INVERSES[operator], node))
    inverse = operator.removeprefix('arc')
    if operator != inverse and inverse in _INVERSES:
      return g.add(f'arc{_INVERSES[inverse]}', g.add('divide', g.number(1.0), node))
    raise ValueError(f'{element}: {operator!r} of one operand is not known.')

  # Events.

  def _events(self) -> tuple[Events, list[int]] | None:
    """The events, and the nodes that they need."""
    live = [
      e for e in self.model.events if e.trigger is not None and _table('assignment', e.assignments)
    ]
    if not live:
      return None
    g = self.graph
    triggers, delays, priorities = [], [], []
    places: list[tuple[int, int]] = []
    assigned: list[int] = []
    for i, e in enumerate(live):
      element = f'event {e.id!r}'
      triggers.append(self.build(e.trigger, False, element))
      delays.append(g.number(0.0) if e.delay is None else self.build(e.delay, False, element))
      first = g.number(-np.inf) if e.priority is None else self.build(e.priority, False, element)
      priorities.append(first)
      for name, node in self._after(e, element).items():
        places.append((i, self.rows[name]))
        assigned.append(node)
    rises, falls = zip(*(self._crossing(node) for node in triggers), strict=True)
    if len(live) * len(self.states) > _MAX_CHANGES:
      raise ValueError(f'{len(live)} events of {len(self.states)} states are too many.')
    changes = np.zeros((len(live), len(self.states)), bool)
    changes[tuple(np.transpose(places))] = True
    events = Events(
      triggers=g.function(triggers),
      rises=g.function(rises),
      falls=g.function(falls),
      delays=g.function(delays),
      priorities=g.function(priorities),
      assigned=_scattered(g.function(assigned), places, len(live)),
      initial=np.array([e.initial for e in live]),
      persistent=np.array([e.persistent for e in live]),
      early=np.array([e.early for e in live]),
      delayed=np.array([e.delay is not None for e in live]),
      changes=changes,
    )
    return events, [*triggers, *rises, *falls, *delays, *priorities, *assigned]

  def _after(self, event: records.Event, element: str) -> dict[str, int]:
    """The states that an event changes."""
    g = self.graph
    values = {
      name: self.build(value, False, f'{element}: assignment of {name!r}')
      for name, value in _table(f'{element}: assignment', event.assignments).items()
    }
    result = dict(values)
    for name in self.states:
      s = self.species.get(name)
      if s is None or self._by_amount(name):
        continue
      # An assigned concentration is one in the old volume, whose change leaves the amount alone.
      volume, after = self.symbol(s.compartment, False), values.get(s.compartment)
      if name in values and name not in self.concentrations:
        result[name] = g.add('times', values[name], volume)
      elif name in self.concentrations and after is not None:
        before = values[name] if name in values else self.symbol(name, False)
        result[name] = g.add('divide', g.add('times', before, volume), after)
    return result

  def _crossing(self, node: int) -> tuple[int, int]:
    """Nodes that are positive where a condition surely holds, and where it surely does not."""
    if node not in self._crossings:
      self._crossings[node] = self._cross(node)
    return self._crossings[node]

  def _cross(self, node: int) -> tuple[int, int]:
    g = self.graph
    operator, operands = g.nodes[node]
    if operator in ('gt', 'geq') or (operator == 'eq' and g.nodes[operands[0]].operator == 'time'):
      return self._differences(*operands)
    if operator in ('lt', 'leq') or (operator == 'eq' and g.nodes[operands[1]].operator == 'time'):
      return self._differences(*reversed(operands))
    if operator == 'not':
      rise, fall = self._crossing(operands[0])
      return fall, rise
    if operator in ('and', 'or', 'xor'):
      (rise, fall), (rises, falls) = map(self._crossing, operands)
      either, both = (functools.partial(g.add, name) for name in ('max', 'min'))
      if operator == 'and':
        return both(rise, rises), either(fall, falls)
      if operator == 'or':
        return either(rise, rises), both(fall, falls)
      different = either(both(rise, falls), both(fall, rises))
      return different, either(both(rise, rises), both(fall, falls))
    if operator == 'piecewise':
      of_first, of_second = map(self._crossing, operands[1:])
      rise, fall = (g.add(operator, operands[0], *x) for x in zip(of_first, of_second, strict=True))
      return rise, fall
    one, other = g.number(1.0), g.number(-1.0)
    return g.add('piecewise', node, one, other), g.add('piecewise', node, other, one)

  def _differences(self, a: int, b: int) -> tuple[int, int]:
    """a - b and b - a, less what may be rounding."""
    g = self.graph
    size = g.add('plus', self._magnitude(a), self._magnitude(b))
    rounding = g.add('times', g.number(_ROUNDING), size)
    rise, fall = (g.add('minus', g.add('minus', *x), rounding) for x in ((a, b), (b, a)))
    return rise, fall

  def _magnitude(self, node: int) -> int:
    """How large the numbers are of which a node's value may be a small difference."""
    if node not in self._magnitudes:
      g = self.graph
      operator, operands = g.nodes[node]
      if operator in ('plus', 'minus', 'times'):
        inner = map(self._magnitude, operands)
        self._magnitudes[node] = g.add('times' if operator == 'times' else 'plus', *inner)
      elif operator in ('negative', 'abs'):
        self._magnitudes[node] = self._magnitude(operands[0])
      elif operator == 'divide':
        size = self._magnitude(operands[0])
        self._magnitudes[node] = g.add('divide', size, g.add('abs', operands[1]))
      else:
        self._magnitudes[node] = g.add('abs', node)
    return self._magnitudes[node]

  def _jumps(self, needed: Sequence[int]) -> Callable[[Any], Any]:
    """When conditions on an affine function of the time change."""
    g = self.graph
    degrees: dict[int, int] = {}  # in time; 2 for whatever is not affine
    for i in needed:
      operator, operands = g.nodes[i]
      if not graphs.is_operation(g.nodes[i]):
        degrees[i] = {'time': 1, 'state': 2}.get(operator, 0)
        continue
      of = [degrees[j] for j in operands]
      affine = (
        operator in ('plus', 'minus', 'negative')
        or (operator == 'times' and sum(of) < 2)
        or (operator == 'divide' and of[1] == 0)
      )
      degrees[i] = max(of) if affine or max(of) == 0 else 2
    differences = [
      g.add('minus', *g.nodes[i].operands)
      for i in needed
      if g.nodes[i].operator in _RELATIONS and max(degrees[j] for j in g.nodes[i].operands) == 1
    ]
    differences = list(dict.fromkeys(differences))
    offsets = g.function(differences)
    y = np.zeros(0)

    def jumps(c: Any) -> Any:
      xp: Any = np if isinstance(c, np.ndarray) else jnp
      first, second = offsets(np.float64(0.0), y, c), offsets(np.float64(1.0), y, c)
      slope = second - first
      times = -first / xp.where(slope == 0.0, 1.0, slope)
      return xp.where((slope == 0.0) | ~xp.isfinite(times), xp.inf, times)

    return jumps

  # All together.

  def compiled(self) -> Compiled:
    """Everything that there is to know about the model."""
    self._in_order()
    g = self.graph
    observables = self._observables()
    y0 = [self._at_start(name) for name in self.states]
    columns: dict[int, int] = {}
    rows: list[int] = []
    places: list[int] = []
    factors: list[float] = []
    for name, row in self.rows.items():
      for node, factor in self._state_rate(name):
        rows.append(row)
        places.append(columns.setdefault(node, len(columns)))
        factors.append(factor)
    events = self._events()
    needed = g.reachable([*y0, *columns, *(events[1] if events else ())])
    for node in needed:
      if node in self.missing:
        raise ValueError(f'{self.missing[node]!r} has no value.')
    initial, rates = g.function(y0), g.function(list(columns))
    product = graphs.sparse_product(rows, places, factors, len(y0))
    start, empty, c = np.float64(0.0), np.zeros(0), np.array(self.values, np.float64)
    labels = [f'init({name})' if name in self.rows else name for name in self.constants]
    result = Compiled(
      rhs=lambda t, y, c: product(rates(t, y, c)),
      y0=initial(start, empty, c),
      c=c,
      names=Names(
        states=tuple(self.states),
        concentrations=tuple(name for name in self.states if name in self.concentrations),
        constants=tuple(labels),
        observables=tuple(observables),
      ),
      initial=lambda c: initial(start, empty, c),
      observe=g.function(list(observables.values())),
      jumps=self._jumps(needed),
      events=events[0] if events else None,
    )
    _check_finite(result)
    return result

  def _in_order(self) -> None:
    """Builds what depends on other symbols after these, lest the recursion be deep."""
    laws = {r.id: r.law for r in self.model.reactions if r.law is not None}
    for start, expressions in (
      (True, {**self.initial, **self.assigned}),
      (False, {**self.assigned, **laws}),
    ):
      local = {r.id: {p.id for p in r.parameters} for r in self.model.reactions}
      sorter = graphlib.TopologicalSorter(
        {name: _symbols_of(e) - local.get(name, set()) for name, e in expressions.items()}
      )
      try:
        order = list(sorter.static_order())
      except graphlib.CycleError as error:
        raise _cycle(error.args[1][::-1]) from None
      for name in order:
        if name in expressions:
          self.symbol(name, start)

  def _at_start(self, name: str) -> int:
    if name in self.species and name not in self.concentrations:
      return self.amount(name, True)
    return self.symbol(name, True)

  def _state_rate(self, name: str) -> list[tuple[int, float]]:
    if name in self.rates:
      return [(self.rate(name, False), 1.0)]
    return list(self._changes(name, False)) if name in self.species else []

  def _observables(self) -> dict[str, int]:
    result: dict[str, int] = {}
    for name, s in self.species.items():
      result[name] = self.amount(name, False)
      result[f'[{name}]'] = self.symbol(name, False)
      if s.only_substance and self._has_volume(name):
        volume = self._volume(name, False)
        result[f'[{name}]'] = self.graph.add('divide', result[name], volume)
    laws = [r.id for r in self.model.reactions if r.law is not None]
    for name in (*self.compartments, *self.parameters, *self.references, *laws):
      result[name] = self.symbol(name, False)
    return result


def _scattered(
  values: graphs.Function, places: Sequence[tuple[int, int]], num_events: int
) -> graphs.Function:
  """The states after each event, of a function that has only those that change."""
  events, rows = np.transpose(places)

  def assigned(t: chex.Numeric, y: chex.Array, c: chex.Array) -> chex.Array:
    return jnp.tile(y, (num_events, 1)).at[events, rows].set(values(t, y, c))

  return assigned


def _check_finite(compiled: Compiled) -> None:
  rates = compiled.rhs(np.float64(0.0), compiled.y0, compiled.c)
  for what, values in (('value', compiled.y0), ('rate', rates)):
    for name, value in zip(compiled.names.states, values, strict=True):
      if not np.isfinite(value):
        raise ValueError(f'{name!r}: the {what} at time 0 is {value}.')


def _cycle(names: Sequence[str]) -> ValueError:
  return ValueError(f'{names[0]!r} is defined by itself: {" -> ".join(names[:8])}.')


def _table(kind: str, assignments: Sequence[records.Assignment]) -> dict[str, records.Expression]:
  """Expressions by symbol; those without mathematics say nothing."""
  result: dict[str, records.Expression] = {}
  for symbol, value in assignments:
    if symbol in result:
      raise ValueError(f'there is more than one {kind} of {symbol!r}.')
    if value is not None:
      result[symbol] = value
  return result


def _references(model: records.Model) -> Iterator[records.Reference]:
  for reaction in model.reactions:
    yield from (*reaction.reactants, *reaction.products)


def _expressions(model: records.Model) -> Iterator[records.Expression | None]:
  yield from (f.body for f in model.functions)
  for table in (model.initial_assignments, model.assignment_rules, model.rate_rules):
    yield from (a.value for a in table)
  yield from (r.law for r in model.reactions)
  yield from (s.math for s in _references(model))
  for e in model.events:
    yield from (e.trigger, e.delay, e.priority, *(a.value for a in e.assignments))


def _walk(expression: records.Expression | None) -> Iterator[records.Expression]:
  stack = [] if expression is None else [expression]
  while stack:
    part = stack.pop()
    yield part
    if isinstance(part, tuple):
      stack.extend(part[2:] if part[0] == 'call' else part[1:])


def _operators_of(expression: records.Expression | None) -> set[str]:
  return {part[0] for part in _walk(expression) if isinstance(part, tuple)}


def _symbols_of(expression: records.Expression) -> set[str]:
  return {part for part in _walk(expression) if isinstance(part, str)}
