"""The U-Net of images' scores, DDPM++."""

import functools
from collections.abc import Sequence
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from lib.nn import conv, embeddings

_RESCALE = 0.5**0.5  # keeps the variance of a sum of two
_TIME_SCALE = 999.0  # the embedding was made for the numbers of a thousand steps


class UNet(nn.Module):
  """DDPM++ (Song et al., 2021, arXiv:2011.13456), which Kim et al. (2022), arXiv:2106.05527, keep.

  A stack of residual blocks at each resolution, on the way down and once more on the way up, where
  each sees the output of one from the way down. Between two resolutions a block halves or doubles
  the sides, which must be even there: 28 goes to 14 and 7, and no further.

  Without dropout each image's output is its own: it depends on no other image of the batch.

  Attributes:
    channels: channels at the full resolution, a multiple of 4; the time is embedded in as many.
    multipliers: by which `channels` are multiplied at each resolution, from the full one down.
    blocks: residual blocks at each resolution on the way down; one more on the way up.
    attention: heights of the resolutions that have self-attention; the lowest always has it once.
    dropout: rate within each residual block, in [0, 1).
    init_scale: factor on the variance of the last kernel of every block and of the output's.
    dtype: of the computation. Parameters, means and variances are float32.
  """

  channels: int = 128
  multipliers: Sequence[int] = (1, 2, 2, 2)
  blocks: int = 4
  attention: Sequence[int] = (16,)
  dropout: float = 0.1
  init_scale: float = 0.0
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(self, x: chex.Array, t: chex.Array, deterministic: bool = True) -> chex.Array:
    """Predicts the noise in images x (B, H, W, C) at times t (B,) in [0, 1], like x, float32.

    Dropout is on where it is not `deterministic`, and needs a key by the name 'dropout'.

    Raises:
      ValueError: if a side is odd that had to be halved.
    """
    for side in x.shape[1:3]:
      resolutions(side, len(self.multipliers))
    residual = functools.partial(
      ResidualBlock, dropout=self.dropout, init_scale=self.init_scale, dtype=self.dtype
    )
    attend = functools.partial(AttentionBlock, init_scale=self.init_scale, dtype=self.dtype)
    widths = [self.channels * multiplier for multiplier in self.multipliers]
    convolve = functools.partial(conv.Conv, dtype=self.dtype)
    dense = functools.partial(
      nn.Dense, 4 * self.channels, kernel_init=conv.scaled_kernel(1.0), dtype=self.dtype
    )

    time = embeddings.sinusoidal(_TIME_SCALE * t, self.channels)
    for _ in range(2):
      time = nn.swish(dense()(time))

    h = convolve(self.channels)(x, deterministic)
    skips = [h]
    for level, width in enumerate(widths):
      for _ in range(self.blocks):
        h = residual(width)(h, time, deterministic)
        if h.shape[1] in self.attention:
          h = attend()(h)
        skips.append(h)
      if level < len(widths) - 1:
        h = residual(width, resample='down')(h, time, deterministic)
        skips.append(h)

    h = residual(widths[-1])(h, time, deterministic)
    h = attend()(h)
    h = residual(widths[-1])(h, time, deterministic)

    for level, width in reversed(list(enumerate(widths))):
      for _ in range(self.blocks + 1):
        h = residual(width)(jnp.concatenate([h, skips.pop()], -1), time, deterministic)
      if h.shape[1] in self.attention:
        h = attend()(h)
      if level > 0:
        h = residual(width, resample='up')(h, time, deterministic)

    h = nn.swish(_norm(h, self.dtype))
    return convolve(x.shape[-1], self.init_scale)(h, deterministic).astype(jnp.float32)


class ResidualBlock(nn.Module):
  """Two convolutions with the time added between, beside a shortcut (Brock et al., 2019).

  arXiv:1809.11096. The sum is divided by √2.

  Attributes:
    width: channels of the output.
    dropout: rate before the second convolution.
    init_scale: factor on the variance of the second kernel.
    dtype: of the computation.
    resample: 'down' halves the sides by means of 2 x 2, 'up' doubles them by repetition.
  """

  width: int
  dropout: float
  init_scale: float
  dtype: Any
  resample: str | None = None

  @nn.compact
  def __call__(self, x: chex.Array, time: chex.Array, deterministic: bool) -> chex.Array:
    """Maps features (B, H, W, C) and embedded times (B, E) to (B, H', W', width)."""
    resize = {'down': _halve, 'up': _double, None: lambda h: h}[self.resample]
    h = resize(nn.swish(_norm(x, self.dtype)))
    h = conv.Conv(self.width, dtype=self.dtype)(h, deterministic)
    shift = nn.Dense(self.width, kernel_init=conv.scaled_kernel(1.0), dtype=self.dtype)(time)
    h = nn.swish(_norm(h + shift[:, None, None], self.dtype))
    h = nn.Dropout(self.dropout)(h, deterministic=deterministic)
    h = conv.Conv(self.width, self.init_scale, self.dtype)(h, deterministic)
    if self.resample == 'down':
      x = resize(x)
    if self.resample or x.shape[-1] != self.width:
      x = nn.Dense(self.width, kernel_init=conv.scaled_kernel(1.0), dtype=self.dtype)(x)
    if self.resample == 'up':  # last: repetition commutes with a map of each pixel
      x = resize(x)
    return (x + h) * _RESCALE


class AttentionBlock(nn.Module):
  """Self-attention of the pixels with one head, beside a shortcut; the sum is divided by √2."""

  init_scale: float
  dtype: Any

  @nn.compact
  def __call__(self, x: chex.Array) -> chex.Array:
    """Maps features (B, H, W, C) to the same shape."""
    width = x.shape[-1]
    dense = lambda scale: nn.Dense(width, kernel_init=conv.scaled_kernel(scale), dtype=self.dtype)
    h = _norm(x, self.dtype).reshape(x.shape[0], -1, width)
    query, key, value = (dense(0.1)(h) for _ in range(3))
    logits = jnp.einsum('bqc,bkc->bqk', query, key) * width**-0.5
    weights = jax.nn.softmax(logits.astype(jnp.float32)).astype(self.dtype)
    h = dense(self.init_scale)(jnp.einsum('bqk,bkc->bqc', weights, value))
    return (x + h.reshape(x.shape)) * _RESCALE


def resolutions(side: int, num_levels: int) -> list[int]:
  """The lengths of a side at each resolution, from the full one down.

  Raises:
    ValueError: if one is odd that had to be halved.
  """
  sides = [side]
  while len(sides) < num_levels:
    if sides[-1] % 2:
      raise ValueError(
        f'A side of {side} comes to {sides[-1]}, which is odd, before its last half.'
      )
    sides.append(sides[-1] // 2)
  return sides


def _norm(x: chex.Array, dtype: Any) -> chex.Array:
  width = x.shape[-1]
  groups = next(n for n in range(min(width // 4, 32), 0, -1) if width % n == 0)
  return nn.GroupNorm(groups, dtype=dtype)(x)


def _halve(x: chex.Array) -> chex.Array:
  batch, height, width, channels = x.shape
  return x.reshape(batch, height // 2, 2, width // 2, 2, channels).mean((2, 4))


def _double(x: chex.Array) -> chex.Array:
  return x.repeat(2, axis=1).repeat(2, axis=2)
