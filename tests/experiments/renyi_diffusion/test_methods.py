"""Tests of the objectives: what they come to at α = 1, in closed form, and in the limit."""

import functools
from unittest import mock

import chex
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from absl.testing import parameterized
from scipy import integrate

from configs.renyi_diffusion import quick
from experiments.renyi_diffusion import methods
from experiments.renyi_diffusion.methods import learner, renyi
from lib.diffusion import sde
from lib.diffusion.renyi import objectives
from lib.io import fields

BATCH, TIMES = 64, 8
SIGMAS = 5.0
AT_ONE = ('renyi', 'excess', 'ratio_proxy', 'ratio_discriminator', 'ratio_potential')
PROCESS = sde.vp()
START = 1e-3


def tiny(**objective):
  config = quick.get_config()
  config.start = START
  config.steps = 100
  config.network.hidden = (8,)
  config.optimizer.ema = 0.9
  config.objective.num_times = TIMES
  config.objective.reference = 'reference'
  config.objective.path_steps = 4
  config.objective.discriminator.hidden = (8,)
  config.objective.discriminator.sampler_steps = 2
  config.objective.update(objective)
  config.variants = {
    'reference': {'method': 'likelihood', 'network': {'hidden': (6,)}},
    'same': {'method': 'likelihood'},
  }
  return config


def batch_of(seed=1, size=BATCH):
  return jax.random.normal(jax.random.key(seed), (size, 2))


@functools.cache
def first_update(name, kind='mlp', alpha=1.0, other='reference', times='importance'):
  """The state, what one update makes of it, and its metrics."""
  config = tiny(alpha=alpha, reference=other, times=times)
  config.network.kind = kind
  method = methods.make(config, name, (2,))
  reference = None
  if name in methods.NEED_REFERENCE:
    network = methods.network(config, (2,), other)
    # Of the method's own first key, so that the same network is the same function.
    reference = network.init(jax.random.split(jax.random.key(0))[0])

  state = method.init(jax.random.key(0), reference)
  return state, *jax.jit(method.update)(state, batch_of(), jax.random.key(2))


def loss_of_zero(name, dim=2, size=256, **objective):
  """The loss of a batch of zeros where the network predicts no noise, as a function of the key."""
  config = tiny(**objective)
  method = methods.make(config, name, (dim,))
  shapes = jax.eval_shape(method.init, jax.random.key(0), None)
  state = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
  return lambda key: method.update(state, jnp.zeros((size, dim)), key)[1]['loss']


