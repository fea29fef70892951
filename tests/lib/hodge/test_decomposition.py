"""Tests of the Hodge decomposition and of harmonic cochains."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

from lib.hodge import (
  batching,
  complexes,
  decomposition,
  matrices,
  meshes,
  operators,
  stars,
  topology,
)
from tests.lib.hodge import toys

relative = toys.exact(operators.relative)
harmonic_basis = toys.exact(decomposition.harmonic_basis)
compiled = toys.exact(decomposition.decompose, static_argnums=2)
TOL = 1e-14


def decompose(c, stars_, k, w, max_steps=10_000):
  return compiled(c, stars_, k, w, TOL, max_steps)


@toys.exact
def derivatives(c, stars_, w):
  """d w and δ w of 1-cochains."""
  return operators.d1(c, w), operators.codifferential(c, stars_, 1, w)


def case(name):
  """A complex, stars and random 1-cochains, which vanish on the boundary in a relative case."""
  points, c = toys.surface(name.removesuffix(' relative'))
  star = toys.surface_stars(c, points)['barycentric']
  if name.endswith('relative'):
    star = relative(star, topology.boundary(c))
  return c, star, np.random.default_rng(0).normal(size=(2, c.sizes[1])) * (star[1] != 0)


class DecomposeTest(chex.TestCase):
  @parameterized.parameters('two holes', 'two holes relative', 'sphere and disc')
  def test_the_parts_are_what_they_say(self, name):
    c, star, w = case(name)
    found = decompose(c, star, 1, w)
    parts = np.stack(found[:3])
    np.testing.assert_allclose(parts.sum(axis=0), w, atol=1e-14)
    gram = np.einsum('ibe,e,jbe->bij', parts, star[1], parts)
    energy = np.sum(star[1] * w**2, axis=-1)
    np.testing.assert_allclose(gram.sum(axis=(1, 2)), energy, rtol=1e-12)
    np.testing.assert_allclose(np.trace(gram, axis1=1, axis2=2), energy, rtol=1e-12)
    np.testing.assert_allclose(gram[:, ~np.eye(3, dtype=bool)], 0, atol=1e-11)
    curl, divergence = derivatives(c, star, found.harmonic)
    np.testing.assert_allclose(curl, 0, atol=1e-11)
    np.testing.assert_allclose(divergence, 0, atol=1e-11 * (1 / star[0][star[0] > 0]).max())
    np.testing.assert_allclose(derivatives(c, star, found.exact)[0], 0, atol=1e-12)
    divergence = derivatives(c, star, found.coexact)[1]
    np.testing.assert_allclose(divergence, 0, atol=1e-12 * (1 / star[0][star[0] > 0]).max())
    for solve in (found.exact_solve, found.coexact_solve):
      self.assertTrue((solve.residual < 1e-12).all())
      self.assertTrue((solve.steps > 0).all() and (solve.steps < 500).all())
    # The projections are idempotent.
    for i, part in enumerate(parts):
      for j, again in enumerate(decompose(c, star, 1, part)[:3]):
        np.testing.assert_allclose(again, part * (i == j), atol=1e-11)

  def test_agrees_with_a_dense_projection(self):
    c, star, w = case('two holes')
    d0 = matrices.incidence(c, 0).toarray()
    root = np.sqrt(star[1])
    q = np.linalg.svd(root[:, None] * d0, full_matrices=False)[0][:, :-1]
    expected = (root * w) @ q @ q.T / root
    np.testing.assert_allclose(decompose(c, star, 1, w).exact, expected, atol=1e-12)

  def test_the_exact_part_of_a_gradient_is_itself(self):
    c, star, _ = case('sphere and disc')
    u = np.random.default_rng(1).normal(size=(2, c.sizes[0]))
    gradient = np.diff(u[:, c.edges], axis=-1)[..., 0]
    found = decompose(c, star, 1, gradient)
    np.testing.assert_allclose(found.exact, gradient, atol=1e-12)
    # The potential is u up to a constant on each component, of mean zero with these weights.
    weights = abs(matrices.incidence(c, 0)).T @ star[1]
    for label in (0, 1):
      members = topology.components(c) == label
      self.assertLess(np.ptp((u - found.potential)[:, members], axis=1).max(), 1e-11)
      mean = (weights * found.potential)[:, members].sum(axis=1)
      np.testing.assert_allclose(mean, 0, atol=1e-11)

  def test_of_higher_degrees_in_volumes(self):
    points, c = toys.volume('shell')
    absolute = toys.exact(stars.barycentric_tets)(c, points)
    betti = toys.VOLUMES['shell'][1]
    rng = np.random.default_rng(0)
    for star, numbers in (
      (absolute, betti),
      (relative(absolute, topology.boundary(c)), betti[::-1]),
    ):
      for k in (2, 3):
        w = rng.normal(size=star[k].shape) * (star[k] != 0)
        found = decompose(c, star, k, w)
        weak = matrices.laplacian(c, star, k)
        np.testing.assert_allclose(weak @ found.harmonic, 0, atol=1e-12 * abs(weak).max())
        energies = [np.sum(star[k] * part**2) for part in found[:3]]
        np.testing.assert_allclose(sum(energies) / np.sum(star[k] * w**2), 1, rtol=1e-11)
        self.assertEqual(energies[2] > 1e-12, numbers[k] > 0)

  def test_bad_input_is_reported_rather_than_hidden(self):
    c, star, w = case('two holes')
    whole, few = decompose(c, star, 1, w), decompose(c, star, 1, w, 3)
    self.assertEqual(few.exact_solve.steps.tolist(), [3, 3])
    self.assertTrue((few.exact_solve.residual > 1e-6).all())
    zero = decompose(c, star, 1, 0 * w)
    self.assertEqual(abs(np.stack(zero[:3])).max(), 0)
    self.assertEqual(zero.exact_solve.residual.tolist(), [0, 0])
    w[1, 3] = np.nan
    bad = decompose(c, star, 1, w)
    self.assertEqual(np.isnan(bad.exact_solve.residual).tolist(), [False, True])
    np.testing.assert_allclose(bad.exact[0], whole.exact[0], atol=1e-12)

  def test_an_indefinite_star_ends_the_solve(self):
    c, star, w = case('two holes')
    star = star[0], star[1] * np.where(np.arange(c.sizes[1]) % 3, 1, -3), star[2]
    solve = decompose(c, star, 1, w).exact_solve
    self.assertTrue((solve.residual > 1e-3).all() and (solve.steps < 10_000).all())

  def test_single_precision(self):
    c, star, w = case('two holes')
    exact = decompose(c, star, 1, w)
    star, w = ([np.asarray(x, np.float32) for x in s] for s in (star, w))
    found = jax.jit(decomposition.decompose, static_argnums=2)(c, star, 1, np.stack(w))
    self.assertEqual(found.harmonic.dtype, jnp.float32)
    np.testing.assert_allclose(found.exact, exact.exact, atol=2e-5)
    np.testing.assert_allclose(found.harmonic, exact.harmonic, atol=5e-5)

  def test_under_vmap_over_meshes(self):
    cases = [case('two holes'), case('sphere and disc')]
    batch = batching.stack([c for c, *_ in cases])
    star, w = (
      [batching.pad_cochains(x) for x in zip(*[each[i] for each in cases], strict=True)]
      for i in (1, 2)
    )
    w = np.stack(w, axis=1)
    found = toys.exact(jax.vmap(lambda c, s, w: decomposition.decompose(c, s, 1, w, TOL)))(
      batch, star, w
    )
    for i, (c, s, alone) in enumerate(cases):
      expected = decompose(c, s, 1, alone)
      for part, other in zip(found[:3], expected[:3], strict=True):
        np.testing.assert_allclose(part[i, :, : c.sizes[1]], other, atol=1e-12)
        self.assertEqual(abs(part[i, :, c.sizes[1] :]).max(initial=0), 0)

  def test_derivatives_in_cochains_and_stars(self):
    c, star, w = case('annulus')

    def energy(w, star1):
      found = decomposition.decompose(c, (star[0], star1, star[2]), 1, w, TOL)
      return jnp.sum(star1 * found.harmonic**2) + jnp.sum(found.exact**4)

    with jax.enable_x64(True):
      both = jax.jit(jax.value_and_grad(energy, argnums=(0, 1)))
      _, gradient = both(w[0], star[1])
      rng = np.random.default_rng(2)
      for i, x in enumerate((w[0], star[1])):
        step = 1e-5 * rng.normal(size=x.shape)
        ahead, behind = (
          both(*[y + (j == i) * s * step for j, y in enumerate((w[0], star[1]))])[0]
          for s in (1, -1)
        )
        np.testing.assert_allclose(ahead - behind, 2 * np.sum(gradient[i] * step), rtol=1e-6)


class HarmonicTest(chex.TestCase):
  @parameterized.parameters('torus', 'two holes', 'two holes relative')
  def test_basis_with_unit_periods(self, name):
    c, star, _ = case(name)
    find = topology.relative_homology if name.endswith('relative') else topology.homology
    homology = find(c)
    basis = harmonic_basis(c, star, homology.cocycles, TOL)
    np.testing.assert_allclose(homology.cycles @ basis.T, np.eye(len(basis)), atol=1e-12)
    curl, divergence = derivatives(c, star, basis)
    np.testing.assert_allclose(curl, 0, atol=1e-12)
    np.testing.assert_allclose(divergence, 0, atol=1e-10)
    self.assertEqual(abs(basis[:, star[1] == 0]).max(initial=0), 0)

  def test_periods_are_those_of_homologous_cycles(self):
    points, faces = meshes.torus(12, 8)
    c = complexes.tri_complex(faces, len(points))
    star = toys.surface_stars(c, points)['barycentric']
    homology = topology.homology(c)
    basis = harmonic_basis(c, star, homology.cocycles, TOL)
    # All parallels of the torus, vertices (i, row), are homologous.
    index = np.arange(12 * 8).reshape(12, 8)
    number = {tuple(edge): e for e, edge in enumerate(c.edges.tolist())}
    circles = np.zeros((8, len(c.edges)))
    for row in range(8):
      for a, b in zip(index[:, row], np.roll(index[:, row], -1), strict=True):
        circles[row, number[min(a, b), max(a, b)]] = 1 if a < b else -1
    periods = toys.exact(decomposition.periods)
    found = periods(circles, basis)
    np.testing.assert_allclose(found, found[:, :1].repeat(8, axis=1), atol=1e-12)
    np.testing.assert_allclose(found, np.rint(found), atol=1e-12)
    self.assertGreater(abs(found).max(), 0.5)
    # And gradients have none.
    u = np.random.default_rng(0).normal(size=len(points))
    np.testing.assert_allclose(periods(circles, toys.exact(operators.d0)(c, u)), 0, atol=1e-12)

  def test_given_periods_from_any_basis(self):
    c, star, _ = case('two holes')
    homology = topology.homology(c)
    basis = harmonic_basis(c, star, homology.cocycles, TOL)
    values = np.array([[0.5, -2.0], [1.0, 3.0]])
    expected = values @ basis
    mixed = np.array([[1.0, 2.0], [-1.0, 0.3]]) @ basis
    with_periods = toys.exact(decomposition.with_periods)
    np.testing.assert_allclose(with_periods(mixed, homology.cycles, values), expected, atol=1e-12)

  def test_orthonormal(self):
    c, star, _ = case('two holes')
    basis = harmonic_basis(c, star, topology.homology(c).cocycles, TOL)
    unit = toys.exact(decomposition.orthonormal)(basis, star[1])
    np.testing.assert_allclose((unit * star[1]) @ unit.T, np.eye(2), atol=1e-12)

  def test_potential_flow_around_an_annulus(self):
    points, faces = meshes.annulus(96, 24)
    c = complexes.tri_complex(faces, len(points))
    star = toys.surface_stars(c, points)['cotan']
    homology = topology.homology(c)
    (h,) = harmonic_basis(c, star, homology.cocycles, 1e-10)
    # dθ/2π has energy ln(R/r)/2π.
    np.testing.assert_allclose(np.sum(star[1] * h**2), np.log(2) / (2 * np.pi), rtol=1e-3)
    angles = np.arctan2(points[:, 1], points[:, 0])[c.edges] @ [-1, 1] / (2 * np.pi)
    angles -= np.rint(angles)
    np.testing.assert_allclose(h * np.sign(h @ angles), angles, atol=1e-3)
