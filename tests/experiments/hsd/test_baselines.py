"""Tests of the baselines: regressions in closed form, and networks that know no numbering."""

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

from experiments.hsd import evaluate, methods, networks, problems
from experiments.hsd.methods import learner
from lib.hodge import complexes, projections
from tests.experiments.hsd import toys

SMALL = {
  'fno': {'grid': 5, 'width': 4, 'layers': 1, 'modes': 2},
  'geo_fno': {'grid': 5, 'width': 4, 'layers': 1, 'modes': 2, 'hidden': (4,)},
  'gno': {'width': 8, 'layers': 1, 'radius': 0.3},
  'mgn': {'width': 8, 'layers': 1},
  'deeponet': {'branch': (8,), 'trunk': (8,), 'basis': 4},
  'simplicial': {'width': 8, 'layers': 2},
  'transolver': {'width': 8, 'layers': 1, 'heads': 2, 'slices': 4},
}
TRAINED = tuple(SMALL)
LOCAL = tuple(name for name in SMALL if name != 'deeponet')


def problem_of(task, method, **changes):
  config, problem = toys.problem(task, method, **changes)
  for name, sizes in SMALL.items():
    config[name] = sizes
  return config, problem


def apply(method, params, problem, samples):
  inputs = evaluate.inputs(problem, samples)
  return np.asarray(jax.jit(method.apply)(params, problem.space, inputs).output)


def linear(problem):
  """The problem with outputs that are linear in the inputs, and the map."""
  x = {part: np.asarray(networks.flat(problem, getattr(problem, part))) for part in PARTS}
  slope = (
    np.random.default_rng(0).normal(size=(x['train'].shape[1], 2)) / x['train'].shape[1] ** 0.5
  )
  directions = np.random.default_rng(1).normal(size=(2, problem.train['output'].shape[1]))
  outputs = {part: (rows @ slope @ directions).astype(np.float32) for part, rows in x.items()}
  return problem._replace(
    **{part: {**getattr(problem, part), 'output': outputs[part]} for part in PARTS}
  ), x


PARTS = ('train', 'valid')


class ClosedFormTest(parameterized.TestCase):
  def test_ridge_is_least_squares_where_the_penalty_is_small(self):
    config, problem = problem_of('circulation', 'ridge', ridge={'penalties': (1e-10,)})
    problem, x = linear(problem)
    method = methods.make(config, 'ridge', problem)
    found = apply(method, method.fit(), problem, problem.valid)
    y = problem.train['output'].astype(np.float64)
    shift, center = x['train'].mean(axis=0), y.mean(axis=0)
    slope = np.linalg.lstsq(x['train'] - shift, y - center, rcond=1e-6)[0]
    expected = (x['valid'] - shift) @ slope + center
    np.testing.assert_allclose(found, expected, atol=1e-3 * abs(expected).max())

  def test_ridge_shrinks_to_the_mean(self):
    config, problem = problem_of('circulation', 'ridge', ridge={'penalties': (1e12,)})
    method = methods.make(config, 'ridge', problem)
    found = apply(method, method.fit(), problem, problem.valid)
    mean = np.broadcast_to(problem.train['output'].mean(axis=0), found.shape)
    np.testing.assert_allclose(found, mean, atol=1e-5)

  def test_the_penalty_is_chosen_on_the_validation_samples(self):
    penalties = (1e-8, 1e-2, 1e4)
    errors = []
    for chosen in (*((p,) for p in penalties), penalties):
      config, problem = problem_of('circulation', 'ridge', ridge={'penalties': chosen})
      method = methods.make(config, 'ridge', problem)
      found = apply(method, method.fit(), problem, problem.valid)
      errors.append(evaluate.relative_errors(problem, problem.valid, found).mean())
    self.assertAlmostEqual(float(errors[-1]), float(min(errors[:-1])), places=5)

  def test_kernel_ridge_interpolates_without_penalty(self):
    section = {'penalties': (1e-9,), 'widths': (1.0,)}
    config, problem = problem_of('circulation', 'kernel_ridge', kernel_ridge=section)
    method = methods.make(config, 'kernel_ridge', problem)
    found = apply(method, method.fit(), problem, problem.train)
    np.testing.assert_allclose(found, problem.train['output'], atol=1e-2)

  def test_spectral_linear_stays_in_its_modes(self):
    config, problem = problem_of('circulation', 'spectral_linear')
    method = methods.make(config, 'spectral_linear', problem)
    found = apply(method, method.fit(), problem, problem.valid)
    k = problem.degree
    rest = projections.complement(problem.space.bases[k], problem.space.weights[k], found)
    self.assertGreater(abs(found).max(), 1e-3)
    np.testing.assert_allclose(rest, 0, atol=1e-4 * abs(found).max())

  def test_identity_and_mean_are_what_they_say(self):
    for name in ('identity', 'mean'):
      config, problem = problem_of('allen_cahn', name)
      method = methods.make(config, name, problem)
      found = apply(method, method.fit(), problem, problem.valid)
      expected = problem.train['output'].mean(axis=0) if name == 'mean' else 0
      np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), atol=1e-5)


