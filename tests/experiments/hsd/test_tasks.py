"""Tests of experiments.hsd.tasks."""

import functools
import os
import pathlib
import tempfile
import unittest
from unittest import mock

import meshio
import numpy as np
import skfem
from absl.testing import absltest, parameterized
from scipy import sparse

from experiments.hsd import tasks
from experiments.hsd.tasks import advection, allen_cahn, domains, random_fields, record
from lib.hodge import matrices, meshes, topology, whitney

SMALL = {
  'darcy': {'size': 10},
  'circulation': {'size': 16},
  'allen_cahn': {'size': 16},
  'transport': {'size': 16},
  'shell': {'size': 2, 'outer': 1.2},
}


def setUpModule():
  # Many tasks are on the same few surfaces.
  cached = mock.patch.object(domains, 'surface', functools.cache(domains.surface))
  unittest.addModuleCleanup(cached.stop)
  cached.start()


@functools.cache
def make(name, refine=0, **changes):
  return tasks.make({'name': name, **SMALL[name], **changes}, refine)


@functools.cache
def generate(name, refine=0):
  return record.generate(make(name, refine), range(3))


class TasksTest(parameterized.TestCase):
  @parameterized.parameters(*tasks.TASKS)
  def test_records_agree_with_samples(self, name):
    task, samples = make(name), generate(name)
    for field in (*task.inputs, task.output):
      self.assertEqual(samples[field.name].shape, (3, len(task.stars[field.degree])))
      self.assertTrue(np.isfinite(samples[field.name]).all())
    self.assertEqual(samples['given'].shape, (3, len(task.cycles)))
    self.assertEqual(task.cycles.shape[1], len(task.stars[task.output.degree]))
    self.assertIn(record.Field(task.start, task.output.degree), task.inputs)
    self.assertEqual(set(samples), {'given', task.output.name, *(x.name for x in task.inputs)})

  @parameterized.parameters(('darcy', 2), ('circulation', 2), ('transport', 0), ('shell', 1))
  def test_invariants_hold_of_outputs_and_of_nothing_else(self, name, known):
    task, samples = make(name), generate(name)
    self.assertLen(task.cycles, known)
    w = samples[task.output.name]
    for invariant in task.invariants:
      np.testing.assert_array_less(invariant.residual(samples, w), 1e-12)
      noise = np.random.default_rng(0).normal(size=w.shape)
      self.assertGreater(invariant.residual(samples, noise).min(), 1e-4)

  @parameterized.parameters('darcy', 'circulation', 'shell')
  def test_changes_from_the_start_are_exact(self, name):
    task, samples = make(name), generate(name)
    change = samples[task.output.name] - samples[task.start]
    self.assertGreater(abs(change).max(), 0.01 * abs(samples[task.output.name]).max())
    self.assertTrue(task.keeps_harmonic)
    d = matrices.incidence(task.complex, task.output.degree)
    np.testing.assert_allclose(d @ change.T, 0, atol=1e-12)
    np.testing.assert_allclose(task.cycles @ change.T, 0, atol=1e-12)

  @parameterized.parameters(('darcy', 0.05), ('circulation', 0.25), ('transport', 0.05),
                            ('allen_cahn', 0.1), ('shell', 0.2))  # fmt: skip
  def test_finer_meshes_have_the_same_problems(self, name, tolerance):
    norms = []
    for refine in (0, 1):
      task, samples = make(name, refine), generate(name, refine)
      norms.append(samples[task.output.name] ** 2 @ task.stars[task.output.degree])
    self.assertGreater(make(name, 1).complex.sizes[0], 1.9 * make(name).complex.sizes[0])
    np.testing.assert_array_equal(generate(name)['given'], generate(name, 1)['given'])
    np.testing.assert_allclose(norms[0], norms[1], rtol=tolerance)

  def test_energy_converges_with_the_mesh(self):
    energy = lambda task, samples: samples['form'] ** 2 @ task.stars[1]
    coarser = make('circulation', size=10)
    energies = [energy(coarser, record.generate(coarser, range(3)))]
    for refine in (0, 1):
      energies.append(energy(make('circulation', refine), generate('circulation', refine)))
    coarse, fine = (abs(energy - energies[2]).max() for energy in energies[:2])
    self.assertLess(fine, 0.5 * coarse)

  def test_darcy_agrees_with_an_independent_solver(self):
    task, samples = make('darcy'), generate('darcy')
    c, points = task.complex, task.points
    log_permeability, given, flux = (
      samples[name][0] for name in ('log_permeability', 'given', 'flux')
    )
    resistance = np.exp(-log_permeability)[c.faces].mean(axis=1)
    mesh = skfem.MeshTri(points.T, c.faces.T)
    basis = skfem.Basis(mesh, skfem.ElementTriRT0(), intorder=2)
    pressures = basis.with_element(skfem.ElementTriP0())
    weight = pressures.interpolate(resistance)
    energy = skfem.BilinearForm(lambda u, v, w: w.weight * (u * v).sum(axis=0))
    divergence = skfem.BilinearForm(lambda u, v, _: u.div * v)
    outflow = skfem.LinearForm(lambda v, w: -(v * w.n).sum(axis=0))
    rows = [divergence.assemble(basis, pressures)]
    for x, y, radius in domains.HOLES[2]:
      near = lambda p, x=x, y=y, r=radius: np.hypot(p[0] - x, p[1] - y) < 1.05 * r
      facets = mesh.facets_satisfying(near, boundaries_only=True)
      facet_basis = skfem.FacetBasis(mesh, skfem.ElementTriRT0(), facets=facets)
      rows.append(sparse.csr_matrix(outflow.assemble(facet_basis)))
    # Our holes are not sorted as theirs are.
    middles = [points[c.edges[chain != 0].ravel()].mean(axis=0) for chain in task.cycles]
    order = [np.argmin(np.linalg.norm(middles - np.array(hole[:2]), axis=1))
             for hole in domains.HOLES[2]]  # fmt: skip
    below = sparse.vstack(rows)
    system = sparse.bmat([[energy.assemble(basis, weight=weight), below.T], [below, None]])
    source = skfem.LinearForm(lambda v, _: v).assemble(pressures)
    right = np.concatenate([np.zeros(basis.N), source, given[order]])
    solution = sparse.linalg.spsolve(system.tocsc(), right)[: basis.N]
    third = np.full((2, 1), 1 / 3)
    middle = skfem.Basis(mesh, skfem.ElementTriRT0(), quadrature=(third, np.array([0.5])))
    theirs = np.asarray(middle.interpolate(solution))[..., 0].T
    field = domains.exact(lambda w: whitney.face_fields(c, points, w), flux)
    ours = np.stack([field[:, 1], -field[:, 0]], axis=-1)  # across instead of along
    np.testing.assert_allclose(ours, theirs, atol=1e-9 * abs(theirs).max())

  @parameterized.parameters('torus', 'nut')
  def test_circulation_without_source_and_contrast_is_harmonic(self, surface):
    task = make('circulation', surface=surface, contrast=0.0, source=0.0)
    samples = record.generate(task, range(2))
    form = samples['form']
    codifferential = matrices.incidence(task.complex, 0).T @ (form * task.stars[1]).T
    np.testing.assert_allclose(codifferential, 0, atol=1e-12)
    np.testing.assert_allclose(form, samples['harmonic'], atol=1e-12)
    np.testing.assert_allclose(form @ task.cycles.T, samples['given'], atol=1e-12)

  def test_cycles_of_the_nut_are_the_same_curves_on_the_finer_mesh(self):
    coarse, fine = (make('circulation', refine, surface='nut') for refine in (0, 1))
    steps = lambda task: (
      task.points[task.complex.edges[:, 1]] - task.points[task.complex.edges[:, 0]]
    )
    # Line integrals of x dy and the like depend on the curve.
    for i, j in ((0, 1), (1, 2), (2, 0)):
      integral = lambda task, i=i, j=j: (
        task.cycles @ (task.points[task.complex.edges, i].mean(axis=1) * steps(task)[:, j])
      )
      np.testing.assert_allclose(integral(coarse), integral(fine), atol=1e-12)

  def test_transport_is_linear(self):
    surface = domains.surface('torus', '', 16, 0)
    advance = advection.stepper(surface, 0.01, 1.0, 0.02)
    u, v = np.random.default_rng(0).normal(size=(2, len(surface.points)))
    np.testing.assert_allclose(advance(2 * u - 3 * v), 2 * advance(u) - 3 * advance(v), atol=1e-12)
    np.testing.assert_allclose(advance(np.ones_like(u)), 1, atol=1e-12)
    np.testing.assert_allclose(surface.stars[0] @ advance(u), surface.stars[0] @ u, atol=1e-12)

  def test_transport_turns_the_torus(self):
    errors = []
    for size in (16, 32):
      surface = domains.surface('torus', '', size, 0)
      advance = advection.stepper(surface, 0.0, 1.0, 1.0 / size)
      u = x = surface.points[:, 0]
      for _ in range(size):
        u = advance(u)
      turned = np.cos(1.0) * x + np.sin(1.0) * surface.points[:, 1]
      errors.append(np.sqrt(surface.stars[0] @ (u - turned) ** 2))
    self.assertLess(errors[1], 0.3 * errors[0])
    self.assertLess(errors[1], 0.1)

  def test_reaction_is_a_flow(self):
    u = np.array([-3.0, -1.0, 0.0, 0.2, 1.0, 2.0])
    twice = allen_cahn.react(allen_cahn.react(u, 0.3), 0.4)
    np.testing.assert_allclose(allen_cahn.react(u, 0.7), twice, atol=1e-14)
    np.testing.assert_allclose((allen_cahn.react(u, 1e-7) - u) / 1e-7, u - u**3, atol=1e-4)

  def test_random_fields_have_the_covariance_that_is_said(self):
    x = np.array([[0.0, 0.0], [0.3, 0.0], [0.3, 0.4]])
    rng = np.random.default_rng(0)
    values = np.stack([random_fields.draw(rng, 2, 0.5)(x) for _ in range(4000)])
    squares = ((x[:, None] - x) ** 2).sum(axis=-1)
    np.testing.assert_allclose(values.T @ values / 4000, np.exp(-2 * squares), atol=0.08)

  def test_equal_seeds_make_equal_samples(self):
    task = make('circulation')
    one = record.generate(task, [2])
    for name, array in generate('circulation').items():
      np.testing.assert_array_equal(array[2:], one[name])
      if array.size:
        self.assertFalse(np.allclose(array[0], array[1]))


class MeshFileTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

  def write(self, points, faces, name='own.ply'):
    path = self.directory / name
    meshio.Mesh(points, [('triangle', faces)]).write(path)
    return str(path)

  def test_sphere_has_no_cycles(self):
    path = self.write(*meshes.icosphere(1))
    task = make('circulation', mesh=path)
    samples = record.generate(task, range(2))
    self.assertEqual((task.cycles.shape, samples['given'].shape), ((0, 120), (2, 0)))
    for invariant in task.invariants:
      np.testing.assert_array_less(invariant.residual(samples, samples['form']), 1e-12)
    np.testing.assert_allclose(np.linalg.norm(task.points, axis=1).mean(), 1)

  def test_torus_from_a_file_is_the_torus(self):
    path = self.write(*meshes.torus(16, 8), 'own.obj')
    surface = domains.surface('torus', path, 3, 1)
    self.assertEqual(topology.betti_numbers(surface.complex), (1, 2, 1))
    np.testing.assert_allclose(surface.cycles @ surface.harmonic.T, np.eye(2), atol=1e-12)

  @parameterized.parameters(
    ((meshes.icosphere(0)[0], meshes.icosphere(0)[1][1:]), 'is not closed: the edge .* one face'),
    ((np.eye(3), np.array([[0, 1, 2], [0, 1, 2]])), 'is there again'),
    ((np.concatenate([meshes.icosphere(0)[0], meshes.icosphere(0)[0] + 9]),
      np.concatenate([meshes.icosphere(0)[1], meshes.icosphere(0)[1] + 12])), '2 components'),
    ((meshes.icosphere(1)[0] * [1, 1, 9], meshes.icosphere(1)[1]), 'are not positive'),
  )  # fmt: skip
  def test_wrong_mesh_is_refused_in_one_line_by_name(self, mesh, message):
    path = self.write(*mesh)
    with self.assertRaisesRegex(ValueError, f'^{path}: .*{message}.*$'):
      domains.surface('torus', path, 8, 0)


