"""Votes along paths of answers, against counting one by one, and what self-consistency errs."""

import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from lib.voting import paths

# Of four answers nobody gives the last; some samples are unreadable, and one row has no other.
# The second half of the questions is the first, with other names for the answers.
HALF, T, K = 40, 11, 4
Q = 2 * HALF
_RNG = np.random.default_rng(0)


def make_questions():
  """Answers (Q, T) and which of them are right (Q, K)."""
  answers = _RNG.integers(-1, K - 1, (HALF, T))
  answers[0] = -1
  right = _RNG.random((HALF, K)) < 0.4
  right[:4] = False
  right[2:4, K - 1] = True
  names = np.argsort(_RNG.random((HALF, K)), axis=-1)
  renamed = np.where(answers < 0, -1, np.take_along_axis(names, answers, -1))
  right_names = np.zeros_like(right)
  np.put_along_axis(right_names, names, right, -1)
  return np.concatenate([answers, renamed]).astype(np.int32), np.concatenate([right, right_names])


ANSWERS, RIGHT = make_questions()
SAMPLES = np.tile(_RNG.integers(0, T + 1, HALF).astype(np.int32), 2)


def counted(answers):
  """Votes (Q, T + 1, K) by a loop."""
  counts = np.zeros((*answers.shape[:1], T + 1, K), int)
  for question, row in enumerate(answers):
    for n, answer in enumerate(row):
      counts[question, n + 1] = counts[question, n]
      if answer >= 0:
        counts[question, n + 1, answer] += 1
  return counts


def everything(answers, right, samples):
  votes = paths.vote_paths(answers, K)
  return {
    'votes': votes,
    'errors': paths.error_paths(answers, right),
    'leading': paths.top_paths(answers, K, 3),
    'all': paths.top_paths(answers, K, K + 5),
    'after': paths.counts_after(answers, samples, K),
    'picked': paths.pick(votes, samples),
  }


class PathsTest(chex.TestCase):
  @chex.variants(with_jit=True)
  def test_agrees_with_counting_one_by_one(self):
    fold = lambda leaf: leaf.reshape(2, Q // 2, *leaf.shape[1:])
    found = self.variant(everything)(fold(ANSWERS), fold(RIGHT), fold(SAMPLES))
    chex.assert_type([*found['votes'], found['leading'], found['after']], jnp.int32)
    found = jax.tree.map(lambda leaf: leaf.reshape(Q, *leaf.shape[2:]), found)
    counts = counted(ANSWERS)
    ordered = -np.sort(-counts, axis=-1)
    total = np.broadcast_to(np.arange(T + 1), (Q, T + 1))
    votes = ordered[..., 0], ordered[..., 1], (counts > 0).sum(-1), total
    chex.assert_trees_all_equal(tuple(found['votes']), votes)
    chex.assert_trees_all_equal((found['leading'], found['all']), (ordered[..., :3], ordered))
    rows = np.arange(Q)
    np.testing.assert_array_equal(found['after'], counts[rows, SAMPLES])
    picked = tuple(path[rows, SAMPLES] for path in votes)
    chex.assert_trees_all_equal(tuple(found['picked']), picked)

    errors = np.zeros((Q, T + 1))
    for question, n in np.ndindex(Q, T + 1):
      now = counts[question, n]
      leaders = [answer for answer in range(K) if now[answer] == max(now)]
      errors[question, n] = 1 - sum(RIGHT[question, answer] for answer in leaders) / len(leaders)
    np.testing.assert_allclose(found['errors'], errors, rtol=0, atol=1e-7)
    # Names do not matter.
    del found['after']
    halves = [jax.tree.map(lambda leaf, i=i: leaf[i : i + HALF], found) for i in (0, HALF)]
    chex.assert_trees_all_equal(*halves)
    # Nothing is right: always wrong. Right is what nobody says: wrong from the first vote on.
    np.testing.assert_array_equal(found['errors'][:2], 1)
    spoken = counts[2:4].sum(-1) > 0
    np.testing.assert_array_equal(found['errors'][2:4], np.where(spoken, 1, 1 - 1 / K))
    # Without a readable answer all are tied for ever.
    self.assertEqual(float(np.ptp(found['errors'][0])), 0)

  def test_expected_error_of_two_answers(self):
    length = 9
    answers = np.array(list(itertools.product((0, 1), repeat=length)), np.int32)
    right = np.array([True, False])
    # Halves are exact in float32, so their means are exact in float64.
    errors = np.asarray(jax.jit(paths.error_paths)(answers, right), np.float64)
    for p in (0.5, 0.55, 0.7, 0.95):
      chances = np.prod(np.where(answers == 0, p, 1 - p), axis=-1)
      expected = chances @ errors
      n = np.arange(length + 1)
      law = stats.binom(n, 1 - p)
      misses = law.sf(n // 2) + np.where(n % 2 == 0, law.pmf(n // 2) / 2, 0)
      np.testing.assert_allclose(expected, misses, rtol=1e-12)
      # A second vote never changes what an odd one decides on average; two more help.
      np.testing.assert_allclose(expected[2::2], expected[1:-1:2], rtol=1e-12)
      self.assertTrue((np.diff(expected[1::2]) <= 1e-15).all())

  def test_one_answer_and_no_samples(self):
    @jax.jit
    def run(answers, right):
      none = paths.vote_paths(answers[:, :0], 3)
      return paths.vote_paths(answers, 1), paths.error_paths(answers, right), none

    votes, errors, none = run(np.array([[0, -1, 0]], np.int32), np.array([[True]]))
    expected = [0, 1, 1, 2], [0] * 4, [0, 1, 1, 1], [0, 1, 2, 3]
    np.testing.assert_array_equal(np.stack(votes)[:, 0], expected)
    np.testing.assert_array_equal(errors, [[0] * 4])
    np.testing.assert_array_equal(np.stack(none), np.zeros((4, 1, 1)))

  def test_summary_of_given_votes(self):
    counts = np.array([[2, 5, 0], [1, 1, 1]])
    votes = np.stack(paths.votes_of(counts))
    np.testing.assert_array_equal(votes, [[5, 1], [2, 1], [2, 3], [7, 3]])
    more = paths.votes_of(counts, jnp.array([9, 4]))
    np.testing.assert_array_equal(more.total, [9, 4])

  def test_refuses_what_is_no_vote(self):
    answers = jnp.zeros((2, 3), jnp.int32)
    with self.assertRaisesRegex(ValueError, 'at least one answer'):
      paths.vote_paths(answers, 0)
    with self.assertRaisesRegex(ValueError, 'at least one answer'):
      paths.error_paths(answers, jnp.zeros((2, 0), bool))
    with self.assertRaisesRegex(ValueError, 'at least one answer'):
      paths.counts_after(answers, jnp.zeros(2, jnp.int32), 0)
    with self.assertRaisesRegex(ValueError, 'leading answer'):
      paths.top_paths(answers, 3, 0)
    with self.assertRaisesRegex(ValueError, 'integer codes'):
      paths.vote_paths(answers.astype(jnp.float32), 3)
