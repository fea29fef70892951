"""Tests of both forms of Hodge spectral duality: what holds whatever the parameters."""

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

from experiments.hsd import evaluate, methods, networks, problems
from experiments.hsd import space as spaces
from lib.hodge import projections
from tests.experiments.hsd import toys


def predict(config, problem, params, method='hsd_form', space=None, samples=None):
  made = methods.make(config, method, problem)
  inputs = evaluate.inputs(problem, problem.train if samples is None else samples)
  return np.asarray(jax.jit(made.apply)(params, space or problem.space, inputs).output)


def drawn(config, problem, method='hsd_form'):
  params = jax.eval_shape(methods.make(config, method, problem).init, jax.random.key(0))
  return toys.random_like(params)


def coefficients(problem, w):
  k = problem.degree
  return np.asarray(projections.coefficients(problem.space.bases[k], problem.space.weights[k], w))


class FormTest(parameterized.TestCase):
  @parameterized.parameters('darcy', 'shell')
  def test_fiber_and_commutator_change_no_coefficient(self, task):
    config, problem = toys.problem(task)
    params = drawn(config, problem)
    whole = predict(config, problem, params)
    config.hsd_form.update({'fiber': False, 'commutator': False})
    base = predict(config, problem, params)
    self.assertGreater(abs(whole - base).max(), 1e-2)
    size = abs(coefficients(problem, whole)).max()
    gap = coefficients(problem, whole) - coefficients(problem, base)
    np.testing.assert_allclose(gap / size, 0, atol=2e-5)

  def test_without_projection_they_do(self):
    config, problem = toys.problem('darcy')
    config.hsd_form.project = 'none'
    params = drawn(config, problem)
    whole = predict(config, problem, params)
    config.hsd_form.update({'fiber': False, 'commutator': False})
    gap = coefficients(problem, whole - predict(config, problem, params))
    self.assertGreater(abs(gap).max(), 1e-2 * abs(coefficients(problem, whole)).max())

  @parameterized.parameters(
    ('circulation', 2, 'modes'),
    ('transport', 1, 'modes'),
    ('shell', 1, 'modes'),
    ('circulation', 1, 'harmonic'),
  )
  def test_harmonic_coefficients_are_kept(self, task, layers, project):
    config, problem = toys.problem(task)
    config.hsd_form.update({'layers': layers, 'project': project})
    params = drawn(config, problem)
    kernel = np.asarray(problem.space.kernel)
    self.assertEqual(kernel.sum(), {'circulation': 2, 'transport': 1, 'shell': 1}[task])
    change = coefficients(problem, predict(config, problem, params))
    np.testing.assert_allclose(change[:, kernel] / abs(change).max(), 0, atol=1e-5)
    config.hsd_form.overwrite = False
    change = coefficients(problem, predict(config, problem, params))
    self.assertGreater(abs(change[:, kernel]).max(), 1e-4 * abs(change).max())

  @parameterized.parameters(('circulation', 2), ('darcy', 1), ('shell', 1))
  def test_potentials_keep_what_the_task_keeps(self, task, layers):
    config = toys.config(task)
    config.hsd_form.layers = layers
    config.space.potential = True
    loaded = toys.loaded(task)
    problem = problems.build(config, 'hsd_form', loaded)
    params = drawn(config, problem)
    whole = predict(config, problem, params).astype(np.float64)
    change = whole * problems.scales(loaded.task, loaded.train).output
    output = loaded.train[loaded.task.start] + change
    for invariant in loaded.task.invariants:
      residual = invariant.residual(loaded.train, output)
      np.testing.assert_allclose(residual, 0, atol=1e-5, err_msg=invariant.name)
    # Nor do fiber and commutator reach the derivatives of the modes.
    if layers == 1:
      config.hsd_form.update({'fiber': False, 'commutator': False})
      gap = whole - predict(config, problem, params)
      weight = np.asarray(problem.space.weights[problem.degree])
      images = np.asarray(
        networks.change(problem, problem.space, problem.space.bases[problem.written].T)
      )
      images = images[evaluate.norm(weight, images) > 1e-3]  # others are closed
      self.assertGreater(len(images), 2)
      sizes = np.sqrt(np.outer(gap**2 @ weight, images**2 @ weight))
      self.assertGreater(evaluate.norm(weight, gap).min(), 1e-2)
      np.testing.assert_allclose((weight * gap) @ images.T / sizes, 0, atol=1e-4)

  def test_values_at_vertices_have_no_potential(self):
    config = toys.config('transport')
    config.space.potential = True
    with self.assertRaisesRegex(ValueError, 'config.space.potential'):
      problems.build(config, 'hsd_form', toys.loaded('transport'))

  def test_layers_that_start_at_zero_leave_the_base(self):
    config, problem = toys.problem('circulation')
    config.hsd_form.gate = 0.0
    params = jax.jit(methods.make(config, 'hsd_form', problem).init)(jax.random.key(0))
    whole = predict(config, problem, params)
    config.hsd_form.update({'fiber': False, 'commutator': False})
    base = predict(config, problem, params)
    np.testing.assert_allclose(whole, base, atol=1e-3 * abs(base).max())

  def test_signs_of_modes_are_a_gauge(self):
    """Modes of other signs, with parameters to match, predict the same."""
    config, problem = toys.problem('circulation')
    config.hsd_form.update({'fiber': False, 'commutator': False})
    rng = np.random.default_rng(1)
    signs = [rng.choice([-1.0, 1.0], basis.shape[1]) for basis in problem.space.bases]
    turned = problem.space._replace(
      bases=tuple(basis * s for basis, s in zip(problem.space.bases, signs, strict=True)),
      derivatives=tuple(
        m * above[:, None] * below
        for m, below, above in zip(problem.space.derivatives, signs, signs[1:], strict=False)
      ),
    )
    params = drawn(config, problem)
    # A feature's sign is that of the mode it belongs to.
    of_features = []
    for name in sorted(problem.degrees):
      k = problem.degrees[name]
      of_features += [signs[k], *signs[k + 1 : k + 2], *([signs[k - 1]] if k else [])]
    of_features = np.concatenate(of_features)
    layer = params['params']['Modes_0']
    other = {name: dict(dense) for name, dense in layer.items()}
    out = signs[problem.degree]
    for dense in other.values():
      rows = of_features[:, None] if dense['kernel'].shape[0] == len(of_features) else 1
      columns = out if dense['kernel'].shape[1] == len(out) else 1
      dense['kernel'] = dense['kernel'] * rows * columns
      if 'bias' in dense and np.ndim(columns):
        dense['bias'] = dense['bias'] * columns
    expected = predict(config, problem, params)
    found = predict(config, problem._replace(space=turned), {'params': {'Modes_0': other}})
    np.testing.assert_allclose(found, expected, atol=1e-4 * abs(expected).max())

  @parameterized.parameters('hsd_form', 'hsd_reference')
  def test_gradients_are_finite(self, method):
    config, problem = toys.problem('allen_cahn', method)
    made = methods.make(config, method, problem)
    params = jax.jit(made.init)(jax.random.key(0))
    inputs = evaluate.inputs(problem, problem.train)
    loss = lambda p, given: jnp.sum(made.apply(p, problem.space, given).output ** 2)
    gradient = jax.jit(jax.grad(loss))
    for given in (inputs, jax.tree.map(jnp.zeros_like, inputs)):
      for leaf in jax.tree.leaves(gradient(params, given)):
        self.assertTrue(bool(jnp.isfinite(leaf).all()))


