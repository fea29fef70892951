"""Tests of lib.io.sbml."""

import pathlib
import tempfile

import numpy as np
from absl.testing import parameterized

from lib.envs import workers
from lib.io import sbml
from lib.sbml import compiler
from tests.lib.sbml import toys

L1 = b"""<?xml version="1.0" encoding="UTF-8"?>
<sbml xmlns="http://www.sbml.org/sbml/level1" level="1" version="2"><model name="m">
<listOfCompartments><compartment name="V" volume="2"/></listOfCompartments>
<listOfSpecies><species name="A" compartment="V" initialAmount="4"/></listOfSpecies>
<listOfReactions><reaction name="R">
<listOfReactants><speciesReference species="A" stoichiometry="3" denominator="2"/></listOfReactants>
<kineticLaw formula="k * A ^ 2 - 1"><listOfParameters><parameter name="k" value="3"/>
</listOfParameters></kineticLaw></reaction></listOfReactions></model></sbml>"""
L2 = b"""<sbml xmlns="http://www.sbml.org/sbml/level2/version4" level="2" version="4"><model id="m">
<listOfCompartments><compartment id="V"/></listOfCompartments>
<listOfSpecies><species id="A" compartment="V" initialConcentration="4"/></listOfSpecies>
<listOfReactions><reaction id="R"><listOfReactants><speciesReference species="A"/>
</listOfReactants><listOfProducts><speciesReference species="A"><stoichiometryMath>
<math xmlns="http://www.w3.org/1998/Math/MathML"><apply><plus/><cn>1</cn><cn type="rational">1
<sep/>2</cn></apply></math></stoichiometryMath></speciesReference></listOfProducts>
<kineticLaw><math xmlns="http://www.w3.org/1998/Math/MathML"><ci>A</ci></math></kineticLaw>
</reaction></listOfReactions></model></sbml>"""
L3 = toys.document(
  compartments={'V': 2.0},
  species={'A': {'amount': 4.0}, 'B': {'concentration': 1.0, 'only_substance': True}},
  parameters={'k': 0.5, 'p': 0.0, 'q': 0.0},
  functions={'f': 'lambda(x, y, x^y)'},
  initial={'p': '2*k'},
  assigned={'q': 'piecewise(1, time < 3, 2)'},
  reactions={'R': ({'A': 1}, {'B': 2}, 'f(A, k)*q - l')},
  local={'R': {'l': 0.25}},
  events=[{'trigger': 'A < 1', 'delay': '1', 'priority': '2', 'assign': {'A': 'B'}}],
)
BOMB = b"""<?xml version="1.0"?><!DOCTYPE sbml [<!ENTITY a "aaaaaaaaaa">%s]>
<sbml xmlns="http://www.sbml.org/sbml/level3/version1/core" level="3" version="1"><model id="&z;"/>
</sbml>""" % b''.join(
  b'<!ENTITY %c "%s">' % (ord('b') + i, b'&%c;' % (ord('a') + i) * 10) for i in range(25)
)


def nested(depth):
  """A law of so many applications, one in another."""
  head, tail = L2.split(b'<ci>A</ci></math></kineticLaw>')
  law = b'<apply><minus/>' * depth + b'<ci>A</ci>' + b'</apply>' * depth
  return head + law + b'</math></kineticLaw>' + tail


def formula(text):
  return L1.replace(b'k * A ^ 2 - 1', text)


def number(attributes, text):
  """A law that is a number."""
  return L2.replace(b'<ci>A</ci>', b'<cn%s>%s</cn>' % (attributes, text))


HOSTILE = {
  'bomb': (BOMB, 'document type'),
  'external': (
    b'<!DOCTYPE sbml SYSTEM "file:///etc/passwd"><sbml/>',
    'document type',
  ),
  'depth': (nested(300), 'nested more than 256'),
  'mathematics': (nested(230), 'nested more than 192'),
  'elements': (L1.replace(b'<model', b'<notes>' + b'<a>' * 10**6 + b'<model'), 'nested more than'),
  'brackets': (formula(b'(' * 1000 + b'A' + b')' * 1000), 'too deep'),
  'signs': (formula(b'-' * 1000 + b'A'), 'too deep'),
  'powers': (formula(b'A^' * 1000 + b'A'), 'too deep'),
  'long': (formula(b'A+' * 10**5 + b'A'), 'too long'),
  'differences': (formula(b'A-' * 1000 + b'A'), 'nested more than 192'),
  'empty': (b'', 'not well-formed'),
  'text': (b'model', 'not well-formed'),
  'cut': (L3[:-100], 'not well-formed'),
  'zeros': (bytes(1000), 'not well-formed'),
  'latin': (b'\xff' + L1, 'not well-formed'),
  'no model': (
    b'<sbml xmlns="http://www.sbml.org/sbml/level2" level="2" version="1"/>',
    'no model',
  ),
  'no SBML': (b'<html><body/></html>', ''),
  'two of one name': (
    L3.replace(b'<parameter id="p"', b'<parameter id="k"'),
    "'k'.*something else",
  ),
  'no name': (L2.replace(b'<species id="A"', b'<species id=""'), ''),
  'a large whole number': (number(b' type="integer"', b'9999999999'), "'9999999999' is too large"),
  'a large number': (number(b'', b'1e999'), "'1e999' is too large"),
  'a large exponent': (number(b' type="e-notation"', b'1<sep/>999'), 'valid exponential'),
  'a half whole number': (number(b' type="integer"', b'1.5'), "'1.5' is no number"),
  'two numbers': (number(b'', b'1 2'), "'1 2' is no number"),
  'no number': (number(b'', b''), 'no number'),
  'an endless number': (number(b'', b'1' * 10**6), 'no number'),
  'another base': (number(b' base="16"', b'10'), "base '16'"),
  'two laws': (number(b'', b'1</cn><cn>2'), 'line 8'),
  'a strange name': (L3.replace(b'<parameter id="p"', b'<parameter id="R.l"'), "'R.l'"),
  'a local parameter twice': (
    L1.replace(b'<parameter name="k" value="3"/>', b'<parameter name="k" value="3"/>' * 2),
    "'k' of the parameters of 'R'",
  ),
  'a reference like a species': (
    L2.replace(b'<speciesReference species', b'<speciesReference id="A" species', 1),
    "'A' of the species references",
  ),
  'an argument twice': (L3.replace(b'<ci> y </ci>', b'<ci> x </ci>'), "'x' of the arguments"),
  'mathematics of another kind': (
    nested(1).replace(b'<minus/>', b'<vectorproduct/>'),
    '',
  ),
}


