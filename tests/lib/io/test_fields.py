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

  def test_methods_and_their_variants(self):
    def config(methods, **variants):
      return ml_collections.ConfigDict({'methods': methods, 'variants': variants})

    fine = config(('a', 'b'), b={'method': 'a', 'agent': {'x': 1}})
    self.assertEqual(fields.check_methods(fine, ['a'], ['agent']), ['a', 'b'])
    for bad, pattern in (
      (config(()), 'config.methods is empty'),
      (config(('a', 'a')), 'config.methods must be each once'),
      (config(('c',)), "config.methods must be one of a, got 'c'"),
      (config(('a',), a={'method': 'a'}), 'config.variants.a has the name of a method'),
      (config(('a',), b={'method': 'c'}), "config.variants.b.method must be one of a, got 'c'"),
      (config(('a',), b={}), 'config.variants.b.method must be one of a, got None'),
      (config(('a',), b={'method': 'a', 'seed': 1}), 'variants.b: seed is the same for all'),
    ):
      with self.assertRaisesRegex(ValueError, pattern):
        fields.check_methods(bad, ['a'], ['agent'])


if __name__ == '__main__':
  absltest.main()
