"""Tests of eigenbases, projections and spectral derivatives."""

import importlib.util
import pathlib

import chex
import igl
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from lib.hodge import (
  complexes,
  matrices,
  meshes,
  operators,
  projections,
  spectra,
  stars,
  topology,
  whitney,
)
from tests.lib.hodge import toys

cotan = lambda c, points: toys.surface_stars(c, points)['cotan']
barycentric = lambda c, points: toys.surface_stars(c, points)['barycentric']
codifferential = toys.exact(operators.codifferential, static_argnums=2)
spectral_derivative = toys.exact(projections.spectral_derivative, static_argnums=2)


def bases(c, star, sizes, gap=1e-2):
  return [
    spectra.eigenbasis(matrices.laplacian(c, star, k), star[k], size, gap)
    for k, size in enumerate(sizes)
  ]


def sphere():
  points, faces = meshes.icosphere(3)
  c = complexes.tri_complex(faces, len(points))
  return points, c, cotan(c, points)


class EigenbasisTest(chex.TestCase):
  def test_of_the_sphere(self):
    _, c, star = sphere()
    zero, one, two = bases(c, star, (12, 9, 12))
    # l (l + 1), 2l + 1 times; of 1-forms each twice, but not 0.
    np.testing.assert_allclose(zero.values, [0, *[2] * 3, *[6] * 5], atol=0.04)
    np.testing.assert_allclose(two.values, [0, *[2] * 3, *[6] * 5], atol=0.04)
    # The exact half has the values of functions, the coexact half those of 2-forms.
    both = np.sort(np.concatenate([zero.values[1:4], two.values[1:4]]))
    np.testing.assert_allclose(one.values, both, rtol=1e-10)
    self.assertEqual(zero.clusters.tolist(), [0, 1, 1, 1, 2, 2, 2, 2, 2])

  def test_of_a_flat_torus(self):
    points, faces = meshes.flat_torus(24, 24)
    c = complexes.tri_complex(faces, len(points))
    star = toys.exact(
      lambda p: stars.cotan(c, stars.periodic_edge_lengths(c, p, (2 * np.pi,) * 2))
    )(points)
    stars.check_positive(star)
    zero, one, _ = bases(c, star, (10, 19, 10))
    np.testing.assert_allclose(zero.values, [0, *[1] * 4, *[2] * 4], atol=0.03)
    np.testing.assert_allclose(one.values, [0, 0, *[1] * 8, *[2] * 8], atol=0.03)

  @parameterized.parameters(0, 1, 2)
  def test_modes_solve_the_problem_and_both_ways_agree(self, k):
    points, c = toys.surface('torus')
    star = barycentric(c, points)
    weak = matrices.laplacian(c, star, k)
    found = spectra.eigenbasis(weak, star[k], 20)
    gram = found.vectors.T @ (star[k][:, None] * found.vectors)
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-11)
    residual = weak @ found.vectors - star[k][:, None] * found.vectors * found.values
    np.testing.assert_allclose(residual, 0, atol=1e-9)
    self.assertEqual((found.values < 1e-9).sum(), (1, 2, 1)[k])
    # Twice the operator: Lanczos where it was dense, and the other way round.
    copies = 1 if weak.shape[0] > 300 else 5
    many = spectra.eigenbasis(
      sparse.block_diag([weak] * copies), np.tile(star[k], copies), 20 * copies
    )
    np.testing.assert_allclose(
      many.values[::copies][: len(found.values)], found.values[: len(many.values)], atol=1e-9
    )

  def test_two_runs_are_equal_to_the_last_bit(self):
    _, c, star = sphere()
    first, second = (bases(c, star, (9, 6))[1] for _ in range(2))
    chex.assert_trees_all_equal(first, second)

  def test_signs(self):
    points, c = toys.surface('torus')
    star = barycentric(c, points)
    for basis in bases(c, star, (20, 20, 20)):
      largest = basis.vectors[abs(basis.vectors).argmax(axis=0), np.arange(len(basis.values))]
      size = abs(basis.vectors).max(axis=0)
      tie = (abs(basis.vectors) > (1 - 1e-6) * size).sum(axis=0) > 1
      self.assertTrue((largest[~tie] > 0).all())

  def test_clusters_are_never_cut(self):
    _, c, star = sphere()
    weak = matrices.laplacian(c, star, 0)
    for k, expected in ((1, 1), (2, 1), (3, 1), (4, 4), (8, 4), (9, 9), (11, 9)):
      self.assertLen(spectra.eigenbasis(weak, star[0], k).values, expected)
    with self.assertRaisesRegex(ValueError, 'lowest 2 eigenvalues are in one larger cluster'):
      spectra.eigenbasis(matrices.laplacian(c, star, 1), star[1], 2)

  def test_all_modes(self):
    points, c = toys.surface('sphere')
    star = barycentric(c, points)
    found = spectra.eigenbasis(matrices.laplacian(c, star, 0), star[0], len(points))
    self.assertLen(found.values, len(points))

  @given(st.lists(st.floats(0, 10), min_size=1, max_size=8), st.floats(1e-3, 0.5))
  def test_clusters_of_numbers(self, values, gap):
    values = np.sort(values)
    labels = spectra.clusters(values, gap)
    self.assertEqual(labels[0], 0)
    for i in range(1, len(values)):
      apart = values[i] - values[i - 1] > gap * values[i]
      self.assertEqual(labels[i] - labels[i - 1], int(apart))

  def test_with_a_mass_matrix(self):
    points, c = toys.surface('torus')
    masses = toys.exact(whitney.surface_masses)(c, toys.surface_stars(c, points)['lengths'])
    m0, m1 = (matrices.mass(m, n) for m, n in zip(masses, c.sizes, strict=False))
    d0 = matrices.incidence(c, 0).astype(float)
    found = spectra.eigenbasis(d0.T @ m1 @ d0, m0, 9)
    np.testing.assert_allclose(found.vectors.T @ (m0 @ found.vectors), np.eye(9), atol=1e-12)
    # Rayleigh's quotients with the full mass are lower than the lumped ones are from below.
    lumped = spectra.eigenbasis(d0.T @ m1 @ d0, m0.sum(axis=1), 9)
    self.assertTrue((found.values[1:] > lumped.values[1:]).all())

  def test_refuses_bad_operators(self):
    points, c = toys.surface('sphere')
    star = barycentric(c, points)
    weak = matrices.laplacian(c, star, 0)
    bad_star = star[0].copy()
    bad_star[7] = -1
    skew = weak.tolil()
    skew[0, 1] += 1
    nan = weak.copy()
    nan.data[3] = np.nan
    for operator, diagonal, k, message in (
      (weak, bad_star, 5, 'is -1.0 at cell 7'),
      (weak, star[1], 5, 'the star'),
      (skew, star[0], 5, 'symmetric'),
      (nan, star[0], 5, 'finite'),
      (-weak, star[0], 5, 'not positive semidefinite'),
      (weak, star[0], 0, 'k=0'),
      (weak, star[0], 43, 'k=43'),
    ):
      with self.assertRaisesRegex(ValueError, message):
        spectra.eigenbasis(operator, diagonal, k)


