"""The whole experiment on a few models: it ends, goes on, and says what is wrong."""

import json
import pathlib
import shutil
import tempfile
import unittest
from unittest import mock

import chex
import numpy as np
from absl.testing import absltest, parameterized

from experiments.sysbio_flow import benchmark, train
from lib.train import app
from tests.experiments import endings
from tests.experiments.sysbio_flow import toys

TINY = """
from configs.sysbio_flow import quick

def get_config():
  config = quick.get_config()
  config.num_seeds = 2
  config.methods = ('flow', 'holt')
  config.claims = (('flow', 'holt', 'log_crps', 0.0),)
  config.data.update({{'dir': {dir!r}, 'models': 12, 'workers': 2, 'valid': 0.25, 'test': 0.25}})
  config.recipe.update({{'runs': 1, 'horizons': (10.0, 1000.0)}})
  config.flow.update({{'width': 16, 'layers': 1, 'steps': 2, 'draws': 1}})
  config.steps = 4
  config.batch_size = 8
  config.chunk_steps = 2
  config.checkpoint_every = 2
  config.eval.update({{'samples': 20, 'valid': 16, 'shown': 3}})
  return config
"""


class RunTest(chex.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.directory = pathlib.Path(tempfile.mkdtemp())
    unittest.addModuleCleanup(shutil.rmtree, cls.directory)
    cls.config = cls.directory / 'tiny.py'
    cls.config.write_text(TINY.format(dir=str(cls.directory / 'data')))

  def run_here(self, workdir: str, *flags: str) -> int:
    argv = ['main', f'--config={self.config}', f'--workdir={self.directory / workdir}', *flags]
    return app.main(argv, train.prepare, train.train)

  def test_it_ends_with_table_and_pictures_and_goes_on_from_them(self):
    self.assertEqual(self.run_here('whole'), 0)
    found = json.loads((self.directory / 'whole' / 'results.json').read_text())['rows']
    methods = {row['method'] for row in found}
    self.assertContainsSubset({'flow', 'holt', 'flow against holt'}, methods)
    numbers = [row['mean'] for row in found]
    self.assertTrue(np.isfinite(numbers).all())
    pictures = {path.name for path in (self.directory / 'whole' / 'figures').glob('*.png')}
    self.assertContainsSubset(
      {'errors.png', 'horizon.png', 'calibration.png', 'ranks.png', 'fans.png', 'training.png'},
      pictures,
    )
    report = (self.directory / 'whole' / 'report.md').read_text()
    self.assertIn('PASS' if 'PASS' in report else 'FAIL', report)
    self.assertEqual(self.run_here('again'), 0)  # the benchmark is there by now
    other = json.loads((self.directory / 'again' / 'results.json').read_text())['rows']
    pace = ('seconds', 'ms_per_step')
    plain = lambda rows: [
      (r['method'], r['metric'], r['mean']) for r in rows if r['metric'] not in pace
    ]
    self.assertEqual(plain(other), plain(found))

  @parameterized.parameters(
    ('--config.cfm.source=uniform', 'cfm.source must be one of'),
    ('--config.data.models=5000', 'data.models must be in'),
    ('--config.data.folder=/nowhere', '/nowhere: has no file'),
    ('--config.recipe.points=30', 'recipe.context'),
    ('--config.eval.samples=1', 'eval.samples must be'),
    ('--config.data.test=1.5', r'data.test must be in'),
  )
  def test_what_is_wrong_is_told_in_a_line(self, flag, told):
    endings.assert_ends(self, 2, told, 'refused', flag)
    self.assertFalse((self.directory / 'refused').exists())


class BenchmarkTest(absltest.TestCase):
  def test_models_of_a_folder_and_their_failures(self):
    from configs.sysbio_flow import quick

    with tempfile.TemporaryDirectory() as name:
      folder = pathlib.Path(name, 'models')
      folder.mkdir()
      for number in range(3):
        (folder / f'BIOMD{number:010d}.xml').write_bytes(toys.decay(start=1.0 + number))
      (folder / 'BIOMD0000000003.xml').write_bytes(b'no model')
      config = quick.get_config()
      config.data.update({'dir': f'{name}/data', 'folder': str(folder), 'workers': 1})
      config.recipe.update({'runs': 1, 'horizons': (10.0,)})
      whole = benchmark.biomodels.sources
      own = lambda where: {k: v for k, v in whole(where).items() if k <= 'BIOMD0000000003'}
      config.data.models = 0
      with mock.patch.object(benchmark.biomodels, 'sources', own):
        built = benchmark.build(config)
        again = benchmark.build(config)
      self.assertEqual([s['name'][-1] for s in built.systems], ['0', '1', '2'])
      self.assertLen({s['group'] for s in built.systems}, 1)  # the same species
      self.assertIn('not loaded', built.failures['BIOMD0000000003'])
      self.assertEqual(benchmark.count_reasons(built.failures), {'not loaded': 1})
      np.testing.assert_array_equal(built.values, again.values)


if __name__ == '__main__':
  absltest.main()
