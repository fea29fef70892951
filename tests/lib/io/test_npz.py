"""Tests of lib.io.npz."""

import io
import os
import pathlib
import tempfile
import zipfile

import numpy as np
from absl.testing import absltest, parameterized
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.io import npz

ARRAYS = {
  'observations': np.arange(60, dtype=np.float32).reshape(20, 3),
  'terminals': np.arange(20) % 10 == 9,
  'button_states': np.arange(40).reshape(20, 2),
}


def _npy(header: str, data: bytes = b'') -> bytes:
  """A `.npy` with any header."""
  return b'\x93NUMPY\x01\x00' + len(header).to_bytes(2, 'little') + header.encode() + data


class NpzTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    directory = tempfile.TemporaryDirectory()
    self.addCleanup(directory.cleanup)
    self.path = pathlib.Path(directory.name) / 'set.npz'

  def write_member(self, content: bytes, **kwargs) -> None:
    with zipfile.ZipFile(self.path, 'w', **kwargs) as archive:
      archive.writestr('x.npy', content)

  @parameterized.product(compress=[True, False])
  def test_round_trip(self, compress):
    arrays = ARRAYS | {
      'fortran': np.asfortranarray(ARRAYS['observations']),
      'big_endian': ARRAYS['observations'].astype('>f8'),
      'scalar': np.float64(3.0),
      'empty': np.zeros((0, 4)),
    }
    npz.save_npz(self.path, arrays, compress)
    loaded = npz.load_npz(self.path)
    self.assertEqual(set(loaded), set(arrays))
    for name, array in loaded.items():
      np.testing.assert_array_equal(array, arrays[name])
      self.assertTrue(array.dtype.isnative)
      self.assertTrue(array.flags.writeable)

  def test_equal_arrays_give_equal_bytes(self):
    npz.save_npz(self.path, ARRAYS, compress=True)
    first = self.path.read_bytes()
    npz.save_npz(self.path, ARRAYS, compress=True)
    self.assertEqual(self.path.read_bytes(), first)

  def test_failed_write_leaves_the_old_file_and_no_other(self):
    npz.save_npz(self.path, ARRAYS)
    before = self.path.read_bytes()

    class Unwritable:
      def __array__(self, *args, **kwargs):
        raise OSError('No space left on device')

    with self.assertRaises(OSError):
      npz.save_npz(self.path, {'a': np.zeros(3), 'b': Unwritable()})
    self.assertEqual(self.path.read_bytes(), before)
    self.assertEqual(os.listdir(self.path.parent), [self.path.name])

  def test_highly_compressible_arrays_are_no_bombs(self):
    npz.save_npz(self.path, {'x': np.zeros(2_000_000)}, compress=True)
    self.assertEqual(npz.load_npz(self.path)['x'].shape, (2_000_000,))

  @parameterized.parameters(0.0, 0.1, 0.5, 0.9, 0.999)
  def test_truncated_file_is_refused_by_name(self, fraction):
    npz.save_npz(self.path, ARRAYS)
    content = self.path.read_bytes()
    self.path.write_bytes(content[: int(fraction * len(content))])
    with self.assertRaisesRegex(ValueError, r'set\.npz: .* byte \d+'):
      npz.load_npz(self.path)

  @settings(max_examples=150, deadline=None)
  @given(data=st.data(), compress=st.booleans())
  def test_changed_byte_is_noticed_or_harmless(self, data, compress):
    stream = io.BytesIO()
    (np.savez_compressed if compress else np.savez)(stream, **ARRAYS)
    content = bytearray(stream.getvalue())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    with tempfile.NamedTemporaryFile(suffix='.npz') as file:
      pathlib.Path(file.name).write_bytes(content)
      try:
        loaded = npz.load_npz(file.name)
      except ValueError as error:
        self.assertIn(file.name, str(error))
      else:
        for name, array in loaded.items():
          np.testing.assert_array_equal(array, ARRAYS[name])

  @settings(max_examples=50, deadline=None)
  @given(st.binary(max_size=200))
  def test_noise_is_refused(self, content):
    with tempfile.NamedTemporaryFile(suffix='.npz') as file:
      pathlib.Path(file.name).write_bytes(content)
      with self.assertRaises(ValueError):
        npz.load_npz(file.name)

  @parameterized.parameters(
    (np.array([{}], dtype=object),),
    (np.array(['text']),),
    (np.zeros(2, 'f4,i4'),),
    (np.zeros(2, complex),),
  )
  def test_what_is_not_numeric_is_refused_by_name(self, array):
    np.savez(self.path, x=array)
    with self.assertRaisesRegex(ValueError, r"array 'x' at byte 0: .*dtype"):
      npz.load_npz(self.path)

  @parameterized.parameters(
    "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }\n",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-4,), }\n",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n",
    "{'descr': '<f4', 'shape': (4,), }\n",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2 ** 2,), }\n",
    '(' * 5000,
  )
  def test_lying_header_is_refused_before_allocation(self, header):
    self.write_member(_npy(header, np.zeros(4, np.float32).tobytes()))
    with self.assertRaisesRegex(ValueError, "array 'x' at byte 0"):
      npz.load_npz(self.path)

  def test_directory_that_claims_too_much_is_refused_before_reading(self):
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (268435455,), }\n"
    self.write_member(_npy(header, bytes(16)))
    content = self.path.read_bytes()
    place = content.rindex(b'PK\x01\x02') + 24  # uncompressed size in the central directory
    claimed = (len(_npy(header)) + 4 * 268435455).to_bytes(4, 'little')
    self.path.write_bytes(content[:place] + claimed + content[place + 4 :])
    with self.assertRaisesRegex(ValueError, 'claims .* bytes out of'):
      npz.load_npz(self.path)

  def test_more_than_the_limit_is_refused(self):
    npz.save_npz(self.path, ARRAYS)
    with self.assertRaisesRegex(ValueError, 'more than 100'):
      npz.load_npz(self.path, max_bytes=100)

  def test_repeated_name_is_refused(self):
    with self.assertWarns(UserWarning), zipfile.ZipFile(self.path, 'w') as archive:
      archive.writestr('x.npy', b'')
      archive.writestr('x.npy', b'')
    with self.assertRaisesRegex(ValueError, 'same name'):
      npz.load_npz(self.path)

  def test_missing_file_is_missing(self):
    with self.assertRaises(FileNotFoundError):
      npz.load_npz(self.path)


if __name__ == '__main__':
  absltest.main()
