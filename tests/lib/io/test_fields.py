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
    own = config(('a',), a={'method': 'a', 'agent': {'x': 1}})
    self.assertEqual(fields.check_methods(own, ['a']), ['a'])
    with self.assertRaisesRegex(ValueError, 'config.variants.a has the name of another method'):
      fields.check_methods(config(('a',), a={'method': 'b'}), ['a', 'b'])
    for bad, pattern in (
      (config(()), 'config.methods is empty'),
      (config(('a', 'a')), 'config.methods must be each once'),
      (config(('c',)), "config.methods must be one of a, got 'c'"),
      (
        config(('a',), b={'method': 'a'}, d={'method': 'b'}),
        'variants.d.method must be one of a, got',
      ),
      (config(('a',), b={'method': 'c'}), "config.variants.b.method must be one of a, got 'c'"),
      (config(('a',), b={}), 'config.variants.b.method must be one of a, got None'),
      (config(('a',), b={'method': 'a', 'seed': 1}), 'variants.b: seed is the same for all'),
    ):
      with self.assertRaisesRegex(ValueError, pattern):
        fields.check_methods(bad, ['a'], ['agent'])


class VaryTest(absltest.TestCase):
  def test_changes_a_copy(self):
    section = ml_collections.ConfigDict({'alpha': 1.0, 'inner': {'width': 8, 'depth': 2}})
    changes = ml_collections.ConfigDict({'method': 'x', 'inner': {'width': 16}})
    changed = fields.vary(section, changes)
    expected = {'alpha': 1.0, 'inner': {'width': 16, 'depth': 2}}
    self.assertEqual(changed.to_dict(), expected)
    self.assertEqual(section.inner.width, 8)
    with self.assertRaises(KeyError):
      fields.vary(section, ml_collections.ConfigDict({'beta': 1.0}))
    with self.assertRaises(TypeError):
      fields.vary(section, ml_collections.ConfigDict({'alpha': 'one'}))


class VariantTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.config = ml_collections.ConfigDict({
      'agent': {'x': 1}, 'variants': {'b': {'method': 'a', 'agent': {'x': 2}}}
    })  # fmt: skip

  def test_a_method_is_itself_and_a_variant_another_with_changes(self):
    self.assertEqual([fields.kind(self.config, name) for name in 'ab'], ['a', 'a'])
    self.assertIs(fields.varied(self.config, 'a'), self.config)
    self.assertEqual(fields.varied(self.config, 'b').agent.x, 2)

  def test_errors_name_the_variant(self):
    for kind in (ValueError, KeyError, TypeError):

      def check(name, kind=kind):
        raise kind('config.agent.x is odd')

      with self.assertRaisesRegex(ValueError, 'config.variants.b: .*agent.x is odd'):
        fields.check_variants(self.config.variants, check)
    fields.check_variants(self.config.variants, lambda name: self.assertEqual(name, 'b'))


if __name__ == '__main__':
  absltest.main()
