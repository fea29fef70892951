"""Tests of the compiler: libroadrunner's rates, mathematics in closed form, hostile models."""

import math
from unittest import mock

import chex
import jax
import numpy as np
from absl.testing import parameterized

from lib.io import sbml
from lib.sbml import compiler, graphs
from tests.lib.sbml import toys

A = {'A': {'amount': 4.0}}
AB = {'A': {'amount': 4.0}, 'B': {'concentration': 0.5}}
# One feature each; what libroadrunner simulates is the reference, along the whole course.
FEATURES = {
  'mass action in a volume': toys.parts(
    compartments={'V': 2.0},
    species=AB,
    parameters={'k': 0.3},
    reactions={'R': ({'A': 2}, {'B': 1}, 'V*k*A^2')},
  ),
  'amounts': toys.parts(
    compartments={'V': 2.0},
    species={'A': {'concentration': 3.0, 'only_substance': True}, 'B': {'amount': 1.0}},
    parameters={'k': 0.3},
    reactions={'R': ({'A': 1}, {'B': 3}, 'k*A*(1 + B)')},
  ),
  'two compartments': toys.parts(
    compartments={'V': 2.0, 'W': 0.5},
    species={'A': {'amount': 4.0}, 'B': {'amount': 0.0, 'compartment': 'W'}},
    parameters={'k': 0.3},
    reactions={'R': ({'A': 1}, {'B': 1}, 'k*(A - B)')},
  ),
  'boundary and constant species': toys.parts(
    species={
      'A': {'amount': 4.0, 'boundary': True},
      'B': {'amount': 0.0},
      'C': {'amount': 2.0, 'boundary': True, 'constant': True},
    },
    reactions={'R': ({'A': 1}, {'B': 1}, '0.1*A*C'), 'Q': ({'B': 1, 'C': 1}, {}, '0.2*B*C')},
  ),
  'local parameters': toys.parts(
    species=AB,
    parameters={'k': 7.0},
    reactions={'R': ({'A': 1}, {'B': 1}, 'k*A'), 'Q': ({'B': 1}, {'A': 1}, 'k*B')},
    local={'R': {'k': 0.25}, 'Q': {'k': 0.5}},
  ),
  'function definitions': toys.parts(
    species=AB,
    parameters={'k': 0.5},
    functions={'g': 'lambda(k, x, k*x)', 'f': 'lambda(a, b, g(b, a)/(1 + g(a, a)))'},
    reactions={'R': ({'A': 1}, {'B': 1}, 'f(k, A)')},
  ),
  'assignment rules': toys.parts(
    species={'A': {'amount': 4.0}, 'T': {'amount': 0.0}},
    parameters={'k': 0.0, 'q': 0.0},
    assigned={'k': 'q/(1 + A)', 'q': '1 + sin(time)', 'T': '2*A'},
    reactions={'R': ({'A': 1}, {}, 'k*A*T')},
  ),
  'initial assignments': toys.parts(
    compartments={'V': 2.0},
    species=AB,
    parameters={'k': 0.0, 'q': 3.0},
    initial={'k': 'q/10 + B', 'A': '2*B + q'},
    reactions={'R': ({'A': 1}, {'B': 1}, 'V*k*A')},
  ),
  'rate rules': toys.parts(
    compartments={'V': 2.0},
    species={'A': {'amount': 4.0}, 'B': {'amount': 1.0, 'boundary': True, 'only_substance': True}},
    parameters={'p': 1.0},
    rates={'p': '-0.3*p', 'B': 'p - 0.1*B'},
    reactions={'R': ({'A': 1}, {}, 'p*A*B')},
  ),
  'a growing compartment': toys.parts(
    compartments={'V': 1.0},
    species=A,
    rates={'V': '0.2*V'},
    reactions={'R': ({'A': 1}, {}, '0.5*V*A')},
  ),
  'a compartment that follows a rule': toys.parts(
    compartments={'V': 1.0},
    species=A,
    assigned={'V': '1 + 0.2*time'},
    reactions={'R': ({'A': 1}, {}, '0.5*A')},
  ),
  'piecewise': toys.parts(
    species=A,
    reactions={'R': ({'A': 1}, {}, 'piecewise(0.1*A, A > 3, 0.5*A, A > 2 && time > 1, 0.05)')},
  ),
  'rates of reactions': toys.parts(
    species=AB,
    reactions={'R': ({'A': 1}, {}, '0.3*A'), 'Q': ({'B': 1}, {}, '0.1*B + 0.01*R')},
  ),
  'a species on both sides': toys.parts(species=A, reactions={'R': ({'A': 1}, {'A': 3}, '0.3*A')}),
}
FORMULAS = (  # with x = 0.6 and their values
  ('sec(x)', 1 / math.cos(0.6)),
  ('csc(x)', 1 / math.sin(0.6)),
  ('cot(x)', 1 / math.tan(0.6)),
  ('sech(x)', 1 / math.cosh(0.6)),
  ('csch(x)', 1 / math.sinh(0.6)),
  ('coth(x)', 1 / math.tanh(0.6)),
  ('arcsin(x)', math.asin(0.6)),
  ('arccos(x)', math.acos(0.6)),
  ('arctan(x)', math.atan(0.6)),
  ('arcsinh(x)', math.asinh(0.6)),
  ('arccosh(1 + x)', math.acosh(1.6)),
  ('arctanh(x)', math.atanh(0.6)),
  ('arcsec(1/x)', math.acos(0.6)),
  ('arccsc(1/x)', math.asin(0.6)),
  ('arccot(1/x)', math.atan(0.6)),
  ('arccot(0)', math.pi / 2),
  ('arcsech(1/(1 + x))', math.acosh(1.6)),
  ('arccsch(1/x)', math.asinh(0.6)),
  ('arccoth(1/x)', math.atanh(0.6)),
  (
    'tan(x) + sinh(x) + cosh(x) + tanh(x)',
    sum(f(0.6) for f in (math.tan, math.sinh, math.cosh, math.tanh)),
  ),
  ('ln(x) + log10(x) + log(2, x)', math.log(0.6) + math.log10(0.6) + math.log2(0.6)),
  ('sqrt(x) + root(3, x)', 0.6**0.5 + 0.6 ** (1 / 3)),
  ('x^2 + x^-3 + x^0 + x^2.5 + 0^x', 0.6**2 + 0.6**-3 + 1 + 0.6**2.5),
  ('factorial(5) + floor(-x) + ceil(x) + abs(-x)', 120 - 1 + 1 + 0.6),
  ('quotient(-7, 2) + 10*rem(-7, 2) + 100*rem(7, -2)', -3 - 10 + 100),
  ('min(3, x, 2) + 10*max(3, x, 2) + exp(x)', 0.6 + 30 + math.exp(0.6)),
  ('piecewise(1, x > 1, 2, x < 0.5, 3)', 3),
  ('piecewise(1, and(x > 0.5, x < 0.7), 2)', 1),
  ('piecewise(1, xor(true, true, true), 2) + piecewise(10, implies(true, false), 20)', 21),
  ('piecewise(1, and(), 2) + piecewise(10, or(), 20) + piecewise(100, not(false), 200)', 121),
  ('true + 2*(x == 0.6) + 4*(x != 0.6) + 8*(x >= 0.6) + 16*(x <= 0.5)', 11),
  ('plus() + times() + minus(x) + pi + exponentiale', 1 - 0.6 + math.pi + math.e),
  ('avogadro/1e23', 6.02214179),
)
ARGUMENTS = 'a, b, c, d, e, f, g, h, i, j'
TURNED = 'b, c, d, e, f, g, h, i, j, a'
SWAPPED = 'b, a, c, d, e, f, g, h, i, j'
MISTAKES = {
  'an unknown symbol': (
    toys.parts(species=A, reactions={'R': ({'A': 1}, {}, 'k*A')}),
    "reaction 'R'.*'k'",
  ),
  'a cycle of rules': (
    toys.parts(parameters={'p': 0, 'q': 0}, assigned={'p': 'q + 1', 'q': 'p'}),
    "'[pq]' is defined by itself",
  ),
  'a cycle of initial values': (
    toys.parts(parameters={'p': 0, 'q': 0}, initial={'p': 'q', 'q': 'p'}),
    "'[pq]' is defined by itself",
  ),
  'a cycle of rates': (
    toys.parts(parameters={'p': 0, 'q': 0}, rates={'p': 'rateOf(q)', 'q': 'rateOf(p)'}),
    'defined by itself',
  ),
  'a cycle through a volume': (
    toys.parts(species=A, initial={'V': 'A'}, reactions={'R': ({'A': 1}, {}, 'A')}),
    'defined by itself',
  ),
  'a recursive function': (
    toys.parts(
      parameters={'p': 0},
      functions={'f': 'lambda(x, g(x))', 'g': 'lambda(x, f(x))'},
      rates={'p': 'f(p)'},
    ),
    'defined by itself',
  ),
  'an unknown function': (toys.parts(parameters={'p': 0}, rates={'p': 'f(p)'}), "no function 'f'"),
  'a function of two': (
    toys.parts(parameters={'p': 0}, functions={'f': 'lambda(x, y, x)'}, rates={'p': 'f(p)'}),
    '2 arguments',
  ),
  'a free symbol in a function': (
    toys.parts(parameters={'p': 0}, functions={'f': 'lambda(x, z)'}, rates={'p': 'f(p)'}),
    "function 'f'.*'z'",
  ),
  'a parameter without value': (
    toys.parts(species=A, parameters={'k': None}, reactions={'R': ({'A': 1}, {}, 'k*A')}),
    "'k' has no value",
  ),
  'division by zero': (
    toys.parts(parameters={'p': 0.0}, rates={'p': '1/p'}),
    "'p': the rate at time 0 is inf",
  ),
  'zero over zero': (
    toys.parts(species=A, compartments={'V': 0.0}, rates={'A': 'A/V*0'}),
    "'A'.* time 0 is",
  ),
  'an enormous exponent': (
    toys.parts(parameters={'p': 2.0}, rates={'p': 'p^999999999'}),
    'rate at time 0 is inf',
  ),
  'an unknown compartment': (toys.parts(species={'A': {'compartment': 'W'}}), "species 'A'.*'W'"),
  'two values': (
    toys.parts(parameters={'p': 0.0}, assigned={'p': '1'}, rates={'p': '1'}),
    'assignment rule as well',
  ),
  'a rule of nothing': (toys.parts(assigned={'z': '1'}), "'z': there is no such symbol"),
  'an exponential of functions': (
    toys.parts(
      parameters={'p': 1.0},
      functions={
        'f0': 'lambda(x, x*2)',
        **{f'f{i + 1}': f'lambda(x, f{i}(x + 1) + f{i}(x + {i + 2}.5))' for i in range(40)},
      },
      rates={'p': 'f40(p)'},
    ),
    'operations|too deep',
  ),
  'an exponential of arguments': (
    toys.parts(
      parameters={'p': 1.0},
      functions={
        'f0': f'lambda({ARGUMENTS}, 1)',
        **{
          f'f{i + 1}': f'lambda({ARGUMENTS}, f{i}({TURNED}) + f{i}({SWAPPED}))' for i in range(60)
        },
      },
      rates={'p': 'f60(p, 1, 2, 3, 4, 5, 6, 7, 8, 9)'},
    ),
    'repeat',
  ),
}


