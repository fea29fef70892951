"""Scores of forecasts against what is known of them."""

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest

from experiments.sysbio_flow import evaluate, report
from experiments.sysbio_flow.methods import learner
from tests.experiments.sysbio_flow import toys

KEY = jax.random.key(0)


def gaussian(std):
  """Forecasts N(0, std²), whatever the context."""
  return learner.Forecaster(
    lambda context, key, n: std * jax.random.normal(key, (n, len(context), 24))
  )


def noise(count=400, seed=0):
  rng = np.random.default_rng(seed)
  system = np.repeat(np.arange(count // 4), 4)
  return toys.split(rng.normal(size=(count, 32)), rng.normal(size=(count, 24)), system)


class EvaluateTest(absltest.TestCase):
  def test_the_true_law_is_calibrated_and_has_the_score_of_closed_form(self):
    split = noise()
    scores = evaluate.forecaster(gaussian(1.0), 200, block=128)({}, split, KEY, 1.0)
    found = evaluate.summary(split, scores)
    self.assertAlmostEqual(found['crps'], 1 / np.sqrt(np.pi), delta=0.02)
    self.assertAlmostEqual(found['mae'], np.sqrt(2 / np.pi), delta=0.02)
    self.assertLess(found['calibration_error'], 0.015)
    self.assertAlmostEqual(found['width_90'], 2 * 1.645, delta=0.1)
    np.testing.assert_allclose(scores['rank'].mean(axis=0), 1 / evaluate.BINS, atol=0.01)

  def test_the_spread_that_covers_best_is_the_inverse_of_what_is_wrong(self):
    split = noise()
    for std, expected in ((0.5, 2.0), (1.0, 1.0), (2.0, 0.5)):
      choose = evaluate.choose_spread(gaussian(std), 200, block=128)
      self.assertAlmostEqual(choose({}, split, KEY), expected, delta=0.11)

  def test_widening_keeps_the_median_and_scales_distances(self):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(21, 5)))
    wide = evaluate.widened(x, 3.0)
    np.testing.assert_allclose(jnp.median(wide, axis=0), jnp.median(x, axis=0), rtol=1e-5)
    np.testing.assert_allclose(wide.std(axis=0), 3 * x.std(axis=0), rtol=1e-4)

  def test_a_forecast_of_one_number_has_its_error_as_score_and_no_intervals(self):
    split = noise(40)
    method = learner.Forecaster(lambda context, key, n: jnp.zeros((1, len(context), 24)))
    scores = evaluate.forecaster(method, 50, block=16)({}, split, KEY, 1.0)
    np.testing.assert_allclose(scores['mae'], scores['crps'], rtol=1e-6)
    np.testing.assert_allclose(
      scores['mae'].mean(axis=1), abs(split.future).mean(axis=1), rtol=1e-5
    )
    self.assertNotIn('covered', scores)

  def test_systems_count_alike_however_many_series_they_have(self):
    system = np.array([0] * 9 + [1])
    split = toys.split(np.zeros((10, 32)), np.zeros((10, 24)), system)
    values = np.array([1.0] * 9 + [3.0])
    np.testing.assert_allclose(evaluate.by_system(split, values), [1.0, 3.0])
    there = np.array([False] * 8 + [True, True])
    self.assertAlmostEqual(report._mean(split, np.arange(10.0), there), (8 + 9) / 2)

  def test_gains_are_finite_where_a_system_is_forecast_exactly(self):
    split = noise(40)
    scores = {
      name: {metric: np.full((1, 40, 3), score) for metric in ('mae', 'crps')}
      for name, score in (('first', 1.0), ('exact', 0.0), ('double', 2.0))
    }
    rows = {row['method']: row['mean'] for row in report.system_rows(split, scores)}
    self.assertAlmostEqual(rows['first against double'], np.log(2.0), delta=0.01)
    self.assertTrue(np.isfinite(list(rows.values())).all())
    self.assertLess(rows['first against exact'], -5.0)


if __name__ == '__main__':
  absltest.main()
