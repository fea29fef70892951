"""A graph neural operator: means over balls around vertices. Li et al. (2020), arXiv:2003.03485.

As in the code of Zheng et al. (2026), a vertex's message is a network of the means of its
neighbours' features and relative places, rather than a mean of networks.
"""

import chex
import flax.linen as nn
import jax.numpy as jnp
import ml_collections

from experiments.hsd import networks
from experiments.hsd import space as spaces
from experiments.hsd.methods import learner
from lib.nn import mlp


class Gno(nn.Module):
  """The layers x ← x + LayerNorm(MLP([x, mean of x, mean of places - place])).

  Attributes:
    width: channels.
    layers: how many.
    radius: of the balls, in units of the unit cube.
    features: of the output at a vertex.
  """

  width: int
  layers: int
  radius: float
  features: int

  @nn.compact
  def __call__(self, space: spaces.Space, fields: chex.Array) -> chex.Array:
    """Maps fields (B, N, F) to (B, N, features)."""
    places = space.places - 0.5
    means = mean_matrix(places, self.radius)
    offsets = means @ places - places
    x = mlp.MLP((self.width,), self.width)(networks.beside(fields, places))
    for _ in range(self.layers):
      told = networks.beside(jnp.concatenate([x, means @ x], axis=-1), offsets)
      x += nn.LayerNorm()(mlp.MLP((self.width,), self.width)(told))
    return mlp.MLP((self.width,), self.features)(x)


def mean_matrix(places: chex.Array, radius: float) -> chex.Array:
  """The mean over the other vertices of N places within a radius, as a matrix (N, N)."""
  squares = sum((x[:, None] - x) ** 2 for x in places.T)
  near = (squares < radius**2) & ~jnp.eye(len(places), dtype=bool)
  return near / jnp.maximum(near.sum(axis=1, keepdims=True), 1)


def make(problem: learner.Problem, options: ml_collections.ConfigDict) -> learner.Network:
  """Builds the network.

  Args:
    problem: what to predict from what.
    options: `width`, `layers`, and `radius` of the balls, in units of the unit cube.
  """
  network = Gno(options.width, options.layers, options.radius, problem.channels_written)
  return networks.on_vertices(problem, network)
