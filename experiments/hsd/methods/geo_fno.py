"""A Fourier neural operator on a grid in learned coordinates. Li et al. (2023), JMLR 24 (388).

The vertices move before their fields go onto the grid, and are where these are read off.
"""

import chex
import flax.linen as nn
import ml_collections

from experiments.hsd import networks
from experiments.hsd import space as spaces
from experiments.hsd.methods import fno, learner
from lib.nn import mlp


class GeoFno(nn.Module):
  """The operator at places that a network moves, at first by little.

  Attributes:
    operator: from fields at given places to such fields.
    hidden: widths of the network that moves them.
  """

  operator: nn.Module
  hidden: tuple[int, ...]

  @nn.compact
  def __call__(self, space: spaces.Space, fields: chex.Array) -> chex.Array:
    """Maps fields (B, N, F) to (B, N, features)."""
    places = space.places - 0.5
    move = mlp.MLP(self.hidden, places.shape[1], activation=nn.tanh, output_scale=1e-4)
    return self.operator(space, networks.beside(fields, places), space.places + move(places))


def make(problem: learner.Problem, options: ml_collections.ConfigDict) -> learner.Network:
  """Builds the network.

  Args:
    problem: what to predict from what.
    options: those of `fno`, and `hidden`, widths of the network that moves the vertices.
  """
  # Nodes must not jump when the last vertex leaves them.
  operator = fno.operator(problem, options).clone(least=0.1)
  network = GeoFno(operator, tuple(options.hidden))
  return networks.on_vertices(problem, network)
