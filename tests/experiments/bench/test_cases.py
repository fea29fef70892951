"""Tests of the benchmarked computations."""

import chex
import jax
import ml_collections

from experiments.bench import cases, yardsticks


class MlpGradientTest(chex.TestCase):
  def test_costs_three_forward_passes_less_the_gradient_by_x(self):
    config = ml_collections.ConfigDict(
      {'batch_size': 128, 'inputs': 32, 'hidden': (64, 64), 'outputs': 16}
    )
    fn, args = cases.mlp_gradient(config)
    first, others = 32 * 64, 64 * 64 + 64 * 16
    expected = 2 * 128 * (3 * others + 2 * first)
    self.assertAlmostEqual(yardsticks.flops(fn, *args) / expected, 1.0, delta=0.15)
    loss, gradient = jax.eval_shape(fn, *args)
    chex.assert_shape(loss, ())
    chex.assert_trees_all_equal_shapes(gradient, args[0])
