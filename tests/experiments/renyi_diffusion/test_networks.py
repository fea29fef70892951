import chex
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from absl.testing import parameterized

from experiments.renyi_diffusion import networks
from lib.diffusion import sde as sdes

VP = sdes.vp()
TIMES = np.array([[1e-3], [0.4], [1.0]], np.float32)


def config(which, **changes):
  fields = {
    'kind': which,
    'prediction': 'noise',
    'hidden': (8,),
    'time_frequencies': 4,
    'clock': 'linear',
    'channels': 8,
    'multipliers': (1,),
    'blocks': 1,
    'attention': (),
    'dropout': 0.0,
    'dtype': 'float32',
  }
  return ml_collections.FrozenConfigDict(fields | changes)


def normal(*shape):
  return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def filled(net):
  """Parameters far from their start, where the U-Net's output would be zero."""
  leaves, structure = jax.tree.flatten(jax.eval_shape(net.init, jax.random.key(0)))
  rng = np.random.default_rng(0)
  return structure.unflatten([rng.normal(0, 0.5, x.shape).astype(x.dtype) for x in leaves])


def make_all(**changes):
  return {kind: networks.make(config(kind, **changes), (4, 4, 1), VP) for kind in networks.KINDS}


class MakeTest(chex.TestCase):
  def test_plane_with_four_frequencies_has_eleven_inputs(self):
    layers = {}
    for kind in ('mlp', 'energy'):
      params = jax.eval_shape(
        networks.make(config(kind, hidden=(32, 32)), (2,), VP).init, jax.random.key(0)
      )
      layers[kind] = [layer['kernel'].shape for layer in params['params'].values()]
    self.assertEqual(layers['mlp'], [(11, 32), (32, 32), (32, 2)])
    self.assertEqual(layers['energy'], [(11, 32), (32, 32), (32, 1)])

  def test_a_log_snr_clock_knows_the_noise_and_not_the_schedule(self):
    log_snr = jnp.array([[6.0], [0.0], [-4.0]])
    x = normal(3, 4)
    found = []
    for sde in (VP, sdes.sub_vp(), sdes.cosine()):
      net = networks.make(config('mlp', clock='log_snr'), (4,), sde)
      found.append(net.noise(filled(net), x, sde.time(log_snr)))
    chex.assert_trees_all_close(*found, rtol=1e-4, atol=1e-4)
    self.assertFalse(np.allclose(found[0][0], net.noise(filled(net), x, TIMES)[0]))

  @parameterized.parameters(*((sde(),) for sde in (sdes.vp, sdes.sub_vp, sdes.ve, sdes.cosine)))
  def test_a_velocity_of_zero_is_the_noise_of_data_of_variance_one(self, sde):
    net = networks.make(config('mlp', prediction='velocity'), (4,), sde)
    x, t = normal(3, 4), TIMES * sde.horizon
    zeros = jax.tree.map(jnp.zeros_like, filled(net))
    score = jax.vmap(jax.grad(lambda y, var: jax.scipy.stats.norm.logpdf(y, scale=var**0.5).sum()))
    expected = -sde.std(t) * score(x, sde.mean(t) ** 2 + sde.std(t) ** 2)
    chex.assert_trees_all_close(net.noise(zeros, x, t), expected, rtol=1e-5, atol=1e-6)

  @parameterized.parameters((sdes.vp(),), (sdes.cosine(),))
  def test_the_true_velocity_gives_the_noise_back(self, sde):
    data, noise, t = normal(6, 4)[:3], normal(6, 4)[3:], TIMES * sde.horizon
    m, std = sde.mean(t), sde.std(t)
    found = networks._noise_of_velocity(lambda *_: m * noise - std * data, sde)
    chex.assert_trees_all_close(found(None, m * data + std * noise, t), noise, atol=1e-5)

  def test_all_kinds_map_points_to_noise_and_depend_on_time(self):
    x = normal(3, 16)
    for kind, net in make_all().items():
      params, noise = filled(net), jax.jit(net.noise)
      found = noise(params, x, TIMES)
      self.assertEqual((found.shape, found.dtype), ((3, 16), jnp.float32), kind)
      self.assertGreater(float(jnp.abs(found - noise(params, x, 0.5 * TIMES)).max()), 1e-4, kind)
      self.assertEqual(net.potential is None, kind != 'energy')

  def test_seeds_side_by_side_are_the_seeds_alone(self):
    net, keys = networks.make(config('mlp'), (2,), VP), jax.random.split(jax.random.key(0), 2)
    both = jax.vmap(net.init)(keys)
    alone = [net.init(key) for key in keys]
    chex.assert_trees_all_equal(both, jax.tree.map(lambda *p: np.stack(p), *alone))

  def test_refuses_points_and_times_that_do_not_fit(self):
    for kind, net in make_all().items():
      params = jax.eval_shape(net.init, jax.random.key(0))
      for x, t in ((np.zeros((3, 15)), TIMES), (np.zeros((3, 16)), TIMES[:1])):
        with self.assertRaises(AssertionError, msg=kind):
          jax.eval_shape(net.noise, params, x, t)

  @parameterized.parameters(
    ('mlp', 'kind', 'resnet'),
    ('mlp', 'hidden', (32, 0)),
    ('mlp', 'hidden', (32, 1.5)),
    ('energy', 'time_frequencies', -1),
    ('mlp', 'clock', 'cuckoo'),
    ('unet', 'channels', 6),
    ('unet', 'channels', 0),
    ('unet', 'channels', 8.0),
    ('unet', 'multipliers', ()),
    ('unet', 'multipliers', (1, 0)),
    ('unet', 'multipliers', (1, 1, 1, 1)),
    ('unet', 'blocks', 0),
    ('unet', 'attention', (3,)),
    ('unet', 'dropout', 1.0),
    ('unet', 'dtype', 'float8'),
  )
  def test_refuses_a_bad_value_by_name(self, kind, field, value):
    with self.assertRaisesRegex(ValueError, rf'config\.network\.{field}\b'):
      networks.make(config(kind, **{field: value}), (4, 4, 1), VP)

  def test_unet_wants_images(self):
    with self.assertRaisesRegex(ValueError, r'config\.network\.kind'):
      networks.make(config('unet'), (16,), VP)

  def test_a_gradient_predicts_noise_alone(self):
    with self.assertRaisesRegex(ValueError, r'config\.network\.prediction'):
      networks.make(config('energy', prediction='velocity'), (2,), VP)


