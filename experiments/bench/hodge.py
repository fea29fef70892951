"""The cases of discrete exterior calculus: operators, their cost by size, solves, training."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from experiments.bench.case import Case
from experiments.hsd import data, evaluate, methods, problems, tasks
from experiments.hsd.methods import learner
from experiments.hsd.tasks import domains, record
from lib.hodge import complexes, decomposition, meshes, operators, stars
from lib.hodge.complexes import Complex
from lib.io import fields

Stars = Sequence[chex.Array]
_PERIOD = (2 * np.pi, 2 * np.pi)
_LEAST = 36  # edges of the smallest flat torus


class Operator(NamedTuple):
  """A linear map of cochains on a surface.

  Attributes:
    degree: of what it takes.
    apply: `apply(c, stars, w)`.
    tables: the tables of incidence that it reads, by their fields of a complex.
    stars: the stars that it multiplies or divides by, one for each time.
  """

  degree: int
  apply: Callable[[Complex, Stars, chex.Array], chex.Array]
  tables: tuple[str, ...]
  stars: tuple[int, ...] = ()


OPERATORS = {
  'd0': Operator(0, lambda c, _, w: operators.d0(c, w), ('edges',)),
  'd0_transpose': Operator(1, lambda c, _, w: operators.transpose(c, 0, w), ('vertex_edges',)),
  'd1': Operator(1, lambda c, _, w: operators.d1(c, w), ('face_edges',)),
  'd1_transpose': Operator(2, lambda c, _, w: operators.transpose(c, 1, w), ('edge_faces',)),
  'codifferential1': Operator(
    1, lambda c, s, w: operators.codifferential(c, s, 1, w), ('vertex_edges',), (1, 0)
  ),
  'laplacian0': Operator(
    0, lambda c, s, w: operators.laplacian(c, s, 0, w), ('edges', 'vertex_edges'), (1, 0)
  ),
  'laplacian1': Operator(
    1,
    lambda c, s, w: operators.laplacian(c, s, 1, w),
    ('edges', 'vertex_edges', 'face_edges', 'edge_faces'),
    (1, 0, 2, 1),
  ),
}


def check(config: ml_collections.ConfigDict) -> None:
  """Raises a ValueError that names the first bad field of `config.hodge`."""
  sizes = config.hodge
  for field in ('edges', 'decomposed_edges'):
    fields.require(f'hodge.{field}', sizes[field], sizes[field] >= _LEAST, f'at least {_LEAST}')
  least = min(sizes.scaling, default=_LEAST)
  fields.require('hodge.scaling', sizes.scaling, least >= _LEAST, f'at least {_LEAST}')
  fields.check_ranges(
    fields.flatten(sizes, 'hodge.'),
    ('hodge.cochains', 'hodge.training.batch_size', 'hodge.training.space.modes'),
    open_unit_interval=('hodge.tol',),
  )
  try:
    tasks.options(sizes.training.task)
  except (OSError, ValueError) as error:
    raise ValueError(f'config.hodge.training: {error}') from error


def scaled(config: ml_collections.ConfigDict) -> dict[str, int]:
  """The cases of `config.hodge.scaling`, each with its number of edges."""
  return {f'hodge_laplacian1_{edges}': edges for edges in config.hodge.scaling}


def apply(name: str, edges: int) -> Case:
  """An operator on a flat torus.

  Args:
    name: of `OPERATORS`.
    edges: about how many, at least 36.

  Returns:
    A function of (complex, stars, cochain), whose unit is an edge. Its work is a multiplication
    and an addition for each entry of an incidence matrix, and an operation for each entry of a
    star; its traffic is the cochains that go in and out and all that it reads besides, once, and
    nothing of what it has in between.
  """
  operator = OPERATORS[name]
  c, metric = surface(edges)
  w = cochains(c, operator.degree)
  out = jax.eval_shape(operator.apply, c, metric, w)
  read = [getattr(c, table) for table in operator.tables]
  if 'face_edges' in operator.tables:
    read.append(c.face_signs)
  read += [metric[k] for k in set(operator.stars)]
  traffic = sum(x.nbytes for x in jax.tree.leaves((read, w))) + out.size * out.dtype.itemsize
  work = entries(c, operator.tables) + sum(metric[k].size for k in operator.stars)
  args = jax.device_put((c, metric, w))
  return Case(operator.apply, args, len(c.edges), 1, 'edge', float(work), float(traffic))


def decompose(config: ml_collections.ConfigDict) -> Case:
  """The Hodge decomposition of many 1-cochains at once.

  Args:
    config: its `hodge` has the numbers of `decomposed_edges`, about, and of `cochains`, and the
      relative residual `tol`.

  Returns:
    A function of (complex, stars, cochains) in float32. Its work is that of the products with the
    two systems' matrices, as in `apply`, in as many steps as each cochain takes, which are counted
    in a call of their own. It counts as steps those of the cochain that takes most.
  """
  sizes = config.hodge
  c, metric = surface(sizes.decomposed_edges)
  args = jax.device_put((c, metric, cochains(c, 1, sizes.cochains)))
  fn = lambda c, metric, w: decomposition.decompose(c, metric, 1, w, sizes.tol)
  found = jax.jit(fn)(*args)
  steps = [np.asarray(solve.steps) for solve in (found.exact_solve, found.coexact_solve)]
  work = sum(
    n.sum() * (entries(c, tables) + metric[1].size)
    for n, tables in zip(
      steps, (('edges', 'vertex_edges'), ('face_edges', 'edge_faces')), strict=True
    )
  )
  counts = {'exact_steps': float(steps[0].max()), 'coexact_steps': float(steps[1].max())}
  return Case(fn, args, sizes.cochains, 1, 'cochain', float(work), counts=counts)


def step(method_name: str, config: ml_collections.ConfigDict) -> Case:
  """Loss and gradient of a method of HSD's experiment on one batch of random samples.

  Args:
    method_name: of `experiments.hsd.methods`, a network.
    config: its `hodge.training` has what that experiment's config says of the `task`, the
      `space`, the `batch_size` and the method.

  Returns:
    A function of (params, batch).
  """
  problem = training_problem(config.hodge.training)
  network = methods.make(config.hodge.training, method_name, problem)

  def loss(params: learner.Params, batch: learner.Inputs) -> chex.Array:
    found = network.apply(params, problem.space, evaluate.inputs(problem, batch))
    return jnp.mean(evaluate.relative_errors(problem, batch, found.output)) + found.penalty

  params = jax.jit(network.init)(jax.random.key(0))
  return Case(jax.value_and_grad(loss), (params, jax.device_put(problem.train)))


def training_problem(sizes: ml_collections.ConfigDict) -> learner.Problem:
  """The problem of random numbers in place of a task's samples, one batch of them."""
  task = tasks.make(sizes.task)
  rng = np.random.default_rng(0)
  samples = {
    field.name: rng.standard_normal((sizes.batch_size, task.stars[field.degree].size))
    for field in (*task.inputs, task.output)
  }
  none: record.Samples = {}
  loaded = data.Data(task, samples, samples, none, None, None, {})
  return problems.build(sizes, 'hsd_form', loaded)


