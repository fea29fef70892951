"""Tests of Hodge stars, by closed forms, against libigl, and of what is not positive."""

import chex
import igl
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

from lib.hodge import batching, complexes, matrices, meshes, stars
from tests.lib.hodge import toys

KINDS = ('barycentric', 'circumcentric', 'cotan')
barycentric_tets = toys.exact(stars.barycentric_tets)


def bumpy():
  """A sphere of uneven triangles, some obtuse."""
  points, faces = meshes.icosphere(2)
  points = points * (1 + 0.3 * np.random.default_rng(0).uniform(-1, 1, (len(points), 1)))
  return points, complexes.tri_complex(faces, len(points))


class SurfaceStarsTest(chex.TestCase):
  def test_of_an_equilateral_triangle(self):
    c = complexes.tri_complex(np.array([[0, 1, 2]]), 3)
    points = np.array([[0, 0], [1, 0], [0.5, np.sqrt(0.75)]])
    found = toys.surface_stars(c, points)
    for kind in KINDS:
      star0, star1, star2 = found[kind]
      np.testing.assert_allclose(star0, np.sqrt(3) / 12, rtol=1e-15)
      np.testing.assert_allclose(star1, np.sqrt(3) / 6, rtol=1e-15)
      np.testing.assert_allclose(star2, 4 / np.sqrt(3), rtol=1e-15)

  def test_agree_with_libigl(self):
    points, c = bumpy()
    star0, star1, star2 = toys.surface_stars(c, points)['cotan']
    d0 = matrices.incidence(c, 0)
    stiffness = d0.T @ (star1[:, None] * d0.toarray())
    np.testing.assert_allclose(stiffness, -igl.cotmatrix(points, c.faces).toarray(), atol=1e-13)
    np.testing.assert_allclose(stiffness.sum(axis=1), 0, atol=1e-13)
    lumped = igl.massmatrix(points, c.faces, igl.MASSMATRIX_TYPE_BARYCENTRIC)
    np.testing.assert_allclose(star0, lumped.diagonal(), rtol=1e-13)
    np.testing.assert_allclose(1 / star2, igl.doublearea(points, c.faces) / 2, rtol=1e-13)

  def test_voronoi_areas_of_an_acute_mesh_agree_with_libigl(self):
    points, c = toys.surface('sphere')
    star0, *_ = toys.surface_stars(c, points)['circumcentric']
    voronoi = igl.massmatrix(points, c.faces, igl.MASSMATRIX_TYPE_VORONOI)
    np.testing.assert_allclose(star0, voronoi.diagonal(), rtol=1e-13)

  def test_areas_sum_to_the_surface(self):
    points, c = bumpy()
    found = toys.surface_stars(c, points)
    for kind in KINDS:
      star0, _, star2 = found[kind]
      self.assertAlmostEqual(star0.sum(), (1 / star2).sum(), places=12)
    self.assertGreater(found['barycentric'][1].min(), 0)
    self.assertLess(found['cotan'][1].min(), 0)

  def test_barycentric_duals_join_the_middles(self):
    points, c = bumpy()
    found = toys.surface_stars(c, points)
    centres = points[c.faces].mean(axis=1)
    middles = points[c.edges].mean(axis=1)
    duals = np.linalg.norm(centres[c.edge_faces.index] - middles, axis=-1).sum(axis=0)
    np.testing.assert_allclose(found['barycentric'][1], duals / found['lengths'], rtol=1e-12)

  def test_energy_of_a_constant_field(self):
    field = np.array([0.6, -0.8])
    for num in (1, 2):
      points, faces = meshes.annulus(24 * num, 12 * num)
      c = complexes.tri_complex(faces, len(points))
      w = (points @ field)[c.edges] @ [-1, 1]
      found = toys.surface_stars(c, points)
      area = (1 / found['cotan'][2]).sum()
      self.assertAlmostEqual(found['cotan'][1] @ w**2, area, places=12)
      # Not consistent, and no better on the finer mesh.
      self.assertGreater(found['barycentric'][1] @ w**2, 1.05 * area)

  @parameterized.parameters(1e-4, 1e4)
  def test_scaling(self, scale):
    points, c = bumpy()
    before, after = (toys.surface_stars(c, s * points) for s in (1, scale))
    for kind in KINDS:
      for power, x, y in zip((2, 0, -2), before[kind], after[kind], strict=True):
        np.testing.assert_allclose(y, x * scale**power, rtol=1e-8)

  def test_needles_keep_their_digits(self):
    c = complexes.tri_complex(np.array([[0, 1, 2]]), 3)
    points = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 1e-7]])
    area = 1 / toys.surface_stars(c, points)['cotan'][2]
    # Only the rounding of the lengths themselves is lost, which is large: (base/height)² bits.
    self.assertAlmostEqual(area[0] / 5e-8, 1, delta=0.1)
    needle = np.array([[0.0, 0.0], [1e-9, 0.0], [0.5e-9, 1.0]])
    area = 1 / toys.surface_stars(c, needle)['cotan'][2]
    np.testing.assert_allclose(area, 5e-10, rtol=1e-6)

  def test_derivatives_in_points(self):
    points, c = bumpy()
    with jax.enable_x64(True):
      area = lambda x: jnp.sum(stars.vertex_areas(c, stars.edge_lengths(c, x)))
      gradient = jax.jit(jax.grad(area))(points)
    # The gradient of the area is the cotangent Laplacian of the positions.
    np.testing.assert_allclose(gradient, -igl.cotmatrix(points, c.faces) @ points, atol=1e-12)

  def test_of_a_flat_torus(self):
    points, c = toys.surface('flat torus')

    @toys.exact
    def periodic(points):
      lengths = stars.periodic_edge_lengths(c, points, (2 * np.pi, 2 * np.pi))
      return lengths, [kind(c, lengths) for kind in toys.KINDS]

    lengths, found = periodic(points)
    self.assertLess(lengths.max(), 1.2)
    for star in found:
      self.assertAlmostEqual(star[0].sum(), 4 * np.pi**2, places=11)
      np.testing.assert_allclose(star[0], star[0][0], rtol=1e-12)
      stars.check_positive(star)

  def test_padding_gets_zeros(self):
    members = [toys.surface('sphere'), toys.surface('torus')]
    batch = batching.stack([c for _, c in members])
    points = np.stack([np.pad(p, ((0, batch.vertex_edges.index.shape[-1] - len(p)), (0, 0)))
                       for p, _ in members])  # fmt: skip

    together = toys.exact(jax.vmap(toys.surface_stars.__wrapped__))(batch, points)
    alone = toys.surface_stars(*members[0][::-1])
    for x, y in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
      np.testing.assert_allclose(x[0, : len(y)], y, rtol=1e-12)
      self.assertEqual(abs(x[0, len(y) :]).max(), 0)

    def total(points):
      lengths = jax.vmap(stars.edge_lengths)(batch, points)
      return sum(jnp.sum(x) for x in jax.vmap(stars.cotan)(batch, lengths))

    self.assertTrue(np.isfinite(toys.exact(jax.grad(total))(points)).all())

  def test_combinatorial_ones(self):
    for star, size in zip(stars.combinatorial(bumpy()[1]), bumpy()[1].sizes, strict=True):
      np.testing.assert_array_equal(star, np.ones(size))