class EnergyTest(chex.TestCase):
  def test_noise_is_a_gradient_field_and_a_perceptrons_is_not(self):
    x = normal(3, 2)
    symmetric = {}
    for kind in ('energy', 'mlp'):
      net = networks.make(config(kind), (2,), VP)
      params = filled(net)
      one = lambda x, t, net=net, params=params: net.noise(params, x[None], t[None])[0]
      jacobian = np.asarray(jax.jit(jax.vmap(jax.jacfwd(one)))(x, TIMES))
      symmetric[kind] = np.allclose(jacobian, jacobian.swapaxes(1, 2), atol=1e-6)
    self.assertEqual(symmetric, {'energy': True, 'mlp': False})

  def test_its_score_is_the_potentials_slope(self):
    net = networks.make(config('energy'), (2,), VP)
    params, x = filled(net), normal(3, 2)
    score = jax.jit(sdes.score_of_noise(VP, lambda x, t: net.noise(params, x, t)))(x, TIMES)
    potential, step = jax.jit(net.potential), 1e-2 * np.eye(2, dtype=np.float32)
    self.assertEqual(potential(params, x, TIMES).shape, (3,))
    slopes = [
      (potential(params, x + e, TIMES) - potential(params, x - e, TIMES)) / 2e-2 for e in step
    ]
    np.testing.assert_allclose(score, np.stack(slopes, -1), rtol=1e-2, atol=1e-4)


class UNetTest(chex.TestCase):
  def test_dropout_is_on_with_a_key_alone(self):
    net = networks.make(config('unet', dropout=0.5), (4, 4, 1), VP)
    params, x = filled(net), normal(3, 16)
    noise = jax.jit(net.noise)
    plain = noise(params, x, TIMES)
    np.testing.assert_array_equal(plain, noise(params, x, TIMES))
    keys = jax.random.split(jax.random.key(0))
    first, second = (noise(params, x, TIMES, key) for key in keys)
    np.testing.assert_array_equal(first, noise(params, x, TIMES, keys[0]))
    for other in (plain, second):
      self.assertGreater(float(jnp.abs(first - other).max()), 1e-3)

  def test_full_scale_is_as_large_as_published(self):
    full = {'channels': 128, 'multipliers': (1, 2, 2, 2), 'attention': (16,), 'dropout': 0.1}
    net = networks.make(config('unet', **full, blocks=4), (32, 32, 3), VP)
    params = jax.eval_shape(net.init, jax.random.key(0))
    # The authors' own code makes as many for CIFAR-10, 61.8 million.
    self.assertEqual(sum(p.size for p in jax.tree.leaves(params)), 61_804_419)
