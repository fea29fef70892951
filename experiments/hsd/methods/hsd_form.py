"""Hodge spectral duality on discrete forms. Zheng et al. (2026), arXiv:2605.13834.

  ω ← ω + G_base(ω) + (1 - Π)[s G_fiber(ω) + C(ω)],    Π = Φ Φᵀ ⋆

The base changes the coefficients of the lowest modes of the Hodge Laplacian, but for the harmonic
ones where the task keeps them; the fiber is a Fourier neural operator on a grid around the mesh; C
is a network at each vertex that starts near zero. What the last two add is orthogonal to the modes,
so that they change no coefficient of the base. The paper's layer does not carry what of ω is
orthogonal to the modes; that we do, and the base's linear map of all coefficients, are ours.

With `config.space.potential` the right-hand side is that of a (k-1)-form α, by its own modes, and
ω ← ω + d α: closed, and of no periods, whatever the networks do. This is ours.
"""

from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from experiments.hsd import networks
from experiments.hsd import space as spaces
from experiments.hsd.methods import learner
from lib.hodge import operators, projections
from lib.nn import mlp

_FLOOR = 1e-3  # of standard deviations of coefficients, as a share of the largest one


class Modes(nn.Module):
  """The base: a gated network between coefficients, q ↦ W_out(silu(W_g q) ⊙ W_c q).

  Attributes:
    hidden: width of the gate.
    size: coefficients of the output.
    skip: add a linear map of q.
  """

  hidden: int
  size: int
  skip: bool

  @nn.compact
  def __call__(self, q: chex.Array) -> chex.Array:
    """Maps features (B, Q) to coefficients (B, size)."""
    gated = jax.nn.silu(nn.Dense(self.hidden)(q)) * nn.Dense(self.hidden)(q)
    out = nn.Dense(self.size)(gated)
    return out + nn.Dense(self.size, use_bias=False)(q) if self.skip else out


class Form(nn.Module):
  """The layers.

  Attributes:
    problem: what to predict from what.
    options: the fields of `config.hsd_form`.
    means: of the inputs' spectral features over the training data (Q,).
    gains: likewise, one over the standard deviation, or zero of what hardly varies.
    scale: of the output's coefficients (m,), roots of mean squares.
    seen: which modes the change knows of (m,): of a potential, those whose derivative is not zero.
  """

  problem: learner.Problem
  options: Any
  means: np.ndarray
  gains: np.ndarray
  scale: np.ndarray
  seen: np.ndarray

  @nn.compact
  def __call__(self, space: spaces.Space, inputs: learner.Inputs) -> chex.Array:
    """Predicts changes (B, n) of inputs (B, n)."""
    options, problem = self.options, self.problem
    basis, weight = (x[problem.written] for x in (space.bases, space.weights))
    # Potentials have no say in what is harmonic.
    harmonic = space.kernel if problem.written == problem.degree else 0
    keeps = options.overwrite and problem.keeps_harmonic and problem.written == problem.degree
    q = (spectral_features(problem, space, inputs) - self.means) * self.gains
    fields = networks.features(problem, space, inputs)
    change = jnp.zeros_like(inputs[problem.start])
    for layer in range(options.layers):
      if layer:
        own = written(problem, space, change) / self.scale
        q_now = jnp.concatenate([q, own], axis=-1)
        now = spaces.to_vertices(space, problem.degree, change)
        fields_now = jnp.concatenate([fields, now], axis=-1)
      else:
        q_now, fields_now = q, fields
      step = self.scale * Modes(options.hidden, basis.shape[1], options.skip)(q_now)
      if keeps:
        step = jnp.where(space.kernel, 0, step)
      step = jnp.where(self.seen, step, 0)
      total = projections.synthesize(basis, step)
      if options.fiber or options.commutator:
        rest = self.rest(space, q_now, fields_now, layer)
        rest = spaces.to_cochains(space, problem.written, rest)
        if options.project != 'none':
          kept = basis * harmonic if options.project == 'harmonic' else basis
          rest = projections.complement(kept, weight, rest)
        total += rest
      change += networks.change(problem, space, total)
    return change

  def rest(self, space: spaces.Space, q: chex.Array, fields: chex.Array, layer: int) -> chex.Array:
    """What the fiber and the commutator make of the features, at vertices (B, N, out_channels)."""
    options, channels = self.options, self.problem.channels_written
    total = jnp.zeros((*fields.shape[:-1], channels))
    if options.fiber:
      shape = (options.grid,) * space.points.shape[1]
      gate = self.param(f'gate_{layer}', nn.initializers.constant(options.gate), ())
      size = options.width, options.fourier_layers, options.modes
      fiber = networks.GridOperator(shape, *size, channels)
      total += gate * fiber(space, fields, space.places)
    if options.commutator:
      told = nn.Dense(options.commutator_width)(q)[:, None]
      told = jnp.broadcast_to(told, (*fields.shape[:-1], told.shape[-1]))
      hidden = (2 * options.commutator_width,) * 2
      local = jnp.concatenate([fields, told], axis=-1)
      total += mlp.MLP(hidden, channels, output_scale=1e-8)(local)
    return total


