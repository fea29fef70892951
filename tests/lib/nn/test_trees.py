import chex
import jax
from absl.testing import absltest
from hypothesis import given
from hypothesis import strategies as st

from lib.nn import trees

TREES = st.recursive(
  st.integers(),
  lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from('abc'), inner) | st.tuples(inner),
)


class NamedLeavesTest(chex.TestCase):
  def test_names_are_paths(self):
    named = trees.named_leaves({'a': [1, {'b': 2}], 'c': (3,)})
    self.assertEqual(named, {'a.0': 1, 'a.1.b': 2, 'c.0': 3})

  @given(TREES)
  def test_every_leaf_once_and_in_order(self, tree):
    self.assertEqual(list(trees.named_leaves(tree).values()), jax.tree.leaves(tree))

  def test_under_jit(self):
    total = jax.jit(lambda tree: sum(trees.named_leaves(tree).values()))
    self.assertEqual(total({'x': 1.0, 'y': [2.0]}), 3.0)


if __name__ == '__main__':
  absltest.main()
