"""Tests of lib.stats.bounds."""

from absl.testing import absltest, parameterized

from lib.stats import bounds

VALUES = {'a': {'score': [0.5, 0.7], 'error': [0.1]}, 'b': {'score': [0.2, 0.4]}}
BETTER = {'score': 'higher', 'error': 'lower'}


class BoundsTest(parameterized.TestCase):
  @parameterized.parameters(
    ('score', 0.6, True), ('score', 0.61, False), ('error', 0.1, True), ('error', 0.09, False)
  )
  def test_the_mean_decides_in_the_metrics_direction(self, metric, bound, passed):
    (row,) = bounds.test([('a', metric, bound)], VALUES, BETTER)
    self.assertEqual(row['passed'], passed)
    self.assertEqual(row['bound'], bound)

  def test_what_was_not_measured_is_said_and_not_passed(self):
    asked = [('b', 'error', 1.0), ('c', 'score', 0.0), ('a', 'score', 0.9)]
    rows = bounds.test(asked, VALUES, BETTER)
    self.assertLen(rows, 1)
    text = '\n'.join(bounds.section(asked, rows))
    self.assertIn('- not tested: b, error', text)
    self.assertIn('- not tested: c, score', text)
    self.assertRegex(text, r'- FAIL: a, score, bound: .*\(at least 0.9\)')

  @parameterized.parameters(
    (5, 'x must hold .*got 5'),
    (('a', 'score', 0.5), "x must hold .*got 'a'"),
    ((('a', 'score'),), 'x must hold'),
    ((('a', 'score', 'high'),), "x must hold .*'high'"),
    ((('a', 'score', float('nan')),), 'x must hold .*nan'),
    ((('d', 'score', 0.5),), "x must be of a, b, got 'd'"),
    ((('a', 'scores', 0.5),), "x must be of score, error, got 'scores'"),
  )
  def test_what_is_no_bound_is_named(self, asked, message):
    with self.assertRaisesRegex(ValueError, f'config.{message}'):
      bounds.check('x', asked, VALUES, BETTER)
    bounds.check('x', (('a', 'score', 1),), VALUES, BETTER)

  def test_nothing_asked_is_no_section(self):
    self.assertEqual(bounds.section([], []), [])


if __name__ == '__main__':
  absltest.main()