class AlignTest(chex.TestCase):
  @settings(max_examples=10)
  @given(st.integers(0, 1000))
  def test_undoes_rotations_within_clusters(self, seed):
    points, c = toys.surface('torus')
    star = barycentric(c, points)
    (basis,) = bases(c, star, (9,))
    rng = np.random.default_rng(seed)
    turned = basis.vectors.copy()
    for label in np.unique(basis.clusters):
      members = basis.clusters == label
      turn = np.linalg.qr(rng.normal(size=(members.sum(),) * 2))[0]
      turned[:, members] = turned[:, members] @ turn
    np.testing.assert_allclose(spectra.align(basis, turned, star[0]), basis.vectors, atol=1e-10)
    with self.assertRaisesRegex(ValueError, 'shapes'):
      spectra.align(basis, turned[:, :3], star[0])

  def test_of_a_relabelled_mesh(self):
    points, faces = meshes.icosphere(2)
    c = complexes.tri_complex(faces, len(points))
    star = cotan(c, points)
    (basis,) = bases(c, star, (9,))
    moved, cells, order = toys.relabelled(points, faces)
    other = complexes.tri_complex(cells, len(points))
    (again,) = bases(other, cotan(other, moved), (9,))
    np.testing.assert_allclose(again.values, basis.values, atol=1e-10)
    aligned = spectra.align(basis, again.vectors[order], star[0])
    np.testing.assert_allclose(aligned, basis.vectors, atol=1e-9)


class ProjectionsTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_is_an_orthogonal_projection(self):
    points, c = toys.surface('torus')
    star = barycentric(c, points)
    basis = bases(c, star, (1, 12))[1].vectors
    u, w = np.random.default_rng(0).normal(size=(2, 3, c.sizes[1]))
    with jax.enable_x64(True):
      project = self.variant(lambda w: projections.project(basis, star[1], w))
      rest = self.variant(lambda w: projections.complement(basis, star[1], w))
      np.testing.assert_allclose(project(project(w)), project(w), atol=1e-12)
      np.testing.assert_allclose(
        np.sum(star[1] * u * project(w)), np.sum(star[1] * project(u) * w), rtol=1e-11
      )
      np.testing.assert_allclose(rest(basis.T), 0, atol=1e-12)
      np.testing.assert_allclose(project(w) + rest(w), w, atol=1e-14)
      # What is added in the complement leaves the coefficients alone.
      before, after = (projections.coefficients(basis, star[1], x) for x in (w, w + rest(u)))
      np.testing.assert_allclose(before, after, atol=1e-12)
      np.testing.assert_allclose(projections.synthesize(basis, before), project(w), atol=1e-12)

  def test_total_mass_is_kept_with_the_constant(self):
    points, c = toys.surface('two holes')
    star = barycentric(c, points)
    basis = bases(c, star, (5,))[0].vectors
    u = np.random.default_rng(0).uniform(size=len(points))
    projected = toys.exact(projections.project)(basis, star[0], u)
    self.assertAlmostEqual(star[0] @ projected, star[0] @ u, places=12)


