import chex
import distrax
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.games import regularized

PI = np.array([0.5, 0.3, 0.2])
Q = np.array([0.2, -0.1, 0.4])
KLENT = (0.03, 0.1)


def random_case(seed, num_actions=6, legal_share=0.7):
  rng = np.random.default_rng(seed)
  legal = rng.random(num_actions) < legal_share
  legal[rng.integers(num_actions)] = True
  return rng.normal(0, 2, num_actions), rng.uniform(-1, 1, num_actions), legal


class ImprovedPolicyTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_worked_example(self):
    logits, q = np.log(PI), Q
    found = self.variant(regularized.improved_policy)(logits, q, *KLENT)
    np.testing.assert_allclose(np.exp(found), [0.296841, 0.019937, 0.683222], atol=1e-6)
    value = self.variant(regularized.improved_value)(logits, q, *KLENT)
    reached = self.variant(regularized.objective)(found, q, logits, *KLENT)
    np.testing.assert_allclose([value, reached], 0.288577803, atol=1e-7)

  @settings(max_examples=20, deadline=None)
  @given(st.integers(0, 2**31), st.floats(0.01, 3.0), st.floats(0.0, 3.0))
  def test_every_other_policy_falls_short_by_its_divergence(self, seed, alpha, beta):
    logits, q, legal = random_case(seed)
    with jax.enable_x64(True):
      best = regularized.improved_policy(logits, q, alpha, beta, legal)
      value = regularized.improved_value(logits, q, alpha, beta, legal)
      other = regularized.log_softmax(jnp.asarray(random_case(seed + 1)[0]), legal)
      reference = regularized.log_softmax(logits, legal)
      reached = regularized.objective(other, q, reference, alpha, beta)
      gap = distrax.Categorical(probs=jnp.exp(other[legal])).kl_divergence(
        distrax.Categorical(probs=jnp.exp(best[legal]))
      )
    np.testing.assert_allclose(value - reached, (alpha + beta) * gap, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(np.exp(best).sum(), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(np.exp(best)[~legal], 0.0)

  def test_constants_do_not_matter_and_order_does_not_either(self):
    logits, q, legal = random_case(0)
    same = regularized.improved_policy(logits, q, *KLENT, legal)
    shifted = regularized.improved_policy(logits + 3.0, q - 0.5, *KLENT, legal)
    np.testing.assert_allclose(np.exp(same), np.exp(shifted), atol=1e-5)
    order = np.random.default_rng(0).permutation(len(q))
    moved = regularized.improved_policy(logits[order], q[order], *KLENT, legal[order])
    np.testing.assert_allclose(np.exp(same)[order], np.exp(moved), atol=1e-6)

  def test_a_single_legal_action_is_played(self):
    logits, q, _ = random_case(1)
    only = np.arange(len(q)) == 2
    found = regularized.improved_policy(logits, q, *KLENT, only)
    np.testing.assert_array_equal(np.exp(found), only.astype(np.float32))

  @parameterized.parameters(-np.inf, np.nan, 1e30)
  def test_what_stands_at_illegal_actions_reaches_neither_values_nor_gradients(self, rubbish):
    logits, q, legal = random_case(2)
    dirty = [np.where(legal, x, rubbish) for x in (logits, q)]
    clean = [np.where(legal, x, 0.0) for x in (logits, q)]

    def loss(logits, q):
      policy = regularized.improved_policy(logits, q, *KLENT, legal)
      value = regularized.improved_value(logits, q, *KLENT, legal)
      reference = regularized.log_softmax(logits, legal)
      reached = regularized.objective(policy, q, reference, *KLENT)
      return value + reached + regularized.entropy(policy)

    for own, expected in zip(
      jax.value_and_grad(loss, (0, 1))(*dirty),
      jax.value_and_grad(loss, (0, 1))(*clean),
      strict=True,
    ):
      chex.assert_tree_all_finite(own)
      chex.assert_trees_all_close(own, expected, rtol=1e-6)

  def test_limits(self):
    logits, q = np.log(PI), Q
    far = regularized.improved_policy(logits, q, 0.03, 1e6)
    np.testing.assert_allclose(far, logits, atol=1e-5)
    greedy = regularized.improved_policy(logits, q, 1e-3, 1e-3)
    np.testing.assert_allclose(np.exp(greedy), [0, 0, 1], atol=1e-6)
    soft = regularized.improved_policy(logits, q, 0.1, 0.0)
    np.testing.assert_allclose(soft, jax.nn.log_softmax(Q / 0.1), rtol=1e-5)
    mirror = regularized.improved_policy(logits, q, 0.0, 0.1)
    expected = PI * np.exp(Q / 0.1)
    np.testing.assert_allclose(np.exp(mirror), expected / expected.sum(), rtol=1e-5)

  def test_coefficients_batch_like_states(self):
    alphas, betas = np.meshgrid([0.01, 0.1, 1.0], [0.0, 0.5], indexing='ij')
    whole = regularized.improved_policy(np.log(PI), Q, alphas, betas)
    chex.assert_shape(whole, (3, 2, 3))
    one = regularized.improved_policy(np.log(PI), Q, 1.0, 0.5)
    chex.assert_trees_all_close(whole[2, 1], one, rtol=1e-6)


class PolicyAfterTest(chex.TestCase):
  @parameterized.product(
    coefficients=((0.03, 0.1), (0.5, 0.0), (0.0, 0.2), (1e-7, 1.0)), num_updates=(0, 1, 7)
  )
  def test_is_that_many_improvements(self, coefficients, num_updates):
    logits, q, legal = random_case(3)
    with jax.enable_x64(True):
      policy = regularized.log_softmax(logits, legal)
      for _ in range(num_updates):
        policy = regularized.improved_policy(policy, q, *coefficients, legal)
      found = regularized.policy_after(logits, q, *coefficients, num_updates, legal)
      np.testing.assert_allclose(np.exp(found), np.exp(policy), rtol=1e-9, atol=1e-12)

  def test_forgets_where_it_began(self):
    found = regularized.policy_after(np.log(PI), Q, 0.1, 0.3, 1e4)
    np.testing.assert_allclose(found, jax.nn.log_softmax(Q / 0.1), rtol=1e-5)


class EntropyTest(chex.TestCase):
  def test_is_distraxs_and_counts_no_impossible_action(self):
    logits, _, legal = random_case(4)
    found = regularized.entropy(regularized.log_softmax(logits, legal))
    self.assertAlmostEqual(found, distrax.Categorical(logits[legal]).entropy(), places=5)
    self.assertEqual(regularized.entropy(np.array([0.0, -np.inf])), 0.0)
