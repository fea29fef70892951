"""Tests of complexes: incidence, and input that is no manifold."""

import chex
import jax
import numpy as np
from absl.testing import parameterized

from lib.hodge import complexes, matrices, meshes
from tests.lib.hodge import toys

TETRAHEDRON = np.array([[0, 2, 1], [0, 1, 3], [1, 2, 3], [0, 3, 2]])


def entries(matrix):
  return matrix.toarray().tolist()


class TriComplexTest(chex.TestCase):
  def test_a_single_face(self):
    c = complexes.tri_complex(np.array([[2, 0, 1]]), 3)
    self.assertEqual(c.edges.tolist(), [[0, 1], [0, 2], [1, 2]])
    self.assertEqual(entries(matrices.incidence(c, 0)), [[-1, 1, 0], [-1, 0, 1], [0, -1, 1]])
    self.assertEqual(entries(matrices.incidence(c, 1)), [[1, -1, 1]])
    self.assertEqual(c.faces.tolist(), [[2, 0, 1]])

  @parameterized.parameters(*toys.SURFACES)
  def test_chain_of_maps_and_euler(self, name):
    _, c = toys.surface(name)
    d0, d1 = (matrices.incidence(c, k) for k in (0, 1))
    self.assertEqual(abs(d1 @ d0).max(), 0)
    # Each face lists its edges in the order in which it runs.
    self.assertTrue((c.edges[c.face_edges[:, 0]] == np.sort(c.faces[:, :2], axis=1)).all())
    chex.assert_trees_all_equal(c.sizes[:3], np.array(d1.shape[::-1] + d0.shape[1:])[[2, 0, 1]])

  @parameterized.parameters(np.uint8, np.int32, np.uint64)
  def test_takes_any_integers(self, dtype):
    c = complexes.tri_complex(TETRAHEDRON.astype(dtype), 4)
    chex.assert_trees_all_equal(c, complexes.tri_complex(TETRAHEDRON, 4))
    for leaf in jax.tree.leaves(c):
      self.assertIn(leaf.dtype, (np.int32, np.int8))

  def test_cofaces_are_the_transpose(self):
    for name in toys.SURFACES:
      _, c = toys.surface(name)
      for k, table in enumerate((c.vertex_edges, c.edge_faces)):
        d = matrices.incidence(c, k).toarray()
        dense = np.zeros_like(d)
        cell = np.broadcast_to(np.arange(d.shape[1]), table.index.shape)
        np.add.at(dense, (table.index, cell), table.sign)
        np.testing.assert_array_equal(dense, d)

  def test_a_pole_gets_no_table(self):
    rim = np.arange(1, 101)
    c = complexes.tri_complex(np.column_stack([np.zeros(100, int), rim, np.roll(rim, -1)]), 101)
    self.assertEqual(c.vertex_edges.index.shape, (0, 101))
    self.assertEqual(c.edge_faces.index.shape, (2, 200))

  @parameterized.parameters(
    ([[0, 1, 2], [0, 1, 4]], 4, r'vertex of face 1, \[0 1 4\], is not in 0 \.\. 3'),
    ([[0, 1, -1]], 4, 'vertex of face 0'),
    ([[0, 1, 2], [3, 1, 3]], 4, r'face 1 has a vertex twice: \[3 1 3\]'),
    ([[0, 1, 2], [3, 1, 0], [2, 0, 1]], 4, 'face 0 is there again as 2'),
    ([[0, 1, 2], [2, 1, 4]], 5, 'Vertex 3 has no face'),
    ([[0, 1, 2], [1, 0, 3], [0, 1, 4]], 5, r'edge \(0, 1\) has more than two faces: \[0 1 2\]'),
    ([[0, 1, 2], [0, 1, 3]], 4, r'faces 0 and 1 are not oriented alike: the edge \(0, 1\)'),
    ([[1, 2, 0], [0, 3, 4]], 5, 'faces at vertex 0 are not connected'),
    ([[0, 1, 2, 3]], 4, r'\(C, 3\) vertices, C > 0, got \(1, 4\)'),
    ([], 4, 'C > 0'),
    ([[0.0, 1.0, 2.0]], 3, 'integers, got float64'),
    ([[0, 1, np.nan]], 3, 'integers'),
    ([[True, False, True]], 3, 'integers, got bool'),
  )
  def test_names_what_is_wrong(self, faces, num_vertices, message):
    with self.assertRaisesRegex(ValueError, message):
      complexes.tri_complex(np.array(faces), num_vertices)

  def test_closed_surfaces_that_meet_in_a_vertex(self):
    other = np.where(TETRAHEDRON == 3, 3, TETRAHEDRON + 4)
    with self.assertRaisesRegex(ValueError, 'faces at vertex 3 are not connected'):
      complexes.tri_complex(np.concatenate([TETRAHEDRON, other]), 7)

  def test_a_moebius_strip_has_no_orientation(self):
    faces = np.array([[i % 5, (i + 1) % 5, (i + 2) % 5] for i in range(5)])
    faces[1::2] = faces[1::2, ::-1]
    with self.assertRaisesRegex(ValueError, 'faces 0 and 4 are not oriented alike'):
      complexes.tri_complex(faces, 5)


