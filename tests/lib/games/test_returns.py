import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.games import returns

LAMBDA = float(np.exp(-1 / 8))


def window(seed, length=20):
  rng = np.random.default_rng(seed)
  ended = rng.random(length) < 0.2
  rewards = np.where(ended, rng.choice([-1.0, 0.0, 1.0], length), 0.0)
  return rewards, rng.uniform(-1, 1, length), ended


class NegamaxLambdaReturnsTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_worked_example(self):
    targets, valid = self.variant(returns.negamax_lambda_returns)(
      jnp.array([0.0, 0.0, 1.0]),
      jnp.array([0.2, -0.4, 0.5]),
      jnp.array([False, False, True]),
      LAMBDA,
    )
    np.testing.assert_allclose(targets, [0.8776501, -0.9412485, 1.0], atol=1e-6)
    self.assertTrue(valid.all())

  @settings(max_examples=20, deadline=None)
  @given(st.integers(0, 2**31), st.floats(0.0, 1.0), st.booleans())
  def test_is_the_geometric_mean_of_n_step_returns(self, seed, lambda_, bootstrap):
    rewards, values, ended = window(seed)
    last = 0.3 if bootstrap else None
    targets, valid = returns.negamax_lambda_returns(
      rewards, values, jnp.asarray(ended), lambda_, None if last is None else jnp.asarray(last)
    )
    following = np.append(values, 0.3)
    for t in range(len(rewards)):
      ends = np.flatnonzero(ended[t:])
      if not len(ends) and not bootstrap:
        self.assertFalse(valid[t])
        self.assertEqual(targets[t], 0.0)
        continue
      length = ends[0] + 1 if len(ends) else len(rewards) - t
      n_step = []
      for n in range(1, length + 1):
        total = sum((-1) ** k * rewards[t + k] for k in range(n))
        if not ended[t + n - 1]:
          total += (-1) ** n * following[t + n]
        n_step.append(total)
      weights = [(1 - lambda_) * lambda_ ** (n - 1) for n in range(1, length)]
      expected = np.dot(weights, n_step[:-1]) + lambda_ ** (length - 1) * n_step[-1]
      self.assertTrue(valid[t])
      self.assertAlmostEqual(targets[t], expected, places=5)
      self.assertLessEqual(abs(targets[t]), 1.0 + 1e-6)

  def test_ends_of_the_law(self):
    rewards, values, ended = window(0)
    ended[-1], rewards[-1] = True, -1.0
    one, _ = returns.negamax_lambda_returns(rewards, values, jnp.asarray(ended), 0.0)
    expected = rewards - np.where(ended, 0.0, np.append(values[1:], 0.0))
    np.testing.assert_allclose(one, expected, rtol=1e-6)
    whole, _ = returns.negamax_lambda_returns(rewards, values, jnp.asarray(ended), 1.0)
    for t in range(len(rewards)):
      end = t + np.flatnonzero(ended[t:])[0]
      self.assertAlmostEqual(whole[t], (-1.0) ** (end - t) * rewards[end], places=6)

  def test_nothing_leaks_from_the_next_game(self):
    rewards, values, ended = window(1)
    end = np.flatnonzero(ended)[0]

    def finished(later):
      targets, _ = returns.negamax_lambda_returns(
        jnp.asarray(rewards).at[end + 1 :].add(later),
        jnp.asarray(values).at[end + 1 :].mul(later),
        jnp.asarray(ended),
        LAMBDA,
      )
      return targets[: end + 1]

    np.testing.assert_array_equal(finished(0.0), finished(100.0))
    np.testing.assert_array_equal(jax.jacobian(finished)(1.0), np.zeros(end + 1))


class AdvantagesTest(chex.TestCase):
  @parameterized.parameters(0.0, 0.7, 1.0)
  def test_is_the_sum_of_temporal_differences(self, lambda_):
    rewards, values, ended = window(2)
    found = returns.advantages(rewards, values, jnp.asarray(ended), lambda_, jnp.asarray(0.25))
    total, following = 0.0, 0.25
    for t in reversed(range(len(rewards))):
      goes_on = not ended[t]
      total = rewards[t] - goes_on * following - values[t] - lambda_ * goes_on * total
      following = values[t]
      self.assertAlmostEqual(found[t], total, places=5)
