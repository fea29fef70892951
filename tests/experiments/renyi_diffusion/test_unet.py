import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

from experiments.renyi_diffusion import unet

SHAPE = (4, 6, 6, 2)
TIMES = jnp.array([0.01, 0.3, 0.6, 1.0])


def images(seed=0):
  return np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32)


class UNetTest(chex.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.net = unet.UNet(channels=8, multipliers=(1, 2), blocks=1, attention=(3,))
    cls.shapes = jax.eval_shape(cls.net.init, jax.random.key(0), images(), TIMES)
    leaves, structure = jax.tree.flatten(cls.shapes)
    rng = np.random.default_rng(0)
    cls.params = structure.unflatten([rng.normal(0, 0.3, x.shape).astype('f') for x in leaves])
    cls.apply = staticmethod(jax.jit(cls.net.apply))

  def test_starts_at_zero_and_learns_what_depends_on_time(self):
    net = unet.UNet(channels=8, multipliers=(1,), blocks=1, attention=(), dropout=0.0)
    x = images()
    params = jax.jit(net.init)(jax.random.key(1), x, TIMES)
    target = x * jnp.where(TIMES < 0.5, 1.0, -1.0)[:, None, None, None]

    @jax.jit
    def descend(params):
      def loss(p):
        out = net.apply(p, x, TIMES, False)
        return jnp.mean((out - target) ** 2), out

      (value, out), grads = jax.value_and_grad(loss, has_aux=True)(params)
      return value, out, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    start, out, params = descend(params)
    self.assertEqual(out.shape, SHAPE)
    self.assertLess(float(jnp.abs(out).max()), 1e-3)
    for _ in range(50):
      value, out, params = descend(params)
    self.assertLess(float(value), 0.9 * float(start))

  def test_images_of_a_batch_do_not_see_each_other(self):
    x = images()
    whole = self.apply(self.params, x, TIMES)
    self.assertEqual((whole.shape, whole.dtype), (SHAPE, jnp.float32))
    changed = x.copy()
    changed[1] = 7.0
    other = self.apply(self.params, changed, TIMES)
    keep = np.array([0, 2, 3])
    np.testing.assert_allclose(other[keep], whole[keep], rtol=1e-4, atol=1e-4)
    self.assertGreater(float(jnp.abs(other[1] - whole[1]).max()), 1e-2)
    turned = self.apply(self.params, x[::-1], TIMES[::-1])
    np.testing.assert_allclose(turned, whole[::-1], rtol=1e-4, atol=1e-4)
    later = self.apply(self.params, x, TIMES.at[0].set(0.5))
    np.testing.assert_allclose(later[1:], whole[1:], rtol=1e-4, atol=1e-4)
    self.assertGreater(float(jnp.abs(later[0] - whole[0]).max()), 1e-2)

  def test_bfloat16_is_close_and_keeps_its_parameters_in_float32(self):
    half = self.net.clone(dtype=jnp.bfloat16)
    shapes = jax.eval_shape(half.init, jax.random.key(1), images(), TIMES)
    chex.assert_trees_all_equal_shapes_and_dtypes(shapes, self.shapes)
    full = self.apply(self.params, images(), TIMES)
    found = jax.jit(half.apply)(self.params, images(), TIMES)
    self.assertEqual(found.dtype, jnp.float32)
    gap = np.linalg.norm(found - full) / np.linalg.norm(full)
    self.assertGreater(gap, 1e-5)
    self.assertLess(gap, 0.05)

  def test_attends_from_one_corner_to_the_other(self):
    block = unet.AttentionBlock(init_scale=1.0, dtype=jnp.float32)
    x = jax.random.normal(jax.random.key(0), (1, 4, 4, 8))
    shapes = jax.eval_shape(block.init, jax.random.key(1), x)
    params = jax.tree.map(
      lambda p: jnp.asarray(np.random.default_rng(0).normal(size=p.shape)), shapes
    )
    moved = x.at[0, -1, -1].multiply(-1.0)
    corner = jax.jit(lambda x: block.apply(params, x)[0, 0, 0] - x[0, 0, 0] * unet._RESCALE)
    # The mean over a group's pixels moves with any of them, but not by as much.
    self.assertGreater(float(jnp.abs(corner(x) - corner(moved)).max()), 1e-2)

  def test_resampling_averages_and_repeats(self):
    x = jnp.arange(16.0).reshape(1, 4, 4, 1)
    halved = unet._halve(x)
    np.testing.assert_array_equal(halved[0, :, :, 0], [[2.5, 4.5], [10.5, 12.5]])
    np.testing.assert_array_equal(unet._halve(unet._double(x)), x)
    np.testing.assert_array_equal(unet._double(halved)[0, 1, :, 0], [2.5, 2.5, 4.5, 4.5])

  @parameterized.parameters((28, 3, [28, 14, 7]), (14, 2, [14, 7]), (7, 1, [7]))
  def test_resolutions(self, side, levels, expected):
    self.assertEqual(unet.resolutions(side, levels), expected)

  def test_refuses_to_halve_an_odd_side(self):
    net = unet.UNet(channels=8, multipliers=(1, 1, 1), blocks=1)
    for shape in ((1, 14, 8, 1), (1, 8, 14, 1)):
      with self.assertRaisesRegex(ValueError, '14 comes to 7, which is odd'):
        jax.eval_shape(net.init, jax.random.key(0), jnp.zeros(shape), jnp.zeros(1))
