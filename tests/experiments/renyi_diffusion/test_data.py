"""Tests of the data sources, and of what batches are drawn from them."""

import os
import pathlib
import tempfile
from unittest import mock

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from PIL import Image
from scipy import integrate, stats

from configs.renyi_diffusion import quick
from experiments.renyi_diffusion import data
from lib.io import images

SIGMAS = 5.0
RNG = np.random.default_rng(0)


def config_of(**fields):
  config = quick.get_config().data
  config.update(fields)
  return config


def assert_shares(counts, shares):
  """Counts of classes are of a law, by Pearson's test at five standard deviations."""
  statistic = stats.chisquare(counts, np.asarray(shares) * np.sum(counts)).pvalue
  assert statistic > 2 * stats.norm.sf(SIGMAS), (counts, shares)


class RingTest(chex.TestCase):
  def test_modes_have_their_weights_means_and_widths(self):
    size = 40_000
    ring = data.load(config_of(test=size), size, 0)
    batch = jax.jit(ring.sample)(ring.train, jax.random.key(0))
    centres = data.ring_centres()
    np.testing.assert_allclose(np.linalg.norm(centres, axis=1), data.RING_RADIUS, rtol=1e-12)
    for points in (np.asarray(batch), ring.test):
      chex.assert_shape(points, (size, 2))
      # Modes are ten standard deviations apart.
      mode = np.linalg.norm(points[:, None] - centres, axis=-1).argmin(axis=1)
      counts = np.bincount(mode, minlength=8)
      assert_shares(counts, data.RING_WEIGHTS)
      offsets = (points - centres[mode]) / data.RING_STD
      for k, count in enumerate(counts):
        own = offsets[mode == k]
        np.testing.assert_array_less(np.abs(own.mean(axis=0)), SIGMAS / np.sqrt(count))
        gap = np.abs((own**2).mean() - 1.0)
        self.assertLess(gap, SIGMAS * np.sqrt(2 / (2 * count)))
      self.assertLess(abs(np.mean(offsets[:, 0] * offsets[:, 1])), SIGMAS / np.sqrt(size))
    np.testing.assert_array_equal(ring.labels, mode)  # of the held-out points

  def test_density_is_that_of_the_points(self):
    x = np.linspace(-2.6, 2.6, 521)
    grid = np.stack(np.meshgrid(x, x, indexing='ij'), axis=-1).reshape(-1, 2)
    log_p = data.ring_log_density(grid).reshape(521, 521)
    p = np.exp(log_p)
    total = lambda values: integrate.simpson(integrate.simpson(values, x=x), x=x)
    self.assertAlmostEqual(total(p), 1.0, delta=1e-6)
    entropy = -total(p * log_p)
    spread = np.sqrt(total(p * (log_p + entropy) ** 2))
    ring = data.load(config_of(test=20_000), 8, 0)
    found = -data.ring_log_density(ring.test.astype(float)).mean()
    self.assertAlmostEqual(found, entropy, delta=SIGMAS * spread / np.sqrt(20_000))
    self.assertIn(f'{found:.3f} nats', ring.summary)
    # Modes ten standard deviations apart: the entropy is that of the weights and of one mode.
    apart = stats.entropy(data.RING_WEIGHTS) + np.log(2 * np.pi * np.e * data.RING_STD**2)
    self.assertAlmostEqual(entropy, apart, delta=1e-4)

  def test_rare_modes_are_the_lightest(self):
    ring = data.load(config_of(test=10), 8, 0)
    self.assertEqual(set(ring.rare), {5, 6, 7})
    self.assertAlmostEqual(ring.shares.sum(), 1.0)
    self.assertAlmostEqual(ring.shares[list(ring.rare)].sum(), 0.08)
    self.assertIn('synthetic', ring.summary)

  def test_test_points_are_the_seeds(self):
    first, again, other = (data.load(config_of(test=50), 8, s).test for s in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    self.assertFalse((first == other).any())


class DigitsTest(chex.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.digits = data.load(config_of(source='digits', imbalance=10.0), 4000, 0)

  def test_split_has_every_digit_once(self):
    from sklearn import datasets

    digits, whole = self.digits, datasets.load_digits()
    self.assertEqual((len(digits.known.pixels), len(digits.test)), (1500, 297))
    self.assertEqual(digits.shape, (8, 8, 1))
    self.assertEqual((whole.images.min(), whole.images.max() + 1), (0, digits.levels))
    joined = np.concatenate([digits.known.pixels, digits.test]).reshape(-1, 64)
    labels = np.concatenate([digits.known.labels, digits.labels])
    rows = lambda pixels, y: sorted(map(bytes, np.column_stack([pixels, y]).astype(np.uint8)))
    self.assertEqual(rows(joined, labels), rows(whole.data, whole.target))
    # Whatever the seed of the run.
    again = data.load(config_of(source='digits'), 4, 7)
    np.testing.assert_array_equal(again.test, digits.test)

  def test_shares_fall_by_equal_ratios(self):
    shares = self.digits.shares
    self.assertAlmostEqual(shares.sum(), 1.0)
    self.assertAlmostEqual(shares[0] / shares[-1], 10.0)
    np.testing.assert_allclose(shares[:-1] / shares[1:], 10.0 ** (1 / 9))
    self.assertEqual(set(self.digits.rare), {7, 8, 9})

  def test_without_imbalance_they_are_the_counts(self):
    digits = data.load(config_of(source='digits'), 4, 0)
    np.testing.assert_allclose(digits.shares, np.bincount(digits.known.labels) / 1500)

  def test_batches_have_those_shares_and_are_images_of_the_set(self):
    digits = self.digits
    batch = np.asarray(jax.jit(digits.sample)(digits.train, jax.random.key(0)))
    chex.assert_shape(batch, (4000, 64))
    levels = np.floor((batch + 1.0) * digits.levels / 2.0).astype(np.uint8)
    label_of = {
      bytes(image): label
      for image, label in zip(digits.known.pixels, digits.known.labels, strict=True)
    }
    labels = np.array([label_of[bytes(image)] for image in levels])
    assert_shares(np.bincount(labels, minlength=10), digits.shares)
    # Within a class all images are as likely: the counts of the commonest class's.
    own = [bytes(image) for image in digits.known.pixels[digits.known.labels == 0]]
    drawn = [bytes(image) for image in levels[labels == 0]]
    assert_shares([drawn.count(image) for image in own], np.full(len(own), 1 / len(own)))

  def test_noise_within_a_level_is_uniform_and_its_middle_is_scaled(self):
    digits, pixels = self.digits, self.digits.test[:100]
    points = np.asarray(
      jax.jit(lambda key: data.dequantized(digits, jnp.asarray(pixels), key))(jax.random.key(0))
    )
    middle = data.scaled(digits, pixels)
    self.assertEqual(middle.dtype, np.float32)
    offsets = (points - middle.reshape(100, -1)) * digits.levels  # in [-1, 1]
    self.assertLess(np.abs(offsets).max(), 1.0 + 1e-5)
    n = offsets.size
    self.assertLess(abs(offsets.mean()), SIGMAS / np.sqrt(3 * n))
    self.assertAlmostEqual((offsets**2).mean(), 1 / 3, delta=SIGMAS * np.sqrt(4 / 45 / n))
    self.assertLess(np.abs(points).max(), 1.0 + 1e-6)
    ends = data.scaled(digits, np.array([0, digits.levels - 1]))
    np.testing.assert_allclose(ends, [-1 + 1 / 17, 1 - 1 / 17], rtol=1e-6)


class PoolTest(chex.TestCase):
  def test_pooled_pixels_are_means_of_squares(self):
    pixels = RNG.integers(0, 256, (3, 6, 4, 3), np.uint8)
    whole = images.Images(pixels, np.array([0, 1, 0], np.int32))
    split = lambda pool: data._split(config_of(pool=pool), 2, whole, whole, 256)
    self.assertIs(split(1).known.pixels, pixels)
    half = split(2)
    self.assertEqual(half.shape, (3, 2, 3))
    means = np.array([
      [[pixels[n, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].mean((0, 1)) for j in range(2)]
       for i in range(3)] for n in range(3)
    ])  # fmt: skip
    self.assertLessEqual(np.abs(half.test - means).max(), 0.5)
    np.testing.assert_array_equal(half.test, half.known.pixels)
    with self.assertRaisesRegex(ValueError, 'config.data.pool: 6x4.*3'):
      split(3)

  def test_a_class_without_images_is_refused(self):
    whole = images.Images(np.zeros((2, 2, 2, 1), np.uint8), np.array([0, 2], np.int32))
    with self.assertRaisesRegex(ValueError, 'have gaps'):
      data._split(config_of(source='folder'), 2, whole, whole, 256)


class FromPathTest(chex.TestCase):
  def setUp(self):
    super().setUp()
    self.path = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

  def test_cifar10_in_its_binary_format(self):
    rows = RNG.integers(0, 256, (12, 3072), np.uint8)
    labels = np.array([3, 1, 4, 1, 5, 9, 2, 6, 8, 3, 7, 0], np.uint8)
    names = [f'data_batch_{i}.bin' for i in range(1, 6)] + ['test_batch.bin']
    for name, part in zip(names, np.split(np.column_stack([labels, rows]), 6), strict=True):
      (self.path / name).write_bytes(part.tobytes())
    with self.assertRaisesRegex(ValueError, 'cifar10: the classes .* have gaps'):
      data.load(
        config_of(source='cifar10', path=str(self.path)), 5, 0
      )  # 0 and 7 are in the test set alone

    labels[:] = [3, 1, 4, 0, 5, 9, 2, 6, 8, 7, 0, 3]
    for name, part in zip(names, np.split(np.column_stack([labels, rows]), 6), strict=True):
      (self.path / name).write_bytes(part.tobytes())
    found = data.load(config_of(source='cifar10', path=str(self.path)), 5, 0)
    self.assertEqual((found.shape, found.levels), ((32, 32, 3), 256))
    planes = rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(found.known.pixels, planes[:10])
    np.testing.assert_array_equal(found.test, planes[10:])
    np.testing.assert_array_equal(found.labels, [0, 3])
    batch = np.asarray(found.sample(found.train, jax.random.key(0)))
    levels = np.floor((batch + 1) * 128).astype(int)
    gaps = np.abs(levels[:, None] - planes[:10].reshape(10, -1)).max(axis=-1)
    self.assertLessEqual(gaps.min(axis=1).max(), 1)  # rounding at a level's edge

  def test_imagenet32_in_its_format(self):
    rows = RNG.integers(0, 256, (11, 3072), np.uint8)
    for i in range(10):
      np.savez(
        self.path / f'train_data_batch_{i + 1}.npz', data=rows[i : i + 1], labels=[i % 3 + 1]
      )
    np.savez(self.path / 'val_data.npz', data=rows[10:], labels=[2])
    found = data.load(config_of(source='imagenet32', path=str(self.path)), 5, 0)
    np.testing.assert_array_equal(
      found.known.pixels, rows[:10].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    )
    np.testing.assert_array_equal(found.labels, [1])
    np.testing.assert_allclose(found.shares, [0.4, 0.3, 0.3])

  def test_folder_without_classes(self):
    pixels = RNG.integers(0, 256, (5, 6, 6, 3), np.uint8)
    for i, image in enumerate(pixels):
      Image.fromarray(image).save(self.path / f'{i}.png')
    fields = {'source': 'folder', 'path': str(self.path), 'crop': 4, 'size': 4, 'test': 2}
    found = data.load(config_of(**fields), 3, 0)
    both = np.concatenate([found.train['pixels'], found.test])
    self.assertEqual((len(found.test), found.shape), (2, (4, 4, 3)))
    self.assertEqual(sorted(map(bytes, both)), sorted(map(bytes, pixels[:, 1:5, 1:5])))
    self.assertIsNone(found.labels)
    self.assertIsNone(found.shares)
    self.assertIsNone(found.known)
    self.assertEqual(found.rare, ())
    batch = found.sample(found.train, jax.random.key(0))
    chex.assert_shape(batch, (3, 48))
    with self.assertRaisesRegex(ValueError, 'config.data.imbalance: .*no classes'):
      data.load(config_of(**fields, imbalance=2.0), 3, 0)
    with self.assertRaisesRegex(ValueError, 'config.data.test: 5 of 5 images'):
      data.load(config_of(**(fields | {'test': 5})), 3, 0)

  def test_mnist_is_split_and_pooled(self):
    pixels = RNG.integers(0, 256, (30, 4, 4, 1), np.uint8)
    whole = images.Images(pixels, np.repeat(np.arange(3), 10).astype(np.int32))
    with mock.patch.object(images, 'mnist_5k', return_value=whole):
      found = data.load(config_of(source='mnist', test=6, pool=2), 3, 0)
    self.assertEqual((len(found.known.pixels), len(found.test)), (24, 6))
    self.assertEqual(found.shape, (2, 2, 1))

  @parameterized.parameters(*data.FROM_PATH)
  def test_a_missing_path_is_named(self, source):
    path = str(self.path / 'nowhere')
    with self.assertRaisesRegex(OSError, f'config.data.path: no {source} at .*nowhere'):
      data.load(config_of(source=source, path=path), 3, 0)
    os.mkdir(path)
    with self.assertRaises((OSError, ValueError)) as raised:
      data.load(config_of(source=source, path=path), 3, 0)
    self.assertIn('nowhere', str(raised.exception))