class TetComplexTest(chex.TestCase):
  def test_a_single_tetrahedron_and_its_mirror_image(self):
    c = complexes.tet_complex(np.array([[0, 1, 2, 3]]), 4)
    # The alternating sum over faces 123, 023, 013, 012, which stand in reverse order.
    self.assertEqual(c.faces.tolist(), [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]])
    self.assertEqual(entries(matrices.incidence(c, 2)), [[-1, 1, -1, 1]])
    self.assertEqual(entries(matrices.incidence(c, 1))[0], [1, -1, 0, 1, 0, 0])
    for tet in ([1, 0, 2, 3], [0, 1, 3, 2], [2, 1, 0, 3]):
      mirrored = complexes.tet_complex(np.array([tet]), 4)
      self.assertEqual(entries(matrices.incidence(mirrored, 2)), [[1, -1, 1, -1]])
      self.assertTrue((mirrored.faces[mirrored.tet_faces[0]] != np.array(tet)[:, None]).all())

  @parameterized.parameters(*toys.VOLUMES)
  def test_chain_of_maps(self, name):
    _, c = toys.volume(name)
    d0, d1, d2 = (matrices.incidence(c, k) for k in range(3))
    self.assertEqual(abs(d1 @ d0).max(), 0)
    self.assertEqual(abs(d2 @ d1).max(), 0)
    pairs = np.sort(c.tets[:, complexes.TET_EDGES], axis=-1)
    np.testing.assert_array_equal(c.edges[c.tet_edges], pairs)

  @parameterized.parameters(
    ([[0, 1, 2, 3], [1, 2, 3, 0]], 4, 'tetrahedron 0 is there again as 1'),
    ([[0, 1, 2, 2]], 4, 'tetrahedron 0 has a vertex twice'),
    ([[0, 1, 2, 3], [0, 1, 2, 4]], 5, r'tetrahedra 0 and 1 are not oriented alike: the face'),
    (
      [[0, 1, 2, 3], [1, 0, 2, 4], [0, 1, 2, 5]],
      6,
      r'face \(0, 1, 2\) has more than two tetrahedra: \[0 1 2\]',
    ),
    ([[0, 1, 2, 3], [0, 1, 4, 5]], 6, r'tetrahedra at edge \(0, 1\) are not connected'),
    ([[0, 1, 2, 3], [0, 4, 5, 6]], 7, 'tetrahedra at vertex 0 are not connected'),
    ([[0, 1, 2, 3]], 5, 'Vertex 4 has no tetrahedron'),
  )
  def test_names_what_is_wrong(self, tets, num_vertices, message):
    with self.assertRaisesRegex(ValueError, message):
      complexes.tet_complex(np.array(tets), num_vertices)

  def test_a_cone_over_a_ring_is_no_ball(self):
    _, faces = meshes.annulus(6, 3)
    cone = np.column_stack([faces, np.full(len(faces), faces.max() + 1)])
    with self.assertRaisesRegex(ValueError, 'vertex 18 do not form a ball'):
      complexes.tet_complex(cone, 19)
    _, faces = meshes.torus(6, 4)
    cone = np.column_stack([faces, np.full(len(faces), faces.max() + 1)])
    with self.assertRaisesRegex(ValueError, 'vertex 24 do not form a ball'):
      complexes.tet_complex(cone, 25)
