import chex
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from scipy import stats

from lib.rl import losses

finite = st.floats(-100, 100, width=32, allow_subnormal=False)
huge = st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False)


class TdTargetTest(chex.TestCase):
  @hypothesis.settings(max_examples=25, deadline=None)
  @hypothesis.given(reward=finite, value=finite, discount=st.floats(0, 1, allow_subnormal=False))
  def test_masks_the_bootstrap_and_nothing_else(self, reward, value, discount):
    r, v = jnp.full(2, reward), jnp.full(2, value)
    y = losses.td_target(r, jnp.array([0.0, 1.0]), v, discount)
    self.assertEqual(float(y[0]), float(r[0]))
    np.testing.assert_allclose(y[1], reward + discount * value, rtol=1e-5, atol=1e-4)

  def test_fixed_point_of_a_constant_reward_is_the_geometric_series(self):
    value = jnp.zeros(1)
    for _ in range(2000):
      value = losses.td_target(jnp.array([-1.0]), jnp.ones(1), value, 0.99)
    np.testing.assert_allclose(value, -100.0, rtol=1e-4)

  @chex.variants(with_jit=True, without_jit=True)
  def test_passes_no_gradient(self):
    def total(v):
      return losses.td_target(jnp.ones(3), jnp.ones(3), v, 0.9).sum()

    np.testing.assert_array_equal(self.variant(jax.grad(total))(jnp.arange(3.0)), 0.0)

  @parameterized.parameters(-0.1, 1.1)
  def test_refuses_a_discount_outside_the_unit_interval(self, discount):
    with self.assertRaisesRegex(ValueError, 'discount'):
      losses.td_target(jnp.ones(1), jnp.ones(1), jnp.ones(1), discount)


class LossesTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_td_loss_gradient_is_the_td_error(self):
    q = jnp.array([[1.0, 2.0], [3.0, 5.0]])
    y = jnp.array([0.5, -1.0])
    grad = self.variant(jax.grad(losses.td_loss))(q, y)
    np.testing.assert_allclose(grad, 2 * (q - y) / q.size, rtol=1e-6)

  @chex.variants(with_jit=True, without_jit=True)
  def test_distillation_moves_the_student_alone(self):
    student, teacher = jax.random.normal(jax.random.key(0), (2, 4, 3))
    grads = self.variant(jax.grad(losses.distillation_loss, argnums=(0, 1)))(student, teacher)
    np.testing.assert_allclose(grads[0], 2 * (student - teacher) / 12, rtol=1e-5)
    np.testing.assert_array_equal(grads[1], 0.0)

  @hypothesis.settings(max_examples=25, deadline=None)
  @hypothesis.given(scale=st.floats(0.01, 100))
  def test_normalised_value_gradient_is_invariant_to_the_scale_of_rewards(self, scale):
    q = jax.random.normal(jax.random.key(0), (2, 8)) - 3.0
    f = lambda q: losses.policy_value_loss(q, normalize=True)
    # In units of the rewards, the gradient with respect to Q shrinks by exactly the scale.
    np.testing.assert_allclose(f(scale * q), f(q), rtol=1e-5)
    np.testing.assert_allclose(scale * jax.grad(f)(scale * q), jax.grad(f)(q), rtol=1e-5)

  def test_value_loss_is_the_negative_mean(self):
    q = jax.random.normal(jax.random.key(1), (2, 8))
    np.testing.assert_allclose(losses.policy_value_loss(q), -q.mean(), rtol=1e-6)


class ExpectileLossTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_one_half_is_half_the_mean_squared_error(self):
    d = jax.random.normal(jax.random.key(0), (9,))
    loss = self.variant(lambda d: losses.expectile_loss(d, 0.5))(d)
    np.testing.assert_allclose(loss, jnp.mean(d**2) / 2, rtol=1e-6)

  @parameterized.parameters(0.1, 0.5, 0.9, 0.99)
  def test_is_stationary_at_the_expectile_and_larger_beside_it(self, expectile):
    x = np.random.default_rng(0).gumbel(size=40)
    best = stats.expectile(x, expectile)
    loss = lambda v: losses.expectile_loss(x - v, expectile)
    with jax.enable_x64(True):
      value, slope = jax.value_and_grad(loss)(best)
      self.assertAlmostEqual(float(slope), 0.0, delta=1e-7)
      for beside in (-0.1, 0.1):
        self.assertGreater(float(loss(best + beside)), float(value))

  def test_approaches_the_maximum_and_the_minimum(self):
    x = np.random.default_rng(1).normal(size=9)
    with jax.enable_x64(True):
      for expectile, end in ((1 - 1e-6, x.max()), (1e-6, x.min())):
        # The slope's only root lies within 1e-4 of the end, on the side of the others.
        slope = jax.grad(lambda v, k=expectile: losses.expectile_loss(x - v, k))
        inside = end + 1e-4 * np.sign(x.mean() - end)
        self.assertLess(float(slope(end)) * float(slope(inside)), 0.0)

  @chex.variants(with_jit=True, without_jit=True)
  def test_mirrors(self):
    d = jax.random.normal(jax.random.key(2), (9,))
    loss = self.variant(losses.expectile_loss, static_argnums=1)
    np.testing.assert_allclose(loss(d, 0.7), loss(-d, 0.3), rtol=1e-6)

  @parameterized.parameters(0.0, 1.0, -0.5, 1.5, np.nan)
  def test_refuses_an_expectile_outside_the_open_interval(self, expectile):
    with self.assertRaisesRegex(ValueError, 'expectile='):
      losses.expectile_loss(jnp.ones(2), expectile)


class AdvantageWeightsTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_is_the_exponential_below_the_limit(self):
    advantage = jnp.linspace(-4.0, 4.0, 9)
    found = self.variant(lambda a: losses.advantage_weights(a, 2.0, 10.0))(advantage)
    expected = np.minimum(np.exp(2.0 * np.asarray(advantage, np.float64)), 10.0)
    np.testing.assert_allclose(found, expected, rtol=1e-5)

  def test_temperature_zero_is_behaviour_cloning(self):
    advantage = jnp.array([[-1e30, 0.0], [3.0, 1e30]])
    np.testing.assert_array_equal(losses.advantage_weights(advantage, 0.0), np.ones((2, 2)))

  @hypothesis.settings(max_examples=25, deadline=None)
  @hypothesis.given(
    st.lists(
      st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False), min_size=2, max_size=9
    ),
    st.sampled_from([0.0, 1e-3, 1.0, 1e10]),
  )
  def test_is_finite_rises_and_never_passes_the_limit(self, advantage, inverse_temperature):
    weights = losses.advantage_weights(jnp.sort(jnp.array(advantage)), inverse_temperature, 5.0)
    self.assertTrue(bool(jnp.isfinite(weights).all()))
    self.assertGreaterEqual(float(jnp.diff(weights).min()), 0.0)
    self.assertBetween(float(weights[0]), 0.0, 5.0 * (1 + 1e-6))
    self.assertLessEqual(float(weights[-1]), 5.0 * (1 + 1e-6))

  @chex.variants(with_jit=True, without_jit=True)
  def test_passes_no_gradient(self):
    total = lambda a: losses.advantage_weights(a, 1.0).sum()
    np.testing.assert_array_equal(self.variant(jax.grad(total))(jnp.arange(-2.0, 9.0)), 0.0)

  @parameterized.parameters((-0.1, 100.0), (1.0, 0.5), (1.0, -1.0))
  def test_refuses_numbers_out_of_range(self, inverse_temperature, limit):
    with self.assertRaisesRegex(ValueError, 'inverse_temperature=.*limit='):
      losses.advantage_weights(jnp.ones(2), inverse_temperature, limit)