@functools.cache
def surface(edges: int) -> tuple[Complex, tuple[np.ndarray, ...]]:
  """A flat torus of about so many edges, its vertices row by row, and its stars by cotangents."""
  rows = 2 * round((edges / 3) ** 0.5 / 2)
  points, faces = meshes.flat_torus(round(edges / 3 / rows), rows, _PERIOD)
  c = complexes.tri_complex(faces, len(points))

  cotan = lambda x: stars.cotan(c, stars.periodic_edge_lengths(c, x, _PERIOD))
  return c, tuple(star.astype(np.float32) for star in domains.exact(cotan, points))


def cochains(c: Complex, degree: int, *shape: int) -> np.ndarray:
  """Random k-cochains (*shape, n_k), float32."""
  return np.random.default_rng(0).standard_normal((*shape, c.sizes[degree]), np.float32)


def entries(c: Complex, tables: Sequence[str]) -> int:
  """Operations of products with the incidence matrices that the tables hold."""
  return 2 * sum(jax.tree.leaves(getattr(c, table))[0].size for table in tables)


def _default(name: str, config: ml_collections.ConfigDict) -> Case:
  return apply(name, config.hodge.edges)


CASES: dict[str, Callable[[ml_collections.ConfigDict], Case]] = {
  **{f'hodge_{name}': functools.partial(_default, name) for name in OPERATORS},
  'hodge_decompose': decompose,
  'hodge_form_step': functools.partial(step, 'hsd_form'),
  'hodge_fno_step': functools.partial(step, 'fno'),
}