class SbmlTest(parameterized.TestCase):
  def test_level_1(self):
    model = sbml.parse(L1)
    self.assertEqual((model.level, model.version), (1, 2))
    (reaction,) = model.reactions
    expected = ('minus', ('times', 'k', ('power', 'A', 2.0)), 1.0)
    self.assertEqual(reaction.law, expected)
    self.assertEqual(reaction.reactants[0].stoichiometry, 1.5)
    c = compiler.compile_rhs(model)
    np.testing.assert_allclose(c.rhs(np.float64(0.0), c.y0, c.c), [-1.5 * (3 * 2.0**2 - 1)])

  def test_level_2(self):
    model = sbml.parse(L2)
    self.assertEqual(model.reactions[0].products[0].math, ('plus', 1.0, 0.5))
    c = compiler.compile_rhs(model)
    np.testing.assert_allclose(c.rhs(np.float64(0.0), c.y0, c.c), [0.5 * 4.0])

  def test_level_3(self):
    model = sbml.parse(L3)
    self.assertEqual(model.functions[0], ('f', ('x', 'y'), ('power', 'x', 'y')))
    law = ('minus', ('times', ('call', 'f', 'A', 'k'), 'q'), 'l')
    self.assertEqual(model.reactions[0].law, law)
    self.assertEqual(model.reactions[0].parameters, (('l', 0.25, True),))
    self.assertEqual(model.initial_assignments, (('p', ('times', 2.0, 'k')),))
    rule = ('piecewise', 1.0, ('lt', ('time',), 3.0), 2.0)
    self.assertEqual(model.assignment_rules, (('q', rule),))
    event = ('0', ('lt', 'A', 1.0), True, True, 1.0, 2.0, True, (('A', 'B'),))
    self.assertEqual(model.events, (event,))
    self.assertEqual(model.species[1][1:5], ('V', None, 1.0, True))

  def test_long_chains_are_flat(self):
    model = sbml.parse(formula(b'+'.join([b'A'] * 2000)))
    self.assertEqual(model.reactions[0].law, ('plus', *['A'] * 2000))

  @parameterized.parameters('utf-8', 'iso-8859-1', 'utf-16')
  def test_encodings(self, encoding):
    text = L1.decode().replace('UTF-8', encoding).replace('name="m"', 'name="m"><notes>ä</notes')
    model = sbml.parse(text.encode(encoding))
    self.assertEqual(model.reactions, sbml.parse(L1).reactions)

  def test_names_the_file(self):
    with tempfile.TemporaryDirectory() as directory:
      path = pathlib.Path(directory) / 'a.xml'
      path.write_bytes(L1)
      self.assertEqual(sbml.parse(path)._replace(source='SBML'), sbml.parse(L1))
      with self.assertRaisesRegex(ValueError, 'a.xml: takes more than 100 bytes'):
        sbml.parse(path, max_bytes=100)
      path.write_bytes(L1[:-10])
      with self.assertRaisesRegex(ValueError, 'a.xml: not well-formed'):
        sbml.parse(path)
      with self.assertRaises(FileNotFoundError):
        sbml.parse(path.with_name('b.xml'))

  @parameterized.named_parameters((name.replace(' ', '_'), name) for name in HOSTILE)
  def test_refuses(self, name):
    content, reason = HOSTILE[name]
    with self.assertRaisesRegex(ValueError, f'^SBML: .*{reason}') as caught:
      compiler.compile_rhs(sbml.parse(content))
    self.assertNotIn('\n', str(caught.exception))
    self.assertLess(len(str(caught.exception)), 500)

  def test_packages_that_change_the_mathematics_are_named(self):
    needed = (
      b'xmlns:comp="http://www.sbml.org/sbml/level3/version1/comp/version1" comp:required="%s"'
    )
    for required, packages in ((b'true', ('comp',)), (b'false', ())):
      text = L3.replace(b'<sbml ', b'<sbml ' + needed % required + b' ')
      self.assertEqual(sbml.parse(text).packages, packages)

  def test_mutants_compile_or_are_refused(self):
    """In a process of their own, which none of them ends."""
    mutants = [toys.mutants(text, seed) for text in (L1, L2, L3) for seed in range(12)]
    with workers.Workers([toys.make_reader]) as pool:
      for _, answer in pool.map_within(mutants, 20.0):
        self.assertNotIsInstance(answer, workers.Lost, msg=str(answer))
        for text, outcome in answer:
          self.assertRegex(outcome, '^(finite|SBML: [^\n]*)$', msg=text)