class OptionsTest(parameterized.TestCase):
  @parameterized.parameters(
    ({'name': 'darci'}, "config.task.name: no 'darci'; the nearest are darcy"),
    ({'name': 'darcy', 'surface': 'nut'}, "darcy has no 'surface'"),
    ({'name': 'darcy', 'holes': 4}, 'config.task.holes: no 4'),
    ({'name': 'darcy', 'size': 1}, 'config.task.size must be at least 2, got 1'),
    ({'name': 'darcy', 'contrast': np.nan}, 'contrast must be finite and at least 0, got nan'),
    ({'name': 'darcy', 'length': 0.0}, 'length must be finite and positive'),
    ({'name': 'transport', 'surface': 'tore'}, "no 'tore'; the nearest are torus"),
    ({'name': 'shell', 'inner': 3.0}, 'config.task.inner must be below outer'),
  )
  def test_bad_options_are_refused_by_name(self, config, message):
    with self.assertRaisesRegex(ValueError, message):
      tasks.make(config)

  def test_missing_mesh_is_refused_by_name(self):
    with self.assertRaisesRegex(FileNotFoundError, "config.task.mesh: no file '/none.ply'"):
      tasks.make({'name': 'transport', 'mesh': '/none.ply'})

  @parameterized.parameters((1, 6), (2, 6))  # gmsh's first mesh of two holes has a star below zero
  def test_holes_are_found_with_their_outflow(self, holes, size):
    c, points, stars, _ = domains.plane_with_holes(holes, size, 0)
    self.assertGreater(min(star.min() for star in stars), 0)
    chains = domains.boundary_loops(c, points)
    self.assertLen(chains, holes)
    # The field x flows out of each hole by minus twice its area, through closed curves.
    low, high = points[c.edges].transpose(1, 0, 2)
    through = low[:, 0] * high[:, 1] - low[:, 1] * high[:, 0]
    areas = [np.pi * radius**2 for *_, radius in domains.HOLES[holes]]
    np.testing.assert_allclose(np.sort(chains @ through / 2), np.sort(areas), rtol=0.5)
    np.testing.assert_allclose(chains @ matrices.incidence(c, 0), 0, atol=1e-12)

  def test_meshing_leaves_closed_pipes_an_error(self):
    domains.plane_with_holes(1, 6, 0)
    reading, writing = os.pipe()
    os.close(reading)
    try:
      with self.assertRaises(BrokenPipeError):  # and not the end of this process
        os.write(writing, b'.')
    finally:
      os.close(writing)


if __name__ == '__main__':
  absltest.main()
