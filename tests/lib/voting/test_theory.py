"""Errors of a vote, exact and bounded, allocations that are best, and power laws."""

import itertools
from fractions import Fraction
from math import factorial

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from lib.voting import scaling, theory

# Margins of density ½ m^{-1/2}: m = U² at evenly spaced U.
_NEAR_TIES = ((np.arange(20_000) + 0.5) / 20_000) ** 2


class ErrorTest(chex.TestCase):
  def test_exact_error_and_its_bound(self):
    p = np.array([[0.6, 0.4], [0.4, 0.6], [0.52, 0.48]])
    three = np.array([0.5, 0.3, 0.2])
    n = np.array([[50], [200]])

    @jax.jit
    def evaluate(p, three):
      errors = jnp.stack([theory.exact_error(p, 50), theory.exact_error(p, 200)])
      bounds = theory.chernoff_bound(p, n), theory.chernoff_bound(three, 200)
      return (errors, theory.exact_error(three, 200)), bounds

    with jax.enable_x64(True):
      (errors, error), (bounds, bound) = evaluate(p, three)
    errors, bounds = np.asarray(errors), np.asarray(bounds)
    np.testing.assert_allclose(bounds[:, 0], [0.3604, 0.01687], rtol=2e-4)
    lost, tied = (f(n // 2, n, [0.4, 0.4, 0.48]) for f in (stats.binom.sf, stats.binom.pmf))
    np.testing.assert_allclose(errors, lost + tied / 2, rtol=1e-10)
    self.assertTrue((errors < bounds).all())
    counts = np.array([(i, j, 200 - i - j) for i in range(201) for j in range(201 - i)])
    leads = counts == counts.max(axis=1, keepdims=True)
    misses = 1 - leads[:, 0] / leads.sum(axis=1)
    np.testing.assert_allclose(error, stats.multinomial.pmf(counts, 200, three) @ misses, rtol=1e-9)
    self.assertAlmostEqual(float(bound), 0.005822, delta=5e-7)
    self.assertLess(error, bound)
    single = evaluate(p.astype(np.float32), three.astype(np.float32))
    chex.assert_type(jax.tree.leaves(single), jnp.float32)
    chex.assert_trees_all_close(single, ((errors, error), (bounds, bound)), rtol=5e-5)

  def test_agrees_with_all_sequences_in_fractions(self):
    p = [Fraction(2, 10), Fraction(5, 10), Fraction(3, 10)]
    for n in (0, 4):
      error = Fraction(0)
      for votes in itertools.product(range(3), repeat=n):
        counts = [votes.count(answer) for answer in range(3)]
        leaders = [answer for answer in range(3) if counts[answer] == max(counts)]
        chance = Fraction(1)
        for answer in votes:
          chance *= p[answer]
        error += chance * (1 - Fraction(int(1 in leaders), len(leaders)))
      found = jax.jit(theory.exact_error, static_argnums=1)(np.array(p, np.float32), n)
      self.assertAlmostEqual(float(found), float(error), delta=1e-6)

  def test_an_odd_vote_adds_nothing_to_two_answers(self):
    p = np.array([[0.6, 0.4], [0.9, 0.1], [0.5, 0.5], [1.0, 0.0]])
    with jax.enable_x64(True):
      errors = jax.jit(lambda p: jnp.stack([theory.exact_error(p, n) for n in range(1, 7)]))(p)
    errors = np.asarray(errors)
    np.testing.assert_allclose(errors[1::2], errors[:-1:2], atol=1e-14)
    self.assertTrue((np.diff(errors[::2], axis=0) <= 1e-14).all())
    np.testing.assert_allclose(errors[:, 2], 0.5, rtol=1e-12)
    np.testing.assert_array_equal(errors[:, 3], 0.0)

  @chex.variants(with_jit=True)
  def test_bound_of_many_answers(self):
    p = np.random.default_rng(0).dirichlet(np.ones(6), 20)
    n = np.arange(20)
    roots = np.sqrt(np.sort(p)[:, ::-1])
    expected = ((1 - (roots[:, :1] - roots[:, 1:]) ** 2) ** n[:, None]).sum(-1)
    found = self.variant(theory.chernoff_bound)(p.astype(np.float32), n)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    certain = self.variant(theory.chernoff_bound)(
      np.eye(3, dtype=np.float32)[[1, 1, 1]], np.arange(3)
    )
    np.testing.assert_array_equal(certain, [2, 0, 0])
    self.assertEqual(self.variant(theory.chernoff_bound)(np.ones(1, np.float32), 3), 0.0)

  def test_refuses(self):
    for num_answers in (1, 4):
      with self.assertRaisesRegex(ValueError, 'two or three'):
        theory.exact_error(jnp.ones(num_answers) / num_answers, 3)
    with self.assertRaisesRegex(ValueError, 'negative'):
      theory.exact_error(jnp.ones(2) / 2, -1)


class LaplaceTest(chex.TestCase):
  @chex.variants(with_jit=True)
  def test_near_ties_make_a_power_law(self):
    x = np.array([10.0, 100.0, 1000.0])
    found = self.variant(theory.laplace_error)(_NEAR_TIES.astype(np.float32), x)
    np.testing.assert_allclose(found, [0.28025, 0.088623, 0.028025], rtol=2e-5)
    np.testing.assert_allclose(found, 0.5 * np.sqrt(np.pi / x), rtol=2e-5)
    alone = self.variant(theory.laplace_error)(_NEAR_TIES.astype(np.float32), x[1])
    np.testing.assert_allclose(alone, found[1], rtol=1e-6)


class FixedAllocationTest(chex.TestCase):
  def test_numbers_on_near_ties(self):
    budgets = np.array([54.34, 188.8, 618.9])
    with jax.enable_x64(True):
      total = budgets * _NEAR_TIES.size
      n = np.asarray(_allocate(_NEAR_TIES, total))
    np.testing.assert_allclose(n.sum(-1), total, rtol=1e-12)
    errors = np.exp(-n * _NEAR_TIES).mean(-1)
    np.testing.assert_allclose(errors, [0.06225, 0.0199, 0.006315], rtol=2e-3)
    np.testing.assert_allclose(errors * budgets, [3.38, 3.76, 3.91], rtol=2e-3)

  @settings(max_examples=20)
  @given(seed=st.integers(0, 999), log_budget=st.floats(-3, 9), log_cap=st.floats(0, 9))
  def test_is_optimal(self, seed, log_budget, log_cap):
    rng = np.random.default_rng(seed)
    m = rng.uniform(0, 1, 12) ** 4
    m[:2] = 0, np.inf
    budget, cap = np.exp(log_budget), np.exp(log_cap)
    n = np.asarray(_allocate(m.astype(np.float32), budget, cap), np.float64)
    self.assertTrue(((n >= 0) & (n <= cap * (1 + 1e-6))).all())
    np.testing.assert_array_equal(n[:2], 0)
    np.testing.assert_allclose(n.sum(), min(budget, 10 * cap), rtol=1e-5)
    # Who has votes gains alike from one more, who has none less, who has the cap more.
    gains, votes = np.log(m[2:]) - n[2:] * m[2:], n[2:]
    within = (votes > 0) & (votes < cap * (1 - 1e-6))
    full = votes >= cap * (1 - 1e-6)
    slack = 1e-4 * (1 + np.abs(gains).max())
    if within.any():
      self.assertLess(np.ptp(gains[within]), slack)
    least = gains[votes > 0].min()
    self.assertLessEqual(gains[votes == 0].max(initial=-np.inf), least + slack)
    if within.any() and full.any():
      self.assertGreaterEqual(gains[full].min(), gains[within].max() - slack)

  def test_a_solver_finds_no_better(self):
    m, budget = np.array([0.5, 0.2, 0.05, 0.9]), 12.0
    n = np.asarray(_allocate(m, budget))
    found = optimize.minimize(
      lambda n: np.exp(-n * m).sum(),
      np.full(4, budget / 4),
      jac=lambda n: -m * np.exp(-n * m),
      bounds=[(0, None)] * 4,
      constraints={'type': 'eq', 'fun': lambda n: n.sum() - budget},
      method='SLSQP',
      options={'ftol': 1e-14},
    )
    np.testing.assert_allclose(n, found.x, atol=1e-3)
    order = np.array([2, 0, 3, 1])
    np.testing.assert_allclose(_allocate(m[order], budget), n[order], rtol=1e-6)
    np.testing.assert_array_equal(_allocate(np.zeros(4), budget), 0)
    np.testing.assert_array_equal(_allocate(m, 0.0), 0)

  def test_margins_far_below_precision(self):
    m = np.array([1e-9, 1e-6, 0.3, 1.0], np.float32)
    for budget in (3.0, 1e3, 1e7, 1e9):
      np.testing.assert_allclose(np.sum(_allocate(m, budget)), budget, rtol=1e-5)

  @chex.variants(with_jit=True)
  def test_mapped(self):
    m = np.random.default_rng(0).uniform(size=(3, 4)).astype(np.float32)
    budgets = np.array([4.0, 40.0, 0.5], np.float32)
    rows = self.variant(jax.vmap(theory.fixed_allocation))(m, budgets)
    batch = _allocate(m, budgets)
    np.testing.assert_allclose(rows, batch, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(batch.sum(-1), budgets, rtol=1e-6)


_allocate = jax.jit(theory.fixed_allocation)
_rounded = jax.jit(theory.integer_allocation, static_argnums=(1, 2))


class IntegerAllocationTest(chex.TestCase):
  def test_largest_remainders(self):
    n = np.array([[1.6, 0.3, 2.7, 0.0, 3.4], [0.5, 0.5, 0.5, 0.5, 6.0]])
    found = _rounded(n, 8, 50)
    np.testing.assert_array_equal(found, [[2, 0, 3, 0, 3], [1, 1, 0, 0, 6]])
    self.assertEqual(found.dtype, jnp.int32)

  def test_caps_and_other_sums(self):
    for n in (np.zeros(6), np.array([1e6, 0, 3, 2.5, 1e-3, 7]), np.full(6, 2 / 3)):
      for budget, cap in ((0, 4), (7, 4), (23, 4), (24, 4), (4, 1)):
        found = np.asarray(_rounded(n.astype(np.float32), budget, cap))
        self.assertEqual(found.sum(), budget)
        self.assertTrue(((found >= 0) & (found <= cap)).all())
        # Order is kept.
        self.assertTrue((np.diff(found[np.argsort(n, kind='stable')]) >= -1).all())

  def test_thousands_of_questions(self):
    m = np.random.default_rng(0).uniform(size=2000) ** 2
    budget = 64_000
    n = _allocate(m.astype(np.float32), budget, 512)
    found = np.asarray(_rounded(n, budget, 512))
    self.assertEqual(found.sum(), budget)
    self.assertLessEqual(found.max(), 512)
    np.testing.assert_allclose(found, n, rtol=0, atol=1.01)

  def test_refuses(self):
    for budget, cap in ((-1, 4), (13, 4), (2, -1)):
      with self.assertRaisesRegex(ValueError, 'budget must lie'):
        theory.integer_allocation(jnp.ones(3), budget, cap)


class PprRateTest(chex.TestCase):
  @chex.variants(with_jit=True)
  def test_against_the_exact_rate(self):
    p1, p2 = np.array([0.6, 0.5, 0.34]), np.array([0.4, 0.3, 0.3])
    found = self.variant(theory.ppr_rate)(p1, p2)
    exact = -np.log1p(-((np.sqrt(p1) - np.sqrt(p2)) ** 2))
    np.testing.assert_allclose(found / exact, [0.9865, 0.9820, 0.9990], rtol=0, atol=6e-5)

  @chex.variants(with_jit=True)
  def test_closed_form_symmetry_and_near_ties(self):
    p1, p2 = np.random.default_rng(0).uniform(size=(2, 200)).astype(np.float32)
    p1[:4], p2[:4] = (1, 0, 0.3, 0), (0, 0.7, 0.3, 0)
    found = self.variant(theory.ppr_rate)(p1, p2)
    np.testing.assert_array_equal(found, self.variant(theory.ppr_rate)(p2, p1))
    a, b = p1[4:].astype(np.float64), p2[4:].astype(np.float64)
    expected = a * np.log(2 * a / (a + b)) + b * np.log(2 * b / (a + b))
    np.testing.assert_allclose(found[4:], expected, rtol=2e-6)
    np.testing.assert_allclose(found[:4], [np.log(2), 0.7 * np.log(2), 0, 0], rtol=1e-6)
    # To second order in the gap, d²/(2(p₁ + p₂)).
    ties = p1 * np.float32(1 + 1e-4)
    gaps = (ties.astype(np.float64) - p1) ** 2 / (2 * (ties.astype(np.float64) + p1) + 1e-300)
    np.testing.assert_allclose(self.variant(theory.ppr_rate)(ties, p1), gaps, rtol=1e-5)

  def test_is_the_rate_of_the_ratio(self):
    # log (n choose n p₁) falls short of n log 2 by n D, up to log n.
    n, first = 1000, 600
    log_ways = np.log(float(factorial(n) // (factorial(first) * factorial(n - first))))
    self.assertAlmostEqual(
      (n * np.log(2) - log_ways) / n, float(jax.jit(theory.ppr_rate)(0.6, 0.4)), delta=np.log(n) / n
    )


class PowerLawTest(parameterized.TestCase):
  def test_recovers_an_exact_law(self):
    x = np.array([4, 8, 16, 32, 64])
    fit = scaling.power_law_fit(x, 0.7 * x**-0.5)
    self.assertAlmostEqual(fit.exponent, -0.5, delta=1e-12)
    self.assertAlmostEqual(fit.prefactor, 0.7, delta=1e-12)
    self.assertAlmostEqual(fit.r_squared, 1.0, delta=1e-12)
    np.testing.assert_allclose(fit.interval, -0.5, atol=1e-6)
    self.assertEqual(fit.n, 5)

  def test_interval_covers(self):
    rng, x = np.random.default_rng(0), np.geomspace(4, 256, 8)
    inside = 0
    for _ in range(200):
      fit = scaling.power_law_fit(x, x**-0.6 * np.exp(0.1 * rng.normal(size=8)), level=0.9)
      inside += fit.interval[0] < -0.6 < fit.interval[1]
    self.assertBetween(inside / 200, 0.9 - 4 * np.sqrt(0.09 / 200), 1.0)

  def test_exponents_of_near_ties(self):
    x = np.array([100.0, 400.0, 1600.0])
    with jax.enable_x64(True):
      uniform = theory.laplace_error(jnp.asarray(_NEAR_TIES), x)
      n = np.asarray(_allocate(_NEAR_TIES, x * _NEAR_TIES.size))
    fixed = np.exp(-n * _NEAR_TIES).mean(-1)
    self.assertAlmostEqual(scaling.power_law_fit(x, uniform).exponent, -0.5, delta=0.01)
    self.assertAlmostEqual(scaling.power_law_fit(x, fixed).exponent, -1.0, delta=0.05)

  @parameterized.parameters(
    ([1, 2, 4], [0.1, 0.05, 0.0], r'error\[2\] = 0.0'),
    ([1, 2, 4], [0.1, np.nan, 0.1], r'error\[1\] = nan'),
    ([0, 2, 4], [0.1, 0.1, 0.1], r'x\[0\] = 0.0'),
    ([1, 2], [0.1, 0.1], 'at least 3'),
    ([1, 2, 4], [0.1, 0.1], 'one length'),
    ([2, 2, 2], [0.1, 0.1, 0.2], 'constant'),
  )
  def test_refuses(self, x, error, message):
    with self.assertRaisesRegex(ValueError, message):
      scaling.power_law_fit(x, error)
