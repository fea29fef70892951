import chex
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

from lib.rl import losses

finite = st.floats(-100, 100, width=32, allow_subnormal=False)


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