class SpectralDerivativeTest(chex.TestCase):
  @parameterized.parameters('annulus', 'torus')
  def test_is_a_complex_and_maps_modes_to_modes(self, name):
    points, c = toys.surface(name)
    star = barycentric(c, points)
    zero, one, two = bases(c, star, (30, 60, 30), gap=1e-6)
    m0 = spectral_derivative(c, star, 0, zero.vectors, one.vectors)
    m1 = spectral_derivative(c, star, 1, one.vectors, two.vectors)
    self.assertLess(np.linalg.norm(m1 @ m0), 1e-10 * np.linalg.norm(m1) * np.linalg.norm(m0))
    # M_dᵀ M_d is λ on the modes whose derivatives the basis holds.
    held = zero.values < one.values[-1]
    np.testing.assert_allclose((m0.T @ m0)[np.ix_(held, held)], np.diag(zero.values[held]),
                               atol=1e-8)  # fmt: skip
    # λ is the energy of the derivative and of the codifferential: one of the two is zero.
    up = star[2] @ (matrices.incidence(c, 1) @ one.vectors) ** 2
    self.assertLess(np.minimum(up, one.values - up).max(), 1e-9 * one.values.max())

  def test_normalising_each_degree_for_itself_mixes_the_modes(self):
    def mixture(name, normalised):
      _, c = toys.surface(name)
      ones = [np.ones(n) for n in c.sizes[:3]]
      found = []
      for k, size in enumerate((30, 60, 30)):
        weak = matrices.laplacian(c, ones, k)
        weak = matrices.normalized(weak) if normalised else weak
        found.append(spectra.eigenbasis(weak, ones[k], size, 1e-6).vectors)
      m0, m1 = (spectral_derivative(c, ones, k, found[k], found[k + 1]) for k in (0, 1))
      return np.linalg.norm(m1 @ m0) / (np.linalg.norm(m1) * np.linalg.norm(m0))

    # On closed surfaces the diagonals of degree 1 and 2 are constant, 4 and 3.
    self.assertLess(mixture('torus', True), 1e-10)
    self.assertLess(mixture('annulus', False), 1e-10)
    self.assertGreater(mixture('annulus', True), 1e-2)

  def test_derivatives_of_modes_are_modes(self):
    _, c, star = sphere()
    zero, _, two = bases(c, star, (9, 6, 9))
    weak = matrices.laplacian(c, star, 1)
    gradients = zero.vectors[:, 1:].T @ matrices.incidence(c, 0).T
    curls = codifferential(c, star, 2, two.vectors[:, 1:].T)
    for modes, values in ((gradients, zero.values[1:]), (curls, two.values[1:])):
      modes = modes / np.sqrt(values)[:, None]
      np.testing.assert_allclose(weak @ modes.T, (star[1] * modes).T * values, atol=1e-9)
      np.testing.assert_allclose((star[1] * modes) @ modes.T, np.eye(len(values)), atol=1e-9)


class RealMeshTest(chex.TestCase):
  def test_a_nut_has_one_handle(self):
    package = pathlib.Path(importlib.util.find_spec('pyvista').origin).parent
    points, faces = igl.read_triangle_mesh(str(package / 'examples' / 'nut.ply'))
    c = complexes.tri_complex(faces, len(points))
    self.assertEqual(topology.betti_numbers(c), (1, 2, 1))
    star = cotan(c, np.asarray(points, np.float64))
    stars.check_positive(star)
    found = spectra.eigenbasis(matrices.laplacian(c, star, 1), star[1], 12)
    self.assertEqual((found.values < 1e-9 * found.values.max()).sum(), 2)
    self.assertTrue((found.clusters[:2] == 0).all() and found.clusters[2] == 1)


class ConservationTest(chex.TestCase):
  def test_divergences_have_no_total(self):
    points, c = toys.surface('torus')
    star = barycentric(c, points)
    w = np.random.default_rng(0).normal(size=c.sizes[1])
    divergence = codifferential(c, star, 1, w)
    self.assertAlmostEqual(star[0] @ divergence, 0, places=12)

  def test_splitting_errors_vanish_where_operators_commute(self):
    points, c = toys.surface('torus')
    star = barycentric(c, points)
    diffusion = -matrices.laplacian(c, star, 0).toarray() / star[0][:, None]
    u = np.exp(-4 * np.sum((points - points[0]) ** 2, axis=1))
    potential = np.diag(points[:, 0])

    def error(a, b, step):
      expm = jax.scipy.linalg.expm
      split = expm(step * a) @ (expm(step * b) @ u)
      return float(jnp.linalg.norm(split - expm(step * (a + b)) @ u))

    with jax.enable_x64(True):
      ratio = error(diffusion, potential, 2e-3) / error(diffusion, potential, 1e-3)
      self.assertAlmostEqual(ratio, 4, delta=0.1)
      self.assertLess(error(diffusion, 0.5 * diffusion, 2e-3), 1e-12)
