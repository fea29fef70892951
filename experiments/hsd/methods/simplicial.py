"""A simplicial network: cochains of all degrees, which d, δ and the Hodge Laplacian connect.

After the networks of Yang et al. (2022), SCNN, and topological neural operators. Messages are
linear and keep cochains' signs; what multiplies them does not change with signs, so that a cell's
orientation flips its numbers and no other ones.
"""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from experiments.hsd import networks
from experiments.hsd import space as spaces
from experiments.hsd.methods import learner
from lib.hodge import operators


class Simplicial(nn.Module):
  """The layers x_k ← x_k + m_k ⊙ σ(gate), with the messages m_k a linear map of

    x_k    d x_{k-1}    δ x_{k+1}    δ d x_k    d δ x_k

  and gates of |m_k| and of the mean of m_0 over each cell's corners.

  Attributes:
    problem: what to predict from what.
    width: channels of each degree.
    layers: how many.
    sizes: of d_k and δ_{k+1}, for each k below the dimension, by which they are divided.
  """

  problem: learner.Problem
  width: int
  layers: int
  sizes: tuple[tuple[float, float], ...]

  @nn.compact
  def __call__(self, space: spaces.Space, inputs: learner.Inputs) -> chex.Array:
    """Maps inputs (B, n) to cochains of the output's degree (B, n)."""
    degree, units = self.problem.degree, cell_units(space)
    top = len(units) - 1
    up = lambda k, x: 

    x = [self.lift(space, inputs, k) for k in range(top + 1)]
