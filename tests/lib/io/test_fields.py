"""Tests of lib.io.fields."""

import math

import ml_collections
from absl.testing import absltest, parameterized

from lib.io import fields


class FieldsTest(parameterized.TestCase):
  @parameterized.parameters(ml_collections.ConfigDict, ml_collections.FrozenConfigDict)
  def test_flatten(self, kind):
    config = kind({'a': 1, 'b': {'c': (2, 3), 'd': {'e': None}}, 'empty': {}})
    self.assertEqual(fields.flatten(config), {'a': 1, 'b.c': (2, 3), 'b.d.e': None})

  @parameterized.parameters(
    ('positive', (1e-9, 3), (0, -1)),
    ('not_negative', (0, 3), (-1e-9,)),
    ('unit_interval', (0, 0.5, 1), (-0.1, 1.1)),
    ('open_unit_interval', (0.5,), (0, 1)),
  )
  def test_ranges(self, kind, inside, outside):
    for value in inside:
      fields.check_ranges({'a.b': value, 'other': -5}, **{kind: ['a.b']})
    for value in (*outside, math.nan, math.inf, -math.inf):
      with self.assertRaisesRegex(ValueError, rf'^config\.a\.b must be .*, got {value}\.$'):
        fields.check_ranges({'a.b': value}, **{kind: ['a.b']})

  def test_choice(self):
    fields.check_choice('kind', 'x', {'x': 1, 'y': 2})
    with self.assertRaisesRegex(ValueError, r"config\.kind must be one of x, y, got 'z'"):
      fields.check_choice('kind', 'z', {'x': 1, 'y': 2})


if __name__ == '__main__':
  absltest.main()