class ReferenceTest(parameterized.TestCase):
  def test_the_rest_changes_no_coefficient_of_the_vertices(self):
    config, problem = toys.problem('transport', 'hsd_reference')
    params = drawn(config, problem, 'hsd_reference')
    whole = predict(config, problem, params, 'hsd_reference')
    params['params']['scale'] = np.float32(0)
    base = predict(config, problem, params, 'hsd_reference')
    basis = np.asarray(problem.space.bases[0])
    self.assertGreater(abs(whole - base).max(), 1e-3)
    np.testing.assert_allclose((whole - base) @ basis, 0, atol=1e-4 * abs(whole).max())

  def test_its_bases_know_no_metric(self):
    _, problem = toys.problem('circulation', 'hsd_reference')
    for basis in problem.space.bases:
      gram = np.asarray(basis.T @ basis)
      np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-5)


class SpaceTest(parameterized.TestCase):
  @parameterized.parameters('darcy', 'circulation')
  def test_modes_on_a_finer_mesh_are_those_of_the_coarse_one(self, task):
    config = toys.config(task)
    config.variants.hsd_form.space.modes = 6
    loaded = toys.loaded(task, finer=True)
    coarse = problems.space(config, 'hsd_form', loaded.task)
    finer = problems.space(config, 'hsd_form', loaded.finer_task, (loaded.task, coarse))
    for k, basis in enumerate(coarse.bases):
      self.assertEqual(finer.bases[k].shape[1], basis.shape[1])
      one, other = (
        np.asarray(spaces.to_vertices(space, k, space.bases[k].T))[:, index]
        for space, index in zip((coarse, finer), nearest(coarse, finer), strict=True)
      )
      if k == loaded.task.output.degree:
        sizes = np.linalg.norm(one, axis=(1, 2)) * np.linalg.norm(other, axis=(1, 2))
        self.assertGreater(np.mean(np.sum(one * other, axis=(1, 2)) / sizes), 0.7)

  def test_what_is_constant_on_one_mesh_does_not_count_on_another(self):
    """As the source of Darcy's flow, whose coefficients differ between meshes."""
    config = toys.config('darcy')
    loaded = toys.loaded('darcy', finer=True)
    problem = problems.build(config, 'spectral_only', loaded)
    method = methods.make(config, 'spectral_only', problem)
    params = jax.jit(method.init)(jax.random.key(0))
    finer = problems.space(config, 'spectral_only', loaded.finer_task, (loaded.task, problem.space))
    by = problems.scales(loaded.task, loaded.train)
    sizes = []
    for task, space, samples in (
      (loaded.task, problem.space, loaded.test),
      (loaded.finer_task, finer, loaded.finer),
    ):
      inputs = evaluate.inputs(problem, problems.scaled(task, by, samples))
      change = np.asarray(jax.jit(method.apply)(params, space, inputs).output)
      sizes.append(evaluate.norm(task.stars[1], change)[:2])
    np.testing.assert_allclose(sizes[1] / sizes[0], 1, atol=0.5)

  @parameterized.parameters(('darcy', 1), ('circulation', 0), ('shell', 2))
  def test_fields_survive_the_way_to_vertices_and_back(self, task, degree):
    """Up to averages over cells, so that constants in flat domains come back exactly."""
    loaded = toys.loaded(task)
    dimension = loaded.task.points.shape[1]
    field = np.broadcast_to(
      np.arange(1.0, 1 + spaces.channels(loaded.task, degree)),
      (len(loaded.task.points), spaces.channels(loaded.task, degree)),
    )
    self.assertEqual(field.shape[1], dimension if degree else 1)
    space = problems.space(toys.config(task), 'hsd_form', loaded.task)
    cochains = spaces.to_cochains(space, degree, jnp.asarray(field, jnp.float32))
    found = spaces.to_vertices(space, degree, cochains)
    np.testing.assert_allclose(found, field, rtol=1e-3)


def nearest(coarse, finer):
  """Each vertex of the coarse mesh, and the closest one of the finer."""
  gaps = np.linalg.norm(np.asarray(coarse.points)[:, None] - np.asarray(finer.points), axis=-1)
  return np.arange(len(gaps)), gaps.argmin(axis=1)


if __name__ == '__main__':
  absltest.main()
