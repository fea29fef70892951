"""Tests of lib.io.meshes."""

import contextlib
import io
import pathlib
import struct
import tempfile
from unittest import mock

import meshio
import numpy as np
from absl.testing import absltest, parameterized

from lib.hodge import meshes as shapes
from lib.io import meshes

POINTS, FACES = shapes.icosphere(0)
CUBE, TETS = shapes.cube(1)
# Name of the file, meshio's name of the format, and whether it is binary.
FORMATS = (
  ('a.ply', 'ply', False),
  ('a.ply', 'ply', True),
  ('a.obj', 'obj', None),
  ('a.stl', 'stl', False),
  ('a.STL', 'stl', True),
  ('a.vtk', 'vtk', False),
  ('a.vtk', 'vtk', True),
  ('a.msh', 'gmsh', False),
  ('a.msh', 'gmsh', True),
)
PLY = b"""ply
format ascii 1.0
element vertex %s
property float x
property float y
property float z
element face %s
property list uchar int vertex_indices
end_header
"""


class MeshesTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

  def write(self, name, file_format, binary, points=POINTS, cells=FACES, kind='triangle'):
    path = self.directory / name
    options = {} if binary is None else {'binary': binary}
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
      meshio.Mesh(points, [(kind, cells)]).write(path, file_format=file_format, **options)
    return path

  def put(self, name, content):
    path = self.directory / name
    path.write_bytes(content)
    return path

  @parameterized.parameters(*FORMATS)
  def test_surface_is_what_was_written(self, name, file_format, binary):
    points, faces = meshes.load_mesh(self.write(name, file_format, binary))
    self.assertEqual((points.dtype, faces.dtype), (np.float64, np.int64))
    # Single precision where the format has no other.
    np.testing.assert_allclose(points[faces], POINTS[FACES], atol=1e-6)
    self.assertLen(points, len(POINTS))

  @parameterized.parameters(('a.vtk', 'vtk', True), ('a.msh', 'gmsh', True))
  def test_tetrahedra_come_before_triangles(self, name, file_format, binary):
    path = self.write(name, file_format, binary, CUBE, TETS, 'tetra')
    points, tets = meshes.load_mesh(path)
    np.testing.assert_array_equal(points[tets], CUBE[TETS])

  @parameterized.parameters(*(row for row in FORMATS if row[1] != 'obj'))
  def test_truncation_is_refused_by_name(self, name, file_format, binary):
    content = self.write(name, file_format, binary).read_bytes()
    length = len(content) - 15
    if name == 'a.stl':
      length = content.rindex(b'facet', 0, content.rindex(b'endfacet'))  # a whole facet is gone
    path = self.put('cut' + name, content[:length])
    with self.assertRaisesRegex(ValueError, f'cut{name}: '):
      meshes.load_mesh(path)

  def test_equal_coordinates_are_merged_if_asked_for(self):
    soup = np.where(POINTS[FACES] == 0, -0.0, POINTS[FACES]).reshape(-1, 3)
    soup[:3] += 0.0
    path = self.write('soup.ply', 'ply', True, soup, np.arange(len(soup)).reshape(-1, 3))
    points, faces = meshes.load_mesh(path)
    self.assertLen(points, len(soup))
    points, faces = meshes.load_mesh(path, merge=True)
    self.assertLen(points, len(POINTS))
    np.testing.assert_array_equal(points[faces], POINTS[FACES])

  @parameterized.parameters(
    ((3, 1), b'0 0 0\n1 0 0\n0 1 0\n3 0 1 3\n', 'triangle 0 has vertex 3, but there are 3'),
    ((3, 1), b'0 0 0\n1 nan 0\n0 1 0\n3 0 1 2\n', r'vertex 1 is at \[1.0, nan, 0.0\]'),
    ((4, 1), b'0 0 0\n1 0 0\n1 1 0\n0 1 0\n4 0 1 2 3\n', "cells of kind 'quad'"),
    ((3, 0), b'0 0 0\n1 0 0\n0 1 0\n', 'neither triangles nor tetrahedra'),
    ((10**15, 1), b'0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n', 'not a whole ply file'),
    ((3, 10**15), b'0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n', 'not a whole ply file'),
    ((3, 1), b'0 0 0\n1 0 0\n0 1 0\n9999999999 0 1 2\n', 'not a whole ply file'),
    ((3, 1), b'0 0 0\n1 0 0\nx 1 0\n3 0 1 2\n', 'vertex 2 is at'),
  )
  def test_hostile_text_is_refused_by_name(self, counts, body, message):
    header = PLY % tuple(str(count).encode() for count in counts)
    with self.assertRaisesRegex(ValueError, f'bad.ply: .*{message}'):
      meshes.load_mesh(self.put('bad.ply', header + body))

  @parameterized.parameters(
    ('bad.stl', bytes(80) + struct.pack('<I', 2**32 - 1) + bytes(50)),
    ('bad.stl', b'solid\nendsolid'),
    ('bad.obj', b'v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 99\n'),
    ('bad.msh', b'$MeshFormat\n4.1 0 8\n$EndMeshFormat\n$Nodes\n1 %d 1 3\n$EndNodes\n' % 10**15),
    ('bad.vtk', b'# vtk DataFile Version 3.0\n\nBINARY\nDATASET UNSTRUCTURED_GRID\n'
     b'POINTS %d double\n' % 10**15),
    ('bad.obj', b'\x80\x04\x95' + bytes(50)),
  )  # fmt: skip
  def test_hostile_files_of_all_formats_are_refused_by_name(self, name, content):
    with self.assertRaisesRegex(ValueError, f'{name}: '):
      meshes.load_mesh(self.put(name, content))

  def test_what_is_no_mesh_is_not_opened(self):
    with self.assertRaisesRegex(ValueError, 'a.txt: the format must be one of ply, obj, stl'):
      meshes.load_mesh(self.put('a.txt', b''))
    with self.assertRaisesRegex(ValueError, 'a.ply: takes 9 bytes, more than 8'):
      meshes.load_mesh(self.put('a.ply', bytes(9)), max_bytes=8)
    with self.assertRaises(FileNotFoundError):
      meshes.load_mesh(self.directory / 'none.ply')

  def test_endless_reading_is_given_up(self):
    path = self.write('a.ply', 'ply', True)
    loop = self.put('loop.py', b'while True: pass')
    with mock.patch.object(meshes, '__file__', str(loop)):
      # The limits are set by the process itself, which a stranger's file cannot change.
      code = pathlib.Path(meshes.__spec__.origin).read_text()
      loop.write_text(code.replace('reader.read(path)', 'list(iter(int, 1))'))
      with self.assertRaisesRegex(ValueError, 'a.ply: not a whole ply file.*'):
        meshes.load_mesh(path, seconds=1)


if __name__ == '__main__':
  absltest.main()
