"""Tests of lib.io.idx."""

import gzip
import pathlib
import tempfile

import numpy as np
from absl.testing import absltest, parameterized
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.io import idx

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 4, 5), np.uint8)
LABELS = np.array([7, 0, 255], np.uint8)
HEADER = bytes.fromhex('00000803 00000003 00000004 00000005')
IMAGES_FILE = HEADER + PIXELS.tobytes()
LABELS_FILE = bytes.fromhex('00000801 00000003') + LABELS.tobytes()


class IdxTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    directory = self.enterContext(tempfile.TemporaryDirectory())
    self.images = pathlib.Path(directory, 'train-images-idx3-ubyte')
    self.labels = pathlib.Path(directory, 'train-labels-idx1-ubyte')

  @parameterized.parameters(bytes, gzip.compress)
  def test_numbers_are_those_of_the_file(self, pack):
    self.images.write_bytes(pack(IMAGES_FILE))
    self.labels.write_bytes(pack(LABELS_FILE))
    read = idx.read(self.images, self.labels)
    np.testing.assert_array_equal(read.pixels, PIXELS[..., None])
    np.testing.assert_array_equal(read.labels, LABELS)
    self.assertEqual((read.pixels.dtype, read.labels.dtype), (np.uint8, np.int32))
    self.assertTrue(read.pixels.flags.writeable)
    self.assertIsNone(idx.read(self.images).labels)

  @parameterized.product(zipped=[True, False])
  def test_every_truncation_is_refused_by_name(self, zipped):
    content = gzip.compress(IMAGES_FILE) if zipped else IMAGES_FILE
    for length in range(len(content)):
      self.images.write_bytes(content[:length])
      with self.assertRaisesRegex(ValueError, 'train-images-idx3-ubyte: '):
        idx.read(self.images)

  @parameterized.parameters(
    (b'', 'at byte 0: ends in the header'),
    (HEADER[:9], 'at byte 9: ends in the header'),
    (IMAGES_FILE[:-7], 'at byte 4: shape .* more than the file can hold'),
    (IMAGES_FILE + b'x', 'at byte 76: goes on'),
    (LABELS_FILE, 'at byte 0: begins with 00000801, expected 00000803'),
    (b'\0\0\x0d\x03' + IMAGES_FILE[4:], 'at byte 0: begins with 00000d03'),
    (b'\x03\x08\0\0' + IMAGES_FILE[4:], 'at byte 0: begins with 03080000'),
    (HEADER[:4] + b'\xff' * 12 + bytes(60), 'at byte 4: shape .* more than the file can hold'),
    (HEADER[:4] + bytes(12), 'at byte 4: .* it is empty'),
    (gzip.compress(IMAGES_FILE[:-7]), 'at byte 69: ends, 7 bytes too early'),
    (gzip.compress(IMAGES_FILE + b'x'), 'at byte 76: goes on'),
    (gzip.compress(HEADER[:4] + b'\xff' * 12), 'at byte 4: shape .* more than the file can hold'),
    (gzip.compress(IMAGES_FILE)[:-8] + bytes(8), 'CRC check failed'),
  )
  def test_what_is_wrong_is_named(self, content, message):
    self.images.write_bytes(content)
    with self.assertRaisesRegex(ValueError, rf'train-images-idx3-ubyte: .*{message}'):
      idx.read(self.images)

  @parameterized.parameters(bytes, gzip.compress)
  def test_more_than_the_limit_is_refused(self, pack):
    self.images.write_bytes(pack(IMAGES_FILE))
    idx.read(self.images, max_bytes=60)
    with self.assertRaisesRegex(ValueError, 'more than 59'):
      idx.read(self.images, max_bytes=59)

  def test_labels_of_other_images_are_refused(self):
    self.images.write_bytes(IMAGES_FILE)
    self.labels.write_bytes(bytes.fromhex('00000801 00000002 0102'))
    with self.assertRaisesRegex(ValueError, 'labels-idx1-ubyte: at byte 4: has 2 labels, .* has 3'):
      idx.read(self.images, self.labels)
    self.labels.unlink()
    with self.assertRaises(FileNotFoundError):
      idx.read(self.images, self.labels)

  @settings(max_examples=50, deadline=None)
  @given(st.data(), st.booleans())
  def test_damage_is_refused_or_changes_pixels_alone(self, data, zipped):
    content = bytearray(gzip.compress(IMAGES_FILE) if zipped else IMAGES_FILE)
    for _ in range(data.draw(st.integers(1, 3))):
      place = data.draw(st.integers(0, len(content) - 1))
      content[place] = data.draw(st.integers(0, 255))
    with tempfile.NamedTemporaryFile() as file:
      pathlib.Path(file.name).write_bytes(content)
      try:
        pixels = idx.read(file.name).pixels
      except ValueError as error:
        self.assertIn(file.name, str(error))
      else:
        self.assertEqual(pixels.size, PIXELS.size)
        if zipped:
          np.testing.assert_array_equal(pixels, PIXELS[..., None])


if __name__ == '__main__':
  absltest.main()
