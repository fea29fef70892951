"""Tests of the census and of the runner of the SBML Test Suite."""

import contextlib
import io
import json
import pathlib
import tempfile
from unittest import mock

import numpy as np
import pytest
from absl import flags
from absl.testing import absltest, flagsaver, parameterized

from experiments.sysbio_flow import agreement, biomodels, cases, outcomes
from lib.io import sbml
from lib.sbml import compiler
from tests.lib.sbml import toys

SETTINGS = """start: 0
duration: 2
steps: 2
variables: S, p
absolute: 1e-6
relative: {relative}
amount: {amount}
concentration: {concentration}
"""
RULES = toys.parts(
  compartments={'V': 2.0},
  species={'S': {'amount': 1.0}},
  parameters={'p': 0.0},
  assigned={'p': '2*time', 'S': '1 + time'},  # the concentration
)


class CasesTest(parameterized.TestCase):
  def folder(self, results, relative=1e-6, amount='', concentration='S', **parts):
    directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / '00001'
    directory.mkdir()
    settings = SETTINGS.format(relative=relative, amount=amount, concentration=concentration)
    (directory / '00001-settings.txt').write_text(settings)
    (directory / '00001-results.csv').write_text(results)
    (directory / '00001-sbml-l3v2.xml').write_bytes(toys.document(**(parts or RULES)))
    return directory

  def test_concentrations(self):
    case = cases.load(self.folder('time,S,p\n0,1,0\n1,2,2\n2,3,4\n'))
    self.assertEqual(case.columns, ('[S]', 'p'))
    np.testing.assert_array_equal(case.ts, [0.0, 1.0, 2.0])
    self.assertEqual(cases.outcome_of(case), 'passes')

  def test_amounts(self):
    case = cases.load(self.folder('time, S\n0,2\n\n1,4\n2,6\n', amount='S', concentration=''))
    self.assertEqual(cases.outcome_of(case), 'passes')

  @parameterized.parameters((1e-3, "fails: 'p' at 2 is 4, not 4.01"), (1e-2, 'passes'))
  def test_tolerance(self, relative, outcome):
    case = cases.load(self.folder('time,p\n0,0\n1,2\n2,4.01\n', relative))
    self.assertEqual(cases.outcome_of(case), outcome)

  def test_unknown_columns(self):
    case = cases.load(self.folder('time,q\n0,0\n'))
    self.assertStartsWith(cases.outcome_of(case), 'refused: asks for q,')

  @parameterized.parameters('', 'time,S\n0,x\n', 'time,S\n0,1\n1\n')
  def test_refuses(self, results):
    with self.assertRaisesRegex(ValueError, '00001: no case'):
      cases.load(self.folder(results))

  @pytest.mark.slow
  def test_events_in_great_number(self):
    """Twice the least bound of events; ties are broken by chance, but the sum is certain."""
    reset = [
      {'trigger': 'r >= 0.01', 'persistent': False, 'priority': '1', 'assign': {'r': '0', name: up}}
      for name, up in (('p', 'p + 0.01'), ('q', 'q + 0.01'))
    ]
    folder = self.folder(
      'time,s\n0,0\n1,1\n2,2\n',
      relative=0.02,
      parameters=dict.fromkeys('pqrs', 0.0),
      rates={'r': '1'},
      assigned={'s': 'p + q'},
      events=reset,
    )
    self.assertEqual(cases.outcome_of(cases.load(folder)), 'passes')

  def test_tally(self):
    found = outcomes.tally(["fails: 'A' at 2 is 1e-3", "fails: 'B' at 0.5 is nan", 'passes'])
    self.assertEqual(found, {'fails: … at … is …': 2, 'passes': 1})


class AgreementTest(parameterized.TestCase):
  @parameterized.parameters(
    toys.parts(species={'A': {'amount': 4.0}}, reactions={'R': ({'A': 1}, {}, '0.5*A*(1 + time)')}),
    toys.parts(  # rates of concentrations in a volume that changes
      compartments={'V': 2.0},
      species={'A': {'amount': 4.0}},
      rates={'V': '0.5', 'A': '-0.1*A'},
    ),
    toys.parts(  # an event at time 0
      parameters={'p': 1.0},
      rates={'p': '-p'},
      events=[{'trigger': 'p > 0.5', 'initial': False, 'assign': {'p': '3'}}],
    ),
  )
  def test_agrees(self, **parts):
    self.assertEqual(agreement.outcome_of(toys.document(**parts)), 'agrees')

  def test_differs(self):
    text = toys.document(
      species={'A': {'amount': 4.0}, 'B': {'amount': 0.0}},
      reactions={'R': ({'A': 1}, {'B': 1}, '0.5*A*(1 + B)')},
    )
    good = compiler.compile_rhs(sbml.parse(text))
    for fault, reason in (
      ({'y0': good.y0 * (1 + 1e-5)}, 'amount'),
      ({'rhs': lambda *x: good.rhs(*x) * (1 + 1e-5)}, 'rate'),
      ({'rhs': lambda t, y, c: good.rhs(t, y, c) * (1 + 1e-3 * y[1])}, 'rate.*with other states'),
    ):
      with mock.patch.object(compiler, 'compile_rhs', return_value=good._replace(**fault)):
        self.assertRegex(agreement.outcome_of(text), f'another {reason}')

  def test_has_no_states(self):
    text = toys.document(parameters={'p': 1.0})
    self.assertEqual(agreement.outcome_of(text), 'compiles, but has no states')


class OutcomesTest(parameterized.TestCase):
  def test_a_census_goes_on_where_it_stopped(self):
    root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
    output = root / 'outcomes.jsonl'
    flags.FLAGS.mark_as_parsed()
    self.enterContext(flagsaver.flagsaver(output=str(output), workers=1, seconds=60.0))
    texts = {
      'bad': toys.document(parameters={'p': 1.0}, rates={'p': '-delay(p, 1)'}),
      'done': b'',
      'good': toys.document(parameters={'p': 1.0}, rates={'p': '-p'}),
    }
    for name, text in texts.items():
      (root / f'{name}.xml').write_bytes(text)
    requests = {
      name: biomodels.Source(str(root / f'{name}.xml'), len(text)) for name, text in texts.items()
    }
    first = '{"name": "done", "outcome": "as it was", "seconds": 1.0}\n'
    output.write_text(first + '{"name": "go')  # the last line is torn
    with contextlib.redirect_stdout(io.StringIO()) as printed:
      outcomes.collect(agreement.make_worker, requests, 'model')
    records = [json.loads(line) for line in output.read_text().splitlines()]
    found = {record['name']: record['outcome'] for record in records}
    self.assertLen(records, 3)
    self.assertEqual((found['done'], found['good']), ('as it was', 'agrees'))
    self.assertRegex(found['bad'], 'not supported: delays')
    self.assertRegex(printed.getvalue(), r'(?s)3  in all, .* 1  as it was')


if __name__ == '__main__':
  absltest.main()
