"""Laws of questions: valid, sorted, of the margins they promise; answers drawn as they say."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from scipy import stats

from lib.voting import confidence, sources

_Q = 4000


@functools.cache
def questions(law, *args):
  return np.asarray(
    jax.jit(functools.partial(law, num_questions=_Q, **dict(args)))(jax.random.key(0))
  )


def dirichlet():
  return questions(sources.dirichlet_questions, ('num_answers', 4), ('concentration', 0.5))


def gaps(num_answers=5):
  return questions(sources.gap_questions, ('num_answers', num_answers))


def margins(gamma=0.5, num_answers=2, rest=0.0):
  return questions(
    sources.margin_law_questions, ('num_answers', num_answers), ('gamma', gamma), ('rest', rest)
  )


class LawsTest(chex.TestCase):
  @parameterized.parameters(
    (dirichlet,), (gaps,), (gaps, 2), (margins,), (margins, 2.0, 5, 0.3), (margins, 1.0, 3, 0.9)
  )
  def test_rows_are_sorted_and_sum_to_one(self, law, *args):
    p = law(*args)
    self.assertEqual(p.dtype, np.float32)
    self.assertTrue((np.diff(p, axis=-1) <= 1e-7).all())
    self.assertTrue((p >= 0).all())
    np.testing.assert_allclose(p.sum(-1), 1.0, atol=2e-6)
    sources.check_probabilities(p)

  def test_dirichlet(self):
    # E Σ p² = (c + 1)/(K c + 1).
    p = dirichlet()
    squares = (p**2).sum(-1)
    error = squares.std() / np.sqrt(_Q)
    self.assertAlmostEqual(squares.mean(), 1.5 / 3, delta=4 * error)

  def test_gaps_are_uniform(self):
    for num_answers in (2, 5):
      p = gaps(num_answers)
      self.assertGreater(stats.kstest(p[:, 0] - p[:, 1], 'uniform').pvalue, 1e-3)
    self.assertGreater(stats.kstest((p[:, 2:] / p[:, 1:2]).ravel(), 'uniform').pvalue, 1e-3)

  @parameterized.parameters((0.5, 2, 0.0), (2.0, 5, 0.3), (1.0, 3, 0.9))
  def test_margins_have_their_law(self, gamma, num_answers, rest):
    p = margins(gamma, num_answers, rest)
    m = np.asarray(confidence.margin(jnp.asarray(p)))
    self.assertGreater(stats.kstest(m**gamma, 'uniform').pvalue, 1e-3)
    others = p[:, 2:].sum(-1)
    self.assertTrue((others <= rest + 1e-6).all())
    # The mass is what was asked for, or as much as stays below the second.
    short = others < rest - 1e-5
    np.testing.assert_allclose(p[short, -1], p[short, 1], rtol=1e-5, atol=1e-9)

  def test_refuses(self):
    key = jax.random.key(0)
    for law, args in (
      (sources.dirichlet_questions, (0, 3, 1.0)),
      (sources.dirichlet_questions, (3, 0, 1.0)),
      (sources.dirichlet_questions, (3, 3, 0.0)),
      (sources.dirichlet_questions, (3, 3, np.nan)),
      (sources.gap_questions, (0, 3)),
      (sources.gap_questions, (3, 1)),
      (sources.margin_law_questions, (3, 1, 0.5)),
      (sources.margin_law_questions, (3, 3, 0.0)),
      (sources.margin_law_questions, (3, 3, np.inf)),
      (sources.margin_law_questions, (3, 3, 0.5, 1.0)),
      (sources.margin_law_questions, (3, 3, 0.5, -0.1)),
      (sources.margin_law_questions, (3, 2, 0.5, 0.1)),
    ):
      with self.assertRaises(ValueError):
        law(key, *args)


class DrawTest(chex.TestCase):
  @chex.variants(with_jit=True)
  def test_frequencies(self):
    p = np.array([[0.1, 0.6, 0.3, 0.0], [0.0, 0.0, 1.0, 0.0], [0.25, 0.25, 0.25, 0.25]], np.float32)
    draw = self.variant(functools.partial(sources.draw_answers, num_draws=20_000))
    answers = draw(jax.random.key(0), p)
    chex.assert_type(answers, jnp.int32)
    chex.assert_shape(answers, (3, 20_000))
    counts = np.stack([np.bincount(row, minlength=4) for row in answers])
    np.testing.assert_array_equal(counts[p == 0], 0)
    self.assertEqual(counts[1, 2], 20_000)
    for row, chances in zip(counts[[0, 2]], p[[0, 2]], strict=True):
      possible = chances > 0
      chances = chances[possible].astype(np.float64)
      expected = 20_000 * chances / chances.sum()
      self.assertGreater(stats.chisquare(row[possible], expected).pvalue, 1e-3)
    # Neighbours are independent.
    x = np.asarray(answers[2], np.float64)
    self.assertLess(abs(np.corrcoef(x[1:], x[:-1])[0, 1]), 4 / np.sqrt(x.size))

  def test_answers_of_probability_zero_are_never_drawn(self):
    # Thousands of answers, whose cumulative sums round up and down.
    rng = np.random.default_rng(0)
    p = rng.uniform(size=(4, 5000)) * (rng.uniform(size=(4, 5000)) < 0.3)
    p[:, -100:] = 0
    p = (p / p.sum(-1, keepdims=True)).astype(np.float32)
    answers = sources.draw_answers(jax.random.key(0), jnp.asarray(p), 20_000)
    self.assertTrue((np.take_along_axis(p, np.asarray(answers), axis=-1) > 0).all())

  def test_relabelled_modes_are_anywhere(self):
    p = jnp.asarray(gaps())
    found = np.asarray(jax.jit(sources.relabel)(jax.random.key(1), p))
    np.testing.assert_array_equal(np.sort(found), np.sort(p))
    modes = np.bincount(found.argmax(-1), minlength=5)
    self.assertGreater(stats.chisquare(modes).pvalue, 1e-3)
    # Independently of each other.
    pairs = np.histogram2d(found[:-1].argmax(-1), found[1:].argmax(-1), bins=5)[0]
    self.assertGreater(stats.chi2_contingency(pairs).pvalue, 1e-3)

  @parameterized.parameters(
    ([[0.5, 0.5], [0.5, 0.6]], 'question 1: sum 1.1'),
    ([1.2, -0.2], 'least -0.2'),
    ([np.nan, 1.0], 'sum nan'),
    ([], 'at least one answer'),
    (0.5, 'at least one answer'),
  )
  def test_refuses_what_is_no_distribution(self, p, message):
    with self.assertRaisesRegex(ValueError, message):
      sources.check_probabilities(np.array(p))
    with self.assertRaisesRegex(ValueError, message):
      sources.draw_answers(jax.random.key(0), jnp.array(p), 3)

  def test_refuses_no_draws_and_looks_at_no_traced_values(self):
    with self.assertRaisesRegex(ValueError, 'At least one answer'):
      sources.draw_answers(jax.random.key(0), jnp.ones(2) / 2, 0)
    jax.eval_shape(lambda p: sources.draw_answers(jax.random.key(0), p, 3), jnp.ones(2))
