"""Tests of experiments.hsd.evaluate."""

import functools

import numpy as np
from absl.testing import absltest, parameterized

from experiments.hsd import evaluate, problems
from lib.hodge import matrices
from tests.experiments.hsd import toys

TASKS = ('circulation', 'allen_cahn', 'shell')  # degrees 1, 0, and 2 in a volume
PATH = np.array([[i, i + 1] for i in range(5)])  # of six vertices
CYCLE = np.concatenate([PATH, [[0, 5]]])


def truth(name):
  """A task, its test samples, and their outputs."""
  loaded = toys.loaded(name)
  return loaded.task, loaded.test, loaded.test[loaded.task.output.name]


@functools.cache
def harmonic(name):
  """Harmonic cochains (b, n) of the output's degree, as the kernel of its Laplacian."""
  task = toys.loaded(name).task
  degree = task.output.degree
  operator = matrices.laplacian(task.complex, task.stars, degree).toarray()
  root = np.sqrt(task.stars[degree])
  values, vectors = np.linalg.eigh(operator / np.outer(root, root))
  return (vectors[:, values < 1e-8 * values[-1]] / root[:, None]).T


class PartsTest(parameterized.TestCase):
  @parameterized.parameters(*TASKS)
  def test_parts_are_orthogonal_and_sum_to_the_whole(self, name):
    task, _, w = truth(name)
    degree, star = task.output.degree, task.stars[task.output.degree]
    rng = np.random.default_rng(0)
    w = rng.normal(size=w.shape) / np.sqrt(star)
    parts = evaluate.parts(task, w)
    self.assertEqual(set(parts), {'coexact', 'harmonic'} | ({'exact'} if degree else set()))
    np.testing.assert_allclose(sum(parts.values()), w, atol=1e-9 * abs(w).max())
    energies = {part: evaluate.norm(star, v) ** 2 for part, v in parts.items()}
    np.testing.assert_allclose(sum(energies.values()), evaluate.norm(star, w) ** 2, rtol=1e-9)
    for part in parts:  # an orthogonal part is no larger than the whole
      self.assertTrue((energies[part] > 0).all(), part)
    if degree + 1 < len(task.stars):
      curl = matrices.incidence(task.complex, degree) @ (w - parts['coexact']).T
      np.testing.assert_allclose(curl, 0, atol=1e-7 * abs(w).max())
    basis = harmonic(name)
    expected = (star * w) @ basis.T @ basis
    np.testing.assert_allclose(parts['harmonic'], expected, atol=1e-7 * abs(w).max())


class ErrorsTest(parameterized.TestCase):
  @parameterized.parameters(*TASKS)
  def test_the_truth_has_none(self, name):
    task, samples, w = truth(name)
    found = evaluate.errors(task, samples, w)
    self.assertEqual((found.pop('beta0'), found.pop('iou')), (1.0, 1.0))
    for invariant in task.invariants:
      self.assertLess(found.pop(f'{invariant.name}_residual'), 1e-9)
    self.assertEqual(set(found.values()), {0.0})

  @parameterized.parameters(*TASKS)
  def test_a_harmonic_error_is_all_harmonic(self, name):
    task, samples, w = truth(name)
    basis = harmonic(name)
    sizes = np.arange(1.0, 1 + len(w))  # of the error, relative
    step = np.random.default_rng(0).normal(size=(len(w), len(basis))) @ basis
    star = task.stars[task.output.degree]
    step *= (sizes * evaluate.norm(star, w) / evaluate.norm(star, step))[:, None]
    found = evaluate.errors(task, samples, w + step)
    self.assertAlmostEqual(found['error'], sizes.mean(), delta=1e-9)
    self.assertAlmostEqual(found['harmonic_error'], sizes.mean(), delta=1e-7)
    self.assertLess(max(found['coexact_error'], found.get('exact_error', 0)), 1e-7)

  def test_a_multiple_of_the_truth_has_its_own_shape(self):
    task, samples, w = truth('circulation')
    found = evaluate.errors(task, samples, 1.5 * w)
    self.assertAlmostEqual(found['error'], 0.5, places=12)
    self.assertGreater(found['harmonic_error'], 1e-3)
    self.assertLess(found['closed_residual'], 1e-9)  # of a closed form, what is closed as well
    self.assertGreater(found['periods_residual'], 1e-3)

  @parameterized.parameters('circulation', 'allen_cahn')
  def test_training_sees_the_errors_that_count(self, name):
    """In scaled units, of changes, and in single precision."""
    _, problem = toys.problem(name)
    loaded = toys.loaded(name)
    w = loaded.train[loaded.task.output.name]
    star = loaded.task.stars[loaded.task.output.degree]
    noise = np.random.default_rng(0).normal(size=w.shape) * abs(w).max()
    expected = evaluate.norm(star, noise) / evaluate.norm(star, w)
    np.testing.assert_allclose(evaluate.relative(loaded.task, loaded.train, w + noise), expected)
    by = problems.scales(loaded.task, loaded.train)
    change = problem.train['output'] + noise / by.output
    found = evaluate.relative_errors(problem, problem.train, change)
    np.testing.assert_allclose(found, expected, rtol=1e-4)

  def test_zero_predicts_with_an_error_of_one(self):
    task, samples, w = truth('circulation')
    found = evaluate.errors(task, samples, np.zeros_like(w))
    self.assertAlmostEqual(found['error'], 1.0, places=12)
    self.assertEqual((found['closed_residual'], found['periods_residual']), (0.0, 1.0))
    parts = [found[f'{part}_error'] for part in ('exact', 'coexact', 'harmonic')]
    self.assertAlmostEqual(parts[1], 0.0, places=9)  # closed forms have no coexact part
    self.assertLess(max(parts), 1.0)
    self.assertGreater(sum(parts), 1.0)


