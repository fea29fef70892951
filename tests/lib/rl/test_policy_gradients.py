import chex
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

from lib.rl import policy_gradients

CLIP = 0.2
slope = jax.jit(
  jax.grad(lambda *args: policy_gradients.clipped_surrogate(*args, CLIP).sum(), argnums=(0, 1, 2))
)


def losses(ratio, advantage, clip=CLIP):
  log_ratio = jnp.log(jnp.asarray(ratio))
  return policy_gradients.clipped_surrogate(
    log_ratio, jnp.zeros_like(log_ratio), jnp.asarray(advantage), clip
  )


class ClippedSurrogateTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  @parameterized.parameters(0.1, 0.2, 1.0, 3.0)
  def test_is_the_papers_equation(self, clip):
    rng = np.random.default_rng(0)
    log_prob, old, advantage = rng.normal(size=(3, 256)).astype(np.float32)
    loss = self.variant(lambda *args: policy_gradients.clipped_surrogate(*args, clip))
    ratio = np.exp(log_prob - old)
    expected = np.minimum(ratio * advantage, np.clip(ratio, 1 - clip, 1 + clip) * advantage)
    np.testing.assert_allclose(loss(log_prob, old, advantage), -expected, rtol=1e-5, atol=1e-6)

  @chex.variants(with_jit=True, without_jit=True)
  def test_at_the_old_policy_its_gradient_is_the_policy_gradient(self):
    logits = jax.random.normal(jax.random.key(0), (7, 4))
    actions, advantage = jnp.array([0, 1, 2, 3, 0, 1, 2]), jnp.linspace(-2.0, 1.5, 7)
    log_prob = lambda x: jax.nn.log_softmax(x)[jnp.arange(7), actions]
    old = log_prob(logits)
    surrogate = lambda x: policy_gradients.clipped_surrogate(
      log_prob(x), old, advantage, CLIP
    ).sum()
    # ∇ log π of a softmax is 1(a) - π.
    expected = -advantage[:, None] * (jax.nn.one_hot(actions, 4) - jax.nn.softmax(logits))
    np.testing.assert_allclose(self.variant(jax.grad(surrogate))(logits), expected, atol=1e-6)
    np.testing.assert_allclose(surrogate(logits), -advantage.sum(), rtol=1e-6)

  def test_only_going_further_the_right_way_has_no_gradient(self):
    ratio = np.array([0.5, 0.9, 1.1, 1.5, 0.5, 0.9, 1.1, 1.5], np.float32)
    advantage = np.array([2.0] * 4 + [-2.0] * 4, np.float32)
    found, old, constant = slope(np.log(ratio), np.zeros(8, np.float32), advantage)
    moves = np.array([1, 1, 1, 0, 0, 1, 1, 1])
    np.testing.assert_allclose(found, -moves * ratio * advantage, rtol=1e-6)
    np.testing.assert_array_equal(old, 0.0)
    np.testing.assert_array_equal(constant, 0.0)

  @hypothesis.settings(max_examples=40, deadline=None)
  @hypothesis.given(ratio=st.floats(0.01, 100.0), advantage=st.floats(-100.0, 100.0))
  def test_is_never_less_than_the_loss_without_clipping(self, ratio, advantage):
    self.assertGreaterEqual(
      float(losses(ratio, advantage)), -ratio * advantage - 1e-5 * abs(ratio * advantage) - 1e-6
    )

  @parameterized.parameters(
    (300.0, 1.0), (300.0, 0.0), (-300.0, 1.0), (-300.0, -1.0), (80.0, -1.0), (-np.inf, 1.0),
    (-np.inf, -1.0), (np.inf, 1.0),
  )  # fmt: skip
  def test_stays_finite_however_far_the_policy_has_gone(self, log_ratio, advantage):
    args = jnp.array([log_ratio]), jnp.zeros(1), jnp.array([advantage])
    self.assertTrue(np.isfinite(policy_gradients.clipped_surrogate(*args, CLIP)).all())
    self.assertTrue(np.isfinite(slope(*args)[0]).all())

  def test_does_not_hide_what_is_not_a_number(self):
    for i in range(3):
      args = [jnp.zeros(1), jnp.zeros(1), jnp.ones(1)]
      args[i] = jnp.full(1, jnp.nan)
      self.assertTrue(np.isnan(policy_gradients.clipped_surrogate(*args, CLIP)).all())

  @parameterized.parameters(0.0, -0.2, np.nan)
  def test_refuses_a_clip_that_is_not_positive(self, clip):
    with self.assertRaisesRegex(ValueError, 'clip='):
      losses([1.0], [1.0], clip)

  def test_refuses_rows_of_other_lengths(self):
    with self.assertRaises(AssertionError):
      policy_gradients.clipped_surrogate(jnp.zeros(2), jnp.zeros(2), jnp.zeros(()), CLIP)
