"""DeepAR: a recurrent network that says the law of the next point, and reads what it drew.

Salinas et al. (2020), arXiv:1704.04110, with Student's t law. It is trained on the points of
context and horizon alike, each given the true ones before it. Trajectories without noise would have
densities without bound, and what is drawn would be unlike what was read: all series get noise.
"""

from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.sysbio_flow import networks
from experiments.sysbio_flow.methods import learner

LAGS = 4  # points that each step reads
_FLOOR = 1e-3  # of scales


class Law(NamedTuple):
  """Student's t laws: degrees of freedom, locations and scales, of one shape."""

  df: chex.Array
  loc: chex.Array
  scale: chex.Array

  def draw(self, key: chex.PRNGKey) -> chex.Array:
    """Draws of each, as Bailey (1994): √(ν (u^(-2/ν) - 1)) cos 2πv for uniform u and v."""
    u, v = jax.random.uniform(key, (2, *self.df.shape), minval=jnp.finfo(jnp.float32).tiny)
    radius = jnp.sqrt(self.df * jnp.expm1(-2.0 / self.df * jnp.log(u)))
    return self.loc + self.scale * radius * jnp.cos(2.0 * jnp.pi * v)


class Network(nn.Module):
  """A GRU of a state (B, width) with laws of the next points as outputs."""

  width: int

  @nn.compact
  def __call__(
    self, series: chex.Array, state: tuple[chex.Array, chex.Array] | None = None
  ) -> tuple[tuple[chex.Array, chex.Array], Law]:
    """From series (B, T) to laws (B, T), and a state to go on from: the cell's, the last points."""
    cell, before = (None, jnp.repeat(series[:, :1], LAGS, axis=1)) if state is None else state
    whole = jnp.concatenate([before, series], axis=1)
    lags = [whole[:, i : i + series.shape[1]] for i in range(1, LAGS + 1)]
    rnn = nn.RNN(nn.GRUCell(self.width), return_carry=True)
    cell, hidden = rnn(networks.squash(jnp.stack(lags, axis=-1)), initial_carry=cell)
    raw = nn.Dense(3, kernel_init=nn.initializers.zeros)(hidden)
    df, scale = 2.0 + nn.softplus(raw[..., 0]), _FLOOR + nn.softplus(raw[..., 1])
    return (cell, whole[:, -LAGS:]), Law(df, series + raw[..., 2], scale)


def make(problem: learner.Problem, options: Any) -> learner.Network:
  """Of config.deepar.

  Fields: `width` of the state; `noise`, of all series, in units of the context; `limit` ±that
  samples are kept in.
  """
  module = Network(options.width)
  noisy = lambda series, key: series + options.noise * jax.random.normal(key, series.shape)

  def init(key):
    return module.init(key, jnp.zeros((1, problem.context)))

  def loss(params, batch, key):
    series = noisy(jnp.concatenate([batch['context'], batch['future']], axis=1), key)
    _, law = module.apply(params, series[:, :-1])
    return -jnp.mean(jax.scipy.stats.t.logpdf(series[:, 1:], *law))

  def forecast(params, context, key, num_samples):
    key_noise, key_steps = jax.random.split(key)
    seen = noisy(jnp.tile(context, (num_samples, 1)), key_noise)
    state, law = module.apply(params, seen)

    def step(carry, key):
      state, law = carry
      drawn = jnp.clip(law.draw(key), -options.limit, options.limit)
      return module.apply(params, drawn, state), drawn[:, 0]

    start = state, jax.tree.map(lambda x: x[:, -1:], law)
    _, drawn = jax.lax.scan(step, start, jax.random.split(key_steps, problem.horizon))
    return drawn.T.reshape(num_samples, len(context), problem.horizon)

  return learner.Network(init, loss, forecast)
