"""Predictions, and how far they are from the truth: as fields, as forms, and as shapes."""

from collections.abc import Callable
from typing import Any

import jax
import ml_collections
import numpy as np
from scipy import sparse

from experiments.hsd import data, problems
from experiments.hsd import space as spaces
from experiments.hsd.methods import learner
from experiments.hsd.tasks import record
from lib.hodge import decomposition
from lib.train import signals

Scores = dict[str, np.ndarray]
LEVELS = (0.2, 0.5, 0.8)  # of the truth's range, above which components are counted
_BLOCK = 50  # samples at once, so that memory stays flat
_TOLERANCE = 1e-10  # of the decomposition


def inputs(problem: learner.Problem, samples: learner.Inputs) -> dict[str, Any]:
  """What a method may see of samples."""
  return {name: samples[name] for name in problem.degrees}


def relative_errors(problem: learner.Problem, samples: learner.Inputs, found: Any) -> Any:
  """|found - change|_⋆ / |start + change|_⋆ (..., B), traced or not, on the mesh of training."""
  star = problem.space.stars[problem.degree]
  whole = samples[problem.start] + samples['output']
  return spaces.norm(star, found - samples['output']) / spaces.norm(star, whole)


def predictor(
  problem: learner.Problem, method: learner.Method
) -> Callable[[Any, spaces.Space, learner.Inputs], np.ndarray]:
  """Returns `predict(params, space, samples) -> (S, B, n)`, changes by parameters of S seeds."""

  @jax.jit
  def predict(params, space, rows):
    def one(row):
      alone = jax.tree.map(lambda x: x[None], row)
      return jax.vmap(lambda p: method.apply(p, space, alone).output[0])(params)

    return jax.lax.map(one, rows, batch_size=_BLOCK).swapaxes(0, 1)

  return lambda params, space, samples: np.asarray(predict(params, space, inputs(problem, samples)))


def validation_error(problem: learner.Problem, predict: Callable, params: Any) -> np.ndarray:
  """The mean relative error (S,) on the validation samples."""
  found = predict(params, problem.space, problem.valid)
  return np.asarray(relative_errors(problem, problem.valid, found).mean(axis=-1))


def score(
  config: ml_collections.ConfigDict,
  name: str,
  loaded: data.Data,
  problem: learner.Problem,
  method: learner.Method,
  predict: Callable,
  params: Any,
) -> tuple[Scores, dict[str, np.ndarray]]:
  """Scores a method on the test samples.

  Returns:
    Scores, one number a seed (S,); and the predictions of the first test samples, `output` (S,
    shown, n), to look at.
  """
  task, by = loaded.task, problems.scales(loaded.task, loaded.train)
  scores: Scores = {'valid_error': validation_error(problem, predict, params)}
  leaves = jax.tree.leaves(params)
  scores['parameters'] = np.full(1, sum(leaf[0].size for leaf in leaves))

  def predicted(task, space, samples):
    change = predict(params, space, problems.scaled(task, by, samples))
    return samples[task.start] + by.output * change.astype(np.float64)

  found = predicted(task, problem.space, loaded.test)
  each = [errors(task, loaded.test, own) for own in found]
  scores |= {metric: np.array([own[metric] for own in each]) for metric in each[0]}
  if loaded.finer_task is not None and method.transfers:
    finer = loaded.finer_task
    space = problems.space(config, name, finer, (task, problem.space))
    there = relative(finer, loaded.finer, predicted(finer, space, loaded.finer))
    here = relative(task, loaded.test, found)[:, : there.shape[1]]  # of the same problems
    scores['finer_error'] = there.mean(axis=-1)
    scores['finer_growth'] = scores['finer_error'] / here.mean(axis=-1)
  return scores, {'output': found[:, : config.eval.shown]}


