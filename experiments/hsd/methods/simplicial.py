"""A simplicial network: cochains of all degrees, which d, δ and the Hodge Laplacian connect.

After Yang et al. (2022), arXiv:2110.02585, with messages between degrees and gates. Messages are
linear, and gates do not change with signs, so that to turn a cell flips its own numbers and no
others.
"""

import itertools
from collections.abc import Sequence

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from experiments.hsd import networks
from experiments.hsd import space as spaces
from experiments.hsd.methods import learner
from lib.hodge import complexes, operators


class Simplicial(nn.Module):
  """The layers x_k ← x_k + m_k ⊙ σ(g_k), with messages m_k that are a linear map of

    x_k    d x_{k-1}    δ x_{k+1}    d δ x_k    δ d x_k

  and with g_k one of |m_k| and of the mean of m_0 over each cell's corners. Cochains are in units
  in which those of a field of one size have one size, on every mesh.

  Attributes:
    problem: what to predict from what.
    width: channels of each degree.
    layers: how many.
    sizes: of d_k and of δ_{k+1}, for each k below the dimension, by which they are divided.
  """

  problem: learner.Problem
  width: int
  layers: int
  sizes: tuple[tuple[float, float], ...]

  @nn.compact
  def __call__(self, space: spaces.Space, inputs: learner.Inputs) -> chex.Array:
    """Maps inputs (B, n) to the change (B, n)."""
    c, degree = space.complex, self.problem.written
    units = [unit[:, None] for unit in cell_units(space.stars)]
    degrees = range(len(units))
    # A bias would not turn with a cell.
    dense = lambda k, width: nn.Dense(width, use_bias=k == 0)
    x = []
    for k in degrees:
      own = [inputs[name] for name in sorted(inputs) if self.problem.degrees[name] == k]
      fields = [w[..., None] * units[k] for w in own]
      shape = (len(inputs[self.problem.start]), len(units[k]))
      if k == 0:
        fields.append(jnp.broadcast_to(space.places - 0.5, (*shape, space.places.shape[1])))
      if fields:
        x.append(dense(k, self.width)(jnp.concatenate(fields, axis=-1)))
      else:
        x.append(jnp.zeros((*shape, self.width)))

    def up(k, y):
      return derivative(c, k, y / units[k]) * units[k + 1] / self.sizes[k][0]

    def down(k, y):
      return transpose(c, k - 1, y * units[k]) / units[k - 1] / self.sizes[k - 1][1]

    for layer in range(self.layers):
      last = layer + 1 == self.layers
      raised = [up(k, x[k]) for k in degrees[:-1]]
      lowered = [down(k, x[k]) for k in degrees[1:]]
      messages = {}
      for k in {0, degree} if last else degrees:
        terms = [x[k]]
        if k > 0:
          terms += [raised[k - 1], up(k - 1, lowered[k - 1])]
        if k + 1 < len(units):
          terms += [lowered[k], down(k + 1, raised[k])]
        messages[k] = dense(k, self.width)(jnp.concatenate(terms, axis=-1))
      for k in {degree} if last else degrees:
        told = [abs(messages[k]), at_corners(c, k, messages[0])]
        gate = nn.Dense(self.width)(jnp.concatenate(told, axis=-1))
        x[k] += messages[k] * jax.nn.sigmoid(gate)
    found = dense(degree, 1)(x[degree]) / units[degree]
    return networks.change(self.problem, space, found[..., 0])


def cell_units(stars: Sequence[chex.Array]) -> list[chex.Array]:
  """√(n_k ⋆_k / Σ ⋆_0) (n_k,): times cochains of a field, numbers of its root mean square."""
  return [jnp.sqrt(len(star) * star / stars[0].sum()) for star in stars]


def operator_sizes(space: spaces.Space) -> tuple[tuple[float, float], ...]:
  """Root mean squares of what d_k and δ_{k+1} make of independent numbers of variance 1."""
  found = []
  squares = [np.asarray(unit, np.float64) ** 2 for unit in cell_units(space.stars)]
  for k, (lower, higher) in enumerate(itertools.pairwise(squares)):
    total = float(jnp.sum(higher * operators.derivative_abs(space.complex, k, 1 / lower)))
    found.append(((total / len(higher)) ** 0.5, (total / len(lower)) ** 0.5))
  return tuple(found)


def derivative(c: complexes.Complex, k: int, x: chex.Array) -> chex.Array:
  """d_k of channels (B, n_k, C), as `operators.derivative`, several times as fast on CPUs."""
  table, back = _tables(c, k)
  return _signed_sums(table, back, x)


def transpose(c: complexes.Complex, k: int, x: chex.Array) -> chex.Array:
  """d_kᵀ of channels (B, n_{k+1}, C), as `operators.transpose`."""
  table, back = _tables(c, k)
  return _signed_sums(back, table, x)


def at_corners(c: complexes.Complex, k: int, x: chex.Array) -> chex.Array:
  """The mean of x (B, N, C) over the vertices of each k-cell (B, n_k, C)."""
  if k == 0:
    return x
  cells = (c.edges, c.faces, c.tets)[k - 1]
  return sum(_take(x, cells[:, i]) for i in range(k + 1)) / (k + 1)


def _tables(c: complexes.Complex, k: int) -> tuple[complexes.Cofaces, complexes.Cofaces]:
  """d_k and its transpose as tables."""
  if k == 0:
    signs = jnp.broadcast_to(jnp.array([[-1], [1]], jnp.int8), c.edges.T.shape)
    return complexes.Cofaces(c.edges.T, signs), c.vertex_edges
  if k == 1:
    return complexes.Cofaces(c.face_edges.T, c.face_signs.T), c.edge_faces
  return complexes.Cofaces(c.tet_faces.T, c.tet_signs.T), c.face_tets


@jax.custom_vjp
def _signed_sums(table: complexes.Cofaces, back: complexes.Cofaces, x: chex.Array) -> chex.Array:
  """Σ_j sign_j x[index_j] (B, m, C), of x (B, n, C) and tables of m cells; `back` transposes."""
  total = jnp.zeros((len(x), table.index.shape[1], x.shape[-1]), x.dtype)
  if not len(table.index):  # it would be padding mostly
    return total.at[:, back.index].add(x[:, None] * back.sign[..., None].astype(x.dtype))
  for index, sign in zip(*table, strict=True):
    total += _take(x, index) * sign[:, None].astype(x.dtype)
  return total


_signed_sums.defvjp(
  lambda table, back, x: (_signed_sums(table, back, x), (table, back)),
  lambda tables, g: (None, None, _signed_sums(*tables[::-1], g)),
)


def _take(x: chex.Array, index: chex.Array) -> chex.Array:
  return x.at[:, index].get(mode='promise_in_bounds')


def make(problem: learner.Problem, options: ml_collections.ConfigDict) -> learner.Network:
  """Builds the network.

  Args:
    problem: what to predict from what.
    options: `width`, channels of each degree, and `layers`.
  """
  network = Simplicial(problem, options.width, options.layers, operator_sizes(problem.space))
  example = {name: problem.train[name][:1] for name in problem.degrees}

  def apply(params, space, inputs):
    return learner.Prediction(network.apply(params, space, inputs), jnp.zeros(()))

  return learner.Network(lambda key: network.init(key, problem.space, example), apply)