class NetworksTest(parameterized.TestCase):
  @parameterized.parameters(*LOCAL)
  def test_another_numbering_of_the_vertices_numbers_the_output(self, name):
    config, problem = problem_of('transport', name)
    order = np.random.default_rng(0).permutation(len(problem.space.points))
    task = toys.loaded('transport').task
    place = np.argsort(order)  # old vertices by new numbers, and back
    faces = place[np.asarray(task.complex.faces)]
    c = complexes.tri_complex(faces, len(order))
    star1 = {
      tuple(edge): star for edge, star in zip(task.complex.edges, task.stars[1], strict=True)
    }
    edges = np.sort(order[c.edges], axis=1)
    other = task._replace(
      complex=c,
      points=task.points[order],
      stars=(task.stars[0][order], np.array([star1[tuple(e)] for e in edges]), task.stars[2]),
    )
    renumbered = problem._replace(space=problems.space(config, name, other))
    method = methods.make(config, name, problem)
    params = toys.random_like(jax.eval_shape(method.init, jax.random.key(0)))
    expected = apply(method, params, problem, problem.train)
    turned = {label: np.asarray(x)[:, order] for label, x in problem.train.items()}
    found = apply(method, params, renumbered, turned)
    self.assertGreater(np.ptp(expected), 1e-3)
    np.testing.assert_allclose(found, expected[:, order], atol=2e-3 * abs(expected).max())

  @parameterized.parameters(*TRAINED)
  def test_gradients_are_finite_and_lead_down(self, name):
    config, problem = problem_of('circulation', name)
    method = methods.make(config, name, problem)
    inputs = evaluate.inputs(problem, problem.train)

    @jax.jit
    def descend(key):
      def loss(params):
        found = method.apply(params, problem.space, inputs)
        return jnp.mean(evaluate.relative_errors(problem, problem.train, found.output) ** 2)

      params = method.init(key)
      before, slopes = jax.value_and_grad(loss)(params)
      size = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(slopes)))
      step = 1e-3 / jnp.maximum(size, 1e-9)
      after = loss(jax.tree.map(lambda p, g: p - step * g, params, slopes))
      return before, after, size

    before, after, size = descend(jax.random.key(0))
    self.assertTrue(0 < size < np.inf)
    self.assertLess(after, before)

  def test_a_grid_does_not_jump_when_its_last_vertex_leaves_a_node(self):
    _, problem = problem_of('circulation', 'geo_fno')
    fields = jnp.ones((1, len(problem.space.points), 1))
    places = jnp.clip(problem.space.places, 0.3, 0.45)
    grids = [
      networks.on_grid(problem.space, fields, (5, 5, 5), places + step, least=0.1)
      for step in (0.05 - 1e-5, 0.05 + 1e-5)  # some cross into the next cell, at 0.5
    ]
    self.assertGreater(abs(grids[0]).max(), 0.9)
    np.testing.assert_allclose(grids[0], grids[1], atol=0.02)

  @parameterized.parameters(
    ('fno', 'circulation'), ('deeponet', 'circulation'), ('simplicial', 'circulation'),
    ('fno', 'shell'),
  )  # fmt: skip
  def test_what_has_a_potential_is_exact(self, name, task):
    config, problem = problem_of(task, name)
    config.space.potential = True
    problem = problems.build(config, name, toys.loaded(task))
    method = methods.make(config, name, problem)
    params = toys.random_like(jax.eval_shape(method.init, jax.random.key(0)))
    found = apply(method, params, problem, problem.train).astype(np.float64)
    size = evaluate.norm(toys.loaded(task).task.stars[problem.degree], found)
    self.assertGreater(size.min(), 0)
    for part, w in evaluate.parts(toys.loaded(task).task, found).items():
      gap = found - w if part == 'exact' else w
      norms = evaluate.norm(toys.loaded(task).task.stars[problem.degree], gap)
      np.testing.assert_allclose(norms / size, 0, atol=1e-5)

  def test_spectral_convolution_is_that_of_the_fast_transform(self):
    layer = networks.SpectralConvolution(2)
    x = np.random.default_rng(0).normal(size=(2, 5, 4, 6, 3)).astype(np.float32)
    params = toys.random_like(jax.eval_shape(layer.init, jax.random.key(0), x))
    weights = params['params']['real'] + 1j * params['params']['imaginary']
    whole = np.fft.rfftn(x, axes=(1, 2, 3))
    kept = np.zeros_like(whole)
    for i, a in enumerate((-1, 0, 1)):
      for j, b in enumerate((-1, 0, 1)):
        for k in (0, 1):
          kept[:, a, b, k] = whole[:, a, b, k] @ weights[i, j, k]
    expected = np.fft.irfftn(kept, (5, 4, 6), axes=(1, 2, 3))
    np.testing.assert_allclose(jax.jit(layer.apply)(params, x), expected, atol=1e-4)

  def test_too_many_modes_are_refused(self):
    with self.assertRaisesRegex(ValueError, 'modes do not fit'):
      networks.SpectralConvolution(4).init(jax.random.key(0), jnp.zeros((1, 6, 6, 2)))

  def test_every_method_has_one_signature(self):
    for name in methods.METHODS:
      config, problem = problem_of('allen_cahn', name)
      made = methods.make(config, name, problem)
      self.assertIsInstance(
        made, learner.Solver if name in methods.CLOSED_FORM else learner.Network
      )


if __name__ == '__main__':
  absltest.main()
