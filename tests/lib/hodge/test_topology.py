"""Tests of Betti numbers and homology, by the rank of dense matrices and by closed forms."""

import chex
import numpy as np
from absl.testing import parameterized
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.hodge import complexes, matrices, meshes, topology
from tests.lib.hodge import toys


def ranks(c):
  """Of d0, d1 and d2, by the eigenvalues of their squares."""
  dense = [matrices.incidence(c, k).toarray().astype(float) for k in range(3)]
  squares = [d @ d.T if d.shape[0] < d.shape[1] else d.T @ d for d in dense]
  return [
    int((np.linalg.eigvalsh(square) > 1e-9).sum()) if len(square) else 0 for square in squares
  ]


class BettiTest(chex.TestCase):
  @parameterized.parameters(*toys.SURFACES)
  def test_of_surfaces(self, name):
    _, c = toys.surface(name)
    betti = topology.betti_numbers(c)
    self.assertEqual(betti, toys.SURFACES[name][1])
    self.assertEqual(topology.euler_characteristic(c), betti[0] - betti[1] + betti[2])
    rank0, rank1, _ = ranks(c)
    self.assertEqual(betti, (c.sizes[0] - rank0, c.sizes[1] - rank0 - rank1, c.sizes[2] - rank1))

  @parameterized.parameters(*toys.VOLUMES)
  def test_of_volumes(self, name):
    _, c = toys.volume(name)
    betti = topology.betti_numbers(c)
    self.assertEqual(betti, toys.VOLUMES[name][1])
    self.assertEqual(topology.euler_characteristic(c), betti[0] - betti[1] + betti[2] - betti[3])

  @settings(max_examples=8)
  @given(st.sets(st.integers(0, 26), max_size=20), st.integers(0, 99))
  def test_of_volumes_with_random_blocks_missing(self, missing, seed):
    holes = [(x, x + 1, y, y + 1, z, z + 1) for x, y, z in np.argwhere(np.ones((3, 3, 3)))]
    points, tets = meshes.cube(3, [holes[i] for i in missing])
    _, tets, _ = toys.relabelled(points, tets, seed)
    try:
      c = complexes.tet_complex(tets, len(points))
    except ValueError as error:  # blocks that touch in an edge or a corner
      self.assertRegex(str(error), 'not connected|ball')
      return
    rank0, rank1, rank2 = ranks(c)
    n = c.sizes
    expected = n[0] - rank0, n[1] - rank0 - rank1, n[2] - rank1 - rank2, n[3] - rank2
    self.assertEqual(topology.betti_numbers(c), expected)


class BoundaryTest(chex.TestCase):
  def test_of_an_annulus(self):
    points, c = toys.surface('annulus')
    vertices, edges, faces, tets = topology.boundary(c)
    radius = np.linalg.norm(points, axis=1)
    np.testing.assert_array_equal(vertices, (radius < 0.51) | (radius > 0.99))
    self.assertEqual((edges.sum(), faces.sum(), tets.sum()), (24, 0, 0))

  def test_of_a_cube(self):
    points, c = toys.volume('ball')
    vertices, edges, faces, _ = topology.boundary(c)
    np.testing.assert_array_equal(vertices, (abs(points - 0.5) == 0.5).any(axis=1))
    # The boundary is a sphere.
    self.assertEqual(vertices.sum() - edges.sum() + faces.sum(), 2)

  def test_closed_ones_have_none(self):
    for c in (toys.surface('torus')[1], toys.volume('three-torus')[1]):
      self.assertFalse(any(mask.any() for mask in topology.boundary(c)))

  def test_components(self):
    _, c = toys.surface('sphere and disc')
    self.assertEqual(topology.components(c).tolist(), [0] * 12 + [1] * 9)


class HomologyTest(chex.TestCase):
  @parameterized.parameters(*toys.SURFACES)
  def test_cycles_and_cocycles_are_dual_bases(self, name):
    _, c = toys.surface(name)
    d0, d1 = (matrices.incidence(c, k).astype(int) for k in (0, 1))
    h = topology.homology(c)
    b1 = topology.betti_numbers(c)[1]
    cycles, cocycles = h.cycles.astype(int), h.cocycles.astype(int)
    self.assertEqual(cycles.shape, (b1, len(c.edges)))
    self.assertLessEqual(abs(cycles).max(initial=0), 1)
    self.assertEqual(abs(d0.T @ cycles.T).max(initial=0), 0)
    self.assertEqual(abs(d1 @ cocycles.T).max(initial=0), 0)
    np.testing.assert_array_equal(cocycles @ cycles.T, np.eye(b1))

  @parameterized.parameters('annulus', 'two holes', 'sphere and disc', 'torus')
  def test_relative_to_the_boundary(self, name):
    _, c = toys.surface(name)
    d0, d1 = (matrices.incidence(c, k).astype(int) for k in (0, 1))
    vertices, edges, *_ = topology.boundary(c)
    h = topology.relative_homology(c)
    # The numbers of absolute and relative homology are the same, by duality.
    b1 = topology.betti_numbers(c)[1]
    cycles, cocycles = h.cycles.astype(int), h.cocycles.astype(int)
    np.testing.assert_array_equal(cocycles @ cycles.T, np.eye(b1))
    self.assertEqual(abs((d0.T @ cycles.T)[~vertices]).max(initial=0), 0)
    self.assertEqual(abs(d1 @ cocycles.T).max(initial=0), 0)
    self.assertEqual(abs(cocycles[:, edges]).max(initial=0), 0)

  def test_a_mesh_whose_pairs_of_vertices_need_64_bits(self):
    points, faces = meshes.flat_torus(300, 170)
    c = complexes.tri_complex(faces, len(points))
    h = topology.homology(c)
    np.testing.assert_array_equal(h.cocycles.astype(int) @ h.cycles.T, np.eye(2))

  def test_volumes_are_refused(self):
    for function in (topology.homology, topology.relative_homology):
      with self.assertRaisesRegex(ValueError, 'surfaces'):
        function(toys.volume('ball')[1])
