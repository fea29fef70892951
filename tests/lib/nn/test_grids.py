"""Tests of lib.nn.grids."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from scipy import interpolate

from lib.nn import grids

SHAPES = ((5, 4), (3, 4, 6))


def draw(shape, count=7):
  rng = np.random.default_rng(0)
  return (
    rng.uniform(size=(count, len(shape))).astype(np.float32),
    rng.normal(size=(2, count, 3)).astype(np.float32),
    rng.normal(size=(2, int(np.prod(shape)), 3)).astype(np.float32),
  )


class GridsTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  @parameterized.parameters(*SHAPES)
  def test_splat_is_the_transpose_of_sample(self, *shape):
    points, values, nodes = draw(shape)
    s = self.variant(lambda x: grids.stencil(x, shape))(points)
    there = self.variant(lambda s, v: grids.splat(s, v, nodes.shape[1]))(s, values)
    back = self.variant(grids.sample)(s, nodes)
    np.testing.assert_allclose(np.sum(there * nodes), np.sum(values * back), rtol=1e-4)

  @parameterized.parameters(*SHAPES)
  def test_weights_are_a_partition_of_one_and_sums_are_kept(self, *shape):
    points, values, nodes = draw(shape)
    s = grids.stencil(jnp.concatenate([points, jnp.ones_like(points[:1]) * 3 - 4]), shape)
    self.assertGreaterEqual(float(s.weight.min()), 0)
    np.testing.assert_allclose(s.weight.sum(axis=1), 1, rtol=1e-6)
    self.assertTrue(bool(jnp.all((s.index >= 0) & (s.index < nodes.shape[1]))))
    spread = grids.splat(grids.stencil(points, shape), values, nodes.shape[1])
    np.testing.assert_allclose(spread.sum(axis=1), values.sum(axis=1), atol=1e-5)

  @parameterized.parameters(*SHAPES)
  def test_sample_agrees_with_scipy(self, *shape):
    points, _, nodes = draw(shape)
    found = grids.sample(grids.stencil(points, shape), nodes)
    axes = [np.linspace(0, 1, size) for size in shape]
    grid = np.moveaxis(nodes, 0, -1).reshape(*shape, 3, 2)
    expected = interpolate.RegularGridInterpolator(axes, grid)(points)
    np.testing.assert_allclose(found, np.moveaxis(expected, -1, 0), atol=1e-5)

  def test_points_on_nodes_and_outside_are_exact(self):
    nodes = np.arange(4.0).reshape(1, 4, 1)
    corners = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [-2.0, 5.0]])
    found = grids.sample(grids.stencil(corners, (2, 2)), nodes)
    np.testing.assert_array_equal(found[0, :, 0], [0, 1, 2, 3, 1])

  def test_gradient_in_the_points_is_that_of_the_interpolant(self):
    axes = np.meshgrid(*[np.linspace(0, 1, 5)] * 2, indexing='ij')
    nodes = (2 * axes[0] - 3 * axes[1]).reshape(1, -1, 1)
    value = lambda x: grids.sample(grids.stencil(x[None], (5, 5)), nodes)[0, 0, 0]
    np.testing.assert_allclose(jax.grad(value)(jnp.array([0.3, 0.61])), [2, -3], rtol=1e-5)

  @parameterized.parameters(((3, 3, 3),), ((3, 1),))
  def test_refuses_grids_of_another_kind(self, shape):
    with self.assertRaisesRegex(ValueError, 'on a grid of shape'):
      grids.stencil(np.zeros((2, 2)), shape)