def ring(n):
  """A closed ring of n species, each of which becomes the next at a rate of its own."""
  names = [f'S{i}' for i in range(n)]
  return toys.compiled(
    species={name: {'amount': float(i % 5)} for i, name in enumerate(names)},
    parameters={f'k{i}': 1.0 + i for i in range(n)},
    reactions={
      f'R{i}': ({names[i]: 1}, {names[(i + 1) % n]: 1}, f'k{i}*S{i}^2/(1 + S{i})') for i in range(n)
    },
  )


class CompilerTest(chex.TestCase):
  @parameterized.named_parameters((name.replace(' ', '_'), name) for name in FEATURES)
  def test_agrees_with_libroadrunner(self, name):
    text = toys.document(**FEATURES[name])
    c = compiler.compile_rhs(sbml.parse(text))
    ts = np.linspace(0.0, 3.0, 7)
    states = c.names.states
    course = toys.course(text, ts, [*states, *(f"{state}'" for state in states)])
    ys, rates = np.split(course, 2, axis=1)
    np.testing.assert_allclose(c.y0, ys[0], rtol=1e-12)
    for t, y, rate in zip(ts, ys, rates, strict=True):
      np.testing.assert_allclose(c.rhs(np.float64(t), y, c.c), rate, rtol=1e-6, atol=1e-9)

  @parameterized.parameters(*FORMULAS)
  def test_formula(self, formula, expected):
    self.assertAlmostEqual(toys.value(formula, parameters={'x': 0.6}), expected, places=12)

  def test_a_rate_rule_of_a_concentration_changes_it_whatever_the_volume_does(self):
    c = toys.compiled(
      compartments={'V': 2.0},
      species={'A': {'amount': 4.0, 'boundary': True}},
      rates={'V': '0.5', 'A': '0.1*A + rateOf(V)'},
    )
    now = toys.observed(c, 0.0, c.y0)
    self.assertEqual((now['A'], now['[A]']), (4.0, 2.0))
    rates = dict(zip(c.names.states, c.rhs(np.float64(0.0), c.y0, c.c), strict=True))
    self.assertAlmostEqual(rates['A'], 0.1 * 2.0 + 0.5)

  def test_amounts_stay_when_a_volume_changes(self):
    c = toys.compiled(
      compartments={'V': 2.0},
      species={'A': {'amount': 4.0}, 'B': {'amount': 6.0, 'constant': True, 'boundary': True}},
      parameters={'p': 0.0},
      rates={'V': '1', 'p': 'rateOf(A)'},
      reactions={'R': ({'A': 1}, {}, '0.0')},
    )
    later = toys.observed(c, 1.0, np.where(np.array(c.names.states) == 'V', 4.0, c.y0))
    self.assertEqual([later[x] for x in ('A', '[A]', 'B', '[B]')], [4.0, 1.0, 6.0, 1.5])
    rates = dict(zip(c.names.states, c.rhs(np.float64(0.0), c.y0, c.c), strict=True))
    self.assertAlmostEqual(rates['p'], -4.0 / 2.0**2)  # of the concentration A/V

  def test_an_event_assigns_concentrations_in_the_volume_before_it(self):
    c = toys.compiled(
      compartments={'V': 2.0},
      species={'A': {'amount': 4.0}, 'B': {'amount': 6.0, 'boundary': True}},
      rates={'B': '1'},
      events=[{'trigger': 'time > 1', 'assign': {'V': '5', 'A': '3'}}],
    )
    with jax.enable_x64(True):
      y = np.asarray(c.events.assigned(2.0, jax.numpy.asarray(c.y0), c.c))[0]
    after = toys.observed(c, 2.0, y)
    self.assertEqual([after[x] for x in ('A', 'B', 'V')], [3.0 * 2.0, 6.0, 5.0])

  def test_conversion_factors_turn_extent_into_amount(self):
    c = toys.compiled(
      species={'A': {'amount': 4.0}, 'B': {'amount': 0.0, 'conversion': 'q'}},
      parameters={'p': 3.0, 'q': 5.0},
      reactions={'R': ({'A': 1}, {'B': 2}, '0.1*A')},
      conversion='p',
    )
    np.testing.assert_allclose(c.rhs(np.float64(0.0), c.y0, c.c), [-0.4 * 3.0, 2 * 0.4 * 5.0])

  def test_local_parameters_do_not_change_though_others_of_their_name_do(self):
    c = toys.compiled(
      species=A,
      parameters={'k': 1.0},
      rates={'k': '2'},
      reactions={'R': ({'A': 1}, {}, '1 + rateOf(k)')},
      local={'R': {'k': 3.0}},
    )
    np.testing.assert_allclose(c.rhs(np.float64(0.0), c.y0, c.c), [-1.0, 2.0])

  def test_stoichiometries_have_rules_and_initial_values(self):
    c = toys.compiled(
      species=AB,
      parameters={'p': 3.0},
      initial={'n': '2*p'},
      assigned={'m': '1 + time'},
      reactions={'R': ({'A': 'n'}, {'B': 'm'}, '1')},
    )
    np.testing.assert_allclose(c.rhs(np.float64(4.0), c.y0, c.c), [-6.0, 5.0])

  def test_initial_values_follow_constants(self):
    c = toys.compiled(
      compartments={'V': 2.0},
      species={'A': {'concentration': 4.0}, 'B': {'amount': 0.0}},
      parameters={'p': 3.0},
      initial={'B': 'p*A'},
      reactions={'R': ({'A': 1}, {'B': 1}, 'p*A')},
    )
    self.assertEqual(c.names.constants, ('V', 'init(A)', 'p'))
    np.testing.assert_allclose(c.y0, [8.0, 24.0])
    np.testing.assert_allclose(c.initial(np.array([1.0, 2.0, 5.0])), [2.0, 10.0])
    with jax.enable_x64(True):
      slopes = jax.jacfwd(c.initial)(jax.numpy.asarray(c.c))
    np.testing.assert_allclose(slopes, [[4.0, 2.0, 0.0], [12.0, 6.0, 8.0]])

  @parameterized.parameters(8, 120)  # by scalars, in groups
  def test_a_closed_ring_keeps_its_mass_and_its_traced_form_is_the_same(self, n):
    c = ring(n)
    y = np.linspace(0.5, 2.0, n)
    rates = c.rhs(np.float64(0.0), y, c.c)
    before = np.roll(np.arange(n), 1)
    flows = (1.0 + np.arange(n)) * y**2 / (1.0 + y)
    np.testing.assert_allclose(rates, flows[before] - flows, rtol=1e-12)
    with jax.enable_x64(True):
      traced = jax.jit(c.rhs)(0.0, y, c.c)
      batch = jax.jit(jax.vmap(c.rhs, (None, 0, 0)))(0.0, np.stack([y, 2 * y]), np.stack([c.c] * 2))
      slopes = jax.jit(jax.grad(lambda k: (c.rhs(0.0, y, k) ** 2).sum()))(c.c)
    self.assertEqual(traced.dtype, np.float64)
    np.testing.assert_allclose(traced, rates, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(batch[0], rates, rtol=1e-12, atol=1e-12)
    of_rates = dict(zip(c.names.constants, slopes, strict=True))
    expected = 2 * (np.roll(rates, -1) - rates) * y**2 / (1.0 + y)
    np.testing.assert_allclose([of_rates[f'k{i}'] for i in range(n)], expected, rtol=1e-9)

  def test_all_operators_are_the_same_for_jax(self):
    c = toys.compiled(
      parameters={'x': 0.6, **{f'p{i}': 0.0 for i in range(len(FORMULAS))}},
      assigned={f'p{i}': formula for i, (formula, _) in enumerate(FORMULAS)},
    )
    with jax.enable_x64(True):
      found = dict(zip(c.names.observables, jax.jit(c.observe)(0.0, c.y0, c.c), strict=True))
    for i, (formula, expected) in enumerate(FORMULAS):
      self.assertAlmostEqual(float(found[f'p{i}']), expected, places=10, msg=formula)

  @parameterized.parameters(
    ('piecewise(sqrt(x), x > 0, 0)', 0.0),
    ('piecewise(1/x, x > 0, x)', 1.0),
    ('piecewise(k*(1/x)^2, x > 0, 3*x)', 3.0),
    ('piecewise(exp(1000 + x)*k, x > 0, x)', 1.0),
    ('x^k', 0.0),  # with k = 1/2: infinite, for which zero stands
    ('x^2 + 0^x*0 + ln(1 + x)', 1.0),
  )
  def test_derivatives_are_finite(self, formula, expected):
    c = toys.compiled(parameters={'x': 0.0, 'k': 0.5, 'p': 0.0}, rates={'p': formula, 'x': '0'})
    with jax.enable_x64(True):
      slopes = jax.jacrev(c.rhs, (1, 2))(np.float64(0.0), jax.numpy.asarray(c.y0), c.c)
    self.assertTrue(np.isfinite(slopes[0]).all() and np.isfinite(slopes[1]).all())
    row, column = c.names.states.index('p'), c.names.states.index('x')
    self.assertEqual(float(slopes[0][row, column]), expected)

  def test_jumps_are_where_conditions_on_the_time_change(self):
    c = toys.compiled(
      parameters={'a': 5.0, 'b': 2.0, 'p': 0.0},
      rates={'p': 'piecewise(1, time > a && b*time - 1 < 2*a, p < time, piecewise(2, a > b, 3))'},
    )
    np.testing.assert_allclose(sorted(c.jumps(c.c)), [5.0, 5.5])

  def test_single_precision_is_refused(self):
    c = ring(3)
    with self.assertRaisesRegex(ValueError, 'double precision'), jax.enable_x64(False):
      c.rhs(0.0, jax.numpy.asarray(c.y0), c.c)

  @parameterized.named_parameters((name.replace(' ', '_'), name) for name in MISTAKES)
  def test_refuses(self, name):
    parts, reason = MISTAKES[name]
    with self.assertRaisesRegex(ValueError, f'SBML: .*{reason}') as caught:
      toys.compiled(**parts)
    self.assertNotIn('\n', str(caught.exception))

  def test_a_long_chain_of_rules_is_no_cycle(self):
    n = 2000
    rules = {f'p{i}': f'p{i + 1} + 1' for i in range(n)}
    c = toys.compiled(parameters={**{f'p{i}': 0.0 for i in range(n)}, f'p{n}': 0.0}, assigned=rules)
    self.assertEqual(toys.observed(c, 0.0, c.y0)['p0'], n)

  def test_rates_of_rates_are_built_once(self):
    rates = {f'p{i + 1}': f'rateOf(p{i}) + rateOf(p{i})' for i in range(100)}
    names = ['p0', *rates]
    c = toys.compiled(parameters=dict.fromkeys(names, 0.0), rates={'p0': '1', **rates})
    found = c.rhs(np.float64(0.0), c.y0, c.c)
    np.testing.assert_array_equal(found, [2.0 ** int(name[1:]) for name in c.names.states])

  def test_so_many_events_of_so_many_states_are_refused(self):
    with (
      mock.patch.object(compiler, '_MAX_CHANGES', 1),
      self.assertRaisesRegex(ValueError, '1 events of 2 states'),
    ):
      toys.compiled(
        parameters={'p': 1.0, 'q': 1.0},
        rates={'p': '1'},
        events=[{'trigger': 'p > 2', 'assign': {'q': '0'}}],
      )

  def test_names_what_is_not_supported(self):
    delayed = toys.document(parameters={'p': 1.0}, rates={'p': '-delay(p, 1)'})
    self.assertEqual(compiler.unsupported(sbml.parse(delayed)), ('delays',))
    self.assertEqual(compiler.unsupported(sbml.parse(toys.document(species=A))), ())
    text = toys.document(species=A, reactions={'R': ({'A': 1}, {}, 'A')})
    model = sbml.parse(text)
    model = model._replace(
      reactions=tuple(r._replace(fast=True) for r in model.reactions),
      algebraic_rules=(1.0,),
      packages=('comp',),
    )
    features = ('algebraic rules', 'fast reactions', 'package comp')
    self.assertEqual(compiler.unsupported(model), features)
    with self.assertRaisesRegex(ValueError, ', '.join(features)):
      compiler.compile_rhs(model)


class GraphsTest(chex.TestCase):
  def test_equal_nodes_are_one(self):
    g = graphs.Graph()
    self.assertEqual(g.add('plus', g.number(1.0), 0), g.add('plus', g.number(1.0), 0))
    self.assertNotEqual(g.number(0.0), g.number(-0.0))
    self.assertEqual(g.number(math.nan), g.number(math.nan))

  @parameterized.parameters(2, 3, 7, 100)
  def test_a_tree_is_shallow(self, n):
    g = graphs.Graph()
    top = g.tree('plus', [g.add('state', i) for i in range(n)])
    depths = [0] * len(g.nodes)
    for i, node in enumerate(g.nodes):
      if graphs.is_operation(node):
        depths[i] = 1 + max(depths[j] for j in node.operands)
    self.assertEqual(depths[top], math.ceil(math.log2(n)))
    total = g.function([top])(np.float64(0.0), np.arange(n) * 1.0, np.zeros(0))
    self.assertEqual(total[0], n * (n - 1) / 2)

  @parameterized.parameters(3, 200)
  def test_sparse_product_is_that_of_the_matrix(self, n):
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, n, (2, 3 * n))
    weights, v = rng.normal(size=3 * n), rng.normal(size=n)
    matrix = np.zeros((n, n))
    np.add.at(matrix, (rows, columns), weights)
    product = graphs.sparse_product(rows, columns, weights, n)
    np.testing.assert_allclose(product(v), matrix @ v, atol=1e-12)
    with jax.enable_x64(True):
      np.testing.assert_allclose(product(jax.numpy.asarray(v)), matrix @ v, atol=1e-12)
