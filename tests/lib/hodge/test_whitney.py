"""Tests of Whitney forms: constant fields are exact, mass matrices are those of finite elements."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import skfem
from absl.testing import parameterized
from skfem.models import laplace, mass

from lib.hodge import complexes, matrices, meshes, operators, stars, topology, whitney
from tests.lib.hodge import toys

FIELD = np.array([0.7, -1.1, 0.4])


@toys.exact
def surface_masses(c, points):
  return whitney.surface_masses(c, stars.edge_lengths(c, points))


tet_masses = toys.exact(whitney.tet_masses)


class FieldsTest(chex.TestCase):
  def test_constant_fields_on_flat_surfaces_are_exact(self):
    points, c = toys.surface('two holes')
    points = points + 0.02 * np.random.default_rng(0).normal(size=points.shape)
    field = FIELD[:2]

    @toys.exact
    def there_and_back(points):
      w = whitney.line_integrals(c, points, lambda x: jnp.broadcast_to(field, x.shape))
      faces = whitney.face_fields(c, points, jnp.stack([w, 2 * w]))
      areas = stars.face_areas(c, stars.edge_lengths(c, points))
      return w, faces, whitney.to_vertices(c.faces, areas, faces, len(points))

    w, faces, vertices = there_and_back(points)
    np.testing.assert_allclose(w, (points @ field)[c.edges] @ [-1, 1], atol=1e-14)
    np.testing.assert_allclose(faces[1], np.tile(2 * field, (len(c.faces), 1)), atol=1e-12)
    np.testing.assert_allclose(vertices[0], np.tile(field, (len(points), 1)), atol=1e-12)

  def test_constant_fields_and_fluxes_in_volumes_are_exact(self):
    points, c = toys.volume('shell')
    points = points + 0.02 * np.random.default_rng(0).normal(size=points.shape)

    @toys.exact
    def there_and_back(points):
      constant = lambda x: jnp.broadcast_to(FIELD, x.shape)
      w = whitney.line_integrals(c, points, constant)
      flux = whitney.fluxes(c, points, constant)
      fields = whitney.tet_fields(c, points, w), whitney.flux_fields(c, points, flux)
      return *fields, operators.d2(c, flux), operators.d1(c, w)

    by_lines, by_fluxes, divergence, curl = there_and_back(points)
    expected = np.tile(FIELD, (len(c.tets), 1))
    np.testing.assert_allclose(by_lines, expected, atol=1e-12)
    np.testing.assert_allclose(by_fluxes, expected, atol=1e-12)
    np.testing.assert_allclose(divergence, 0, atol=1e-14)
    np.testing.assert_allclose(curl, 0, atol=1e-14)

  def test_stokes_for_polynomials(self):
    points, c = toys.volume('ball')
    field = lambda x: jnp.stack([x[..., 1] ** 2, x[..., 0] * x[..., 2], x[..., 2] ** 2], -1)
    curl = lambda x: jnp.stack([-x[..., 0], 0 * x[..., 0], x[..., 2] - 2 * x[..., 1]], -1)

    @toys.exact
    def both(points):
      around = operators.d1(c, whitney.line_integrals(c, points, field))
      return (
        around,
        whitney.fluxes(c, points, curl),
        operators.d2(c, whitney.fluxes(c, points, field)),
      )

    around, through, divergence = both(points)
    np.testing.assert_allclose(around, through, atol=1e-14)
    # ∇ · field = 2z.
    middles = points[c.tets].mean(axis=1)
    volumes = np.asarray(toys.exact(stars.tet_volumes)(c, points))
    np.testing.assert_allclose(divergence, 2 * middles[:, 2] * volumes, atol=1e-14)

  def test_fields_linear_on_edges_need_their_ends_only(self):
    points, c = toys.surface('annulus')
    matrix = np.array([[0.3, -1.0], [0.5, 0.2]])
    f = toys.exact(lambda p: (
      whitney.vertex_line_integrals(c, p, p @ matrix.T),
      whitney.line_integrals(c, p, lambda x: x @ matrix.T, order=1),
    ))  # fmt: skip
    np.testing.assert_allclose(*f(points), atol=1e-15)

  def test_circulation_of_a_vortex_around_an_annulus(self):
    points, c = toys.surface('annulus')
    vortex = lambda x: jnp.stack([-x[..., 1], x[..., 0]], -1) / jnp.sum(x**2, -1, keepdims=True)
    w = toys.exact(lambda p: whitney.line_integrals(c, p, vortex, order=12))(points)
    period = topology.homology(c).cycles @ w
    np.testing.assert_allclose(abs(period), 2 * np.pi, rtol=1e-9)


class MassTest(chex.TestCase):
  def test_of_an_equilateral_triangle(self):
    c = complexes.tri_complex(np.array([[0, 1, 2]]), 3)
    points = np.array([[0, 0], [1, 0], [0.5, np.sqrt(0.75)]])
    _, m1 = surface_masses(c, points)
    m1 = matrices.mass(m1, 3).toarray()
    np.testing.assert_allclose(m1.diagonal(), 5 / 12 / np.sqrt(3), rtol=1e-14)
    np.testing.assert_allclose(abs(m1[~np.eye(3, dtype=bool)]), 1 / 12 / np.sqrt(3), rtol=1e-13)

  @parameterized.parameters('sphere', 'two holes')
  def test_stiffness_is_that_of_cotangents(self, name):
    points, c = toys.surface(name)
    points = points + 0.03 * np.random.default_rng(0).normal(size=points.shape)
    _, m1 = surface_masses(c, points)
    _, star1, _ = toys.surface_stars(c, points)['cotan']
    d0 = matrices.incidence(c, 0).toarray().astype(float)
    m1 = matrices.mass(m1, len(c.edges)).toarray()
    np.testing.assert_allclose(d0.T @ m1 @ d0, d0.T @ np.diag(star1) @ d0, atol=1e-12)
    self.assertGreater(np.linalg.eigvalsh(m1).min(), 0)

  def test_agree_with_scikit_fem_on_triangles(self):
    points, c = toys.surface('two holes')
    points = points + 0.02 * np.random.default_rng(0).normal(size=points.shape)
    mesh = skfem.MeshTri(points.T, c.faces.T.astype(np.int64))
    m0, m1 = (matrices.mass(m, n) for m, n in zip(surface_masses(c, points), c.sizes, strict=False))
    linear = skfem.Basis(mesh, skfem.ElementTriP1())
    np.testing.assert_allclose(m0.toarray(), mass.assemble(linear).toarray(), atol=1e-15)
    d0 = matrices.incidence(c, 0).astype(float)
    stiffness = laplace.assemble(linear).toarray()
    np.testing.assert_allclose((d0.T @ m1 @ d0).toarray(), stiffness, atol=1e-12)
    # Its edges may point the other way.
    edge_mass = product.assemble(skfem.Basis(mesh, skfem.ElementTriN1())).toarray()
    np.testing.assert_allclose(
      np.sort(np.linalg.eigvalsh(edge_mass)), np.linalg.eigvalsh(m1.toarray()), rtol=1e-10
    )

  def test_agree_with_scikit_fem_on_tetrahedra(self):
    points, c = toys.volume('ball')
    points = points + 0.02 * np.random.default_rng(0).normal(size=points.shape)
    mesh = skfem.MeshTet(points.T, c.tets.T.astype(np.int64))
    found = [matrices.mass(m, n).toarray()
             for m, n in zip(tet_masses(c, points), c.sizes, strict=False)]  # fmt: skip
    linear = skfem.Basis(mesh, skfem.ElementTetP1())
    np.testing.assert_allclose(found[0], mass.assemble(linear).toarray(), atol=1e-15)
    d0 = matrices.incidence(c, 0).toarray().astype(float)
    np.testing.assert_allclose(d0.T @ found[1] @ d0, laplace.assemble(linear).toarray(), atol=1e-12)
    # The flux of its forms is ½, and its edges and faces may point the other way.
    for matrix, element, factor in (
      (found[1], skfem.ElementTetN0(), 1),
      (found[2], skfem.ElementTetRT0(), 4),
    ):
      expected = factor * product.assemble(skfem.Basis(mesh, element)).toarray()
      np.testing.assert_allclose(
        np.linalg.eigvalsh(matrix), np.linalg.eigvalsh(expected), rtol=1e-9
      )

  def test_masses_measure_constant_fields(self):
    points, c = toys.volume('shell')
    constant = lambda x: jnp.broadcast_to(FIELD, x.shape)

    @toys.exact
    def energies(points):
      _, m1, m2 = whitney.tet_masses(c, points)
      w = whitney.line_integrals(c, points, constant)
      v = whitney.fluxes(c, points, constant)
      return w @ whitney.apply_mass(m1, w), v @ whitney.apply_mass(m2, v)

    volume = 1 - 1 / 27
    np.testing.assert_allclose(energies(points), volume * FIELD @ FIELD, rtol=1e-12)

  def test_apply_is_the_matrix_and_differentiable(self):
    points, c = toys.surface('two holes')
    masses = surface_masses(c, points)
    w = [np.random.default_rng(0).normal(size=(2, n)) for n in c.sizes[:2]]
    applied = toys.exact(
      lambda: [whitney.apply_mass(*each) for each in zip(masses, w, strict=True)]
    )
    for found, m, x in zip(applied(), masses, w, strict=True):
      np.testing.assert_allclose(found, x @ matrices.mass(m, x.shape[1]), atol=1e-13)
    energy = lambda p: jnp.sum(whitney.apply_mass(
      whitney.surface_masses(c, stars.edge_lengths(c, p))[1], jnp.ones(c.sizes[1])
    ))  # fmt: skip
    self.assertTrue(np.isfinite(toys.exact(jax.grad(energy))(points)).all())


@skfem.BilinearForm
def product(u, v, _):
  return sum(u[i] * v[i] for i in range(len(u)))


class FluxTest(chex.TestCase):
  def test_net_flux_of_a_source_in_the_cavity(self):
    points, tets = meshes.cube(3, [(1, 2, 1, 2, 1, 2)])
    c = complexes.tet_complex(tets, len(points))
    source = lambda x: (x - 0.5) / jnp.sum((x - 0.5) ** 2, -1, keepdims=True) ** 1.5
    flux = toys.exact(lambda p: whitney.fluxes(c, p, source))(points)
    faces = topology.boundary(c)[2]
    outer = faces & (abs(points[c.faces].mean(axis=1) - 0.5).max(axis=1) > 0.49)
    signs = np.asarray(matrices.incidence(c, 2).sum(axis=0)).ravel()
    self.assertAlmostEqual((signs * flux)[outer].sum(), 4 * np.pi, delta=0.1)

  def test_fields_linear_on_faces_need_their_corners_only(self):
    points, tets = meshes.cube(2)
    c = complexes.tet_complex(tets, len(points))
    matrix = np.random.default_rng(0).normal(size=(3, 3))
    found = toys.exact(lambda p: (
      whitney.vertex_fluxes(c, p, p @ matrix.T), whitney.fluxes(c, p, lambda x: x @ matrix.T)
    ))(points)  # fmt: skip
    np.testing.assert_allclose(*found, atol=1e-15)
