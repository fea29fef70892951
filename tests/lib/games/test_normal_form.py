import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from scipy import optimize

from lib.games import normal_form
from lib.games.normal_form import Profile, softmax

PENNIES = np.array([[1.0, -1.0], [-1.0, 1.0]])
BIASED = np.array([[0.0, -1.0, 3.0], [1.0, 0.0, -1.0], [-3.0, 1.0, 0.0]])  # rock, paper, scissors


def uniform(payoff):
  return Profile(*(np.full(n, 1 / n) for n in payoff.shape))


def random_game(seed, shape):
  rng = np.random.default_rng(seed)
  strategies = Profile(*(rng.dirichlet(np.ones(n)) for n in shape))
  return rng.normal(size=shape), strategies


@functools.cache
def equilibrium(alpha):
  """Of the biased game."""
  with jax.enable_x64(True):
    return jax.jit(normal_form.logit_equilibrium)(jnp.asarray(BIASED), alpha, 1e-12)


def value_by_linear_program(payoff):
  """The value and row's Nash strategy: max v with xᵀR >= v."""
  rows, columns = payoff.shape
  found = optimize.linprog(
    np.r_[np.zeros(rows), -1.0],
    A_ub=np.c_[-payoff.T, np.ones(columns)],
    b_ub=np.zeros(columns),
    A_eq=np.r_[np.ones(rows), 0.0][None],
    b_eq=[1.0],
    bounds=[(0, None)] * rows + [(None, None)],
  )
  return found.x[-1], found.x[:-1]


class GapTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_nash_is_not_exploitable_and_others_are(self):
    payoff, strategies = random_game(0, (4, 6))
    value, row = value_by_linear_program(payoff)
    minus, column = value_by_linear_program(-payoff.T)
    self.assertAlmostEqual(value, -minus, places=9)
    gap = self.variant(normal_form.exploitability)
    self.assertAlmostEqual(gap(payoff, Profile(row, column)), 0.0, places=5)
    best = (payoff @ strategies.column).max() - value, value - (strategies.row @ payoff).min()
    self.assertAlmostEqual(gap(payoff, strategies), sum(best), places=5)

  def test_regularized_gap_is_the_sum_of_both_best_responses(self):
    payoff, (x, y) = random_game(1, (3, 5))
    alpha = 0.4
    entropy = lambda p: -np.sum(p * np.log(p))
    earned = x @ payoff @ y + alpha * (entropy(x) - entropy(y))

    def best(gains):  # over the simplex, by a solver that knows nothing of softmax
      loss = lambda z: (
        -(np.exp(z) / np.exp(z).sum() @ gains) - alpha * entropy(np.exp(z) / np.exp(z).sum())
      )
      return -optimize.minimize(loss, np.zeros(len(gains)), tol=1e-12).fun

    row = best(payoff @ y) - alpha * entropy(y) - earned
    column = best(-x @ payoff) - alpha * entropy(x) + earned
    found = normal_form.regularized_gap(payoff, Profile(x, y), alpha)
    self.assertAlmostEqual(found, row + column, places=5)


class LogitEquilibriumTest(chex.TestCase):
  def test_biased_rock_paper_scissors(self):
    strategies = softmax(equilibrium(0.5))
    np.testing.assert_allclose(strategies.row, [0.3239, 0.5242, 0.1518], atol=5e-5)
    with jax.enable_x64(True):
      self.assertAlmostEqual(normal_form.coupling(BIASED, strategies) ** 2, 0.64462, delta=5e-6)
      self.assertAlmostEqual(np.linalg.norm(BIASED, 2) ** 2 / 4, 2.75)

  @parameterized.parameters(1.0, 0.1, 0.01)
  def test_many_games_at_once_and_their_bound(self, alpha):
    payoffs = np.random.default_rng(0).normal(size=(8, 20, 30))

    @jax.jit
    @jax.vmap
    def measure(payoff):
      strategies = softmax(normal_form.logit_equilibrium(payoff, alpha))
      return (
        normal_form.regularized_gap(payoff, strategies, alpha),
        normal_form.exploitability(payoff, strategies),
      )

    with jax.enable_x64(True):
      gap, exploitability = measure(jnp.asarray(payoffs))
    np.testing.assert_allclose(gap, 0.0, atol=1e-5)
    self.assertTrue((exploitability <= alpha * (np.log(20) + np.log(30))).all())

  def test_comes_to_nash_as_alpha_falls(self):
    _, row = value_by_linear_program(BIASED)
    found = [np.abs(softmax(equilibrium(a)).row - row).max() for a in (0.5, 0.1, 0.01)]
    self.assertEqual(found, sorted(found, reverse=True))
    self.assertLess(found[-1], 0.02)

  def test_without_convergence_there_is_no_answer(self):
    found = normal_form.logit_equilibrium(jnp.asarray(BIASED), 0.001, max_steps=2)
    self.assertTrue(np.isnan(found.row).all())