def errors(task: record.Task, samples: record.Samples, found: np.ndarray) -> dict[str, float]:
  """Means over samples of the errors of outputs (B, n), in double precision."""
  degree, expected = task.output.degree, samples[task.output.name]
  star = task.stars[degree]
  size = norm(star, expected)
  scores = {'error': float(relative(task, samples, found).mean())}
  for part, error in parts(task, found - expected).items():
    scores[f'{part}_error'] = float((norm(star, error) / size).mean())
  for invariant in task.invariants:
    scores[f'{invariant.name}_residual'] = float(invariant.residual(samples, found).mean())
  fields, truths = (
    np.linalg.norm(spaces.on_host(spaces.to_vertices, task, degree, w), axis=-1)
    for w in (found, expected)
  )
  if degree == 0:  # a scalar has a sign
    fields, truths = found, expected
  largest = abs(truths).max(axis=-1, keepdims=True)
  vectors = spaces.on_host(spaces.to_vertices, task, degree, found - expected)
  scores['mse'] = float(((vectors / largest[..., None]) ** 2).mean())
  edges = np.asarray(task.complex.edges)
  shapes = [shape_scores(edges, *pair) for pair in zip(fields, truths, strict=True)]
  signals.check()
  scores['beta0'], scores['iou'] = map(float, np.mean(shapes, axis=0))
  return scores


def relative(task: record.Task, samples: record.Samples, found: np.ndarray) -> np.ndarray:
  """|found - true|_⋆ / |true|_⋆ (..., B) of outputs (..., B, n), in double precision."""
  expected, star = samples[task.output.name], task.stars[task.output.degree]
  return norm(star, found - expected) / norm(star, expected)


def parts(task: record.Task, w: np.ndarray) -> dict[str, np.ndarray]:
  """The exact, coexact and harmonic parts of cochains (B, n) of the output's degree."""
  with jax.enable_x64(True):
    found = _decompose(task.complex, task.stars, task.output.degree, w)
  named = {'exact': found.exact, 'coexact': found.coexact, 'harmonic': found.harmonic}
  if task.output.degree == 0:
    del named['exact']
  return {name: np.asarray(part) for name, part in named.items()}


def shape_scores(edges: np.ndarray, found: np.ndarray, expected: np.ndarray) -> tuple[float, float]:
  """How alike two fields at vertices (N,) are above levels of the second one's range.

  Args:
    edges: (E, 2).
    found: a field.
    expected: the true one.

  Returns:
    Means over `LEVELS` of exp(-3/2 |b - b'|/max(b, b', 1)), with b the number of connected
    components of what lies above, and of the intersection over the union, 1 where both are empty.
  """
  low, high = expected.min(), expected.max()
  alike, overlaps = [], []
  for level in LEVELS:
    above = [field > low + level * (high - low) for field in (found, expected)]
    counts = [components(edges, there) for there in above]
    alike.append(np.exp(-1.5 * abs(counts[0] - counts[1]) / max(*counts, 1)))
    union = (above[0] | above[1]).sum()
    overlaps.append((above[0] & above[1]).sum() / union if union else 1.0)
  return float(np.mean(alike)), float(np.mean(overlaps))


def components(edges: np.ndarray, there: np.ndarray) -> int:
  """The number of connected components of the vertices that are there (N,), by edges (E, 2)."""
  inside = edges[there[edges].all(axis=1)]
  graph = sparse.coo_array((np.ones(len(inside)), inside.T), (len(there),) * 2)
  return sparse.csgraph.connected_components(graph, directed=False)[0] - int((~there).sum())


def norm(star: np.ndarray, w: np.ndarray) -> np.ndarray:
  """|w|_⋆ (...) of cochains (..., n)."""
  return np.sqrt((star * w**2).sum(axis=-1))


def _decompose(c, stars, degree, w) -> decomposition.Decomposition:
  solve = jax.jit(decomposition.decompose, static_argnums=(2, 4))
  return solve(c, stars, degree, w, _TOLERANCE)
