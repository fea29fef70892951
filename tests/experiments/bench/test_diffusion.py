"""Tests of the diffusion cases, at small sizes."""

import importlib.util
import math
import unittest
from unittest import mock

import chex
import jax
import jax.numpy as jnp
import numpy as np

from configs.bench import quick
from experiments.bench import diffusion, yardsticks
from experiments.renyi_diffusion import methods
from tests.experiments.bench import toys


def tiny():
  config = quick.get_config()
  for sizes in (config.diffusion.mlp, config.diffusion.unet):
    sizes.network.hidden = (128, 128)
    sizes.network.channels = 8
    sizes.update({'updates': 3, 'num_seeds': 2, 'batch_size': 8, 'rows': 20})
  config.diffusion.unet.update({'shape': (8, 8, 1)})
  config.diffusion.unet.network.attention = (4,)
  config.diffusion.likelihood.update({'updates': 2, 'points': 16})
  config.neighbors.update({'points': 300, 'features': 4})
  return config


class TrainingTest(chex.TestCase):
  def test_carries_the_state_of_each_seed(self):
    config = tiny()
    config.diffusion.unet.network.update({'multipliers': (1,), 'attention': ()})
    for name in ('diffusion_mlp_renyi', 'diffusion_unet'):
      case = toys.abstract(name, config)
      states, metrics = jax.eval_shape(case.fn, *case.args)
      chex.assert_trees_all_equal_shapes_and_dtypes(states, case.args[0])
      chex.assert_shape(metrics['loss'], (3, 2))
      self.assertEqual((case.updates, case.seeds, case.unit), (3, 2, 'update'))

  def test_tilting_takes_few_operations_beside_the_network(self):
    config = quick.get_config()
    likelihood, renyi = (
      yardsticks.flops(case.fn, *case.args)
      for case in (
        toys.abstract(f'diffusion_mlp_{kind}', config) for kind in ('likelihood', 'renyi')
      )
    )
    # A layer's product and its gradients by inputs and kernel; the first has none by its inputs.
    inputs = 64 + 1 + 2 * config.diffusion.mlp.network.time_frequencies
    layers = 3 * (2 * 512**2 + 512 * 64) + 2 * inputs * 512
    self.assertAlmostEqual(likelihood / (10 * 64 * 8 * 2 * layers), 1.0, delta=0.05)
    self.assertBetween(renyi / likelihood, 1.0, 1.01)

  def test_unet_has_the_size_of_a_small_image_model(self):
    sizes = quick.get_config().diffusion.unet
    network = methods.network(sizes, sizes.shape, 'likelihood')
    params = jax.eval_shape(network.init, jax.random.key(0))
    self.assertBetween(sum(math.prod(p.shape) for p in jax.tree.leaves(params)), 5e5, 1e6)


@unittest.skipUnless(importlib.util.find_spec('sklearn'), 'the digits come with scikit-learn')
class DigitsLikelihoodTest(chex.TestCase):
  def test_of_a_network_without_noise_is_that_of_a_scaled_normal_law(self):
    config = tiny()
    model = config.diffusion.mlp
    model.network.prediction = 'noise'
    process, network = methods.process(model), methods.network(model, model.shape, 'likelihood')
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    zeros = jax.tree.map(lambda p: np.zeros(p.shape, p.dtype), shapes)
    seen = []

    def counted(*args):
      seen.append(diffusion_counted(*args))
      return seen[0]

    diffusion_counted = diffusion.counted
    with (
      mock.patch.object(diffusion, '_fit', return_value=zeros),
      mock.patch.object(diffusion, 'counted', counted),
    ):
      case = diffusion.digits_likelihood(config)
    (found, evaluations), x = seen[0], case.args[1]
    self.assertEqual(case.counts, {'evaluations': evaluations})
    # With no score the flow is the drift alone, z = x m(T)/m(ε).
    log_scale = float(jnp.log(process.mean(1.0) / process.mean(model.start)))
    z = np.asarray(x) * np.exp(log_scale)
    expected = 64 * (log_scale - 0.5 * np.log(2 * np.pi)) - 0.5 * (z**2).sum(axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    self.assertGreater(evaluations, 20)
    layers = 2 * ((64 + 9) * 128 + 128**2 + 128 * 64)
    # The network once, and along a direction once more.
    self.assertAlmostEqual(case.work / evaluations / (16 * 2 * layers), 1.0, delta=0.1)
    self.assertEqual((case.updates, case.unit), (16, 'point'))


class NeighborsTest(chex.TestCase):
  def test_two_samples_of_one_law_cover_each_other(self):
    case = diffusion.neighbors_of_samples(tiny())
    found = jax.jit(case.fn)(*case.args)
    self.assertAlmostEqual(float(found.coverage), 1 - 2.0**-5, delta=0.05)
    self.assertAlmostEqual(float(found.density), 1.0, delta=0.2)
    # Each of 4 × 300² pairs costs a subtraction, a square and a sum of each feature.
    work = yardsticks.flops(case.fn, *case.args)
    self.assertBetween(work / (4 * 300**2 * 4), 3.0, 5.0)


class TorchUNetTest(chex.TestCase):
  def setUp(self):
    super().setUp()
    if importlib.util.find_spec('torch') is None:
      self.skipTest('PyTorch is not installed')
    from experiments.bench import torch_unet

    self.peer = torch_unet

  def test_has_our_outputs_with_our_parameters_and_no_others(self):
    sizes = tiny().diffusion.unet
    self.peer.check(sizes)
    network = methods.network(sizes, sizes.shape, 'likelihood')
    params = network.init(jax.random.key(0))
    sizes.network.blocks = 2
    with self.assertRaisesRegex(ValueError, 'numbers|flax has no'):
      self.peer.load(self.peer.build(sizes), params)

  def test_trains(self):
    update = self.peer.trainer(tiny().diffusion.unet)
    losses = [float(update()) for _ in range(12)]
    self.assertLess(np.mean(losses[-4:]), np.mean(losses[:4]))
