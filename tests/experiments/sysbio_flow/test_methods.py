"""Every forecaster has the shape of one; what is known of each holds."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl.testing import absltest, parameterized

from configs.sysbio_flow import quick
from experiments.sysbio_flow import checks, evaluate, methods, networks
from experiments.sysbio_flow.methods import cfm, flow, learner, quantiles, sources
from lib.io import fields
from tests.experiments.sysbio_flow import toys

TRAIN = toys.waves(20)
PROBLEM = learner.Problem(32, 24, TRAIN)
KEY = jax.random.key(0)
OURS = ('flow', 'cfm')
SMALL = {name: {'width': 16, 'layers': 1, 'steps': 2, 'draws': 2} for name in OURS}
SMALL |= {'mlp': {'width': 16}}


def config():
  made = quick.get_config()
  for name, changes in SMALL.items():
    made[name].update(changes)
  return made


def section(name, **changes):
  options = config()[name].copy_and_resolve_references()
  options.update(changes)
  return options


def make(name, **changes):
  options = section(fields.kind(config(), name), **changes)
  return methods.METHODS[fields.kind(config(), name)](PROBLEM, options)


class AllTest(chex.TestCase):
  @parameterized.parameters(*methods.METHODS, *quick.get_config().variants)
  def test_forecasts_have_the_shape_and_are_finite_whatever_the_context(self, name):
    method = methods.make(config(), name, PROBLEM)
    edge = np.stack(
      [np.zeros(32), np.ones(32), np.linspace(-1, 25, 32), 25 * (-1.0) ** np.arange(32)]
    )
    context = jnp.asarray(np.concatenate([edge, TRAIN.context[:3]]), jnp.float32)
    params = method.init(KEY) if isinstance(method, learner.Network) else {}
    draw = jax.jit(lambda c, key: evaluate.draw(method, params, c, key, 20))
    samples = draw(context, KEY)
    point = fields.kind(config(), name) in methods.CLOSED_FORM and name not in methods.SAMPLED
    chex.assert_shape(samples, (1 if point else 20, 7, 24))
    chex.assert_tree_all_finite(samples)
    np.testing.assert_array_equal(samples, draw(context, KEY))
    if not point:
      self.assertGreater(float(abs(samples - draw(context, jax.random.key(1))).max()), 0)

  @parameterized.parameters('flow', 'mlp')
  def test_training_lowers_the_loss_on_series_that_context_determines(self, name):
    method = methods.make(config(), name, PROBLEM)
    batch = {'context': jnp.asarray(TRAIN.context), 'future': jnp.asarray(TRAIN.future)}

    adam = optax.adam(3e-3)

    def step(state, key):
      params, moments = state
      value, grads = jax.value_and_grad(method.loss)(params, batch, key)
      updates, moments = adam.update(grads, moments)
      return (optax.apply_updates(params, updates), moments), value

    params = method.init(KEY)
    train = jax.jit(lambda state, keys: jax.lax.scan(step, state, keys))
    trained, values = train((params, adam.init(params)), jax.random.split(KEY, 100))
    chex.assert_tree_all_finite(trained)
    self.assertLess(values[-10:].mean(), 0.9 * values[:10].mean())

  def test_the_shipped_config_and_its_variants_pass_the_checks(self):
    checks.check(quick.get_config())


class ClosedFormTest(chex.TestCase):
  def draw(self, name, context, **changes):
    return np.asarray(make(name, **changes).forecast(jnp.asarray(context, jnp.float32), KEY, 20))

  def test_lines_go_on(self):
    line = np.stack([np.linspace(-1, 1, 32), np.linspace(0, -2, 32)])
    beyond = line[:, -1:] + (line[:, 1] - line[:, 0])[:, None] * np.arange(1, 25)
    np.testing.assert_allclose(self.draw('drift', line)[0], beyond, atol=1e-4)
    np.testing.assert_allclose(self.draw('holt', line)[0], beyond, atol=1e-4)
    kept = np.broadcast_to(line[:, -1:], beyond.shape)
    np.testing.assert_allclose(self.draw('persistence', line)[0], kept)
    self.assertLessEqual(abs(self.draw('drift', 20 * line, limit=5.0)).max(), 5.0)

  def test_what_repeats_goes_on(self):
    for name in ('parroting', 'harmonic'):
      found = self.draw(name, TRAIN.context)[0]
      np.testing.assert_allclose(found, TRAIN.future, atol=0.02)

  def test_analogues_are_futures_of_training_one_a_system(self):
    found = self.draw('analogue', TRAIN.context[:5], neighbors=3)
    known = {row.tobytes() for row in TRAIN.future}
    self.assertTrue(all(row.tobytes() in known for row in found.reshape(-1, 24)))
    for i in range(5):  # the series itself is the nearest
      systems = {
        int(TRAIN.system[np.flatnonzero((TRAIN.future == row).all(axis=1))[0]])
        for row in found[:, i]
      }
      self.assertIn(i // 2, systems)
      self.assertLessEqual(len(systems), 3)


class FlowTest(chex.TestCase):
  def test_a_source_without_structure_is_noise(self):
    begin = cfm.source(PROBLEM, section('cfm', source='gaussian'))
    drawn = begin(jnp.zeros((400, 32))).draw(KEY)
    self.assertAlmostEqual(float(drawn.mean()), 0.0, delta=0.05)
    self.assertAlmostEqual(float(drawn.std()), 1.0, delta=0.05)

  @parameterized.parameters('linear', 'asinh')
  def test_spaces_are_inverse(self, space):
    forward, back = networks.SPACES[space]
    x = jnp.linspace(-25, 25, 101)
    np.testing.assert_allclose(back(forward(x)), x, rtol=1e-4, atol=1e-5)

  def test_regimes_weigh_what_foretells_the_last_points(self):
    weights_of = lambda context, **changes: (
      sources.mixture(PROBLEM, section('flow', **changes))(context).weights
    )
    s = jnp.arange(1, 33) / 32
    decay, wave = jnp.exp(-4 * s), jnp.sin(8 * jnp.pi * s)
    weights = weights_of(jnp.stack([decay, wave]))
    np.testing.assert_allclose(weights.sum(axis=-1), 1.0, rtol=1e-5)
    self.assertGreater(float(weights[1, 3]), 0.9)
    self.assertLess(float(weights[0, 0]), 0.3)  # a steady one foretells it worse
    wrong = weights_of(wave[None], regimes='wrong')
    self.assertEqual(float(wrong[0, 3]), 0.0)
    none = weights_of(wave[None], regimes='none')
    np.testing.assert_array_equal(none[0], [1, 0, 0, 0, 0])

  def test_an_untrained_correction_leaves_the_law_of_the_source(self):
    """The velocity then is that between two standard normal laws: flows end where they began."""
    context = jnp.asarray(TRAIN.context[:4])
    params = make('flow').init(KEY)
    drawn = lambda steps: make('flow', steps=steps).forecast(params, context, KEY, 20)
    np.testing.assert_allclose(drawn(64), drawn(0), atol=0.1)
    self.assertGreater(float(drawn(0).std(axis=0).min()), 0.5)

  def test_samples_of_the_source_have_the_quantiles_of_the_head(self):
    method, context = make('flow', steps=0), jnp.asarray(TRAIN.context[:2])
    params = jax.tree.map(lambda x: x + 0.05 * jax.random.normal(KEY, x.shape), method.init(KEY))
    encoder = flow.Encoder(16, 1, 24)
    _, raw = encoder.apply(params['encoder'], context, jnp.zeros((2, 0)))
    expected = quantiles.Head('asinh')
    found = expected.back(expected.quantiles(raw, context))
    samples = method.forecast(params, context, KEY, 4000)
    for level in (0.1, 0.5, 0.9):
      at = int(np.argmin(abs(quantiles.LEVELS - level)))
      below = (samples < found[at]).mean(axis=0)
      np.testing.assert_allclose(below, level, atol=0.05)


class QuantilesTest(chex.TestCase):
  def test_samples_of_a_head_have_its_quantiles(self):
    method = make('mlp')
    params = method.init(KEY)
    params = jax.tree.map(lambda x: x + 0.1 * jax.random.normal(KEY, x.shape), params)
    samples = np.asarray(method.forecast(params, jnp.asarray(TRAIN.context[:2]), KEY, 4000))
    low, middle, high = np.quantile(samples, (0.1, 0.5, 0.9), axis=0)
    self.assertTrue((low < middle).all() and (middle < high).all())
    order = np.argsort(samples[:, 0, 0])  # one level for all points of a series
    self.assertTrue((np.diff(samples[order, 0], axis=0) >= -1e-5).all())
    self.assertEqual(quantiles.LEVELS[len(quantiles.LEVELS) // 2], 0.5)


class NetworksTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_squash_is_odd_increasing_and_the_identity_within(self):
    squash = self.variant(networks.squash)
    x = jnp.linspace(-100, 100, 2001)
    np.testing.assert_allclose(squash(x), -squash(-x), rtol=1e-6)
    self.assertTrue((jnp.diff(squash(x)) > 0).all())
    inside = jnp.abs(x) <= 3
    np.testing.assert_array_equal(squash(x)[inside], x[inside])

  def test_differences_of_a_parabola_vanish_from_the_third_on(self):
    x = (jnp.arange(32) / 32) ** 2
    found = networks.differences(x)
    chex.assert_shape(found, (4 * 32 - 6,))
    np.testing.assert_allclose(found[-29:], 0.0, atol=1e-4)


if __name__ == '__main__':
  absltest.main()
