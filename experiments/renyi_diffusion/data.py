"""Data by the name of their source, as a law to draw batches from and a set to test on.

`ring` is a mixture of Gaussians, drawn afresh for every batch; `digits` and `mnist` come with
packages; `cifar10`, `imagenet32` and `folder` are read from a path.
"""

import importlib.util
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import numpy as np

from lib.diffusion import likelihood
from lib.io import cifar, images

RING_WEIGHTS = (0.30, 0.25, 0.18, 0.12, 0.07, 0.04, 0.025, 0.015)
RING_RADIUS = 1.5
RING_STD = 0.12
DIGIT_LEVELS = 17
DIGITS_TRAIN = 1500
SOURCES = ('ring', 'digits', 'mnist', 'cifar10', 'imagenet32', 'folder')
FROM_PATH = ('cifar10', 'imagenet32', 'folder')


class Data(NamedTuple):
  """A data set.

  Attributes:
    train: arrays that `sample` draws from.
    sample: `sample(train, key) -> x (B, D)`, traced; images in [-1, 1], dequantised.
    shape: of one datum, (D,) or (H, W, C).
    test: held-out data; points (N, D) float32, or images (N, H, W, C) uint8.
    labels: of the held-out data (N,), modes or classes; None where unknown.
    shares: the probability of each class under the law of the training data (classes,).
    rare: the classes that are called rare, the three of least probability.
    levels: values that a pixel can take; 0 for points.
    known: training images with labels, for the classifier; None where there are none.
    facts: for the report.
  """

  train: Any
  sample: Callable[[Any, chex.PRNGKey], chex.Array]
  shape: tuple[int, ...]
  test: np.ndarray
  labels: np.ndarray | None
  shares: np.ndarray | None
  rare: tuple[int, ...]
  levels: int
  known: images.Images | None
  facts: dict[str, Any]

  @property
  def summary(self) -> str:
    """The facts in one line."""
    return ', '.join(f'{name} {fact}' for name, fact in self.facts.items())


def check(config: Any) -> None:
  """Raises a ValueError or an OSError that names the first bad field or missing file."""
  if config.source not in SOURCES:
    raise ValueError(f'config.data.source must be one of {", ".join(SOURCES)}: {config.source!r}.')
  if config.source in FROM_PATH and not os.path.exists(config.path):
    raise FileNotFoundError(f'config.data.path: no {config.source} at {config.path!r}.')
  if config.source == 'digits' and importlib.util.find_spec('sklearn') is None:
    raise ValueError(
      'config.data.source: digits come with scikit-learn; '
      'install experiments/renyi_diffusion/requirements.txt.'
    )
  if not 1 <= config.imbalance <= 1e6:
    raise ValueError(f'config.data.imbalance must be in [1, 1e6], got {config.imbalance}.')
  if not 0 < config.size <= 1024 or config.crop < 0:
    raise ValueError(
      f'config.data.size must be in (0, 1024] and .crop 0 or more: {config.size}, {config.crop}.'
    )
  if config.pool < 1 or config.test < 1:
    raise ValueError(f'config.data.pool and .test must be positive: {config.pool}, {config.test}.')


def load(config: Any, batch_size: int, seed: int) -> Data:
  """Loads the data.

  Args:
    config: with the fields `source`, `path`, `pool`, `imbalance` and `test`.
    batch_size: B.
    seed: of the ring's test set.

  Returns:
    The data.

  Raises:
    ValueError: naming the field or the file that is wrong.
    OSError: naming the file that is missing.
  """
  check(config)
  if config.source == 'ring':
    return _ring(config, batch_size, seed)
  if config.source == 'digits':
    from sklearn import datasets  # only this source needs it

    pixels, labels = datasets.load_digits(return_X_y=True)
    whole = images.Images(pixels.reshape(-1, 8, 8, 1).astype(np.uint8), labels.astype(np.int32))
    order = np.random.default_rng(0).permutation(len(labels))
    return _images(config, batch_size, whole, order, DIGITS_TRAIN, DIGIT_LEVELS)
  if config.source == 'mnist':
    whole = images.mnist_5k()
  elif config.source == 'cifar10':
    train, test = (cifar.cifar10(config.path, split) for split in (True, False))
    return _split(config, batch_size, train, test, 256)
  elif config.source == 'imagenet32':
    train, test = (images.imagenet32(config.path, split) for split in (True, False))
    return _split(config, batch_size, train, test, 256)
  else:
    whole = images.folder(config.path, config.crop, config.size)
  order = np.random.default_rng(0).permutation(len(whole.pixels))
  return _images(config, batch_size, whole, order, len(order) - config.test, 256)


def dequantized(data: Data, pixels: chex.Array, key: chex.PRNGKey) -> chex.Array:
  """Returns images (N, H, W, C) of whole levels as points (N, D) in [-1, 1]."""
  flat = pixels.reshape(len(pixels), -1)
  return likelihood.dequantize(flat, key, data.levels)


def scaled(data: Data, pixels: np.ndarray) -> np.ndarray:
  """Returns images of levels as they are in the middle of their bins, in [-1, 1], float32."""
  return ((2.0 * pixels + 1.0) / data.levels - 1.0).astype(np.float32)


