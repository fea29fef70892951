import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

from lib.lm import quantize


class QuantizeTest(chex.TestCase):
  @parameterized.parameters(-1, -2)
  def test_error_is_at_most_half_of_the_scale(self, axis):
    matrix = jax.random.normal(jax.random.key(0), (5, 12, 7)) * jnp.logspace(-3, 3, 7)
    rounded = quantize.quantize(matrix, axis)
    error = jnp.abs(quantize.dequantize(rounded) - matrix)
    self.assertTrue(bool((error <= rounded.scale * 0.5001).all()))
    self.assertEqual(rounded.values.dtype, jnp.int8)

  def test_zeros_stay(self):
    rounded = quantize.quantize(jnp.zeros((3, 2)))
    np.testing.assert_array_equal(quantize.dequantize(rounded), 0.0)

  @chex.variants(with_jit=True, without_jit=True)
  def test_products_and_rows_are_those_of_the_rounded_matrix(self):
    matrix = jax.random.normal(jax.random.key(0), (9, 4))
    x, y = (
      jax.random.normal(jax.random.key(1), (2, 9)),
      jax.random.normal(jax.random.key(2), (3, 4)),
    )
    columns, rows = quantize.quantize(matrix), quantize.quantize(matrix, axis=-1)
    for exact in (False, True):
      a, b = (matrix, matrix) if exact else (columns, rows)
      full_a, full_b = quantize.dequantize(a), quantize.dequantize(b)
      close = lambda u, v: np.testing.assert_allclose(u, v, rtol=1e-5, atol=1e-5)
      close(self.variant(quantize.matmul)(x, a), x @ full_a)
      close(self.variant(quantize.matmul_transposed)(y, b), y @ full_b.T)
      index = jnp.array([[3, 0], [8, 3]])
      close(self.variant(quantize.rows)(b, index), full_b[index])
