"""Tests of intrinsic flips, against another implementation of intrinsic Laplacians."""

import chex
import igl
import numpy as np
from absl.testing import parameterized

from lib.hodge import complexes, delaunay, matrices, meshes, stars, topology
from tests.lib.hodge import toys

lengths_of, cotan = toys.exact(stars.edge_lengths), toys.exact(stars.cotan)


def rough(name, size):
  points, c = toys.surface(name)
  return points + size * np.random.default_rng(0).normal(size=points.shape), c


class DelaunayTest(chex.TestCase):
  @parameterized.parameters(('sphere', 0.2), ('torus', 0.05), ('two holes', 0.02))
  def test_weights_are_those_of_the_intrinsic_laplacian(self, name, size):
    points, c = rough(name, size)
    lengths = lengths_of(c, points)
    self.assertLess(cotan(c, lengths)[1].min(), -1e-3)
    flipped, new = delaunay.intrinsic_delaunay(c, lengths)
    _, star1, star2 = cotan(flipped, new)
    inner = ~topology.boundary(flipped)[1]
    self.assertGreaterEqual(star1[inner].min(), -1e-12)
    self.assertEqual(topology.betti_numbers(flipped), toys.SURFACES[name][1])
    self.assertAlmostEqual((1 / star2).sum(), (1 / cotan(c, lengths)[2]).sum(), places=11)
    if inner.all():
      d0 = matrices.incidence(flipped, 0).astype(float)
      stiffness = (d0.T.multiply(star1) @ d0).toarray()
      expected = igl.intrinsic_delaunay_cotmatrix(points, c.faces.astype(np.int64))[0]
      np.testing.assert_allclose(-stiffness, expected.toarray(), atol=1e-11)

  def test_a_flat_mesh_becomes_the_delaunay_triangulation_of_its_points(self):
    points, c = rough('two holes', 0.02)
    flipped, new = delaunay.intrinsic_delaunay(c, lengths_of(c, points))
    np.testing.assert_allclose(new, lengths_of(flipped, points), atol=1e-12)
    self.assertGreater(np.linalg.det(points[flipped.faces][:, 1:] - points[flipped.faces][:, :1])
                       .min(), 0)  # fmt: skip

  def test_what_is_delaunay_stays(self):
    for mesh in (meshes.icosphere(1), meshes.rectangle(3, 3)):
      points, faces = mesh
      c = complexes.tri_complex(faces, len(points))
      flipped, new = delaunay.intrinsic_delaunay(c, lengths_of(c, points))
      chex.assert_trees_all_equal(flipped, c)
      np.testing.assert_array_equal(new, lengths_of(c, points))

  def test_names_an_edge_that_cannot_be_flipped(self):
    # A flat tetrahedron: the flip would join two vertices that are joined already.
    faces = np.array([[0, 2, 1], [0, 1, 3], [1, 2, 3], [0, 3, 2]])
    points = np.array([[0, 0, 0], [1, 0, 0], [0.5, 1, 0], [0.5, 0.1, 0.01]])
    c = complexes.tri_complex(faces, 4)
    with self.assertRaisesRegex(ValueError, r'edge \(0, 1\) joins vertices that have an edge'):
      delaunay.intrinsic_delaunay(c, lengths_of(c, points))

  @parameterized.parameters(3.0, 2.0, np.nan, 0.0)
  def test_names_a_face_that_is_none(self, length):
    c = complexes.tri_complex(np.array([[0, 1, 2]]), 3)
    with self.assertRaisesRegex(ValueError, 'face 0'):
      delaunay.intrinsic_delaunay(c, np.array([1.0, 1.0, length]))
