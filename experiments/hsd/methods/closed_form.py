"""Methods without training: the mean, and regressions whose penalty the validation data choose.

On the mesh of training alone, and in its numbering, but for `spectral_linear`.
"""

from collections.abc import Callable, Iterable
from typing import Any

import chex
import jax.numpy as jnp
import ml_collections
import numpy as np

from experiments.hsd import networks
from experiments.hsd import space as spaces
from experiments.hsd.methods import learner
from lib.hodge import projections


def identity(problem: learner.Problem, options: ml_collections.ConfigDict) -> learner.Solver:
  """Predicts no change from the start."""
  del options

  def apply(params, space, inputs):
    return _predicted(params['zero'] * inputs[problem.start])

  return learner.Solver(lambda: {'zero': np.zeros(1, np.float32)}, apply, transfers=True)


def mean(problem: learner.Problem, options: ml_collections.ConfigDict) -> learner.Solver:
  """Predicts the mean change of the training data."""
  del options

  def apply(params, space, inputs):
    return _predicted(jnp.broadcast_to(params['mean'], inputs[problem.start].shape))

  return learner.Solver(lambda: {'mean': problem.train['output'].mean(axis=0)}, apply)


def ridge(problem: learner.Problem, options: ml_collections.ConfigDict) -> learner.Solver:
  """Linear regression on all inputs' cochains, in its dual form.

  Args:
    problem: what to predict from what.
    options: `penalties`, over the mean square of an input, to choose from.
  """
  return _linear(problem, options.penalties, lambda space, inputs: networks.flat(problem, inputs))


def spectral_linear(problem: learner.Problem, options: ml_collections.ConfigDict) -> learner.Solver:
  """Linear regression between coefficients in the bases; `options` as `ridge`."""

  def read(space, inputs):
    found = [
      projections.coefficients(space.bases[k], space.weights[k], inputs[name])
      for name, k in sorted(problem.degrees.items())
    ]
    return jnp.concatenate(found, axis=-1)

  k = problem.degree
  target = lambda space, w: projections.coefficients(space.bases[k], space.weights[k], w)
  write = lambda space, c: projections.synthesize(space.bases[k], c)
  return _linear(problem, options.penalties, read, target, write)._replace(transfers=True)


def kernel_ridge(problem: learner.Problem, options: ml_collections.ConfigDict) -> learner.Solver:
  """Regression with a Gaussian kernel on all inputs' cochains.

  Args:
    problem: what to predict from what.
    options: `penalties`, over the kernel's diagonal, and `widths`, over the median distance, to
      choose from.
  """
  x, y, x_valid = (
    np.asarray(array, np.float64)
    for array in (
      networks.flat(problem, problem.train),
      problem.train['output'],
      networks.flat(problem, problem.valid),
    )
  )
  center = y.mean(axis=0)

  def fit():
    squares, squares_valid = _squares(x, x), _squares(x_valid, x)
    median = np.median(squares)
    candidates = []
    for width in options.widths:
      scale = 2 * width**2 * median
      kernel, kernel_valid = np.exp(-squares / scale), np.exp(-squares_valid / scale)
      for dual in _duals(kernel, y - center, options.penalties):
        params = {'dual': dual, 'scale': np.array(scale)}
        candidates.append((kernel_valid @ dual + center, params))
    return {'rows': x, 'center': center, **_best(problem, candidates)}

  def apply(params, space, inputs):
    rows, own = params['rows'], networks.flat(problem, inputs)
    squares = jnp.sum(own**2, axis=1)[:, None] + jnp.sum(rows**2, axis=1) - 2 * own @ rows.T
    return _predicted(jnp.exp(-squares / params['scale']) @ params['dual'] + params['center'])

  return learner.Solver(lambda: _single(fit()), apply)


def _linear(
  problem: learner.Problem,
  penalties: Iterable[float],
  read: Callable[[spaces.Space, learner.Inputs], chex.Array],
  target: Callable[[spaces.Space, chex.Array], chex.Array] = lambda space, w: w,
  write: Callable[[spaces.Space, chex.Array], chex.Array] = lambda space, c: c,
) -> learner.Solver:
  """Ridge regression of `target(output)` on `read(inputs)`, from which `write` makes the output."""

  def fit():
    space = problem.space
    x, x_valid = (
      np.asarray(read(space, part), np.float64) for part in (problem.train, problem.valid)
    )
    y = np.asarray(target(space, problem.train['output']), np.float64)
    shift, center = x.mean(axis=0), y.mean(axis=0)
    x, x_valid, y = x - shift, x_valid - shift, y - center
    candidates = []
    kernel = x @ x.T
    for dual in _duals(kernel, y, np.asarray(penalties) * np.trace(kernel) / len(x)):
      slope = x.T @ dual
      predicted = write(space, jnp.asarray(x_valid @ slope + center, jnp.float32))
      candidates.append((np.asarray(predicted), {'slope': slope}))
    return {'shift': shift, 'center': center, **_best(problem, candidates)}

  def apply(params, space, inputs):
    found = (read(space, inputs) - params['shift']) @ params['slope'] + params['center']
    return _predicted(write(space, found))

  return learner.Solver(lambda: _single(fit()), apply)


def _duals(kernel: np.ndarray, y: np.ndarray, penalties: Iterable[float]):
  """Yields (K + λ)⁻¹ y (R, n) for each penalty λ, of a kernel K (R, R) and targets y (R, n)."""
  values, vectors = np.linalg.eigh(kernel)
  turned = vectors.T @ y
  for penalty in penalties:
    yield vectors @ (turned / (np.maximum(values, 0) + penalty)[:, None])


def _best(problem: learner.Problem, candidates: list[tuple[np.ndarray, Any]]) -> Any:
  """The parameters of the candidate (predictions, parameters) of least validation error."""
  star = np.asarray(problem.space.stars[problem.degree])
  valid = problem.valid
  size = spaces.norm(star, valid['output'] + valid[problem.start])
  errors = [
    float(np.mean(spaces.norm(star, found - valid['output']) / size)) for found, _ in candidates
  ]
  return candidates[int(np.argmin(errors))][1]


def _squares(x: np.ndarray, y: np.ndarray) -> np.ndarray:
  """|x_i - y_j|² (R, S), of rows (R, P) and (S, P)."""
  return np.maximum((x**2).sum(axis=1)[:, None] + (y**2).sum(axis=1) - 2 * x @ y.T, 0)


def _predicted(change: chex.Array) -> learner.Prediction:
  return learner.Prediction(change, jnp.zeros(()))


def _single(params: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
  return {name: np.asarray(x, np.float32) for name, x in params.items()}
