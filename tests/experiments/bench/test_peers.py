"""Tests that NumPy's and SciPy's versions compute what ours do, at small sizes."""

import chex
import jax
import numpy as np

from configs.bench import quick
from experiments.bench import cases, peers


def tiny():
  config = quick.get_config()
  sizes = {'questions': 40, 'answers': 3, 'samples': 12, 'budgets': 7, 'largest': 11, 'seeds': 3}
  config.voting.update(sizes)
  config.sign_flip.update({'pairs': 60, 'pairs_per_item': 4, 'draws': 2_000, 'peer_draws': 500})
  return config


class InstalledTest(chex.TestCase):
  def test_names_the_field_and_the_package(self):
    peers.check_installed('torch', ('numpy', 'scipy'))
    with self.assertRaisesRegex(ValueError, r'config\.torch: no_such_package is not installed'):
      peers.check_installed('torch', ('numpy', 'no_such_package'))


class VotingTest(chex.TestCase):
  def test_errors_of_the_loop_at_every_budget_and_seed(self):
    config = tiny()
    case = cases.build(config, 'voting')
    budgets, batch = cases.voting_budgets(config), cases.voting_batch(config)
    self.assertEqual((budgets[0], budgets[-1], batch), (160, 440, 2))
    self.assertTrue(any((budget - 80) % batch for budget in budgets))  # some end within a round
    found = np.asarray(jax.jit(case.fn)(*case.args))
    chex.assert_shape(found, (3, 7))
    self.assertEqual((case.seeds, case.work), (3, 3 * 440))
    for errors, answers in zip(found, np.asarray(case.args[0]), strict=True):
      expected = peers.voting_loop(answers, 3, budgets, 2, batch)
      np.testing.assert_allclose(errors, expected, atol=1e-6)
      self.assertGreater(np.ptp(expected), 0)
    for apart in (False, True):
      config.voting.peer_apart = apart
      task = peers.numpy_voting(config, case)
      self.assertEqual(task.work, 440)
      peers.check_voting(config, found, task.call())
    with self.assertRaises(AssertionError):
      peers.check_voting(config, found + 0.1, task.call())


class SignFlipTest(chex.TestCase):
  def test_p_values_agree_for_pairs_and_for_items(self):
    config = tiny()
    for name, clusters in (('sign_flip', 60), ('sign_flip_clustered', 15)):
      case, (host,) = cases.build(config, name), peers.HOST[name]
      task = host.make(config, case)
      # Of one cluster in one draw.
      self.assertEqual((case.work, task.work), (clusters * 2_000, clusters * 500))
      found = jax.jit(case.fn)(*case.args)
      host.check(config, found, task.call())
      with self.assertRaises(AssertionError):
        host.check(config, found, float(found.p_greater + 0.5) % 1)
