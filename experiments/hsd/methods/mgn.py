"""MeshGraphNet: messages along the mesh's edges. Pfaff et al. (2021), arXiv:2010.03409."""

import chex
import flax.linen as nn
import jax.numpy as jnp
import ml_collections
import numpy as np

from experiments.hsd import networks
from experiments.hsd import space as spaces
from experiments.hsd.methods import learner
from lib.nn import mlp


class Mgn(nn.Module):
  """Encoders, blocks of messages along edges in both directions, and a decoder.

    e ← e + LayerNorm(MLP([e, x_i, x_j]))    x ← x + LayerNorm(MLP([x, Σ e]))

  with the sum over the edges that come in.

  Attributes:
    width: channels.
    layers: blocks.
    length: of an edge, in units of the unit cube, which counts as 1.
    features: of the output at a vertex.
  """

  width: int
  layers: int
  length: float
  features: int

  @nn.compact
  def __call__(self, space: spaces.Space, fields: chex.Array) -> chex.Array:
    """Maps fields (B, N, F) to (B, N, features)."""
    network = lambda: nn.Sequential(
      [mlp.MLP((self.width,), self.width, activation=nn.relu), nn.LayerNorm(use_scale=False)]
    )
    take = lambda x, i: x.at[:, i].get(mode='promise_in_bounds')
    low, high = space.complex.edges.T
    senders, receivers = jnp.concatenate([low, high]), jnp.concatenate([high, low])
    steps = (space.places[receivers] - space.places[senders]) / self.length
    lengths = jnp.linalg.norm(steps, axis=-1, keepdims=True)
    x = network()(networks.beside(fields, space.places - 0.5))
    e = network()(jnp.concatenate([steps, lengths], axis=-1))
    for _ in range(self.layers):
      # The first layer of MLP([e, x_i, x_j]), most of which is done before x is copied to edges.
      own = nn.Dense(self.width)(e)
      sent, received = (nn.Dense(self.width, use_bias=False)(x) for _ in range(2))
      hidden = nn.relu(own + take(sent, senders) + take(received, receivers))
      e += nn.LayerNorm(use_scale=False)(nn.Dense(self.width)(hidden))
      sums = jnp.zeros_like(x).at[:, receivers].add(e, mode='promise_in_bounds')
      x += network()(jnp.concatenate([x, sums], axis=-1))
    return mlp.MLP((self.width,), self.features, activation=nn.relu)(x)


def make(problem: learner.Problem, options: ml_collections.ConfigDict) -> learner.Network:
  """Builds the network.

  Args:
    problem: what to predict from what.
    options: `width` and `layers`.
  """
  low, high = np.asarray(problem.space.places)[np.asarray(problem.space.complex.edges).T]
  length = float(np.linalg.norm(high - low, axis=-1).mean())
  network = Mgn(options.width, options.layers, length, problem.channels_written)
  return networks.on_vertices(problem, network)
