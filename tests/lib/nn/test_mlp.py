import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

from lib.nn import mlp


class MLPTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_is_an_affine_map_with_identity_activation(self):
    net = mlp.MLP((5, 4), 3, activation=lambda x: x)
    x, y = jax.random.normal(jax.random.key(0), (2, 7, 6))
    params = net.init(jax.random.key(1), x)
    f = self.variant(lambda v: net.apply(params, v))
    np.testing.assert_allclose(f(0.3 * x + 0.7 * y), 0.3 * f(x) + 0.7 * f(y), atol=1e-5)

  def test_starts_from_glorot_kernels_and_zero_biases(self):
    params = mlp.MLP((400,), 300).init(jax.random.key(0), jnp.zeros((1, 200)))['params']
    for name, fan_sum in (('Dense_0', 600), ('Dense_1', 700)):
      limit = np.sqrt(6 / fan_sum)
      kernel = params[name]['kernel']
      self.assertLessEqual(float(jnp.abs(kernel).max()), limit)
      self.assertAlmostEqual(float(kernel.std()), limit / np.sqrt(3), delta=0.01 * limit)
      np.testing.assert_array_equal(params[name]['bias'], 0.0)

  @parameterized.parameters(False, True)
  def test_layer_norm_makes_the_output_blind_to_the_scale_of_hidden_activations(self, layer_norm):
    net = mlp.MLP((64,), 2, layer_norm=layer_norm, activation=jax.nn.relu)
    x = jax.random.normal(jax.random.key(0), (9, 5))
    params = net.init(jax.random.key(1), x)
    invariant = np.allclose(net.apply(params, x), net.apply(params, 100 * x), atol=1e-3)
    self.assertEqual(invariant, layer_norm)


class OutputScaleTest(chex.TestCase):
  @parameterized.parameters(1e-2, 4.0)
  def test_scales_the_last_kernel_alone(self, scale):
    x = jnp.zeros((1, 6))
    plain, scaled = (
      mlp.MLP((5, 4), 3, **kwargs).init(jax.random.key(0), x)['params']
      for kwargs in ({}, {'output_scale': scale})
    )
    last = plain.pop('Dense_2'), scaled.pop('Dense_2')
    chex.assert_trees_all_equal(plain, scaled)
    np.testing.assert_allclose(last[1]['kernel'], np.sqrt(scale) * last[0]['kernel'], rtol=1e-5)
    np.testing.assert_array_equal(last[1]['bias'], 0.0)
