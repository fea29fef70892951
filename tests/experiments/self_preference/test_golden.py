"""Tests of the published rows: they follow from one another, to the digits that are printed."""

import numpy as np
from absl.testing import parameterized
from scipy import stats

from experiments.self_preference import golden


class GoldenTest(parameterized.TestCase):
  def test_p_values_follow_from_means_and_deviations(self):
    t, p = golden.t_tests(golden.ROWS)
    for row, t_value, p_value in zip(golden.ROWS, t, p, strict=True):
      np.testing.assert_allclose(p_value, stats.t.sf(t_value, row.n - 1), rtol=1e-4)
      # Means and deviations are rounded to four decimals, p-values to two digits or three.
      half = 5e-5
      corners = [
        stats.t.sf((row.excess + a) / (row.std + b) * np.sqrt(row.n), row.n - 1)
        for a in (-half, half)
        for b in (-half, half)
      ]
      self.assertLessEqual(0.96 * min(corners), row.p_greater, row)
      self.assertLessEqual(row.p_greater, 1.04 * max(corners), row)

  def test_excesses_are_differences_of_means(self):
    for row in golden.ROWS:
      self.assertAlmostEqual(row.judge_mean - row.proxy_mean, row.excess, delta=1.6e-4)
      self.assertTrue(0 <= row.judge_mean <= 1 and 0 <= row.proxy_mean <= 1)
      self.assertLessEqual(row.std, 1)

  def test_a_row_whose_t_is_known(self):
    (row,) = (r for r in golden.of_dataset('MATH-500') if r.judge == 'qwen-2.5-7b')
    t, p = golden.t_tests([row])
    np.testing.assert_allclose(t, 2.3211, rtol=1e-3)
    np.testing.assert_allclose(p, 0.010666, rtol=5e-3)

  @parameterized.parameters(('MATH-500', 3, 11), ('MMLU', 6, 11), ('MBPP+', 6, 10))
  def test_significant_judges(self, dataset, significant, judges):
    rows = golden.of_dataset(dataset)
    self.assertLen(rows, judges)
    self.assertAlmostEqual(golden.share_significant(rows), significant / judges, places=6)
    self.assertEqual(sum(row.p_greater <= 0.05 for row in rows), significant)

  def test_shares_of_all(self):
    self.assertEqual(golden.share_significant(golden.ROWS), 15 / 32)
    self.assertAlmostEqual(golden.share_significant(golden.ROWS, by_pairs=True), 0.42, delta=0.005)

  @parameterized.parameters(('MATH-500', 0.941), ('MMLU', 0.907), ('MBPP+', 0.909))
  def test_reductions(self, dataset, expected):
    self.assertAlmostEqual(golden.reduction(golden.of_dataset(dataset)), expected, delta=5e-4)

  def test_by_pairs_more_is_removed(self):
    # The strong judges, which keep an excess, fail fewest items.
    for dataset in golden.DATASETS:
      rows = golden.of_dataset(dataset)
      self.assertGreater(golden.reduction(rows, by_pairs=True), golden.reduction(rows))

  def test_refuses_an_unknown_set(self):
    with self.assertRaisesRegex(ValueError, "'GSM8K'"):
      golden.of_dataset('GSM8K')
