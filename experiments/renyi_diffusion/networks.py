"""Networks that predict the noise, from flat points and times."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import ml_collections

from experiments.renyi_diffusion import unet
from lib.diffusion import sde as sdes
from lib.nn import embeddings, mlp

DTYPES = ('float32', 'bfloat16')
PREDICTIONS = ('noise', 'velocity')
Params = Any


class Network(NamedTuple):
  """One network as pure functions of its parameters.

  Attributes:
    init: `init(key) -> params`.
    noise: `noise(params, x (B, D), t (B, 1), key=None) -> ε̂ (B, D)`; with a key, dropout is on in
      the networks that have it.
    potential: `potential(params, x, t) -> φ (B,)`, an estimate of log p_t(x) up to a number for
      each t, with ε̂ = -σ(t) ∇φ; None where the noise is no gradient.
  """

  init: Callable[[chex.PRNGKey], Params]
  noise: Callable[..., chex.Array]
  potential: Callable[[Params, chex.Array, chex.Array], chex.Array] | None = None


def make(config: ml_collections.ConfigDict, shape: tuple[int, ...], sde: sdes.SDE) -> Network:
  """Builds a network.

  Args:
    config: the fields of `config.network`. `kind` is one of KINDS, `prediction` one of
      PREDICTIONS: what the module's output stands for, 'noise' for 'energy'. 'mlp' and 'energy'
      read `hidden`, `time_frequencies` and `clock` (one of CLOCKS), 'unet' reads `channels`,
      `multipliers`, `blocks`, `attention`, `dropout` and `dtype`.
    shape: of one datum, (D,) or an image's (H, W, C); points have D = H W C numbers.
    sde: the diffusion, with times in (0, 1].

  Returns:
    The network.

  Raises:
    ValueError: naming the field that is wrong.
  """
  _require(config.kind in KINDS, 'kind', f'one of {", ".join(KINDS)}', config.kind)
  _require(config.prediction in PREDICTIONS, 'prediction',
           f'one of {", ".join(PREDICTIONS)}', config.prediction)  # fmt: skip
  network = KINDS[config.kind](config, shape, sde)
  if config.prediction == 'noise':
    return network
  _require(network.potential is None, 'prediction', 'noise for a gradient', config.prediction)
  return network._replace(noise=_noise_of_velocity(network.noise, sde))


def _noise_of_velocity(velocity, sde: sdes.SDE):
  """The best linear guess of the noise for data of variance one, and a network for the rest.

  ε̂ = (σ x + m √(m² + σ²) v)/(m² + σ²). Where m² + σ² = 1, v predicts m ε - σ x_0: Salimans and Ho
  (2022), arXiv:2202.00512; elsewhere Karras et al. (2022), arXiv:2206.00364, without their scaling
  of the input, which a variance-exploding process, whose inputs grow with σ, would need.
  """

  def noise(params, x, t, key=None):
    m, std = sde.mean(t), sde.std(t)
    total = m**2 + std**2
    return (std * x + m * jnp.sqrt(total) * velocity(params, x, t, key)) / total

  return noise


def _mlp(config, shape, sde) -> Network:
  """A perceptron of x, the time and its sines and cosines."""
  net, inputs, example = _perceptron(config, math.prod(shape), math.prod(shape), sde)
  return Network(
    init=jax.jit(lambda key: net.init(key, example)),
    noise=lambda params, x, t, key=None: net.apply(params, inputs(x, t)),
  )


def _energy(config, shape, sde) -> Network:
  """The gradient of a scalar perceptron φ of x, the time and its sines and cosines."""
  net, inputs, example = _perceptron(config, math.prod(shape), 1, sde)

  def potential(params, x, t):
    return net.apply(params, inputs(x, t))[:, 0]

  def noise(params, x, t, key=None):
    return -sde.std(t) * jax.grad(lambda y: jnp.sum(potential(params, y, t)))(x)

  return Network(jax.jit(lambda key: net.init(key, example)), noise, potential)


def _unet(config, shape, sde) -> Network:
  _require(len(shape) == 3, 'kind', 'another for data that are no images', config.kind)
  positive = 'positive whole numbers'
  _require(_whole([config.channels], 1) and config.channels % 4 == 0, 'channels',
           'a positive multiple of 4', config.channels)  # fmt: skip
  _require(_whole(config.multipliers, 1) and config.multipliers, 'multipliers',
           positive, config.multipliers)  # fmt: skip
  _require(_whole([config.blocks], 1), 'blocks', 'a positive whole number', config.blocks)
  _require(0 <= config.dropout < 1, 'dropout', 'in [0, 1)', config.dropout)
  _require(config.dtype in DTYPES, 'dtype', f'one of {", ".join(DTYPES)}', config.dtype)
  try:
    heights, _ = (unet.resolutions(side, len(config.multipliers)) for side in shape[:2])
  except ValueError as error:
    raise ValueError(f'config.network.multipliers: {error}') from error
  _require(set(config.attention) <= set(heights), 'attention',
           f'among the heights {heights} of the features', config.attention)  # fmt: skip
  net = unet.UNet(
    channels=config.channels,
    multipliers=tuple(config.multipliers),
    blocks=config.blocks,
    attention=tuple(config.attention),
    dropout=config.dropout,
    dtype=jnp.dtype(config.dtype),
  )

  def noise(params, x, t, key=None):
    _check_rows(x, t, math.prod(shape))
    rngs = None if key is None else {'dropout': key}
    found = net.apply(params, x.reshape(-1, *shape), t[:, 0], key is None, rngs=rngs)
    return found.reshape(x.shape)

  # Under jit nothing is computed but the parameters.
  return Network(
    init=jax.jit(lambda key: net.init(key, jnp.zeros((1, *shape)), jnp.zeros(1))), noise=noise
  )


KINDS = {'mlp': _mlp, 'energy': _energy, 'unet': _unet}


def _linear_clock(sde, t):
  return t


def _log_snr_clock(sde, t):
  """The log SNR brought to about [-1/2, 1/2]: the times that t tells apart are those of noise."""
  return -0.05 * sde.log_snr(t)


CLOCKS = {'linear': _linear_clock, 'log_snr': _log_snr_clock}


def _perceptron(config, dim: int, features: int, sde):
  """Returns the module, its inputs of x and t, and an example of them."""
  _require(_whole(config.hidden, 1), 'hidden', 'positive whole numbers', config.hidden)
  _require(_whole([config.time_frequencies], 0), 'time_frequencies',
           'a whole number, at least 0', config.time_frequencies)  # fmt: skip
  _require(config.clock in CLOCKS, 'clock', f'one of {", ".join(CLOCKS)}', config.clock)
  # A smooth activation: the noise's divergence is part of the likelihood.
  net = mlp.MLP(tuple(config.hidden), features, activation=jax.nn.gelu)

  def inputs(x, t):
    _check_rows(x, t, dim)
    s = CLOCKS[config.clock](sde, t)
    return jnp.concatenate([x, s, embeddings.fourier(s[:, 0], config.time_frequencies)], axis=-1)

  return net, inputs, inputs(jnp.zeros((1, dim)), jnp.full((1, 1), 0.5))


def _check_rows(x, t, dim: int) -> None:
  chex.assert_shape(x, (None, dim))
  chex.assert_shape(t, (x.shape[0], 1))


def _whole(numbers, least: int) -> bool:
  return all(isinstance(number, int) and number >= least for number in numbers)


def _require(condition, field: str, what: str, value) -> None:
  if not condition:
    raise ValueError(f'config.network.{field} must be {what}, got {value!r}.')
