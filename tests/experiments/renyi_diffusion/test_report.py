"""Tests of what a run shows, on numbers that are made up."""

import pathlib
import tempfile

import chex
import ml_collections
import numpy as np
from absl.testing import parameterized

from configs.renyi_diffusion import digits, quick, ring
from experiments.renyi_diffusion import charts, data, report
from lib.io import images, npz
from lib.stats import intervals
from lib.train import app, metrics

STEPS = 40


class ReportTest(chex.TestCase):
  def setUp(self):
    super().setUp()
    self.workdir = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
    config = ml_collections.FrozenConfigDict({'steps': STEPS})
    self.this = app.Run(config, 'renyi_diffusion', 'c.py', self.workdir)

  def write(self, step, kind='eval', **values):
    with metrics.Writer(self.workdir / 'renyi') as writer:
      writer.write(step, kind, **(values or {'nll': [0.5]}))

  def test_is_finished_at_its_last_score(self):
    for step, kind, finished in (
      (STEPS, 'train', False),
      (20, 'eval', False),
      (STEPS, 'eval', True),
    ):
      self.write(step, kind)
      self.assertEqual(report.is_finished(self.this, 'renyi'), finished)
    self.assertFalse(report.is_finished(self.this, 'nobody'))

  def test_scores_of_unstable_seeds_are_left_out(self):
    found = {'nll': np.array([1.0, np.nan]), 'near': np.array([0.5, 0.25])}
    self.assertEqual(list(report._finite(found)), ['near'])

  def test_values_are_the_last_scores_and_means_over_training(self):
    for step, fraction, speed in (
      (20, [0.2, 1.0], 3.0),
      (30, [0.4, 0.8], 9.0),
      (STEPS, [0.6, 0.9], 5.0),
    ):
      self.write(
        step, 'train', effective_fraction=fraction, steps_per_second=speed, loss=[1.0, 2.0]
      )
    self.write(20, nll=[9.0, 9.0])
    self.write(STEPS, nll=[9.0, 9.0])
    self.write(STEPS, nll=[1.0, 2.0], near=[0.5, 0.25])  # scored again
    found = report.values(self.this, 'renyi')
    expected = {
      'nll': [1.0, 2.0],
      'near': [0.5, 0.25],
      'effective_fraction': [0.4, 0.9],
      'steps_per_second': [5.0],
    }
    self.assertEqual(found.keys(), expected.keys())
    for name, numbers in expected.items():
      np.testing.assert_allclose(found[name], numbers, rtol=1e-12)

  def test_one_method_alone_has_a_report(self):
    config = digits.get_config('rest')
    config.methods, config.steps = ('likelihood',), STEPS
    whole = images.Images(np.zeros((9, 2, 2, 1), np.uint8), np.arange(9) % 3)
    dataset = data._split(quick.get_config().data, 2, whole, whole, 256)
    where = self.workdir / 'likelihood'
    with metrics.Writer(where) as writer:
      writer.write(STEPS, 'train', steps_per_second=1.0, loss=[1.0, 2.0])
      writer.write(STEPS, 'eval', bpd=[3.0, 4.0], bpd_class_0=[3.5, 4.0])
    npz.save_npz(where / 'samples.npz', {'samples': np.zeros((2, 4, 4), np.float32)})
    frozen = ml_collections.FrozenConfigDict(config)
    report.write(app.Run(frozen, 'renyi_diffusion', 'c.py', self.workdir), dataset)
    drawn = [path.name for path in (self.workdir / 'figures').iterdir()]
    self.assertEqual(drawn, ['samples.png'])

  def test_every_claim_is_of_a_score_that_has_a_better(self):
    for config in (quick.get_config(), ring.get_config(), digits.get_config()):
      for _, _, metric, _ in config.claims:
        self.assertIn(metric, report.BETTER)
    self.assertEqual(set(report.BETTER.values()), {'lower', 'higher'})