def make(problem: learner.Problem, options: ml_collections.ConfigDict) -> learner.Network:
  """Builds the network."""

  @jax.jit
  def statistics(inputs, output):
    q = spectral_features(problem, space, inputs)
    own = written(problem, space, output)
    return q.mean(axis=0), q.std(axis=0), jnp.sqrt(jnp.mean(own**2, axis=0))

  space = problem.space
  seen = np.ones(space.bases[problem.written].shape[1], bool)
  if problem.written < problem.degree:
    seen = np.asarray(derivatives(problem, space)[1])
    if not seen.any():
      raise ValueError('config.space.modes: the derivatives of so few modes are all zero.')
  inputs = {name: problem.train[name] for name in problem.degrees}
  means, stds, scale = map(np.asarray, statistics(inputs, problem.train['output']))
  # What is constant on this mesh may have another value on others.
  varies = stds > _FLOOR * stds.max()
  gains = (varies / np.where(varies, stds, 1)).astype(np.float32)
  network = Form(problem, options, means, gains, floored(scale), seen)
  example = {name: x[:1] for name, x in inputs.items()}

  def apply(params, space, inputs):
    return learner.Prediction(network.apply(params, space, inputs), jnp.zeros(()))

  return learner.Network(lambda key: network.init(key, problem.space, example), apply)


def spectral_features(
  problem: learner.Problem, space: spaces.Space, inputs: learner.Inputs
) -> chex.Array:
  """Coefficients of all inputs, with those of their derivatives and codifferentials (B, Q)."""
  found = []
  for name in sorted(problem.degrees):
    k = problem.degrees[name]
    own = projections.coefficients(space.bases[k], space.weights[k], inputs[name])
    found.append(own)
    if k + 1 < len(space.bases):
      found.append(own @ space.derivatives[k].T)
    if k > 0:
      found.append(own @ space.derivatives[k - 1])
  return jnp.concatenate(found, axis=-1)


def written(problem: learner.Problem, space: spaces.Space, change: chex.Array) -> chex.Array:
  """The coefficients (B, m) of changes (B, n), or of their potentials."""
  k, weight = problem.written, space.weights[problem.degree]
  if k == problem.degree:
    return projections.coefficients(space.bases[k], weight, change)
  images, seen = derivatives(problem, space)
  sizes = jnp.sum(weight * images**2, axis=-1)
  return jnp.where(seen, (weight * change) @ images.T / jnp.where(seen, sizes, 1), 0)


def derivatives(problem: learner.Problem, space: spaces.Space) -> tuple[chex.Array, chex.Array]:
  """d of the modes that potentials are written in (m, n), and which are more than rounding (m,)."""
  k, weight = problem.written, space.weights[problem.degree]
  modes = space.bases[k].T
  images = networks.change(problem, space, modes)
  terms = operators.derivative_abs(space.complex, k, abs(modes))
  size = lambda w: jnp.sum(weight * w**2, axis=-1)
  return images, size(images) > 1e-8 * size(terms)


def floored(scale: np.ndarray) -> np.ndarray:
  """Scales of modes (m,), none much smaller than the largest."""
  return np.maximum(scale, max(_FLOOR * scale.max(initial=0), 1e-12)).astype(np.float32)