class RateTest(chex.TestCase):
  def test_coupling_is_at_most_half_the_norm_of_the_game(self):
    rng = np.random.default_rng(0)
    draw = lambda n: np.concatenate([rng.dirichlet(np.full(n, a), 500) for a in (0.1, 1.0)])
    payoffs, strategies = rng.normal(size=(1000, 4, 3)), Profile(draw(4), draw(3))
    with jax.enable_x64(True):
      measure = jax.jit(jax.vmap(normal_form.coupling))
      found = measure(payoffs, strategies) / np.linalg.norm(payoffs, 2, axis=(1, 2))
      self.assertBetween(found.max(), 0.25, 0.5)
      # The bound is met where both play two actions alike; a sure action answers to nothing.
      self.assertAlmostEqual(normal_form.coupling(PENNIES, uniform(PENNIES)), 1.0, places=12)
      self.assertAlmostEqual(np.linalg.norm(PENNIES, 2) / 2, 1.0, places=12)
      sure = Profile(np.array([1.0, 0.0]), np.array([0.5, 0.5]))
      self.assertAlmostEqual(normal_form.coupling(PENNIES, sure), 0.0, places=12)

  def test_coupling_is_the_largest_eigenvalue(self):
    payoff, (x, y) = random_game(2, (4, 6))
    spread = lambda p: np.diag(p) - np.outer(p, p)
    values = np.linalg.eigvals(payoff @ spread(y) @ payoff.T @ spread(x))
    found = normal_form.coupling(payoff, Profile(x, y))
    self.assertAlmostEqual(found**2, values.real.max(), places=5)
    self.assertLessEqual(found, np.linalg.norm(payoff, 2) / 2)

  def test_is_the_spectral_radius_of_a_step(self):
    alpha, beta = 0.5, 2.0
    with jax.enable_x64(True):
      logits = equilibrium(alpha)
      step = normal_form.regularized_dynamics(alpha, beta).step

      def flat(z):
        moved = step(jnp.asarray(BIASED), Profile(z[:3], z[3:]))
        return jnp.concatenate([p - p.mean() for p in moved])

      jacobian = jax.jacobian(flat)(jnp.concatenate(logits))
      found = normal_form.local_rate(BIASED, softmax(logits), alpha, beta)
    self.assertAlmostEqual(np.abs(np.linalg.eigvals(jacobian)).max(), found, places=9)

  def test_regions(self):
    alphas, betas = np.meshgrid(np.linspace(0.01, 4, 60), np.linspace(0, 4, 60))
    mine = normal_form.converges(BIASED, alphas, betas)
    theirs = normal_form.converges_by_mirror_descent(BIASED, alphas, betas)
    self.assertTrue(mine[theirs].all())
    self.assertLess(theirs.sum(), mine.sum())
    # Sufficient, not necessary.
    self.assertFalse(normal_form.converges(BIASED, 0.5, 2.0))
    rate = normal_form.local_rate(BIASED, softmax(equilibrium(0.5)), 0.5, 2.0)
    self.assertLess(rate, 1.0)


