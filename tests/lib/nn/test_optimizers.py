"""Tests of lib.nn.optimizers."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

from lib.nn import optimizers


class AdamwCosineTest(chex.TestCase):
  @parameterized.parameters(0.0, 0.2)
  def test_the_rate_rises_and_falls_to_nothing(self, warmup):
    optimizer = optimizers.adamw_cosine(100, 0.1, warmup, clip=1.0, weight_decay=0.0)
    params = jnp.zeros(3)

    def step(state, _):
      updates, state = optimizer.update(jnp.ones(3), state, params)
      return state, updates[0]

    # Of a constant gradient Adam's step is the rate.
    _, found = jax.jit(lambda s: jax.lax.scan(step, s, None, 101))(optimizer.init(params))
    rates = -np.asarray(found)
    top = round(100 * warmup)
    self.assertEqual(int(rates.argmax()), top)
    self.assertAlmostEqual(float(rates[top]), 0.1, places=5)
    np.testing.assert_allclose(rates[:top], 0.1 * np.arange(top) / max(top, 1), atol=1e-5)
    self.assertAlmostEqual(float(rates[-1]), 0.0, places=6)
    self.assertTrue((np.diff(rates[top:]) <= 1e-7).all())

  @parameterized.parameters((0, 0.1), (10, 1.0), (10, -0.1), (10, float('nan')))
  def test_bad_numbers_are_refused(self, steps, warmup):
    with self.assertRaisesRegex(ValueError, 'fraction'):
      optimizers.adamw_cosine(steps, 0.1, warmup, 1.0, 0.0)


if __name__ == '__main__':
  absltest.main()
