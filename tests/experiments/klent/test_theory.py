import json
import pathlib
import tempfile

import chex
import jax
import ml_collections
import numpy as np
from absl.testing import parameterized

from configs.klent import normal_form as config_file
from experiments.klent import theory, theory_measures
from lib.games import normal_form
from lib.train import app

FIGURES = {'learning', 'maps', 'paths', 'rates', 'temperatures', 'trees'}


def tiny():
  """A study of few cells, games and steps."""
  config = config_file.get_config()
  # As many games as cells, of 3 actions as in the others: what is compiled serves both.
  config.map.update(cells=6, steps=400)
  config.rates.update(games=((3, 3, 36),), alphas=(0.2, 1.5), betas=(0.2, 3.0), steps=400)
  config.rate_steps = 400
  config.margin = 0.02
  config.paths.steps = 200
  config.learning.update(steps=300, actions=3, klent={'alpha': 1.0, 'beta': 1.0})
  config.temperatures.update(alphas=(1.0, 0.1), games=2)
  config.trees.update(depth=3, branching=2, games=2, steps=40)
  return config


class StudyTest(chex.TestCase):
  def test_what_the_theorems_say_is_found_and_written(self):
    config = tiny()
    theory.check(config)
    with tempfile.TemporaryDirectory() as directory:
      workdir = pathlib.Path(directory)
      run = app.Run(ml_collections.FrozenConfigDict(config), 'klent', 'tiny.py', workdir)
      theory.study(run)
      rows = json.loads((workdir / 'results.json').read_bytes())['rows']
      text = (workdir / 'report.md').read_text()
      files = {path.stem for path in (workdir / 'figures').glob('*.png')}
    self.assertEqual(files, FIGURES)
    for name in FIGURES:
      self.assertIn(f'](figures/{name}.png)', text)
    tested = [row for row in rows if 'passed' in row]
    self.assertNotEmpty(tested)
    self.assertEqual([row for row in tested if not row['passed']], [])
    self.assertNotIn('FAIL', text)
    self.assertEqual({row['part'] for row in tested}, FIGURES - {'maps'} | {'map'})

    found = {(row['method'], row['metric']): row['mean'] for row in rows}
    cells = (np.arange(6) + 0.5) / 3  # in matching pennies, ‖R‖₂²/4 = 1 and the theorem is exact
    inside = sum(a * (a + 2 * b) > 1 for a in cells for b in cells)
    self.assertEqual(found[theory.PENNIES, 'inside'], inside)
    self.assertEqual(found[theory.PENNIES, 'outside_that_converge'], 0)
    self.assertEqual(
      found[theory.PENNIES, 'outside_mirror_descent_that_converge'],
      sum(a * (a + 2 * b) > 1 > a * b for a in cells for b in cells),
    )
    # Sufficient, not necessary: here σ is below ‖R‖₂/2.
    self.assertGreater(found[theory.BIASED, 'outside_that_converge'], 0)

  @parameterized.parameters(
    ({'map.cells': 0}, 'config.map.cells must be positive, got 0'),
    ({'converged': float('nan')}, 'config.converged must be positive'),
    ({'start': 1.0}, r'config.start must be in \(0, 1\)'),
    ({'seed': -1}, 'config.seed'),
    ({'paths.points': ((0.5, 0.0),)}, 'config.paths.points must be pairs .* β above 0'),
    ({'paths.points': ((0.5, 1.0, 2.0),)}, 'config.paths.points'),
    ({'paths.points': ()}, 'config.paths.points'),
    ({'trees.points': ((0.0, 1.0),)}, 'config.trees.points must be pairs .* α above 0'),
    ({'trees.branching': 1}, 'config.trees.branching must be above 1'),
    ({'rates.games': ((2, 2.5, 3),)}, 'config.rates.games must be triples'),
    ({'rates.alphas': (2.0, 1.0)}, 'config.rates.alphas must be two ascending'),
    ({'rates.betas': (0.0, 1.0)}, 'config.rates.betas'),
    ({'temperatures.alphas': (0.1, -1.0)}, 'config.temperatures.alphas'),
    ({'learning.magnet.share': 1.5}, 'config.learning.magnet.share'),
  )
  def test_a_bad_field_is_named_in_one_line(self, changes, message):
    config = config_file.get_config()
    theory.check(config)
    config.update_from_flattened_dict(changes)
    with self.assertRaisesRegex(ValueError, message) as caught:
      theory.check(config)
    self.assertNotIn('\n', str(caught.exception))


class MeasuresTest(chex.TestCase):
  @parameterized.parameters((0.5, 1.0), (0.3, 1.0), (1.0, 0.1))
  def test_measured_rate_is_exact_in_matching_pennies_on_both_sides_of_one(self, alpha, beta):
    with jax.enable_x64(True):
      payoff = np.array(theory_measures.GAMES[theory.PENNIES])
      uniform = normal_form.Profile(jax.numpy.zeros(2), jax.numpy.zeros(2))
      rate = float(theory_measures.measured_rate(payoff, alpha, beta, uniform, 5))
    self.assertAlmostEqual(rate, np.sqrt(beta**2 + 1) / (alpha + beta), places=6)

  def test_a_magnet_that_rests_is_the_update_and_one_that_moves_leads_to_nash(self):
    payoff = jax.numpy.array(theory_measures.GAMES[theory.BIASED])
    start = normal_form.Profile(jax.numpy.array([1.0, 0.0, 0.0]), jax.numpy.zeros(3))
    gap = lambda strategies: normal_form.exploitability(payoff, strategies)
    play = lambda rule: normal_form.run(rule, payoff, start, 2000, gap).curve
    still = play(normal_form.regularized_dynamics(0.2, 4.0))
    np.testing.assert_allclose(play(theory_measures.moving_magnet(0.2, 4.0, 0.0)), still, atol=1e-5)
    self.assertLess(play(theory_measures.moving_magnet(0.2, 4.0, 0.02))[-1], 0.01 * still[-1])

  def test_alpha_that_does_not_fall_is_the_update(self):
    payoff = jax.numpy.array(theory_measures.GAMES[theory.BIASED])
    start = normal_form.Profile(jax.numpy.array([1.0, 0.0, 0.0]), jax.numpy.zeros(3))
    play = lambda rule: normal_form.run(rule, payoff, start, 50, lambda p: p.row).curve
    found = play(theory_measures.falling(0.2, 4.0, 0.0))
    np.testing.assert_allclose(found, play(normal_form.regularized_dynamics(0.2, 4.0)), atol=1e-6)