class ComponentsTest(parameterized.TestCase):
  @parameterized.parameters(
    (PATH, (), 0),
    (PATH, (3,), 1),
    (PATH, (0, 1, 2, 3, 4, 5), 1),
    (PATH, (0, 1, 3, 4), 2),
    (PATH, (0, 2, 4), 3),
    (PATH, (0, 5), 2),
    (CYCLE, (0, 5), 1),
    (CYCLE, (0, 1, 3, 4), 2),
    (CYCLE, (5, 0, 2, 3), 2),
  )
  def test_of_graphs(self, edges, vertices, expected):
    there = np.isin(np.arange(6), vertices)
    self.assertEqual(evaluate.components(edges, there), expected)


class ShapesTest(parameterized.TestCase):
  def test_by_hand(self):
    """One bump against two, of which it covers a half."""
    expected = np.array([1.0, 1, 0, 0, 1, 1])
    found = np.array([1.0, 1, 0, 0, 0, 0])
    beta0, iou = evaluate.shape_scores(PATH, found, expected)
    self.assertAlmostEqual(beta0, np.exp(-1.5 / 2))
    self.assertAlmostEqual(iou, 0.5)
    # On a cycle both bumps of the truth are one.
    self.assertEqual(evaluate.shape_scores(CYCLE, found, expected), (1.0, iou))

  def test_levels_are_of_the_truth(self):
    rng = np.random.default_rng(0)
    found, expected = rng.normal(size=(2, 6))
    scores = evaluate.shape_scores(PATH, found, expected)
    self.assertEqual(evaluate.shape_scores(PATH, 8 * found - 4, 8 * expected - 4), scores)
    self.assertEqual(evaluate.shape_scores(PATH, found[::-1], expected[::-1]), scores)
    beta0, iou = evaluate.shape_scores(PATH, expected, expected)
    self.assertEqual((beta0, iou), (1.0, 1.0))

  @parameterized.parameters(
    (np.zeros(6), np.zeros(6), 1.0, 1.0),  # nothing is above a level, in either
    (np.zeros(6), np.ones(6), 1.0, 1.0),
    (np.ones(6), np.zeros(6), np.exp(-1.5), 0.0),  # all of it, against nothing
    (np.full(6, np.inf), np.arange(6.0), 1.0, (4 + 3 + 1) / 18),
    (np.full(6, -np.inf), np.arange(6.0), np.exp(-1.5), 0.0),
    (np.full(6, np.nan), np.arange(6.0), np.exp(-1.5), 0.0),
  )
  def test_hostile_fields(self, found, expected, beta0, iou):
    scores = evaluate.shape_scores(PATH, found, expected)
    np.testing.assert_allclose(scores, (beta0, iou), rtol=1e-12)


if __name__ == '__main__':
  absltest.main()