class CheckPositiveTest(chex.TestCase):
  def test_names_the_first_edge(self):
    points, faces = meshes.rectangle(2, 2)
    c = complexes.tri_complex(faces, len(points))
    with self.assertRaisesRegex(ValueError, r'4 of 16 stars of degree 1.* at edge 2\.$'):
      # Two right angles face each diagonal, up to rounding.
      star0, star1, star2 = toys.surface_stars(c, points)['cotan']
      stars.check_positive((star0, np.where(abs(star1) < 1e-12, 0, star1), star2))
    stars.check_positive(toys.surface_stars(c, points)['barycentric'])

  @parameterized.parameters(
    ([[0, 0], [1, 0], [2, 0]], 'degree 0'), ([[0, 0], [0, 0], [1, 1]], 'degree 0')
  )
  def test_names_flat_triangles(self, points, message):
    c = complexes.tri_complex(np.array([[0, 1, 2]]), 3)
    with self.assertRaisesRegex(ValueError, message):
      stars.check_positive(toys.surface_stars(c, np.array(points, float))['cotan'])

  def test_lengths_of_no_triangle_are_named(self):
    c = complexes.tri_complex(np.array([[0, 1, 2]]), 3)
    with self.assertRaisesRegex(ValueError, 'first is nan at vertex 0'):
      stars.check_positive(jax.jit(stars.barycentric)(c, np.array([1.0, 1.0, 3.0])))


class TetStarsTest(chex.TestCase):
  def test_of_a_regular_tetrahedron(self):
    points = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]) / np.sqrt(8)
    c = complexes.tet_complex(np.array([[0, 2, 1, 3]]), 4)
    volume, area = 1 / np.sqrt(72), np.sqrt(3) / 4
    star0, star1, star2, star3 = barycentric_tets(c, points)
    np.testing.assert_allclose(star0, volume / 4)
    # The dual is orthogonal to its edge, so that V = Σ_e |e| |dual(e)|/3 over six edges.
    np.testing.assert_allclose(star1, volume / 2)
    np.testing.assert_allclose(star2, np.sqrt(6) / 12 / area)
    np.testing.assert_allclose(star3, 1 / volume)

  def test_volumes_sum_and_all_are_positive(self):
    for name in ('ball', 'shell', 'solid torus'):
      points, c = toys.volume(name)
      star = barycentric_tets(c, points)
      stars.check_positive(star)
      self.assertAlmostEqual(star[0].sum(), (1 / star[3]).sum(), places=12)

  def test_padding_gets_zeros(self):
    points, c = toys.volume('ball')
    padded = batching.pad(c, c.sizes + 3)
    more = np.pad(points, ((0, 3), (0, 0)), constant_values=0.4)
    for x, y in zip(barycentric_tets(padded, more), barycentric_tets(c, points), strict=True):
      np.testing.assert_allclose(x, np.pad(y, (0, 3)), rtol=1e-14)

  def test_mirrored_tetrahedra_are_named(self):
    points, c = toys.volume('ball')
    with self.assertRaisesRegex(ValueError, 'degree 0'):
      stars.check_positive(barycentric_tets(c, points * [1, 1, -1]))
