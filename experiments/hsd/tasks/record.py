"""What a task is: a mesh, cochains that go in and out, and what must hold of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import sparse

from lib.hodge.complexes import Complex

Samples = dict[str, np.ndarray]


class Field(NamedTuple):
  """Cochains of one degree, under `name` in the samples as (B, n_degree)."""

  name: str
  degree: int


class Invariant(NamedTuple):
  """Something that holds of outputs exactly, whatever the material.

  Attributes:
    name: of it.
    residual: `residual(samples, output) -> (B,)`, relative and >= 0, of outputs (B, n), predicted
      or true, for the samples' inputs.
  """

  name: str
  residual: Callable[[Mapping[str, np.ndarray], np.ndarray], np.ndarray]


class Task(NamedTuple):
  """A solution operator on one mesh.

  Attributes:
    name: of the task.
    complex: of the mesh, without padding.
    points: its vertices (N, D) in space.
    stars: positive diagonals ⋆0, ⋆1, ... up to the dimension, float64.
    inputs: what a model may see.
    output: what there is to predict.
    start: the input, of the output's degree, from which changes are counted.
    keeps_harmonic: whether the output has that input's harmonic part, whatever else there is.
    cycles: (b, n), chains of the output's degree; the integrals of the output over them are known
      beforehand, the `given` (B, b) of the samples. b = 0 where nothing is known.
    invariants: of the output.
    sample: `sample(rng) -> arrays` of one problem, drawn and solved: the fields (n,) and `given`
      (b,).
  """

  name: str
  complex: Complex
  points: np.ndarray
  stars: tuple[np.ndarray, ...]
  inputs: tuple[Field, ...]
  output: Field
  start: str
  keeps_harmonic: bool
  cycles: np.ndarray
  invariants: tuple[Invariant, ...]
  sample: Callable[[np.random.Generator], Samples]


def generate(task: Task, seeds: Sequence[int | np.random.SeedSequence]) -> Samples:
  """Draws and solves one problem for each seed, on which alone it depends.

  Returns:
    The arrays of `task.sample`, float64, with the seeds' axis first.
  """
  samples = [task.sample(np.random.default_rng(seed)) for seed in seeds]
  return {name: np.stack([sample[name] for sample in samples]) for name in samples[0]}


def linear_invariant(
  name: str,
  matrix: sparse.sparray | np.ndarray,
  expected: Callable[[Mapping[str, np.ndarray]], np.ndarray | float],
) -> Invariant:
  """A w = b(samples), for outputs w (B, n) and b (B, m).

  Args:
    name: of the invariant.
    matrix: A (m, n).
    expected: b; where it is 0, so is what it is compared with.

  Returns:
    The invariant whose residual is max |A w - b| over the larger of max |A| |w| and max |b|.
  """
  matrix = sparse.csr_array(matrix, dtype=np.float64)
  absolute = abs(matrix)

  def residual(samples, output):
    known = np.asarray(expected(samples))
    error = abs((matrix @ output.T).T - known).max(axis=-1, initial=0)
    # What is summed up sets the scale, for b may be zero; a floor, for the output may be as well.
    scale = np.maximum((absolute @ abs(output).T).T, abs(known)).max(axis=-1, initial=0)
    return error / np.maximum(scale, np.finfo(float).tiny)

  return Invariant(name, residual)


def periods_kept(cycles: np.ndarray) -> Invariant:
  """The integrals of outputs over the cycles are the given ones."""
  return linear_invariant('periods', cycles, lambda samples: samples['given'])
