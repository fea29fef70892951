"""DeepONet: a basis of fields, and a network for their coefficients. Lu et al. (2021).

It reads the inputs' cochains one by one, in the order and the orientation of its own mesh.
"""

import chex
import flax.linen as nn
import jax.numpy as jnp
import ml_collections

from experiments.hsd import networks
from experiments.hsd import space as spaces
from experiments.hsd.methods import learner
from lib.nn import mlp


class DeepONet(nn.Module):
  """u(x) = Σ_i b_i(inputs) t_i(x) + b₀, with vectors t_i at each place x.

  Attributes:
    branch: widths of the hidden layers of b.
    trunk: widths of those of t.
    basis: how many fields.
    features: of the output at a vertex.
  """

  branch: tuple[int, ...]
  trunk: tuple[int, ...]
  basis: int
  features: int

  @nn.compact
  def __call__(self, space: spaces.Space, values: chex.Array) -> chex.Array:
    """Maps all inputs (B, P) to fields (B, N, features)."""
    coefficients = mlp.MLP(self.branch, self.basis)(values)
    fields = mlp.MLP(self.trunk, self.basis * self.features)(space.places - 0.5)
    fields = fields.reshape(-1, self.basis, self.features)
    bias = self.param('bias', nn.initializers.zeros, (self.features,))
    return jnp.einsum('bi,nic->bnc', coefficients, fields) / self.basis**0.5 + bias


def make(problem: learner.Problem, options: ml_collections.ConfigDict) -> learner.Network:
  """Builds the network.

  Args:
    problem: what to predict from what.
    options: `branch` and `trunk`, widths of hidden layers, and `basis`, how many fields.
  """
  network = DeepONet(
    tuple(options.branch), tuple(options.trunk), options.basis, problem.channels_written
  )

  def init(key):
    return network.init(key, problem.space, networks.flat(problem, problem.train)[:1])

  def apply(params, space, inputs):
    fields = network.apply(params, space, networks.flat(problem, inputs))
    return learner.Prediction(networks.output(problem, space, fields), jnp.zeros(()))

  return learner.Network(init, apply, transfers=False)