def ring_centres() -> np.ndarray:
  """The centres of the ring's modes (8, 2), from the heaviest to the lightest."""
  angle = 2 * np.pi * np.arange(len(RING_WEIGHTS)) / len(RING_WEIGHTS)
  return RING_RADIUS * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def ring_log_density(x: np.ndarray) -> np.ndarray:
  """The log-density of the ring at points (N, 2), in nats."""
  squares = ((x[:, None] - ring_centres()) ** 2).sum(axis=-1) / RING_STD**2
  terms = np.log(RING_WEIGHTS) - 0.5 * squares - np.log(2 * np.pi * RING_STD**2)
  return np.logaddexp.reduce(terms, axis=1)


def _ring(config: Any, batch_size: int, seed: int) -> Data:
  rng = np.random.default_rng(seed)
  weights, centres = np.array(RING_WEIGHTS), ring_centres()
  labels = rng.choice(len(weights), config.test, p=weights)
  test = centres[labels] + RING_STD * rng.standard_normal((config.test, 2))

  def sample(train, key):
    mode_key, noise_key = jax.random.split(key)
    mode = jax.random.categorical(mode_key, train['log_weights'], shape=(batch_size,))
    noise = jax.random.normal(noise_key, (batch_size, 2))
    return train['centres'][mode] + RING_STD * noise

  train = {'log_weights': np.log(weights), 'centres': centres}
  entropy = -ring_log_density(test).mean()
  return Data(
    train={name: array.astype(np.float32) for name, array in train.items()},
    sample=sample,
    shape=(2,),
    test=test.astype(np.float32),
    labels=labels,
    shares=weights,
    rare=_rarest(weights),
    levels=0,
    known=None,
    facts={
      'source': 'synthetic: a ring of 8 Gaussians',
      'test points': config.test,
      'their mean negative log-density': f'{entropy:.3f} nats',
    },
  )


def _images(
  config: Any, batch_size: int, whole: images.Images, order: np.ndarray, count: int, levels: int
) -> Data:
  """Splits a set by an order of its images."""
  if not 0 < count < len(order):
    raise ValueError(f'config.data.test: {config.test} of {len(order)} images leave none to train.')
  parts = [
    images.Images(whole.pixels[rows], None if whole.labels is None else whole.labels[rows])
    for rows in (order[:count], order[count:])
  ]
  return _split(config, batch_size, *parts, levels)


def _split(
  config: Any, batch_size: int, train: images.Images, test: images.Images, levels: int
) -> Data:
  """Makes data of training and test images, whose classes have geometric weights."""
  pixels, held_out = (_pooled(part.pixels, config.pool) for part in (train, test))
  labels = np.zeros(len(pixels), int) if train.labels is None else train.labels
  counts = np.bincount(labels)
  if not counts.all():
    raise ValueError(f'{config.source}: the classes of the training images have gaps.')
  # From `imbalance` times the last class's weight to it, in equal ratios; 1 keeps the counts.
  factors = config.imbalance ** -np.linspace(0.0, 1.0, len(counts))
  shares = counts / counts.sum() if config.imbalance == 1 else factors / factors.sum()
  if len(counts) == 1 and config.imbalance != 1:
    raise ValueError('config.data.imbalance: these images have no classes.')
  order = np.argsort(labels, kind='stable')

  def sample(train, key):
    class_key, row_key, noise_key = jax.random.split(key, 3)
    chosen = jax.random.categorical(class_key, train['log_shares'], shape=(batch_size,))
    row = jax.random.randint(row_key, (batch_size,), 0, train['counts'][chosen])
    flat = train['pixels'][train['starts'][chosen] + row].reshape(batch_size, -1)
    return likelihood.dequantize(flat, noise_key, levels)

  known = train.labels is not None
  return Data(
    train={
      'pixels': pixels[order],
      'log_shares': np.log(shares).astype(np.float32),
      'counts': counts.astype(np.int32),
      'starts': (np.cumsum(counts) - counts).astype(np.int32),
    },
    sample=sample,
    shape=pixels.shape[1:],
    test=held_out,
    labels=test.labels,
    shares=shares if known else None,
    rare=_rarest(shares) if known else (),
    levels=levels,
    known=images.Images(pixels, train.labels) if known else None,
    facts={
      'source': f'{config.source}, {pixels.shape[1]}x{pixels.shape[2]}, {levels} levels',
      'training images': len(pixels),
      'test images': len(held_out),
      'imbalance': f'{config.imbalance:g}:1',
    },
  )


def _pooled(pixels: np.ndarray, factor: int) -> np.ndarray:
  """Averages squares of pixels, rounded to whole levels."""
  n, height, width, channels = pixels.shape
  if factor == 1:
    return pixels
  if height % factor or width % factor:
    raise ValueError(f'config.data.pool: {height}x{width} is no multiple of {factor}.')
  blocks = pixels.reshape(n, height // factor, factor, width // factor, factor, channels)
  return np.rint(blocks.mean(axis=(2, 4))).astype(np.uint8)


def _rarest(shares: np.ndarray) -> tuple[int, ...]:
  return tuple(int(k) for k in np.argsort(shares)[:3])
