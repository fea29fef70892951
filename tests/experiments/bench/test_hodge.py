"""Tests of the cases of exterior calculus and of their peers, at small sizes."""

import jax
import numpy as np
from absl.testing import absltest, parameterized

from configs.bench import hodge as hodge_config
from configs.bench import quick
from experiments.bench import cases, hodge, hodge_peers, peers
from lib.hodge import matrices


def tiny():
  config = quick.get_config()
  config.hodge.update({'edges': 200, 'decomposed_edges': 200, 'cochains': 3, 'scaling': (48, 300)})
  config.hodge.training.task = {'name': 'circulation', 'size': 10}
  config.hodge.training.hsd_form.update({'grid': 7, 'width': 4, 'hidden': 8})
  config.hodge.training.fno.update({'grid': 7, 'width': 4})
  config.hodge.training.batch_size = 2
  return config


class OperatorsTest(parameterized.TestCase):
  @parameterized.parameters(*hodge.OPERATORS)
  def test_agrees_with_its_matrix_and_counts_its_entries(self, name):
    config = tiny()
    case = cases.build(config, f'hodge_{name}')
    (host,) = peers.HOST[f'hodge_{name}']
    task = host.make(config, case)
    ours = jax.device_get(jax.jit(case.fn)(*case.args))
    host.check(config, ours, task.call())
    with self.assertRaises(AssertionError):
      host.check(config, ours, 1.001 * task.call())
    c, metric, w = case.args
    self.assertEqual((case.updates, case.unit), (len(c.edges), 'edge'))
    used = {'d0': (0,), 'd1': (1,), 'codifferential1': (0,), 'laplacian0': (0, 0)}
    used['laplacian1'] = (0, 0, 1, 1)
    degrees = used[name.removesuffix('_transpose')]
    products = 2 * sum(matrices.incidence(jax.device_get(c), k).nnz for k in degrees)
    multiplied = sum(len(metric[k]) for k in hodge.OPERATORS[name].stars)
    # Where vertices have six edges, or cells fewer than their neighbours, tables have no padding.
    self.assertEqual(case.work, products + multiplied)
    self.assertGreater(case.traffic, w.nbytes + ours.nbytes)

  def test_sizes_are_about_what_is_asked(self):
    config = tiny()
    self.assertEqual(hodge.scaled(config), {'hodge_laplacian1_48': 48, 'hodge_laplacian1_300': 300})
    for name, edges in hodge.scaled(config).items():
      self.assertAlmostEqual(cases.build(config, name).updates / edges, 1, delta=0.2)
    for part in ('core', 'decompose'):
      named = hodge_config.get_config(part)
      self.assertEqual({*named.cases} - {*cases.known(named)}, set())
    with self.assertRaisesRegex(ValueError, 'parts'):
      hodge_config.get_config('parts')


class DecomposeTest(parameterized.TestCase):
  def test_agrees_with_all_peers(self):
    config = tiny()
    case = cases.build(config, 'hodge_decompose')
    found = jax.device_get(jax.jit(case.fn)(*case.args))
    self.assertEqual(found.exact.shape, (3, len(case.args[0].edges)))
    self.assertEqual(case.counts['exact_steps'], found.exact_solve.steps.max())
    for host in peers.HOST['hodge_decompose']:
      theirs = host.make(config, case).call()
      host.check(config, found, theirs)
      with self.assertRaises(AssertionError):
        host.check(config, found, theirs[::-1])

  def test_factors_made_before_solve_the_same(self):
    config = tiny()
    case = cases.build(config, 'hodge_decompose')
    one, other = (
      hodge_peers.factorized(config, case, before=before).call() for before in (False, True)
    )
    np.testing.assert_array_equal(one, other)


class StepTest(parameterized.TestCase):
  @parameterized.parameters('form', 'fno')
  def test_is_loss_and_gradient(self, name):
    case = cases.build(tiny(), f'hodge_{name}_step')
    loss, gradient = jax.jit(case.fn)(*case.args)
    self.assertGreater(float(loss), 0)
    for slope, value in zip(jax.tree.leaves(gradient), jax.tree.leaves(case.args[0]), strict=True):
      self.assertEqual(slope.shape, value.shape)
    self.assertTrue(any(abs(np.asarray(slope)).max() > 0 for slope in jax.tree.leaves(gradient)))


if __name__ == '__main__':
  absltest.main()
