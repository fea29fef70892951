"""The U-Net of `experiments.renyi_diffusion.unet` and its training, in PyTorch, to compare speeds.

Modules are named as flax names ours, so that parameters go over by name.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import torch
from torch import nn
from torch.nn import functional

from experiments.renyi_diffusion import methods

_RESCALE = 0.5**0.5
_TIME_SCALE = 999.0
_EPS = 1e-6  # of flax's normalisation


class UNet(nn.Module):
  """The noise (B, C, H, W) in images at times (B,), float32, without dropout.

  Args:
    shape: (H, W, C).
    channels: as ours, and so are the others.
    multipliers: of `channels`, by resolution.
    blocks: residual blocks at each resolution.
    attention: heights that have it.
  """

  def __init__(
    self,
    shape: tuple[int, int, int],
    channels: int,
    multipliers: Sequence[int],
    blocks: int,
    attention: Sequence[int],
  ):
    super().__init__()
    self.channels, self.num_levels, self.blocks = channels, len(multipliers), blocks
    self.attention = tuple(attention)
    self.Dense_0 = nn.Linear(channels, 4 * channels)
    self.Dense_1 = nn.Linear(4 * channels, 4 * channels)
    self.Conv_0 = _conv(shape[-1], channels)
    self.ResidualBlock, self.AttentionBlock = nn.ModuleList(), nn.ModuleList()

    def residual(inputs: int, width: int, resample: str | None = None) -> None:
      self.ResidualBlock.append(Residual(inputs, width, 4 * channels, resample))

    def attend(width: int) -> None:
      self.AttentionBlock.append(Attention(width))

    height, before, kept = shape[0], channels, [channels]
    widths = [channels * multiplier for multiplier in multipliers]
    for level, width in enumerate(widths):
      for _ in range(blocks):
        residual(before, width)
        before = width
        if height in attention:
          attend(width)
        kept.append(width)
      if level < len(widths) - 1:
        residual(width, width, 'down')
        kept.append(width)
        height //= 2
    residual(before, before)
    attend(before)
    residual(before, before)
    for level, width in reversed(list(enumerate(widths))):
      for _ in range(blocks + 1):
        residual(before + kept.pop(), width)
        before = width
      if height in attention:
        attend(width)
      if level > 0:
        residual(width, width, 'up')
        height *= 2
    self.GroupNorm_0, self.Conv_1 = _norm(before), _conv(before, shape[-1])

  def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    half = self.channels // 2
    frequencies = torch.exp(-math.log(1e4) / (half - 1) * torch.arange(half))
    angles = _TIME_SCALE * t[:, None] * frequencies
    time = torch.cat([angles.sin(), angles.cos()], dim=-1)
    time = functional.silu(self.Dense_1(functional.silu(self.Dense_0(time))))
    residuals, attentions = iter(self.ResidualBlock), iter(self.AttentionBlock)
    h = self.Conv_0(x)
    kept = [h]
    for level in range(self.num_levels):
      for _ in range(self.blocks):
        h = next(residuals)(h, time)
        if h.shape[2] in self.attention:
          h = next(attentions)(h)
        kept.append(h)
      if level < self.num_levels - 1:
        h = next(residuals)(h, time)
        kept.append(h)
    h = next(residuals)(h, time)
    h = next(attentions)(h)
    h = next(residuals)(h, time)
    for level in reversed(range(self.num_levels)):
      for _ in range(self.blocks + 1):
        h = next(residuals)(torch.cat([h, kept.pop()], dim=1), time)
      if h.shape[2] in self.attention:
        h = next(attentions)(h)
      if level > 0:
        h = next(residuals)(h, time)
    return self.Conv_1(functional.silu(self.GroupNorm_0(h)))


class Residual(nn.Module):
  """As `unet.ResidualBlock`."""

  def __init__(self, inputs: int, width: int, embedded: int, resample: str | None):
    super().__init__()
    self.resample = resample
    self.GroupNorm_0, self.GroupNorm_1 = _norm(inputs), _norm(width)
    self.Conv_0, self.Conv_1 = _conv(inputs, width), _conv(width, width)
    self.Dense_0 = nn.Linear(embedded, width)
    self.Dense_1 = nn.Conv2d(inputs, width, 1) if resample or inputs != width else None

  def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
    h = self.Conv_0(self._resize(functional.silu(self.GroupNorm_0(x))))
    h = functional.silu(self.GroupNorm_1(h + self.Dense_0(time)[:, :, None, None]))
    h = self.Conv_1(h)
    if self.resample == 'down':
      x = self._resize(x)
    if self.Dense_1 is not None:
      x = self.Dense_1(x)
    if self.resample == 'up':
      x = self._resize(x)
    return (x + h) * _RESCALE

  def _resize(self, h: torch.Tensor) -> torch.Tensor:
    if self.resample == 'down':
      return functional.avg_pool2d(h, 2)
    return functional.interpolate(h, scale_factor=2) if self.resample == 'up' else h


class Attention(nn.Module):
  """As `unet.AttentionBlock`."""

  def __init__(self, width: int):
    super().__init__()
    self.GroupNorm_0 = _norm(width)
    self.Dense_0, self.Dense_1, self.Dense_2, self.Dense_3 = (
      nn.Linear(width, width) for _ in range(4)
    )

  def forward(self, x: torch.Tensor) -> torch.Tensor:
    h = self.GroupNorm_0(x).flatten(2).mT
    h = functional.scaled_dot_product_attention(self.Dense_0(h), self.Dense_1(h), self.Dense_2(h))
    return (x + self.Dense_3(h).mT.reshape(x.shape)) * _RESCALE


def build(sizes: ml_collections.ConfigDict) -> UNet:
  """Builds the network of `config.diffusion.unet`."""
  own = sizes.network
  return UNet(sizes.shape, own.channels, own.multipliers, own.blocks, own.attention)


def load(net: UNet, params: Any) -> None:
  """Copies flax parameters into a network of the same layers.

  Raises:
    ValueError: if one of the two has a parameter that the other lacks.
  """
  theirs = dict(net.named_parameters())
  with torch.no_grad():
    for path, value in jax.tree_util.tree_leaves_with_path(params['params']):
      *module, kind = (entry.key for entry in path)
      name = '.'.join([*module, 'bias' if kind == 'bias' else 'weight']).replace('Block_', 'Block.')
      array, found = np.array(value), theirs.pop(name, None)
      if found is None or found.numel() != array.size:
        raise ValueError(f'PyTorch has no {name} of {array.size} numbers.')
      if kind == 'kernel':
        array = array.transpose(3, 2, 0, 1) if array.ndim == 4 else array.T
      found.copy_(torch.from_numpy(array).reshape(found.shape))
  if theirs:
    raise ValueError(f'flax has no {", ".join(theirs)}.')


def check(sizes: ml_collections.ConfigDict, rows: int = 4) -> None:
  """Asserts that both networks have the same outputs, at parameters none of which is near zero."""
  network = methods.network(sizes, sizes.shape, 'likelihood')
  rng = np.random.default_rng(0)
  params = jax.tree.map(
    lambda p: p + 0.05 * rng.standard_normal(p.shape).astype(np.float32),
    network.init(jax.random.key(0)),
  )
  x = rng.standard_normal((rows, math.prod(sizes.shape))).astype(np.float32)
  t = rng.random((rows, 1)).astype(np.float32)
  ours = np.asarray(jax.jit(network.noise)(params, x, t))
  net = build(sizes)
  load(net, params)
  height, width, channels = sizes.shape
  images = torch.from_numpy(x).reshape(rows, height, width, channels).permute(0, 3, 1, 2)
  with torch.no_grad():
    theirs = net(images, torch.from_numpy(t)[:, 0]).permute(0, 2, 3, 1).reshape(rows, -1)
  np.testing.assert_allclose(theirs.numpy(), ours, rtol=1e-4, atol=1e-4 * np.abs(ours).max())


def trainer(sizes: ml_collections.ConfigDict) -> Callable[[], torch.Tensor]:
  """Returns a function that makes one update of maximum likelihood by Adam on random images.

  Args:
    sizes: as `config.diffusion.unet`, with the variance-preserving SDE and one time of each image.

  Returns:
    The function, whose result is the loss.

  Raises:
    ValueError: for other diffusions or more times.
  """
  if sizes.sde.kind != 'vp' or sizes.objective.num_times != 1:
    raise ValueError(
      'config.torch: the U-Net beside ours has the sde vp and objective.num_times 1.'
    )
  torch.manual_seed(0)
  process = methods.process(sizes)
  first, last = (float(process.log_snr(jnp.float32(t))) for t in (sizes.start, process.horizon))
  beta, slope = sizes.sde.vp.beta_min, sizes.sde.vp.beta_max - sizes.sde.vp.beta_min
  height, width, channels = sizes.shape
  # Channels last in memory, which is the faster of its two formats here.
  data = torch.randn(sizes.rows, channels, height, width).to(memory_format=torch.channels_last)
  net = build(sizes).to(memory_format=torch.channels_last)
  adam = torch.optim.Adam(net.parameters(), sizes.optimizer.learning_rate)

  def update() -> torch.Tensor:
    count = sizes.batch_size
    x = data[torch.randint(len(data), (count,))]
    u = (torch.arange(count) + torch.rand(count)) / count
    integral = functional.softplus(-(first + (last - first) * u))  # of β, from 0 to t
    t = 2.0 * integral / (beta + torch.sqrt(beta**2 + 2.0 * slope * integral))
    spread = integral[:, None, None, None]
    noise = torch.randn_like(x)
    points = torch.exp(-0.5 * spread) * x + torch.sqrt(-torch.expm1(-spread)) * noise
    loss = 0.5 * (first - last) * ((net(points, t) - noise) ** 2).sum() / count
    adam.zero_grad()
    loss.backward()
    adam.step()
    return loss.detach()

  return update


def _conv(inputs: int, width: int) -> nn.Conv2d:
  return nn.Conv2d(inputs, width, 3, padding=1)


def _norm(width: int) -> nn.GroupNorm:
  groups = next(n for n in range(min(width // 4, 32), 0, -1) if width % n == 0)
  return nn.GroupNorm(groups, width, _EPS)
