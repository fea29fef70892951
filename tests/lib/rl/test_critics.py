import chex
import jax
import jax.numpy as jnp
import numpy as np

from lib.nn import mlp
from lib.rl import critics


class EnsembleTest(chex.TestCase):
  def setUp(self):
    super().setUp()
    self.net = mlp.MLP((8,), 1, layer_norm=True)
    self.x = jax.random.normal(jax.random.key(0), (6, 3))
    self.params = critics.ensemble_init(self.net.init, jax.random.key(1), 3, self.x)

  @chex.variants(with_jit=True, without_jit=True)
  def test_members_equal_a_loop(self):
    apply = self.variant(lambda p, x: critics.ensemble_apply(self.net.apply, p, x))
    outputs = apply(self.params, self.x)
    for i in range(3):
      member = jax.tree.map(lambda p, i=i: p[i], self.params)
      np.testing.assert_allclose(outputs[i], self.net.apply(member, self.x), rtol=1e-5, atol=1e-6)

  def test_members_are_independent(self):
    first = self.params['params']['Dense_0']['kernel']
    self.assertGreater(float(jnp.abs(first[0] - first[1]).min()), 0.0)
    grads = jax.grad(lambda p: critics.ensemble_apply(self.net.apply, p, self.x)[0].sum())(
      self.params
    )
    for leaf in jax.tree.leaves(grads):
      np.testing.assert_array_equal(leaf[1:], 0.0)

  def test_refuses_an_empty_ensemble(self):
    with self.assertRaisesRegex(ValueError, 'size=0'):
      critics.ensemble_init(self.net.init, jax.random.key(0), 0, self.x)
