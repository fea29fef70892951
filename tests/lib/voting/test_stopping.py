"""When a question has been asked often enough: known numbers, plain loops, and guarantees."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from scipy import special, stats

from lib.voting import allocation, paths, stopping

_BETA = {f'beta {threshold:g}': threshold for threshold in (0.9, 0.95, 0.99)}
_PPR = {f'ppr {delta:g}': delta for delta in (0.1, 0.01)}
CAP = 600


def exact_stopping(p, cap):
  """All rules at (p, 1 - p), by the lattice of votes.

  Returns:
    By rule the probability of an error, that of one which the rule and not the cap has made, and
    mean and variance of the number of samples.
  """
  found = {}
  chances = {name: np.ones(1) for name in (*_BETA, *_PPR)}
  for n in range(cap + 1):
    first = np.arange(n + 1)
    a, b = np.maximum(first, n - first), np.minimum(first, n - first)
    log_u = stats.binom.logsf(a, n + 1, 0.5)
    log_r = special.gammaln(n + 2) - special.gammaln(a + 1) - special.gammaln(b + 1)
    log_r -= n * np.log(2)
    wrong = np.where(first < n - first, 1.0, np.where(first > n - first, 0.0, 0.5))
    for name, chance in chances.items():
      stops = log_u <= np.log1p(-_BETA[name]) if name in _BETA else log_r <= np.log(_PPR[name])
      done = np.where(stops | (n == cap), chance, 0)
      size = done.sum()
      now = done @ wrong, np.where(stops, chance, 0) @ wrong, n * size, n * n * size
      found[name] = found.get(name, 0) + np.array(now)
      going = chance - done
      chances[name] = np.append(0, going * p) + np.append(going * (1 - p), 0)
  for name, (error, own, mean, square) in found.items():
    found[name] = error, own, mean, square - mean**2
  return found


class StoppingTest(chex.TestCase):
  def test_unanimous_answers(self):
    answers = np.zeros(16, np.int32)

    @jax.jit
    def stop(answers):
      votes = paths.vote_paths(answers, 5)
      rules = [stopping.ppr(votes, delta, k) for k in (2, 5) for delta in (0.1, 0.05, 0.01)]
      rules += [stopping.ppr(votes, 0.1), stopping.beta(votes), stopping.beta(votes, 0.99)]
      rules += [stopping.window(answers, 5), stopping.window(answers, 8)]
      rules += [stopping.running_window(answers, 5), stopping.running_window(answers, 1)]
      return allocation.run_stopping(jnp.stack(rules), 16)

    np.testing.assert_array_equal(stop(answers), [7, 8, 11, 9, 10, 13, 7, 4, 6, 5, 8, 5, 1])
    # Nothing is read, nothing is settled.
    np.testing.assert_array_equal(stop(answers - 1), [16] * 13)

  @chex.variants(with_jit=True, without_jit=True)
  def test_windows_agree_with_a_loop(self):
    answers = np.random.default_rng(0).integers(-1, 2, (80, 13)).astype(np.int32)
    answers[:20] = np.abs(answers[:20])
    answers[-20:] = np.where(np.arange(13) < 9, 1, answers[-20:])
    sizes = 1, 2, 4, 13
    expected = np.zeros((2, len(sizes), 80, 14), bool)
    for row, n, (i, size) in (
      (row, n, item) for row in range(80) for n in range(14) for item in enumerate(sizes)
    ):
      last = answers[row, n - size : n] if n >= size else [-1]
      agree = last[0] >= 0 and all(answer == last[0] for answer in last)
      expected[:, i, row, n] = agree and n % size == 0, agree

    def windows(answers):
      rules = stopping.window, stopping.running_window
      return jnp.stack([jnp.stack([rule(answers, size) for size in sizes]) for rule in rules])

    np.testing.assert_array_equal(self.variant(windows)(answers), expected)

  def test_level_counts_the_answers_seen(self):
    first = np.tile(np.arange(40), (3, 1))
    votes = paths.Votes(first, first // 4, np.array([[0], [1], [3]]), first + first // 4)
    rules = lambda votes: (
      stopping.ppr(votes, 0.1),
      stopping.ppr(votes, 0.1, 2),
      stopping.ppr(votes, 0.1, 3),
    )
    seen, two, three = jax.jit(rules)(votes)
    np.testing.assert_array_equal(seen[:2], two[:2])
    np.testing.assert_array_equal(seen[2], three[2])
    self.assertGreater(int(seen[0].sum()), int(seen[2].sum()))

  def test_guarantees_at_two_close_answers(self):
    exact = exact_stopping(0.6, CAP)
    count = 500
    answers = np.random.default_rng(1).random((count, CAP)) < 0.4

    @jax.jit
    def run(answers):
      votes = paths.vote_paths(answers, 2)
      errors = paths.error_paths(answers, jnp.array([True, False]))
      rules = {'beta 0.95': stopping.beta(votes), 'ppr 0.1': stopping.ppr(votes, 0.1, 2)}
      samples = {name: allocation.run_stopping(stops, CAP) for name, stops in rules.items()}
      return {name: (n, paths.pick(errors, n)) for name, n in samples.items()}

    for name, (samples, errors) in run(answers.astype(np.int32)).items():
      error, _, mean, variance = exact[name]
      noise = np.sqrt(error * (1 - error) / count)
      self.assertAlmostEqual(float(np.mean(errors)), error, delta=4 * noise + 1 / count)
      noise = np.sqrt(variance / count)
      self.assertAlmostEqual(float(np.mean(samples)), mean, delta=4 * noise)

  def test_errors_of_400_paths(self):
    exact, closer = exact_stopping(0.6, CAP), exact_stopping(0.52, 300)
    known = {
      'beta 0.9': (0.122, 25.6),
      'beta 0.95': (0.049, 47.8),
      'beta 0.99': (0.0075, 114.6),
      'ppr 0.1': (0.005, 197),
      'ppr 0.01': (0, 323),
    }
    for name, (error, mean) in known.items():
      found = exact[name]
      self.assertAlmostEqual(found[0], error, delta=4 * np.sqrt(found[0] / 400))
      self.assertAlmostEqual(found[2], mean, delta=4 * np.sqrt(found[3] / 400))
    for name, delta in _PPR.items():
      self.assertLess(exact[name][0], delta)
      self.assertLess(closer[name][1], delta)
    # Adaptive consistency errs more often than 1 - threshold.
    self.assertGreater(exact['beta 0.9'][1], 0.1)
    self.assertGreater(exact['beta 0.95'][1], 0.05)
    for name, threshold in _BETA.items():
      self.assertGreater(closer[name][1], 1 - threshold)

  @parameterized.parameters(0.0, 1.0, -0.5, float('nan'))
  def test_refuses_what_is_no_probability(self, value):
    votes = paths.Votes(*np.ones((4, 3), int))
    with self.assertRaisesRegex(ValueError, 'must lie in'):
      stopping.beta(votes, value)
    with self.assertRaisesRegex(ValueError, 'must lie in'):
      stopping.ppr(votes, value)

  def test_refuses_windows_and_numbers_of_answers(self):
    answers = np.zeros((2, 3), np.int32)
    for size in (0, 4):
      with self.assertRaisesRegex(ValueError, 'A window has 1 to 3'):
        stopping.window(answers, size)
    with self.assertRaisesRegex(ValueError, 'two answers'):
      stopping.ppr(paths.Votes(*np.ones((4, 3), int)), 0.1, 1)
