"""Asking and telling: the allocation of drawn answers, interruptions, and hostile ballots."""

import collections
import functools
import inspect
import json
import sys

import chex
import jax
import numpy as np
from absl.testing import parameterized

from lib.voting import allocation, online, paths, policies

Q, T, K, INIT = 6, 60, 4, 2
NAMES = 'seven', '"8"', 'ü\n', ''
BUDGETS = {1: (12, 13, 50, 97), 3: (12, 14, 51, 98), 6: (12, 50, 96)}


@functools.cache
def drawn():
  """Codes (Q, T), and the score of every pair of leading votes."""
  rng = np.random.default_rng(3)
  p = rng.dirichlet(np.ones(K), Q)
  p[0] = 0.3, 0.3, 0.2, 0.2
  answers = np.stack([rng.choice(K, T, p=row) for row in p]).astype(np.int32)
  answers[rng.random((Q, T)) < 0.1] = -1
  first, second = np.indices((T + 1, T + 1))
  scores = jax.jit(policies.blend)(paths.Votes(first, second, first, first))
  return answers, np.asarray(scores)


def score(votes):
  """The blend from a table, so that equal votes have equal scores whatever was compiled."""
  return drawn()[1][votes.first, votes.second]


def totals(ballots):
  return [ballot.votes.total() + ballot.unreadable for ballot in ballots]


def drive(ballots, budget, batch, rounds=None):
  """Tells the drawn answers, of all rounds or of so many."""
  answers, _ = drawn()
  for number, questions in enumerate(
    online.allocate(ballots, budget, batch=batch, score=score, init=INIT)
  ):
    if number == rounds:
      return ballots
    now = totals(ballots)
    codes = [answers[q, now[q]] for q in questions]
    told = [None if code < 0 else NAMES[code] for code in codes]
    online.tell(ballots, questions, told)
  return ballots


