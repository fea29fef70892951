"""Tests of the benchmarked computations."""

from unittest import mock

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

from configs.bench import quick
from experiments.bench import cases, yardsticks
from experiments.pql import methods
from experiments.pql.methods import agent
from tests.experiments.bench import toys


def tiny(**sizes):
  config = quick.get_config()
  config.offline.agent.hidden_dims = (16,)
  config.offline.agent.flow_steps = 2
  config.offline.update({'num_seeds': 2, 'updates': 3, 'batch_size': 32, 'rows': 100, **sizes})
  return config


def count(name, **sizes):
  case = toys.abstract(name, tiny(**sizes))
  return yardsticks.flops(case.fn, *case.args)


class MlpGradientTest(chex.TestCase):
  def test_costs_three_forward_passes_less_the_gradient_by_x(self):
    config = quick.get_config()
    config.mlp.update({'batch_size': 128, 'inputs': 32, 'hidden': (64, 64), 'outputs': 16})
    fn, args, *_ = toys.abstract('mlp_gradient', config)
    first, others = 32 * 64, 64 * 64 + 64 * 16
    expected = 2 * 128 * (3 * others + 2 * first)
    self.assertAlmostEqual(yardsticks.flops(fn, *args) / expected, 1.0, delta=0.15)
    loss, gradient = jax.eval_shape(fn, *args)
    chex.assert_shape(loss, ())
    chex.assert_trees_all_equal_shapes(gradient, args[0])


class OfflineUpdatesTest(chex.TestCase):
  @parameterized.parameters(*methods.METHODS)
  def test_carries_the_state_and_returns_metrics_by_update_and_seed(self, method):
    case = toys.abstract(f'{method}_update', tiny())
    states, metrics = jax.eval_shape(case.fn, *case.args)
    chex.assert_trees_all_equal_shapes_and_dtypes(states, case.args[0])
    chex.assert_shape(list(metrics.values()), (case.updates, case.seeds))
    self.assertEqual((case.updates, case.seeds), (3, 2))

  def test_counts_every_update_and_seed_and_what_each_method_adds(self):
    bc_flow, fql, pql = (
      count(f'{name}_update', updates=1, num_seeds=1) for name in ('bc_flow', 'fql', 'pql')
    )
    several = count('bc_flow_update', updates=4, num_seeds=3)
    self.assertAlmostEqual(several / bc_flow, 12.0, delta=0.5)
    self.assertLess(bc_flow, fql)
    self.assertLess(fql, pql)
    # A Jacobian-vector product and its gradient: a second flow-matching loss, at most.
    self.assertLess(pql - fql, 1.2 * bc_flow)

  def test_each_seed_and_update_has_its_own_batch_and_the_state_is_carried(self):
    def make(config, spec):
      del config, spec

      def update(state, batch, key):
        del key
        return state + 1, {'state': state, 'drawn': batch['observations'][:, 0]}

      return agent.Method(lambda key: jnp.zeros(()), update, None, None, None)

    with mock.patch.dict(methods.METHODS, {'bc_flow': make}):
      case = cases.CASES['bc_flow_update'](tiny(rows=1000))
    _, metrics = jax.jit(case.fn)(*case.args)
    data = case.args[-1]['observations'][:, 0]
    chex.assert_shape(metrics['drawn'], (3, 2, 32))
    self.assertTrue(np.isin(metrics['drawn'], data).all())
    self.assertGreater(len(np.unique(metrics['drawn'])), 3 * 2 * 32 * 0.8)
    np.testing.assert_array_equal(metrics['state'], [[0, 0], [1, 1], [2, 2]])
