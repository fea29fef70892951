"""Networks of positions: a trunk, and heads of one number an action or of one."""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_collections

from lib.nn import conv

HEADS = {'policy': None, 'q': jnp.tanh, 'value': jnp.tanh}  # and their last nonlinearity


class Network(NamedTuple):
  """One network as pure functions of its variables.

  Attributes:
    init: `init(key) -> variables`; the heads begin at zero.
    apply: `apply(variables, observation (B, ...)) -> outputs`, a tuple in the order of the heads:
      logits (B, A), values of actions (B, A) or of states (B,) in [-1, 1].
    train: likewise, as in training, and the variables with new statistics of batches.
  """

  init: Callable[[chex.PRNGKey], Any]
  apply: Callable[[Any, chex.Array], tuple[chex.Array, ...]]
  train: Callable[[Any, chex.Array], tuple[tuple[chex.Array, ...], Any]]


def make(
  config: ml_collections.ConfigDict,
  shape: tuple[int, ...],
  num_actions: int,
  heads: tuple[str, ...],
) -> Network:
  """Builds a network.

  Args:
    config: the fields of `config.network`. `kind` 'mlp' reads `hidden`, 'resnet' `channels` and
      `blocks`.
    shape: of an observation, (H, W, C) or flat.
    num_actions: A.
    heads: of HEADS.

  Returns:
    The network.

  Raises:
    ValueError: if a residual network is to see what is no board.
  """
  if config.kind == 'resnet' and len(shape) != 3:
    raise ValueError(f'config.network.kind must be mlp for observations of shape {shape}')
  trunk = (
    Perceptron(tuple(config.hidden))
    if config.kind == 'mlp'
    else ResNet(config.channels, config.blocks)
  )
  module = Heads(trunk, num_actions, heads)
  example = jnp.zeros((1, *shape))
  keep = ['batch_stats'] if config.kind == 'resnet' else False

  def train(variables, observation):
    outputs = module.apply(variables, observation, True, mutable=keep)
    if not keep:
      return outputs, variables
    return outputs[0], variables | outputs[1]

  return Network(
    init=jax.jit(lambda key: module.init(key, example)), apply=module.apply, train=train
  )


class Perceptron(nn.Module):
  """Dense layers with ReLU of the flat observation."""

  hidden: tuple[int, ...]

  @nn.compact
  def __call__(self, x: chex.Array, training: bool) -> chex.Array:
    """Maps (B, ...) to features (B, hidden[-1])."""
    x = x.reshape(x.shape[0], -1)
    for width in self.hidden:
      x = nn.relu(nn.Dense(width)(x))
    return x


class ResNet(nn.Module):
  """Pre-activation residual blocks (He et al., 2016, arXiv:1603.05027) with batch normalisation.

  Attributes:
    channels: of all layers.
    blocks: residual blocks, of two convolutions each.
  """

  channels: int
  blocks: int

  @nn.compact
  def __call__(self, x: chex.Array, training: bool) -> chex.Array:
    """Maps boards (B, H, W, C) to features (B, H, W, channels)."""
    convolve = lambda h: conv.Conv(self.channels)(h, not training)
    x = convolve(x)
    for _ in range(self.blocks):
      h = convolve(nn.relu(_norm(training)(x)))
      x = x + convolve(nn.relu(_norm(training)(h)))
    return nn.relu(_norm(training)(x))


class Heads(nn.Module):
  """A trunk and, on boards, two channels of 1 x 1 convolutions for each head, then a dense layer.

  Attributes:
    trunk: maps observations to features.
    num_actions: A.
    names: of HEADS.
  """

  trunk: nn.Module
  num_actions: int
  names: tuple[str, ...]

  @nn.compact
  def __call__(self, x: chex.Array, training: bool = False) -> tuple[chex.Array, ...]:
    """Maps observations (B, ...) to the outputs of the heads."""
    features = self.trunk(x.astype(jnp.float32), training)
    return tuple(self._head(name, features, training) for name in self.names)

  def _head(self, name: str, h: chex.Array, training: bool) -> chex.Array:
    if h.ndim == 4:
      h = nn.relu(_norm(training)(nn.Dense(2)(h)))
      h = h.reshape(h.shape[0], -1)
    width = 1 if name == 'value' else self.num_actions
    h = nn.Dense(width, kernel_init=nn.initializers.zeros, name=name)(h)
    if name == 'value':
      h = h[:, 0]
    squash = HEADS[name]
    return h if squash is None else squash(h)


def _norm(training: bool) -> nn.BatchNorm:
  return nn.BatchNorm(use_running_average=not training, momentum=0.99, epsilon=1e-3)