class RegularizedDynamicsTest(chex.TestCase):
  def curve(self, alpha, beta, num_steps):
    distance = lambda s: jnp.hypot(s.row[0] - 0.5, s.column[0] - 0.5)
    start = Profile(jnp.log(jnp.array([0.92, 0.08])), jnp.log(jnp.array([0.5, 0.5])))
    dynamics = normal_form.regularized_dynamics(alpha, beta)
    return normal_form.run(dynamics, jnp.asarray(PENNIES), start, num_steps, distance).curve

  def test_matching_pennies_at_the_boundary(self):
    with jax.enable_x64(True):
      cases = jnp.array([[0.42, 1], [1.01, 0], [0.5, 1], [0.41, 1], [0.99, 0], [0.3, 1]])
      run = jax.jit(jax.vmap(lambda a, b: self.curve(a, b, 20_000)))
      ends = run(*cases.T)[:, -100:]
      inside = normal_form.converges(PENNIES, *cases.T)
    np.testing.assert_array_equal(inside, [True] * 3 + [False] * 3)
    self.assertLess(ends[:3].max(), 1e-12)
    self.assertGreater(ends[3:].min(), 0.05)

  def test_matching_pennies_shrinks_at_the_exact_rate(self):
    rate = np.sqrt(1.0**2 + 1.0) / 1.5
    self.assertAlmostEqual(rate, 0.9428090, places=7)
    self.assertAlmostEqual(normal_form.local_rate(PENNIES, uniform(PENNIES), 0.5, 1.0), rate, 6)
    with jax.enable_x64(True):
      errors = self.curve(0.5, 1.0, 400)
    self.assertAlmostEqual((errors[-1] / errors[-201]) ** (1 / 200), rate, places=6)

  def test_comes_to_rest_beyond_the_region_where_the_coupling_is_weak(self):
    with jax.enable_x64(True):
      logits = equilibrium(0.5)
      start = Profile(jnp.array([1.0, 0.0, -1.0]), jnp.zeros(3))
      played = normal_form.run(
        normal_form.regularized_dynamics(0.5, 2.0), jnp.asarray(BIASED), start, 2000, lambda s: ()
      )
    chex.assert_trees_all_close(played.last, softmax(logits), atol=1e-9)

  @parameterized.parameters(0.0, 0.1, 1.0, 4.0)
  def test_rests_at_the_same_point_for_any_beta(self, beta):
    with jax.enable_x64(True):
      logits = equilibrium(0.5)
      dynamics = normal_form.regularized_dynamics(0.5, beta)
      moved = dynamics.step(jnp.asarray(BIASED), logits)
      chex.assert_trees_all_close(softmax(moved), softmax(logits), atol=1e-9)
      if normal_form.local_rate(BIASED, softmax(logits), 0.5, beta) >= 1:
        return
      for seed in range(2):
        start = Profile(*np.random.default_rng(seed).normal(size=(2, 3)))
        last = normal_form.run(dynamics, jnp.asarray(BIASED), start, 500, lambda s: ()).last
        chex.assert_trees_all_close(last, softmax(logits), atol=1e-9)

  def test_is_magnetic_mirror_descent(self):
    payoff, start = random_game(3, (3, 4))
    magnet = random_game(4, (3, 4))[1]
    step_size, temperature = 0.7, 0.3
    logits, gains = Profile(*map(np.log, start)), normal_form.action_payoffs(payoff, start)
    expected = [
      (p * rho ** (step_size * temperature) * np.exp(step_size * gain))
      ** (1 / (1 + step_size * temperature))
      for p, rho, gain in zip(start, magnet, gains, strict=True)
    ]
    dynamics = normal_form.regularized_dynamics(
      temperature, 1 / step_size, Profile(*map(np.log, magnet))
    )
    moved = dynamics.strategies(dynamics.step(payoff, dynamics.init(payoff, logits)))
    chex.assert_trees_all_close(moved, Profile(*(p / p.sum() for p in expected)), rtol=1e-5)


class BaselinesTest(chex.TestCase):
  START = Profile(np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.5, 0.0]))

  def gaps(self, dynamics, num_steps, power=0.0):
    measure = functools.partial(normal_form.exploitability, jnp.asarray(BIASED))
    run = jax.jit(lambda: normal_form.run(
      dynamics, jnp.asarray(BIASED), self.START, num_steps, measure, power
    ))  # fmt: skip
    return run()

  def test_averages_of_all_approach_nash_within_their_bounds(self):
    steps = 4000
    largest = 6.0  # range of payoffs
    hedge = self.gaps(normal_form.multiplicative_weights(0.05), steps)
    # Regret of each: log n/η + η T range²/8.
    bound = 2 * (np.log(3) / 0.05 + 0.05 * steps * largest**2 / 8) / steps
    self.assertLess(hedge.average_curve[-1], bound)
    matching = self.gaps(normal_form.regret_matching_plus(), steps)
    self.assertLess(matching.average_curve[-1], 2 * largest * np.sqrt(3 / steps))
    linear = self.gaps(normal_form.regret_matching_plus(), steps, power=1.0)
    self.assertLess(linear.average_curve[-1], matching.average_curve[-1])

  def test_only_optimism_brings_the_last_iterate_home(self):
    plain = self.gaps(normal_form.multiplicative_weights(0.1), 4000)
    optimistic = self.gaps(normal_form.optimistic_multiplicative_weights(0.1), 4000)
    self.assertLess(optimistic.curve[-1], 1e-3)
    self.assertGreater(plain.curve[-200:].min(), 0.5)

  def test_averages_are_weighted_means(self):
    for power in (0.0, 1.0):
      seen = normal_form.run(
        normal_form.multiplicative_weights(0.3), jnp.asarray(BIASED), self.START, 6,
        lambda s: s, power,
      )  # fmt: skip
      weights = np.arange(1, 7) ** power
      expected = Profile(*(np.average(x, axis=0, weights=weights) for x in seen.curve))
      chex.assert_trees_all_close(seen.average, expected, rtol=1e-5)

  def test_regret_matching_without_regret_is_uniform(self):
    dynamics = normal_form.regret_matching_plus()
    chex.assert_trees_all_close(
      dynamics.strategies(Profile(jnp.zeros(3), jnp.array([0.0, 2.0]))),
      Profile(np.full(3, 1 / 3), np.array([0.0, 1.0])),
    )
