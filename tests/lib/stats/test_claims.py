"""Tests of lib.stats.claims."""

import numpy as np
from absl.testing import absltest, parameterized

from lib.stats import claims

BETTER = {'reward': 'higher', 'error': 'lower'}


def values(shift: float, noise: float = 0.01, seeds: int = 5):
  """Two methods whose paired gain in reward, and in error, is `shift` with little noise."""
  rng = np.random.default_rng(0)
  base = rng.normal(size=seeds)  # what the seeds share, far larger than the gain
  gain = shift + noise * rng.normal(size=seeds)
  return {
    'mine': {'reward': base + gain, 'error': base - gain},
    'other': {'reward': base, 'error': base},
  }


class ClaimsTest(parameterized.TestCase):
  @parameterized.product(
    metric=['reward', 'error'],
    case=[(0.2, 0.0, True), (0.2, 0.1, True), (0.2, 0.3, False), (-0.2, 0.0, False)],
  )
  def test_gain_is_paired_and_positive_where_better(self, metric, case):
    shift, least, passed = case
    (row,) = claims.test((('mine', 'other', metric, least),), values(shift), BETTER, task='t')
    self.assertAlmostEqual(row['mean'], shift, delta=0.02)
    self.assertEqual((row['passed'], row['task'], row['better']), (passed, 't', 'higher'))
    (back,) = claims.test((('other', 'mine', metric, least),), values(shift), BETTER)
    self.assertAlmostEqual(back['mean'], -row['mean'])

  @parameterized.parameters((-0.02, 0.001, True), (-0.2, 0.001, False), (0.0, 1.0, False))
  def test_non_inferiority_asks_for_an_interval_above_the_margin(self, shift, noise, passed):
    claim = (('mine', 'other', 'error', -0.05),)
    (row,) = claims.test(claim, values(shift, noise), BETTER)
    self.assertEqual(row['passed'], passed)

  def test_one_seed_proves_nothing(self):
    (row,) = claims.test((('mine', 'other', 'reward', 0.0),), values(1.0, seeds=1), BETTER)
    self.assertFalse(row['passed'])

  def test_section_tells_every_claim(self):
    asked = (
      ('mine', 'other', 'reward', 0.1),
      ('mine', 'other', 'error', 0.9),
      ('mine', 'absent', 'error', 0.0),
    )
    rows = claims.test(asked, values(0.2), BETTER)
    self.assertLen(rows, 2)
    text = '\n'.join(claims.section(asked, rows))
    for part in ('PASS: mine against other', 'FAIL: mine against other', 'not tested: mine'):
      self.assertIn(part, text)
    self.assertEqual(claims.section((), []), [])

  @parameterized.parameters(
    (3,), (((1, 2, 3),),), ((('mine', 'nobody', 'reward', 0),),), ((('mine', 'mine', 'x', 0),),),
    ((('mine', 'mine', 'reward', 'y'),),),
  )  # fmt: skip
  def test_check_names_what_is_wrong(self, asked):
    claims.check((('mine', 'other', 'reward', 0),), ('mine', 'other'), BETTER)
    with self.assertRaisesRegex(ValueError, 'config.claims'):
      claims.check(asked, ('mine', 'other'), BETTER)


if __name__ == '__main__':
  absltest.main()
