"""A Fourier neural operator on a grid around the mesh. Li et al. (2020), arXiv:2010.08895."""

import chex
import flax.linen as nn
import ml_collections

from experiments.hsd import networks
from experiments.hsd import space as spaces
from experiments.hsd.methods import learner


class Fno(nn.Module):
  """The operator at the vertices' own places.

  Attributes:
    operator: from fields at given places to such fields.
  """

  operator: nn.Module

  @nn.compact
  def __call__(self, space: spaces.Space, fields: chex.Array) -> chex.Array:
    """Maps fields (B, N, F) to (B, N, features)."""
    return self.operator(space, networks.beside(fields, space.places - 0.5), space.places)


def make(problem: learner.Problem, options: ml_collections.ConfigDict) -> learner.Network:
  """Builds the network.

  Args:
    problem: what to predict from what.
    options: `grid`, nodes along each axis; `width`, `layers` and `modes` of the Fourier layers.
  """
  return networks.on_vertices(problem, Fno(operator(problem, options)))


def operator(problem: learner.Problem, options: ml_collections.ConfigDict) -> nn.Module:
  """The operator with the options of `make`."""
  shape = (options.grid,) * problem.space.places.shape[1]
  return networks.GridOperator(
    shape, options.width, options.layers, options.modes, problem.channels_written
  )
