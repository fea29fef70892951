"""A small convolutional classifier, trained here, whose features compare sets of images."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from lib.nn import conv

FEATURES = 64  # width of the last hidden layer
_ROWS = 1000  # images at once, where nothing is trained


class Classifier(NamedTuple):
  """A trained classifier.

  Attributes:
    params: of the network.
    logits: `logits(images (N, H, W, C)) -> (N, classes)`, of images in [-1, 1].
    features: `features(images) -> (N, FEATURES)`, of the last hidden layer.
  """

  params: Any
  logits: Callable[[chex.Array], np.ndarray]
  features: Callable[[chex.Array], np.ndarray]


class CNN(nn.Module):
  """Three convolutions, the first two of which are followed by means of 2 x 2, and a hidden layer.

  Attributes:
    classes: number of classes.
    channels: of the first convolution; the others have twice as many.
  """

  classes: int
  channels: int = 16

  @nn.compact
  def __call__(self, x: chex.Array, deterministic: bool) -> tuple[chex.Array, chex.Array]:
    """Maps images (B, H, W, C) to logits (B, classes) and features (B, FEATURES)."""
    for layer, factor in enumerate((1, 2, 2)):
      if layer:
        x = nn.avg_pool(x, (2, 2), (2, 2))
      x = conv.Conv(factor * self.channels)(x, deterministic)
      x = nn.swish(nn.GroupNorm(4)(x))
    features = nn.swish(nn.Dense(FEATURES)(x.reshape(x.shape[0], -1)))
    return nn.Dense(self.classes)(features), features


def train(
  images: chex.Array,
  labels: chex.Array,
  key: chex.PRNGKey,
  num_steps: int,
  batch_size: int = 128,
  learning_rate: float = 2e-3,
  noise: float = 0.1,
  smoothing: float = 0.05,
) -> Classifier:
  """Trains by Adam on shifted and noisy images, so that samples of a model do not surprise it.

  Args:
    images: (N, H, W, C) in [-1, 1].
    labels: classes (N,), whole numbers from 0.
    key: typed PRNG key.
    num_steps: updates, > 0.
    batch_size: drawn with replacement.
    learning_rate: the first, which falls to zero as a cosine.
    noise: the greatest standard deviation of the noise added to an image.
    smoothing: share of each label that is spread over all classes.

  Returns:
    The classifier.
  """
  chex.assert_rank(images, 4)
  chex.assert_shape(labels, (len(images),))
  images, labels = jnp.asarray(images, jnp.float32), jnp.asarray(labels, jnp.int32)
  net = CNN(int(labels.max()) + 1)
  init_key, train_key = jax.random.split(key)
  params = jax.jit(net.init, static_argnums=2)(init_key, images[:1], True)
  optimizer = optax.adam(optax.cosine_decay_schedule(learning_rate, num_steps))

  def loss(params, x, y):
    targets = optax.smooth_labels(jax.nn.one_hot(y, net.classes), smoothing)
    return jnp.mean(optax.softmax_cross_entropy(net.apply(params, x, False)[0], targets))

  @jax.jit
  def run(params, images, labels, keys):
    def step(carry, key):
      params, opt_state = carry
      row_key, key = jax.random.split(key)
      rows = jax.random.randint(row_key, (batch_size,), 0, len(images))
      grads = jax.grad(loss)(params, augment(key, images[rows], noise), labels[rows])
      updates, opt_state = optimizer.update(grads, opt_state, params)
      return (optax.apply_updates(params, updates), opt_state), None

    return jax.lax.scan(step, (params, optimizer.init(params)), keys)[0][0]

  params = run(params, images, labels, jax.random.split(train_key, num_steps))
  apply = jax.jit(lambda params, x: net.apply(params, x, True))
  return Classifier(
    params=params,
    logits=functools.partial(_in_blocks, lambda x: apply(params, x)[0]),
    features=functools.partial(_in_blocks, lambda x: apply(params, x)[1]),
  )


def augment(key: chex.PRNGKey, images: chex.Array, noise: float) -> chex.Array:
  """Shifts each image (B, H, W, C) by up to a pixel each way and adds noise of up to a strength."""
  shift_key, scale_key, noise_key = jax.random.split(key, 3)
  shape = images.shape
  padded = jnp.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)), mode='edge')
  corners = jax.random.randint(shift_key, (shape[0], 2), 0, 3)
  crop = lambda image, corner: jax.lax.dynamic_slice(image, (*corner, 0), shape[1:])
  scale = jax.random.uniform(scale_key, (shape[0], 1, 1, 1), maxval=noise)
  return jax.vmap(crop)(padded, corners) + scale * jax.random.normal(noise_key, shape)


def accuracy(model: Classifier, images: chex.Array, labels: chex.Array) -> float:
  """The share of images (N, H, W, C) whose greatest logit is that of the label (N,)."""
  return float(np.mean(model.logits(images).argmax(axis=-1) == np.asarray(labels)))


def _in_blocks(function: Callable, images: chex.Array) -> np.ndarray:
  """Applies a function to blocks of images, so that memory stays flat."""
  starts = range(0, len(images), _ROWS)
  return np.concatenate([np.asarray(function(images[i : i + _ROWS])) for i in starts])
