import chex
import jax
import jax.numpy as jnp
import numpy as np

from lib.lm import quantize


class QuantizeTest(chex.TestCase):
  def test_error_is_at_most_half_of_the_scale(self):
    matrix = jax.random.normal(jax.random.key(0), (5, 12, 7)) * jnp.logspace(-3, 3, 12)[:, None]
    rounded = quantize.quantize(matrix)
    error = jnp.abs(quantize.dequantize(rounded) - matrix)
    self.assertTrue(bool((error <= rounded.scale * 0.5001).all()))
    self.assertEqual(rounded.values.dtype, jnp.int8)

  def test_zeros_stay(self):
    rounded = quantize.quantize(jnp.zeros((3, 2)))
    np.testing.assert_array_equal(quantize.dequantize(rounded), 0.0)

  @chex.variants(with_jit=True, without_jit=True)
  def test_products_and_rows_are_those_of_the_rounded_matrix(self):
    matrix = jax.random.normal(jax.random.key(0), (9, 4))
    x = jax.random.normal(jax.random.key(1), (4, 3))
    for given in (matrix, quantize.quantize(matrix)):
      full = quantize.dequantize(given)
      close = lambda u, v: np.testing.assert_allclose(u, v, rtol=1e-5, atol=1e-5)
      close(self.variant(quantize.matmul)(given, x), full @ x)
      index = jnp.array([[3, 0], [8, 3]])
      close(self.variant(quantize.rows)(given, index), full[index])
