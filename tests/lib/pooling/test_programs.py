"""Tests of the programs over weights and edits, against scans, solvers and closed forms."""

import numpy as np
import scipy
from absl.testing import parameterized
from scipy.special import log_softmax

from lib.pooling import programs, shattering
from tests.lib.pooling.toys import exact


def group(seed, n=4, outcomes=6):
  """A group's weights, its log pool and its profiles."""
  rng = np.random.default_rng(seed)
  logp = log_softmax(rng.normal(size=(n, outcomes)), axis=1)
  beta = rng.dirichlet(np.ones(n))
  logpool = log_softmax(beta @ logp)
  return beta, logpool, logp - (logp @ np.exp(logpool))[:, None]


def norm(shifts, logp):
  return np.sqrt(shifts**2 @ np.exp(logp))


class SmallestBudgetTest(parameterized.TestCase):
  @parameterized.parameters(range(6))
  def test_agrees_with_a_search_among_three(self, seed):
    beta, logp, v = group(seed, n=3)
    delta = 0.4 * (1 - beta[0])

    def budget(share):  # of H's gain that W pays; member 2 pays the rest
      return norm(delta * np.array([1, -share, share - 1]) @ v, logp)

    # W may lose more than H gains, and member 2 gain.
    lowest, highest = max(0.0, 1 - beta[2] / delta), beta[1] / delta
    best = scipy.optimize.minimize_scalar(
      budget, bounds=(lowest, highest), method='bounded', options={'xatol': 1e-10}
    )
    found = programs.smallest_budget(v, logp, beta, 0, 1, delta)
    np.testing.assert_allclose(found.budget, best.fun, rtol=1e-6)

  @parameterized.parameters(range(4))
  def test_no_feasible_change_needs_less(self, seed):
    beta, logp, v = group(seed, n=5)
    delta = 0.5 * (1 - beta[1])
    found = programs.smallest_budget(v, logp, beta, 1, 3, delta)
    np.testing.assert_allclose(found.budget, norm(found.dbeta @ v, logp), rtol=1e-12)
    self.check_feasible(found.dbeta[None], beta, delta)
    # Weights after the change, from all over the simplex and from about the one that was found.
    rng = np.random.default_rng(seed)
    best = np.maximum(np.delete(beta + found.dbeta, 1), 0)
    near = best * rng.lognormal(sigma=0.1, size=(5000, 4)) + 1e-3 * rng.exponential(size=(5000, 4))
    others = np.concatenate([rng.dirichlet(np.ones(4), size=5000), near])
    others *= (1 - beta[1] - delta) / others.sum(axis=1, keepdims=True)
    changes = np.insert(others, 1, beta[1] + delta, axis=1) - beta
    changes = changes[changes[:, 3] <= 0]
    self.assertGreater(len(changes), 100)
    self.check_feasible(changes, beta, delta)
    self.assertGreaterEqual(norm(changes @ v, logp).min(), found.budget * (1 - 1e-9))
    # A quarter of the gain needs no more than a quarter of the budget.
    less = programs.smallest_budget(v, logp, beta, 1, 3, delta / 4)
    self.assertLessEqual(less.budget, found.budget / 4 * (1 + 1e-6))

  def check_feasible(self, changes, beta, delta):
    np.testing.assert_allclose(changes[:, 1], delta, rtol=1e-9)
    np.testing.assert_allclose(changes.sum(axis=1), 0.0, atol=1e-12)
    self.assertLessEqual(changes[:, 3].max(), 1e-12)
    self.assertGreaterEqual((beta + changes).min(), -1e-12)

  def test_a_duplicate_can_pay_for_nothing(self):
    h = np.array([1.0, -1.0, 0.0])
    v, logp, beta = np.stack([h, h, -h]), np.log(np.ones(3) / 3), np.array([0.25, 0.25, 0.5])
    found = programs.smallest_budget(v, logp, beta, 0, 2, 0.05)
    np.testing.assert_allclose(found.budget, 0.0, atol=1e-8)
    np.testing.assert_allclose(found.dbeta, [0.05, -0.05, 0.0], atol=1e-7)
    # Once it is used up, the Waluigi has to pay: 0.4 h - 0.25 h + 0.15 h.
    found = programs.smallest_budget(v, logp, beta, 0, 2, 0.4)
    np.testing.assert_allclose(found.budget, 0.3 * norm(h, logp), rtol=1e-7)

  def test_within_a_smaller_budget_the_waluigi_has_to_gain(self):
    a, b = np.array([1.0, -1.0, 0.0, 0.0]), np.array([0.0, 0.0, 0.01, -0.01])
    v, logp, beta = np.stack([a, -a, b]), np.log(np.full(4, 0.25)), np.array([0.2, 0.2, 0.6])
    found = programs.smallest_budget(v, logp, beta, 0, 1, 0.1)
    np.testing.assert_allclose(found.budget, 0.1 * norm(a - b, logp), rtol=1e-7)
    # Both gain alike, and the pool hardly moves.
    self.assertLess(norm(np.array([0.1, 0.1, -0.2]) @ v, logp), 0.02 * found.budget)

  def test_all_that_the_others_have(self):
    beta, logp, v = group(0)
    found = programs.smallest_budget(v, logp, beta, 0, 1, 1 - beta[0])
    np.testing.assert_allclose(found.dbeta, np.eye(4)[0] - beta, atol=1e-9)

  def test_impossible_outcomes_do_not_count(self):
    beta, logp, v = group(1)
    expected = programs.smallest_budget(v, logp, beta, 0, 1, 0.1)
    v, logp = np.pad(v, ((0, 0), (0, 1)), constant_values=np.nan), np.append(logp, -np.inf)
    found = programs.smallest_budget(v, logp, beta, 0, 1, 0.1)
    np.testing.assert_allclose(found.budget, expected.budget, rtol=1e-9)

  def test_refuses(self):
    beta, logp, v = group(0)
    good = {'v': v, 'logp': logp, 'beta': beta, 'h': 0, 'w': 1, 'delta': 0.1}
    for change, message in (
      ({'v': v[:, 1:]}, 'shapes'),
      ({'v': v[0]}, 'shapes'),
      ({'v': v + np.nan}, 'finite'),
      ({'logp': logp + 1}, 'sum to one'),
      ({'logp': np.zeros(1), 'v': v[:, :1]}, 'shapes'),
      ({'beta': beta[1:]}, 'simplex'),
      ({'beta': 2 * beta}, 'simplex'),
      ({'beta': np.array([1.5, -0.5, 0, 0])}, 'simplex'),
      ({'w': 0}, 'two of 4'),
      ({'h': 4}, 'two of 4'),
      ({'delta': 0.0}, 'δ'),
      ({'delta': 1.01 - beta[0]}, 'δ'),
      ({'delta': np.nan}, 'δ'),
    ):
      with self.subTest(str(change)), self.assertRaisesRegex(ValueError, message):
        programs.smallest_budget(**{**good, **change})