class OrderTest(chex.TestCase):
  def test_the_sweep_is_objective_a_and_likelihood(self):
    config = quick.get_config()
    orders = {name: charts.order(config, name) for name in config.methods}
    expected = {f'renyi_{name}': alpha for name, alpha in quick.ALPHAS.items()}
    self.assertEqual(orders, expected | {'likelihood': 1.0, 'noisy_1': None, 'noisy_1_3': None})
    config = digits.get_config()
    orders = {name: charts.order(config, name) for name in config.methods}
    expected = {f'renyi_{name}': alpha for name, (alpha, _) in digits.SWEEP.items()}
    self.assertEqual(orders, expected | {'likelihood': 1.0})

  def test_another_network_or_objective_is_not_of_the_sweep(self):
    config = ring.get_config()
    for name in config.methods:
      expected = 1.0 if name == 'likelihood' else None
      self.assertEqual(charts.order(config, name), expected, name)


class ChartsTest(chex.TestCase):
  def values(self, names, metrics):
    rng = np.random.default_rng(0)
    return {name: {metric: rng.random(4) for metric in metrics} for name in names}

  def test_what_alpha_trades_is_drawn_in_its_order(self):
    orders = {'b': 1.3, 'likelihood': 1.0, 'a': 0.8}
    values = self.values(orders, ('nll', 'precision', 'class_kl'))
    axes = charts.over_alpha(values, orders).axes
    self.assertEqual([a.get_title() for a in axes[:2]], ['nll', 'precision'])
    self.assertLen(axes, 3)
    for axis, metric in zip(axes, ('nll', 'precision'), strict=False):
      x, y = axis.lines[0].get_data()
      np.testing.assert_array_equal(x, [0.8, 1.0, 1.3])
      means = [values[n][metric].mean() for n in ('a', 'likelihood', 'b')]
      np.testing.assert_allclose(y, means, rtol=1e-12)
    points = [line.get_data() for line in axes[2].lines]
    np.testing.assert_array_equal(points[0], [values['a']['nll'], values['a']['precision']])

  def test_gains_by_class_fall_by_share(self):
    names = [f'bpd_class_{k}' for k in range(3)]
    values = self.values(('likelihood', 'renyi_2'), names)
    whole = images.Images(np.zeros((9, 2, 2, 1), np.uint8), np.array([0, 1, 1, 1, 1, 1, 2, 2, 2]))
    dataset = data._split(quick.get_config().data, 2, whole, whole, 256)
    (axis,) = charts.by_class(values, names, dataset).axes
    expected = [
      intervals.paired_interval(values['renyi_2'][names[k]], values['likelihood'][names[k]]).mean
      for k in (1, 2, 0)
    ]
    np.testing.assert_allclose(axis.lines[0].get_ydata(), expected, rtol=1e-9)
    labels = [label.get_text() for label in axis.get_xticklabels()]
    self.assertEqual(labels, ['1\n56 %', '2\n33 %', '0\n11 %'])

  @parameterized.parameters(1, 3)
  def test_grids_hold_images_in_rows(self, channels):
    whole = images.Images(np.zeros((3, 2, 2, channels), np.uint8), np.array([0, 1, 2]))
    dataset = data._split(quick.get_config().data, 2, whole, whole, 256)
    samples = np.random.default_rng(0).uniform(-1.5, 1.5, (10, 4 * channels))  # nine fit a square
    drawing = charts.grids({'renyi_2': samples}, dataset)
    (axis,) = drawing.axes
    shown = np.asarray(axis.images[0].get_array()).reshape(9, 9, channels)  # with a grey line each
    for k in range(9):
      i, j = divmod(k, 3)
      expected = np.clip(samples[k] / 2 + 0.5, 0, 1).reshape(2, 2, channels)
      np.testing.assert_allclose(shown[3 * i : 3 * i + 2, 3 * j : 3 * j + 2], expected)

  def test_scatters_mark_the_rare_modes(self):
    dataset = data.load(quick.get_config().data, 2, 0)
    samples = {name: np.zeros((5, 2)) for name in 'abcde'}
    axes = charts.scatters(samples, dataset).axes
    self.assertEqual([axis.get_title() for axis in axes], list('abcde'))
    np.testing.assert_allclose(
      np.sort(axes[0].lines[0].get_xydata(), axis=0), np.sort(data.ring_centres()[5:], axis=0)
    )