class OnlineTest(chex.TestCase):
  @parameterized.parameters(*BUDGETS)
  def test_is_the_allocation_of_the_drawn_answers(self, batch):
    answers, _ = drawn()
    votes = jax.jit(paths.vote_paths, static_argnums=1)(answers, K)
    scores = score(jax.tree.map(np.asarray, votes))
    run = jax.jit(
      lambda scores: allocation.run_index(scores, BUDGETS[batch], init=INIT, batch=batch)
    )
    for budget, samples in zip(BUDGETS[batch], np.asarray(run(scores)), strict=True):
      ballots = drive(online.empty(Q), budget, batch)
      np.testing.assert_array_equal(totals(ballots), samples)
      self.assertLess(samples.max(), T)
      self.assertEqual(online.spent(ballots), budget)
      for ballot, row, n in zip(ballots, answers, samples, strict=True):
        expected = collections.Counter(NAMES[code] for code in row[:n] if code >= 0)
        self.assertEqual(ballot, (expected, int((row[:n] < 0).sum())))

  @parameterized.parameters(*BUDGETS)
  def test_goes_on_where_it_was_stopped(self, batch):
    budget = BUDGETS[batch][-1]
    at_once = drive(online.empty(Q), budget, batch)
    ballots = online.empty(Q)
    for rounds in (0, 1, 2, 5, 7, 10_000):
      ballots = online.from_json(online.to_json(drive(ballots, budget, batch, rounds)))
    self.assertEqual(ballots, at_once)
    self.assertEqual(online.to_json(ballots), online.to_json(at_once))
    self.assertEqual(online.leaders(ballots), online.leaders(at_once))
    # A larger budget later is the larger budget.
    later = drive(drive(online.empty(Q), 48, batch), budget, batch)
    self.assertEqual(later, at_once)
    # What is spent is spent.
    self.assertEqual(list(online.allocate(later, budget)), [])

  def test_asks_by_default_for_what_is_unsettled(self):
    for function in (online.ask, online.allocate):
      self.assertIs(inspect.signature(function).parameters['score'].default, policies.blend)
    ask = functools.partial(online.ask, score=jax.jit(policies.blend))
    ballots = online.empty(4)
    self.assertEqual(ask(ballots, 3), [0, 1, 2])
    self.assertEqual(ask(ballots, 9), [0, 1, 2, 3])
    online.tell(ballots, [0, 1, 2, 0, 1, 2, 0], ['a', 'a', 'a', 'a', 'b', 'a', 'a'])
    self.assertEqual(ask(ballots, 4), [3, 1, 2, 0])
    online.tell(ballots, [3, 3], [None, None])
    self.assertEqual(ask(ballots, 4), [3, 1, 2, 0])
    self.assertEqual(ask(ballots, 4, init=3)[:3], [1, 2, 3])
    self.assertEqual(online.ask(ballots, 2, score=lambda votes: -votes.total), [1, 2])

  def test_leaders(self):
    ballots = online.empty(3)
    online.tell(ballots, [0, 0, 0, 0, 2], ['b', 'a', 'a', 'b', None])
    self.assertEqual(online.leaders(ballots), ['b', None, None])
    online.tell(ballots, np.array([0, 2]), ['a', ''])
    self.assertEqual(online.leaders(ballots), ['a', None, ''])
    self.assertEqual(totals(ballots), [5, 0, 2])
    self.assertEqual(online.spent(ballots), 7)

  @parameterized.parameters(
    ([0, 1], ['a'], '2 questions have 1'),
    ([0, 3], ['a', 'b'], 'No question 3 among 3'),
    ([0, -1], ['a', 'b'], 'No question -1'),
    ([0, 1.0], ['a', 'b'], 'No question 1.0'),
    ([0, '1'], ['a', 'b'], "No question '1'"),
    ([0, 1], ['a', 2], 'a string or None, got 2'),
    ([0, 1], ['a', b'b'], 'a string or None'),
  )  # fmt: skip
  def test_refuses_other_answers_and_counts_nothing(self, questions, answers, message):
    ballots = online.empty(3)
    with self.assertRaisesRegex(ValueError, message):
      online.tell(ballots, questions, answers)
    self.assertEqual(ballots, online.empty(3))

  def test_refuses_rounds_of_nothing(self):
    ballots = online.empty(3)
    with self.assertRaisesRegex(ValueError, 'needs a question'):
      online.empty(0)
    for options in ({'size': 0}, {'size': 1, 'init': 0}):
      with self.assertRaisesRegex(ValueError, 'A round needs a sample'):
        online.ask(ballots, **options)
    with self.assertRaisesRegex(ValueError, 'A round needs a sample'):
      next(online.allocate(ballots, 5, batch=0))
    rounds = online.allocate(ballots, 5, score=lambda votes: votes.first)
    next(rounds)
    with self.assertRaisesRegex(ValueError, 'Tell the answers'):
      next(rounds)

  @parameterized.parameters(
    '', '[', '{}', '[]', 'null', '3', '"a"', '[3]', '[null]', '["votes"]', '[[]]', '[{}]',
    '[{"votes": {"a": 1}}]', '[{"unreadable": 1}]', '[{"votes": null, "unreadable": 0}]',
    '[{"votes": "", "unreadable": 0}]', '[{"votes": [], "unreadable": 0}]',
    '[{"votes": [["a", 1]], "unreadable": 0}]', '[{"votes": [[null, 1]], "unreadable": 0}]',
    '[{"votes": {"a": 1}, "unreadable": 0}, {"votes": {"a": 1}, "unreadable": ',
    '[{"votes": {"a": -1}, "unreadable": 0}]', '[{"votes": {"a": 1}, "unreadable": -1}]',
    '[{"votes": {"a": 0}, "unreadable": 0}]', '[{"votes": {"a": 1.0}, "unreadable": 0}]',
    '[{"votes": {"a": true}, "unreadable": 0}]', '[{"votes": {"a": 1}, "unreadable": false}]',
    '[{"votes": {"a": NaN}, "unreadable": 0}]', '[{"votes": {"a": "1"}, "unreadable": 0}]',
    '[{"votes": {"a": {}}, "unreadable": 0}]', '[{"votes": {"a": 1e3}, "unreadable": 0}]',
    '[{"votes": {"a": 2147483648}, "unreadable": 0}]',
    '[{"votes": {"a": 2147483647, "b": 1}, "unreadable": 0}]',
    '[{"votes": {"a": 2147483647}, "unreadable": 1}]',
    '[{"votes": {"a": 1' + 5000 * '0' + '}, "unreadable": 0}]',
  )  # fmt: skip
  def test_refuses_other_texts(self, text):
    with self.assertRaises(ValueError):
      online.from_json(text)

  def test_refuses_texts_nested_deeply(self):
    limit = sys.getrecursionlimit()
    for depth in (*range(limit - 150, limit + 10), 100_000):
      deep = '[' * depth + ']' * depth
      for text in (deep, f'[{{"votes": {{"a": {deep}}}, "unreadable": 0}}]'):
        with self.assertRaises(ValueError):
          online.from_json(text)

  def test_names_the_ballot_that_is_none(self):
    ballots = json.loads(online.to_json(online.empty(3)))
    ballots[1]['unreadable'] = 0.5
    with self.assertRaisesRegex(ValueError, 'Ballot 1 does not hold'):
      online.from_json(json.dumps(ballots))

  def test_largest_numbers_of_votes(self):
    text = '[{"votes": {"a": 2147483646}, "unreadable": 1}]'
    ballots = online.from_json(text)
    self.assertEqual(online.to_json(ballots), text)
    self.assertEqual(online.spent(2 * ballots), 2 * (2**31 - 1))