class UpdateTest(chex.TestCase):
  @parameterized.parameters(*methods.METHODS)
  def test_moves_everything_and_says_what_it_did(self, name):
    before, after, found = first_update(name, 'energy' if name == 'ratio_potential' else 'mlp')
    chex.assert_trees_all_equal_shapes_and_dtypes(before, after)
    chex.assert_tree_all_finite(after)
    chex.assert_shape(list(found.values()), ())
    chex.assert_tree_all_finite(found)
    self.assertEqual((int(before.count), int(after.count)), (0, 1))
    moved = jax.tree.map(lambda a, b: bool((a != b).any()), before.params, after.params)
    # An energy's last bias is no part of its gradient.
    self.assertGreaterEqual(sum(jax.tree.leaves(moved)), len(jax.tree.leaves(moved)) - 1)
    # The average starts at the first parameters, of which it forgets nine tenths in its first step.
    expected = jax.tree.map(lambda a, b: 0.1 * a + 0.9 * b, before.params, after.params)
    chex.assert_trees_all_close(after.ema, expected, rtol=1e-5, atol=1e-7)
    if 'effective_fraction' in found:
      self.assertAlmostEqual(float(found['effective_fraction']), 1.0, delta=1e-6)
    frozen = name in methods.NEED_REFERENCE
    if frozen:
      chex.assert_trees_all_equal(before.extra, after.extra)

  @parameterized.parameters(*AT_ONE)
  def test_order_one_is_likelihood_bit_for_bit(self, name):
    kind, law, same = 'mlp', 'importance', chex.assert_trees_all_equal
    if name == 'ratio_potential':  # its potentials are compiled into the network's gradient
      kind, law = 'energy', 'shared'
      same = functools.partial(chex.assert_trees_all_close, rtol=1e-5, atol=1e-7)
    _, expected, metrics = first_update('likelihood', kind, times=law)
    _, after, found = first_update(name, kind)
    same(after.params, expected.params)
    same(after.opt_state, expected.opt_state)
    same(found['loss'], metrics['loss'])

  def test_the_excess_over_itself_tilts_nothing(self):
    _, expected, metrics = first_update('likelihood')
    _, after, found = first_update('excess', alpha=3.0, other='same')
    chex.assert_trees_all_close(after.params, expected.params, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found['loss'], metrics['loss'], rtol=1e-5)
    self.assertAlmostEqual(float(found['effective_fraction']), 1.0, delta=1e-5)
    self.assertEqual(float(found['effective_alpha']), 3.0)

  def test_another_order_is_another_update(self):
    _, _, plain = first_update('likelihood')
    _, _, found = first_update('renyi', alpha=1.1)
    self.assertEqual(float(found['bound']), float(plain['loss']))
    self.assertGreater(float(found['loss']), float(plain['loss']))  # weights rise with the bound
    self.assertLess(float(found['effective_fraction']), 1.0)


