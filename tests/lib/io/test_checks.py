"""Tests of lib.io.checks."""

import numpy as np
from absl.testing import absltest, parameterized

from lib.io import checks


class ChecksTest(parameterized.TestCase):
  def test_letters_stand_for_one_size(self):
    arrays = {'x': np.zeros((5, 3)), 'y': np.zeros(5), 'z': np.zeros((3, 3))}
    sizes = checks.check_shapes('f', arrays, {'x': ('n', 'd'), 'y': ('n',), 'z': ('d', 3)})
    self.assertEqual(sizes, {'n': 5, 'd': 3})

  @parameterized.parameters(
    ({'x': ('n',)}, r"f: array 'x' has shape \(5, 3\), expected \(n\)"),
    ({'x': ('n', 4)}, r"f: array 'x' has shape \(5, 3\), expected \(5, 4\)"),
    ({'y': ('n',), 'x': (2, 'n')}, r"f: array 'x' has shape \(5, 3\), expected \(2, 5\)"),
    ({'w': ('n',)}, r"f: array 'w' is missing; there are \['x', 'y'\]"),
  )
  def test_disagreement_names_file_and_array(self, shapes, message):
    with self.assertRaisesRegex(ValueError, message):
      checks.check_shapes('f', {'x': np.zeros((5, 3)), 'y': np.zeros(5)}, shapes)

  @parameterized.parameters(np.nan, np.inf, -np.inf)
  def test_not_finite_is_named_with_its_index(self, value):
    x = np.zeros((4, 3))
    x[2, 1] = x[3, 0] = value
    with self.assertRaisesRegex(ValueError, rf"f: array 'x' holds {value} at index \(2, 1\)"):
      checks.check_finite('f', {'n': np.arange(3), 'b': np.array([True]), 'x': x})

  def test_finite_passes(self):
    checks.check_finite('f', {'x': np.zeros((0, 3)), 'n': np.arange(3)})


if __name__ == '__main__':
  absltest.main()