def divergence(logq, logp):
  return np.exp(logq) @ (logq - logp)


def scan(logp, directions, event, kappa, num_angles=721):
  """The least P'(A) over a circle of rays in two directions, each as far as κ allows."""
  best = np.inf
  for angle in np.linspace(0, 2 * np.pi, num_angles):
    h = np.array([np.cos(angle), np.sin(angle)]) @ directions
    size = scipy.optimize.brentq(
      lambda s, h=h: divergence(log_softmax(logp + s * h), logp) - kappa, 0, 100
    )
    best = min(best, np.exp(log_softmax(logp + size * h))[event].sum())
  return best


class MinEventTest(parameterized.TestCase):
  rng = np.random.default_rng(0)
  logp = log_softmax(rng.normal(size=6))
  directions = rng.normal(size=(2, 6))
  event = np.array([True, False, True, False, False, False])

  @parameterized.parameters(0.3, 0.005)
  def test_agrees_with_a_scan_of_two_directions(self, kappa):
    found = programs.min_event(self.logp, self.directions, self.event, kappa)
    best = scan(self.logp, self.directions, self.event, kappa)
    self.assertLessEqual(found.probability, best + 1e-12)
    np.testing.assert_allclose(found.probability, best, rtol=1e-4)
    # What it says of itself is so.
    np.testing.assert_allclose(found.kl, kappa, rtol=1e-9)
    np.testing.assert_allclose(divergence(found.logp, self.logp), kappa, rtol=1e-9)
    p = np.exp(found.logp)
    np.testing.assert_allclose([p.sum(), p[self.event].sum()], [1.0, found.probability], rtol=1e-13)
    span = np.concatenate([self.directions, np.ones((1, 6))])
    change = found.logp - self.logp
    np.testing.assert_allclose(np.linalg.lstsq(span.T, change)[0] @ span, change, atol=1e-12)

  def test_agrees_with_a_general_solver(self):
    directions = np.random.default_rng(1).normal(size=(4, 6))
    found = programs.min_event(self.logp, directions, self.event, 0.1)

    def edited(c):
      return log_softmax(self.logp + c @ directions)

    best = scipy.optimize.minimize(
      lambda c: np.exp(edited(c))[self.event].sum(),
      np.zeros(4),
      method='SLSQP',
      constraints=[{'type': 'ineq', 'fun': lambda c: 0.1 - divergence(edited(c), self.logp)}],
      options={'ftol': 1e-14, 'maxiter': 500},
    )
    self.assertTrue(best.success)
    np.testing.assert_allclose(found.probability, best.fun, rtol=1e-6)

  @parameterized.parameters(0.5, 0.01, 1e-6)
  def test_all_directions_scale_the_event_alone(self, kappa):
    found = programs.min_event(self.logp, np.eye(6), self.event, kappa)
    before = np.exp(self.logp)[self.event].sum()
    # The binary divergence of the event's probabilities is all there is.
    after = scipy.optimize.brentq(
      lambda q: scipy.special.rel_entr([q, 1 - q], [before, 1 - before]).sum() - kappa,
      1e-12,
      before,
    )
    np.testing.assert_allclose(found.probability, after, rtol=1e-7)
    for part in (self.event, ~self.event):
      np.testing.assert_allclose(np.ptp((found.logp - self.logp)[part]), 0.0, atol=1e-4)

  def test_first_order_prediction_holds_as_the_budget_shrinks(self):
    p = np.exp(self.logp)
    score = self.event - p[self.event].sum()
    errors, reduction = [], exact(shattering.max_reduction)
    for kappa in (0.005, 0.0005, 0.00005):
      predicted = reduction(self.logp, self.directions, score, np.sqrt(2 * kappa))
      found = programs.min_event(self.logp, self.directions, self.event, kappa)
      errors.append(abs((p[self.event].sum() - found.probability) / predicted - 1))
    # The prediction's relative error is of the order of √κ.
    np.testing.assert_allclose(np.divide(errors[:-1], errors[1:]), np.sqrt(10), rtol=0.15)
    self.assertLess(errors[0], 0.15)

  def test_one_more_direction_never_hurts(self):
    found = [
      programs.min_event(self.logp, np.eye(6)[:m], self.event, 0.05).probability
      for m in range(1, 7)
    ]
    self.assertTrue((np.diff(found) <= 1e-9).all(), found)

  def test_only_the_span_matters(self):
    found = programs.min_event(self.logp, self.directions, self.event, 0.05).probability
    a, b = self.directions
    for same in ([a + 3, 1e-12 * b], [a, b, a - b, np.ones(6), np.zeros(6)], [a + b, a - 2 * b]):
      again = programs.min_event(self.logp, np.array(same), self.event, 0.05).probability
      np.testing.assert_allclose(again, found, rtol=1e-7)
    order = np.array([5, 3, 0, 1, 4, 2])
    again = programs.min_event(self.logp[order], self.directions[:, order], self.event[order], 0.05)
    np.testing.assert_allclose(again.probability, found, rtol=1e-7)

  def test_impossible_outcomes_stay_so(self):
    expected = programs.min_event(self.logp, self.directions, self.event, 0.05)
    found = programs.min_event(
      np.append(self.logp, -np.inf),
      np.pad(self.directions, ((0, 0), (0, 1)), constant_values=-np.inf),
      np.append(self.event, True),
      0.05,
    )
    np.testing.assert_allclose(found.probability, expected.probability, rtol=1e-9)
    self.assertEqual(found.logp[-1], -np.inf)

  def test_where_nothing_can_be_done(self):
    nothing = np.zeros((1, 6)), np.ones((2, 6)), np.zeros((0, 6))
    cases = [(directions, self.event) for directions in nothing]
    cases += [(self.directions, np.zeros(6, bool)), (self.directions, np.ones(6, bool))]
    for directions, event in cases:
      found = programs.min_event(self.logp, directions, event, 0.05)
      np.testing.assert_allclose(found.logp, self.logp, atol=1e-15)
      self.assertEqual(found.kl, 0.0)

  def test_where_the_event_can_be_excluded_for_less(self):
    # Excluding A costs -log(1 - P(A)), and nothing costs more.
    found = programs.min_event(self.logp, self.event[None].astype(float), self.event, 5.0)
    self.assertLess(found.probability, 1e-6)
    cost = -np.log1p(-np.exp(self.logp)[self.event].sum())
    np.testing.assert_allclose(found.kl, cost, rtol=1e-4)
    self.assertTrue(np.isfinite(found.logp).all())

  def test_a_rare_event_of_a_large_vocabulary(self):
    rng = np.random.default_rng(2)
    logp = log_softmax(5 * rng.normal(size=5000).astype(np.float32))
    directions = rng.normal(size=(3, 5000)).astype(np.float32)
    event = np.arange(5000) == logp.argmin()  # below 1e-10
    found = programs.min_event(logp, directions, event, 0.005)
    before = np.exp(np.float64(logp))[event].sum()
    self.assertLess(found.probability, before * 0.95)
    np.testing.assert_allclose(found.kl, 0.005, rtol=1e-9)

  def test_refuses(self):
    good = {'logp': self.logp, 'directions': self.directions, 'event': self.event, 'kappa': 0.1}
    for change, message in (
      ({'directions': self.directions[:, 1:]}, 'shapes'),
      ({'directions': self.directions[0]}, 'shapes'),
      ({'directions': np.full((1, 6), np.inf)}, 'finite'),
      ({'logp': self.logp - 1}, 'sum to one'),
      ({'logp': np.full(6, np.nan)}, 'sum to one'),
      ({'logp': np.full(6, -np.inf)}, 'sum to one'),
      ({'event': self.event[1:]}, 'booleans'),
      ({'event': np.array([0, 2])}, 'booleans'),
      ({'event': self.event.astype(int)}, 'booleans'),
      ({'kappa': 0.0}, 'positive'),
      ({'kappa': np.inf}, 'positive'),
      ({'kappa': np.nan}, 'positive'),
      ({'rank_tolerance': 1.0}, 'rank tolerance'),
    ):
      with self.subTest(str(change)), self.assertRaisesRegex(ValueError, message):
        programs.min_event(**{**good, **change})
