"""Scores against scipy, their limits, the lookahead against enumeration, and blends of ranks."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from scipy import special, stats

from lib.voting import allocation, paths, policies

S, Q, T, K = 3, 8, 16, 4

# All pairs of up to 40 votes, for two answers and for more, with votes for others.
FIRST, SECOND = np.meshgrid(np.arange(41), np.arange(41), indexing='ij')
LEADS = FIRST >= SECOND
OTHERS = np.array([0, 3])[:, None, None]
PAIRS = paths.Votes(*np.broadcast_arrays(FIRST, SECOND, 2 + OTHERS, FIRST + SECOND + OTHERS))

# Of up to six deviations between the two.
MANY = np.array([400, 36_000])[:, None]
Z = 2 * np.round(np.array([0, 0.5, 1, 2, 4, 6]) * np.sqrt(MANY) / 2) / np.sqrt(MANY)
_FIRST = np.rint((MANY + Z * np.sqrt(MANY)) / 2).astype(int)
CLOSE = paths.Votes(*np.broadcast_arrays(_FIRST, MANY - _FIRST, 2, MANY))


def drawn_paths():
  """Along paths, with the labels of the answers as they are and exchanged, (2, S, Q, T + 1)."""
  rng = np.random.default_rng(0)
  p = rng.dirichlet(np.ones(K), (S, Q))
  answers = (p.cumsum(-1)[..., None, :-1] < rng.random((S, Q, T, 1))).sum(-1)
  answers[rng.random((S, Q, T)) < 0.1] = -1
  names = np.argsort(rng.random((S, Q, K)), axis=-1)
  renamed = np.where(answers < 0, -1, np.take_along_axis(names, answers, -1))
  return jax.jit(paths.vote_paths, static_argnums=1)(np.stack([answers, renamed]), K)


@functools.cache
def tables():
  """All scores of `PAIRS`, `CLOSE`, paths, and three questions that hold one answer at most."""
  n = np.arange(T + 1)
  read = np.array([[1], [0], [1]])
  groups = {
    'pairs': PAIRS,
    'close': CLOSE,
    'paths': jax.tree.map(np.asarray, drawn_paths()),
    'one': paths.Votes(*np.broadcast_arrays(n * read, 0, read * (n > 0), n)),
  }
  scores = {
    'uniform': policies.uniform,
    'asc': policies.adaptive_consistency,
    'ppr': policies.ppr,
    'unclipped': policies.ppr_unclipped,
    'plugin': policies.plugin_margin,
    **{f'blend {k}': functools.partial(policies.blend, exponent=k) for k in range(3)},
  }

  @jax.jit  # once, for all groups
  def evaluate(votes):
    return {name: score(votes) for name, score in scores.items()}

  join = lambda *leaves: np.concatenate([leaf.ravel() for leaf in leaves])
  found = jax.tree.map(np.asarray, evaluate(jax.tree.map(join, *groups.values())))
  ends = np.cumsum([votes.total.size for votes in groups.values()])
  return {
    name: jax.tree.map(
      lambda leaf, end=end, like=votes.total: leaf[end - like.size : end].reshape(like.shape), found
    )
    for end, (name, votes) in zip(ends, groups.items(), strict=True)
  }


@functools.cache
def places():
  """Votes along the paths of `tables`, as they are named, both signals, and both of their ranks."""
  votes = jax.tree.map(lambda leaf: leaf[0], drawn_paths())
  signals, _ = policies.rank_blend(policies.asc_to_ppr)
  score = lambda votes: (policies.adaptive_consistency(votes), policies.ppr(votes), signals(votes))
  asc, ppr, found = jax.tree.map(np.asarray, jax.jit(jax.vmap(score))(votes))
  return votes, (asc, ppr), found


def log_ratio(a, b):
  gammas = special.gammaln(a + b + 2) - special.gammaln(a + 1) - special.gammaln(b + 1)
  return gammas - (a + b) * np.log(2)


def log_uncertainty(a, b):
  """Pr[θ <= ½] is the probability of more than a heads of a + b + 1 fair coins."""
  return stats.binom.logsf(a, a + b + 1, 0.5)


def gains(a, b, horizon):
  """V_0 - E V_k of k = 1 .. horizon, from the votes of the next k samples: a beta-binomial."""
  wrong = lambda a, b: np.exp(log_uncertainty(a, b))
  found = []
  for k in range(1, horizon + 1):
    more = np.arange(k + 1)
    after = wrong(a + more, b + k - more)
    chances = stats.betabinom.pmf(more, k, a + 1, b + 1)
    found.append(wrong(a, b) - chances @ np.minimum(after, 1 - after))
  return np.array(found)


class ScoresTest(chex.TestCase):
  def test_agree_with_scipy(self):
    found, total = tables()['pairs'], PAIRS.total
    a, b = np.maximum(FIRST, SECOND), np.minimum(FIRST, SECOND)
    log_u, log_r = log_uncertainty(a, b), log_ratio(a, b)
    np.testing.assert_array_equal(found['uniform'], -total)
    close = functools.partial(np.testing.assert_allclose, rtol=2e-6, atol=2e-6)
    close(found['asc'][:, LEADS], np.stack([log_u[LEADS]] * 2))
    union = np.log([1, 4])[:, None, None]
    close(found['unclipped'], log_r + union)
    np.testing.assert_array_equal(found['ppr'], np.minimum(0, found['unclipped']))
    roots = np.sqrt((FIRST + 1) / (total + 2)) - np.sqrt((SECOND + 1) / (total + 2))
    close(found['plugin'], -total * roots**2, atol=2e-5)
    log_share = np.log((FIRST + SECOND + 2) / (total + 2))
    for k in (1, 2):
      expected = log_u + k * (log_u - log_r + log_share / 2)
      close(found[f'blend {k}'][:, LEADS], expected[:, LEADS], atol=5e-6)
    np.testing.assert_array_equal(found['blend 0'], found['asc'])

  def test_fewer_than_two_seen_count_as_two(self):
    found, n = tables()['one'], np.arange(T + 1)
    np.testing.assert_allclose(found['unclipped'][0], log_ratio(n, 0), rtol=1e-6, atol=1e-6)

  def test_orders(self):
    found, ties = tables()['pairs'], np.arange(41)
    for name in ('asc', 'unclipped', 'plugin', 'blend 1', 'blend 2'):
      # One more vote for the leader: less urgent. One more for the runner-up: more urgent.
      # (That makes a leader of a tie leaves R as it is.)
      score, leads = found[name][0], FIRST > SECOND if name == 'unclipped' else LEADS
      self.assertTrue((np.diff(score, axis=0)[leads[:-1]] < 0).all(), name)
      self.assertTrue((np.diff(score, axis=1)[LEADS[:, 1:]] > 0).all(), name)
    # At a tie of n = 2a votes: as 1/n, as √n, one half, and one.
    at = {name: found[name][0][ties, ties] for name in ('asc', 'ppr', 'unclipped', 'blend 2')}
    slope = lambda score: np.diff(score[[20, 40]]) / np.diff(np.log([43, 83]))
    np.testing.assert_allclose(slope(at['blend 2']), -1, rtol=0.03)
    np.testing.assert_allclose(slope(at['unclipped']), 0.5, rtol=0.03)
    np.testing.assert_allclose(at['asc'], np.log(0.5), rtol=1e-6)
    np.testing.assert_allclose(at['ppr'], 0, rtol=0, atol=1e-6)
    self.assertTrue((np.diff(at['blend 2']) < 0).all())

  def test_blend_by_table_is_the_blend(self):
    votes = drawn_paths()
    found = jax.jit(functools.partial(policies.blend, max_votes=T))(votes)
    np.testing.assert_allclose(found, tables()['paths']['blend 2'], rtol=1e-6, atol=1e-6)

  def test_blend_tends_to_mills_ratio(self):
    score, log_u = (tables()['close'][name] for name in ('blend 2', 'asc'))
    mills = stats.norm.logsf(Z) - stats.norm.logpdf(Z)
    self.assertTrue((abs(score - log_u + np.log(4 * MANY) - 2 * mills) < 2 / MANY + 1e-5).all())
    # Far ahead, u/4 over the n z² samples that overturn a wrong leader.
    far = Z[:, 4:]
    value = log_u[:, 4:] - np.log(4 * MANY * far**2)
    self.assertTrue((abs(score[:, 4:] - value) < 2 / far**2).all())

  @parameterized.parameters(False, True)
  def test_lookahead_agrees_with_enumeration(self, double):
    horizon = 5
    pairs = [(a, b) for a in range(11) for b in range(a + 1)]
    first, second = np.array(pairs).T

    @jax.jit
    def evaluate(first, second):
      votes = paths.Votes(first, second, second, first + second + OTHERS.reshape(-1, 1))
      return policies.lookahead(votes, 10, horizon)

    with jax.enable_x64(double):
      found, other = np.asarray(evaluate(first, second))
    # Of those that vote for others a sample is worth its share of the votes for the two.
    share = np.log((first + second + 2) / (first + second + 2 + OTHERS.max()))
    near = first - second < horizon
    np.testing.assert_allclose(other[near] - found[near], share[near], rtol=0, atol=1e-5)
    for (a, b), score in zip(pairs, found, strict=True):
      # With so many votes the leader is tied at most.
      if a - b >= horizon:
        self.assertEqual(score, -np.inf)
      else:
        expected = gains(a, b, horizon) / np.arange(1, horizon + 1)
        tolerance = 1e-7 if double else 2e-5
        np.testing.assert_allclose(np.exp(score), expected.max(), rtol=tolerance, atol=1e-14)

  def test_lookahead_refuses_no_votes_and_no_horizon(self):
    for sizes in ((0, 5), (5, 0)):
      with self.assertRaisesRegex(ValueError, 'A lookahead needs'):
        policies.lookahead(PAIRS, *sizes)


class PoliciesTest(chex.TestCase):
  def test_names_of_answers_do_not_matter(self):
    found = tables()['paths']
    chex.assert_trees_all_equal(*(jax.tree.map(lambda leaf, i=i: leaf[i], found) for i in (0, 1)))
    self.assertTrue(np.isfinite(found['blend 2']).all())

  def test_places_are_the_order_of_all_states(self):
    votes, signals, found = places()
    question = np.broadcast_to(np.arange(Q)[:, None], votes.total.shape[1:])
    for signal, place in zip(signals, found, strict=True):
      for seed in range(S):
        keys = (-question, -votes.total[seed], signal[seed])
        order = np.lexsort([key.ravel() for key in keys])
        np.testing.assert_array_equal(place[seed].ravel()[order], np.arange(Q * (T + 1)))

  @parameterized.parameters(1, 3)
  def test_ranks_of_one_signal_are_its_order(self, batch):
    _, scores, signals = places()
    budgets = (2 * Q, 31, 64, 100, T * Q - 2, T * Q)
    options = {'init': 2, 'batch': batch}

    def one(scores, signals):
      blends = []
      for weight in (0.0, 1.0):
        _, score = policies.rank_blend(lambda _, weight=weight: jnp.float32(weight))
        run = functools.partial(allocation.run_policy, signals, score, max_budget=T * Q, **options)
        blends.append(jax.vmap(run)(jnp.array(budgets)))
      pure = [allocation.run_index(signal, budgets, **options) for signal in scores]
      return blends, pure

    blends, pure = jax.jit(jax.vmap(one))(scores, signals)
    chex.assert_trees_all_equal(blends, pure)
    self.assertTrue((pure[0] != pure[1]).any())
    np.testing.assert_array_equal(np.sum(pure[0], -1), [budgets] * S)

  @parameterized.parameters((policies.asc_to_ppr, 0.0), (policies.ppr_to_asc, 1.0))
  def test_schedules_agree_with_a_loop(self, schedule, at_start):
    self.assertEqual((schedule(0.0), schedule(1.0)), (at_start, 1 - at_start))
    _, both, signals = places()
    budget = 64  # of a power of two the weights are exact

    def one(signals):
      _, score = policies.rank_blend(schedule)
      return allocation.run_policy(signals, score, budget, budget, init=1, batch=4)

    found = jax.jit(jax.vmap(one))(signals)
    for row in range(S):
      samples = np.ones(Q, int)
      while (spent := samples.sum()) < budget:
        now = [leaf[row, np.arange(Q), samples] for leaf in both]
        w = schedule(spent / budget)
        ranks = np.empty((2, Q))
        for rank, signal in zip(ranks, now, strict=True):
          rank[sorted(range(Q), key=lambda q: (signal[q], -samples[q], -q))] = np.arange(Q)
        scores = (1 - w) * ranks[0] + w * ranks[1]
        left = [q for q in range(Q) if samples[q] < T]
        left.sort(key=lambda q: (-scores[q], samples[q], q))
        samples[left[: min(4, budget - spent)]] += 1
      np.testing.assert_array_equal(found[row], samples)

  def test_one_answer_and_none(self):
    names = 'asc', 'ppr', 'plugin', 'blend 2'
    scores = np.stack([tables()['one'][name] for name in names])
    self.assertTrue(np.isfinite(scores).all())
    run = lambda scores: allocation.run_index(scores, (3, 30, 3 * T))
    samples = jax.jit(jax.vmap(run))(scores)
    # What stays unread stays uncertain, and takes what it can.
    np.testing.assert_array_equal(samples, [[[1, 1, 1], [7, T, 7], [T] * 3]] * len(names))