class ClosedFormTest(chex.TestCase):
  """A network that predicts no noise errs by the noise's square, whose mean is D."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    names = ('likelihood', 'variance', 'mixed', 'min_snr')
    losses = {name: loss_of_zero(name, simple_weight=0.5, gamma=5.0) for name in names}
    losses['uniform'] = loss_of_zero('likelihood', times='uniform')
    cls.found = jax.jit(lambda key: {n: loss(key) for n, loss in losses.items()})(jax.random.key(0))
    cls.z = float(PROCESS.log_snr(START) - PROCESS.log_snr(1.0))

  def assert_mean(self, name, expected, numbers):
    """A mean of so many squares of normal numbers."""
    error = SIGMAS * np.sqrt(2 / numbers)
    np.testing.assert_allclose(self.found[name], expected, rtol=error)

  def test_time_weights(self):
    numbers = 256 * TIMES * 2
    self.assert_mean('variance', 2.0, numbers)
    self.assert_mean('likelihood', self.z, numbers)
    self.assert_mean('mixed', self.z + 0.5 * 2.0, numbers / 2)
    snr = lambda t: float(np.exp(PROCESS.log_snr(t)))
    weight = integrate.quad(lambda t: min(snr(t), 5.0) / snr(t), START, 1.0, points=[0.1])[0]
    self.assert_mean('min_snr', 2.0 * weight / (1.0 - START), numbers)

  def test_bounds_at_uniform_times_have_the_same_mean(self):
    # Strata of times do not tame the weight g²/σ² near the start: hence the width.
    expected, found = self.z, float(self.found['uniform'])
    self.assertBetween(found, 0.8 * expected, 1.2 * expected)

  @parameterized.parameters(1.0, 2.0)
  def test_soft_truncation_is_the_mean_over_its_cuts(self, exponent):
    loss = loss_of_zero('soft_truncation', size=4, truncation_exponent=exponent)
    found = np.asarray(jax.jit(jax.vmap(loss))(jax.random.split(jax.random.key(0), 2000)))
    span = lambda t: float(PROCESS.log_snr(t) - PROCESS.log_snr(1.0))
    density = lambda t: t**-exponent
    mean = lambda f: integrate.quad(lambda s: f(np.exp(s)) * np.exp(s), np.log(START), 0.0)[0]
    expected = mean(lambda t: density(t) * span(t)) / mean(density)
    error = SIGMAS * found.std() / np.sqrt(len(found))
    self.assertAlmostEqual(found.mean(), expected, delta=error)
    self.assertLess(found.mean(), self.z - error)


class NormalizerTest(chex.TestCase):
  @parameterized.parameters(-0.5, 0.3, 1.0)
  def test_a_constant_batch_gets_the_weights_of_its_own_softmax(self, tilt):
    config = tiny(normalizer_decay=0.9).objective
    bounds = 3.0 + jax.random.normal(jax.random.key(0), (1000,))
    expected = objectives.tilt_weights(bounds, tilt)

    def step(carry, shift):
      normalizer, count = carry
      state = learner.State(None, None, None, count, normalizer)
      weights, after = renyi._normalized(config, state, bounds + shift, tilt)
      return (after, count + 1), weights

    # A first batch with other bounds, whose trace the averages lose; then the constant one.
    shifts = jnp.concatenate([jnp.full(1, 2.0), jnp.zeros(150)])
    first = renyi.Normalizer(jnp.float32(0.0), jnp.float32(-jnp.inf)), jnp.int32(0)
    (after, _), weights = jax.jit(lambda s: jax.lax.scan(step, first, s))(shifts)
    np.testing.assert_allclose(weights[0], expected, rtol=1e-4)  # a shift is nothing to a softmax
    self.assertGreater(float(jnp.abs(weights[1] / expected - 1.0).max()), 0.1)
    np.testing.assert_allclose(weights[-1], expected, rtol=1e-3)
    self.assertAlmostEqual(float(after.centre), float(bounds.mean()), delta=1e-4)

  def test_it_is_part_of_the_state(self):
    config = tiny(alpha=1.2, normalizer_decay=0.9)
    shapes = jax.eval_shape(methods.make(config, 'renyi', (2,)).init, jax.random.key(0), None)
    self.assertIsInstance(shapes.extra, renyi.Normalizer)


class TiltTest(chex.TestCase):
  def tilt(self, count=0, dim=4, **objective):
    problem = learner.Problem(*[None] * 7)._replace(objective=tiny(**objective).objective, steps=50)
    values = jnp.linspace(1.0, 3.0, 101)
    return float(learner.tilt(problem, values, dim, jnp.int32(count)))

  @parameterized.parameters(0.5, 1.0, 1.25)
  def test_nats_and_dimensions(self, alpha):
    self.assertAlmostEqual(self.tilt(alpha=alpha), alpha - 1.0, places=6)
    found = self.tilt(alpha=alpha, scale='dimension')
    self.assertAlmostEqual(found, (alpha - 1.0) / 4, places=6)

  @parameterized.parameters((0.5, -1), (1.0, 0), (1.25, 1))
  def test_fraction_leaves_that_share_of_the_batch(self, alpha, sign):
    found = self.tilt(alpha=alpha, scale='fraction', fraction=0.7)
    self.assertEqual(np.sign(found), sign)
    weights = objectives.tilt_weights(jnp.linspace(1.0, 3.0, 101), found)
    left = float(objectives.effective_fraction(weights))
    self.assertAlmostEqual(left, 0.7 if sign else 1.0, delta=1e-4)

  @parameterized.parameters('nats', 'dimension', 'fraction')
  def test_grows_from_nothing_in_a_straight_line(self, scale):
    whole = self.tilt(alpha=1.5, scale=scale)
    for count, share in ((0, 0.0), (5, 0.5), (10, 1.0), (40, 1.0)):
      found = self.tilt(count, alpha=1.5, scale=scale, warmup_fraction=0.2)
      self.assertAlmostEqual(found, share * whole, delta=1e-6)


class VariantTest(chex.TestCase):
  def test_a_variant_changes_its_own_fields_alone(self):
    config = tiny()
    self.assertIs(fields.varied(config, 'renyi'), config)
    self.assertEqual(fields.kind(config, 'reference'), 'likelihood')
    changed = fields.varied(config, 'reference')
    self.assertEqual(changed.network.hidden, (6,))
    self.assertEqual(changed.objective.to_dict(), config.objective.to_dict())
    self.assertEqual(config.network.hidden, (8,))

  def test_the_reference_is_built_as_it_was_trained(self):
    config = tiny()
    seen = []
    make = lambda problem: seen.append(problem)
    with mock.patch.dict(methods.METHODS, excess=make, likelihood=make):
      methods.make(config, 'excess', (2,))
      methods.make(config, 'likelihood', (2,))
    self.assertIsNone(seen[1].reference)
    widths = [
      jax.eval_shape(network.init, jax.random.key(0))['params']['Dense_0']['bias'].shape[-1]
      for network in (seen[0].network, seen[0].reference)
    ]
    self.assertEqual(widths, [8, 6])

  def test_potentials_need_energies(self):
    config = tiny()
    for mine in ('mlp', 'energy'):
      config.network.kind = mine
      config.variants.reference.network = ml_collections.ConfigDict({'kind': 'mlp'})
      with self.assertRaisesRegex(ValueError, 'network.kind must be energy for ratio_potential'):
        methods.make(config, 'ratio_potential', (2,))

  def test_what_potentials_leave_open_does_not_matter(self):
    # The same number for all points of one time; powers of two, so that rounding is the same.
    config = tiny(alpha=3.0)
    config.network.kind = 'energy'
    network = methods.network(config, (2,), 'likelihood')
    moved = lambda params, x, t: network.potential(params, x, t) + jnp.round(256.0 * t[:, 0]) / 8.0
    params = network.init(jax.random.key(0))
    reference = network.init(jax.random.key(1))

    def loss(potential):
      problem = learner.Problem(
        config.objective, PROCESS, START, network, 100, config.optimizer, 2,
        network._replace(potential=potential),
      )  # fmt: skip
      method = methods.ratio_potential.make(problem)
      state = method.init(jax.random.key(0), reference)._replace(params=params)
      return jax.jit(method.update)(state, batch_of(), jax.random.key(2))[1]

    found, expected = loss(moved), loss(network.potential)
    self.assertLess(float(expected['effective_fraction']), 0.999)
    for name in expected:
      np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, err_msg=name)

  @parameterized.parameters(*methods.SDES)
  def test_every_diffusion_is_built_from_its_numbers(self, kind):
    config = tiny()
    config.sde.kind = kind
    self.assertEqual(methods.process(config).horizon, {'cosine': 0.9946}.get(kind, 1.0))


class OptimizerTest(chex.TestCase):
  def rates(self, steps, **changes):
    """The rates of the updates: Adam's steps under a constant gradient."""
    config = tiny().optimizer
    config.update({'learning_rate': 0.1, 'clip': 0.0, 'eps': 1e-12, **changes})
    optimizer = learner.make_optimizer(config, steps)

    def step(state, _):
      updates, state = optimizer.update(jnp.float32(3.0), state)
      return state, -updates

    return jax.jit(lambda: jax.lax.scan(step, optimizer.init(jnp.float32(0.0)), None, steps)[1])()

  def test_schedules(self):
    k = np.arange(40)
    cosine = lambda k: 0.05 * (1 + np.cos(np.pi * k))
    np.testing.assert_allclose(self.rates(40), cosine(k / 40), rtol=1e-4, atol=1e-6)
    expected = np.where(k < 10, 0.01 * k, cosine((k - 10) / 30))
    np.testing.assert_allclose(self.rates(40, warmup_fraction=0.25), expected, rtol=1e-4, atol=1e-6)
    expected = np.minimum(0.01 * k, 0.1)
    found = self.rates(40, warmup_fraction=0.25, schedule='constant')
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)

  def test_a_warm_up_never_takes_all_updates(self):
    self.assertTrue(np.isfinite(self.rates(3, warmup_fraction=0.99)).all())
