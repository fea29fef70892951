"""A latent ODE: a law of where a latent path begins, and the path seen through noise.

Rubanova et al. (2019), arXiv:1907.03907, after Chen et al. (2018), arXiv:1806.07366. A GRU reads
the context backwards and says the law of z at its first point; ż = f(z) leads on through the
horizon; points are normal around what is read off z, with a deviation that is read off too. The
loss is the negative evidence lower bound of context and horizon, for each point.
"""

from collections.abc import Callable
from typing import Any

import chex
import diffrax
import distrax
import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.sysbio_flow import networks
from experiments.sysbio_flow.methods import learner
from lib.nn import mlp


class Encoder(nn.Module):
  """Contexts (B, L_c) to means and standard deviations (B, latent)."""

  latent: int
  width: int

  @nn.compact
  def __call__(self, context: chex.Array) -> tuple[chex.Array, chex.Array]:
    rnn = nn.RNN(nn.GRUCell(self.width), return_carry=True, reverse=True)
    state, _ = rnn(recent(context))
    raw = nn.Dense(2 * self.latent)(state)
    return raw[..., : self.latent], nn.softplus(raw[..., self.latent :] - 1.0)


class Emission(nn.Module):
  """Latent points (..., latent) to means and standard deviations (...) of what is seen."""

  width: int
  floor: float

  @nn.compact
  def __call__(self, z: chex.Array) -> tuple[chex.Array, chex.Array]:
    raw = mlp.MLP((self.width,), 2, output_scale=1e-2)(z)
    return raw[..., 0], self.floor + nn.softplus(raw[..., 1])


def recent(context: chex.Array) -> chex.Array:
  """The differences (B, L_c, 10) of each point and the three before it, the first one repeated."""
  padded = jnp.pad(context, ((0, 0), (3, 0)), mode='edge')
  windows = [padded[:, i : i + context.shape[1]] for i in range(4)]
  return networks.differences(jnp.stack(windows, axis=-1))


def solve(
  field: Callable[[chex.Array], chex.Array], start: chex.Array, times: chex.Array, steps: int
) -> chex.Array:
  """The path (T, B, D) of ż = f(z) from z (B, D) at the first of the times (T,), Heun's steps."""
  solution = diffrax.diffeqsolve(
    diffrax.ODETerm(lambda t, z, args: field(z)),
    diffrax.Heun(),
    t0=times[0],
    t1=times[-1],
    dt0=(times[-1] - times[0]) / steps,
    y0=start,
    saveat=diffrax.SaveAt(ts=times),
    max_steps=steps + 1,  # rounding may want one more
    adjoint=diffrax.RecursiveCheckpointAdjoint(checkpoints=steps + 1),
  )
  return solution.ys


def make(problem: learner.Problem, options: Any) -> learner.Network:
  """Of config.latent_ode.

  Fields: `latent`, the dimension; `width` of the encoder's state and of the hidden layers; `floor`
  of the deviations of what is seen; Heun `steps` from the first point to the last.
  """
  encoder = Encoder(options.latent, options.width)
  field = mlp.MLP((options.width,), options.latent, activation=nn.tanh)
  emission = Emission(options.width, options.floor)
  times = jnp.arange(problem.context + problem.horizon) / problem.context

  def init(key):
    keys = jax.random.split(key, 3)
    z = jnp.zeros((1, options.latent))
    return {
      'encoder': encoder.init(keys[0], jnp.zeros((1, problem.context))),
      'field': field.init(keys[1], z),
      'emission': emission.init(keys[2], z),
    }

  def posterior(params, context):
    return distrax.MultivariateNormalDiag(*encoder.apply(params['encoder'], context))

  def decode(params, z, last):
    """The law of series (L_c + H, B) that end their context at `last` (B, 1)."""
    path = solve(lambda z: field.apply(params['field'], z), z, times, options.steps)
    mean, std = emission.apply(params['emission'], path)
    return distrax.Normal(last[:, 0] + mean, std)

  def loss(params, batch, key):
    series = jnp.concatenate([batch['context'], batch['future']], axis=1)
    begin = posterior(params, batch['context'])
    law = decode(params, begin.sample(seed=key), batch['context'][:, -1:])
    at_rest = distrax.MultivariateNormalDiag(jnp.zeros(options.latent), jnp.ones(options.latent))
    divergence = begin.kl_divergence(at_rest)
    return jnp.mean(divergence) / series.shape[1] - jnp.mean(law.log_prob(series.T))

  def forecast(params, context, key, num_samples):
    begin = posterior(params, context)

    def sample(key):
      key_begin, key_seen = jax.random.split(key)
      law = decode(params, begin.sample(seed=key_begin), context[:, -1:])
      return law.sample(seed=key_seen)[problem.context :].T

    return jax.lax.map(sample, jax.random.split(key, num_samples))

  return learner.Network(init, loss, forecast)
