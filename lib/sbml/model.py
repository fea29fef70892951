"""Host. An SBML model as plain data.

An expression is a number (float), a symbol (str), or a tuple `(operator, *operands)` with
expressions for operands. The operators are MathML's names (`plus`, `times`, `power`, `lt`, ...;
`log` and `root` have base and degree first), and besides

  ('piecewise', value, condition, ..., otherwise): with an odd number of operands, or none of the
    conditions may be false,
  ('call', function, *arguments): of a function definition; the function's id is a string,
  ('time',), ('avogadro',), ('pi',), ('exponentiale',), ('true',), ('false',),
  ('rateOf', symbol), ('delay', expression, duration).

SBML Level 3 Version 2 Core: Hucka et al. (2019), doi:10.1515/jib-2019-0021.
"""

from typing import NamedTuple

Expression = float | str | tuple


class Function(NamedTuple):
  """A function definition.

  Attributes:
    id: its name.
    arguments: names that `body` may use, and no others.
    body: its value; None where the file has none.
  """

  id: str
  arguments: tuple[str, ...]
  body: Expression | None


class Compartment(NamedTuple):
  """Where species are; `size` is None where the file gives none."""

  id: str
  size: float | None
  dimensions: float
  constant: bool


class Species(NamedTuple):
  """A pool of one kind of molecules.

  Attributes:
    id: its name, which stands in expressions for the amount if `only_substance`, and for the
      concentration otherwise.
    compartment: where it is.
    amount: at first, or None.
    concentration: at first, or None.
    only_substance: the flag hasOnlySubstanceUnits.
    boundary: reactions do not change it.
    constant: nothing changes it.
    conversion_factor: a parameter, amounts per extent of reaction; None for 1.
  """

  id: str
  compartment: str
  amount: float | None
  concentration: float | None
  only_substance: bool
  boundary: bool
  constant: bool
  conversion_factor: str | None


class Parameter(NamedTuple):
  """A number with a name; `value` is None where the file gives none."""

  id: str
  value: float | None
  constant: bool


class Reference(NamedTuple):
  """A species in a reaction.

  Attributes:
    id: name that stands for the stoichiometry; empty where there is none.
    species: of which the reaction takes or makes some.
    stoichiometry: how many; None where the file gives none.
    math: how many, as an expression; None where there is none.
  """

  id: str
  species: str
  stoichiometry: float | None
  math: Expression | None


class Reaction(NamedTuple):
  """A reaction.

  Attributes:
    id: its name, which stands for its rate in expressions.
    reactants: what it takes.
    products: what it makes.
    law: rate, in extent per time; None where the file has none.
    parameters: local to `law`, where their names hide others.
    fast: it is always in equilibrium.
  """

  id: str
  reactants: tuple[Reference, ...]
  products: tuple[Reference, ...]
  law: Expression | None
  parameters: tuple[Parameter, ...]
  fast: bool


class Assignment(NamedTuple):
  """A symbol's value or rate; None where the file has no mathematics."""

  symbol: str
  value: Expression | None


class Event(NamedTuple):
  """What happens when a condition becomes true.

  Attributes:
    id: its name, or a number where the file gives none.
    trigger: the condition; None where the file has none.
    initial: the condition's value before the first time.
    persistent: it happens even if the condition is false again before the delay has passed.
    delay: from the trigger on; None for none.
    priority: the largest is first among those at one time; None where the file has none.
    early: the assigned values are those at the time of the trigger, not of the execution.
    assignments: new values.
  """

  id: str
  trigger: Expression | None
  initial: bool
  persistent: bool
  delay: Expression | None
  priority: Expression | None
  early: bool
  assignments: tuple[Assignment, ...]


class Model(NamedTuple):
  """A model.

  Attributes:
    source: where it came from, for messages.
    level: of SBML, and
    version: of this level.
    functions: function definitions.
    compartments: compartments.
    species: species.
    parameters: global parameters.
    reactions: reactions.
    initial_assignments: values at the first time.
    assignment_rules: values at all times.
    rate_rules: time derivatives.
    algebraic_rules: what is zero at all times.
    events: events.
    conversion_factor: of all species that have none of their own; None for 1.
    packages: extensions of SBML without which the model cannot be understood.
  """

  source: str
  level: int
  version: int
  functions: tuple[Function, ...]
  compartments: tuple[Compartment, ...]
  species: tuple[Species, ...]
  parameters: tuple[Parameter, ...]
  reactions: tuple[Reaction, ...]
  initial_assignments: tuple[Assignment, ...]
  assignment_rules: tuple[Assignment, ...]
  rate_rules: tuple[Assignment, ...]
  algebraic_rules: tuple[Expression | None, ...]
  events: tuple[Event, ...]
  conversion_factor: str | None
  packages: tuple[str, ...]
