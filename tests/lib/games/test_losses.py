import chex
import jax
import jax.numpy as jnp
import numpy as np

from lib.games import losses

LEGAL = np.array([[True, True, False], [True, False, True]])


class LossesTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_cross_entropy_is_least_at_its_target_and_sinks_illegal_logits(self):
    target = np.array([[0.25, 0.75, 0.0], [0.5, 0.0, 0.5]])
    found = self.variant(losses.cross_entropy)
    entropy = -np.sum(target * np.log(target, where=target > 0, out=np.zeros((2, 3))), axis=-1)
    best = jnp.where(LEGAL, jnp.log(jnp.where(LEGAL, target, 1.0)), -50.0)
    np.testing.assert_allclose(found(best, target), entropy, rtol=1e-6)
    # Its gradient by the logits is softmax - p.
    logits = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    slope = jax.grad(lambda z: found(z, target).sum())(logits)
    np.testing.assert_allclose(slope, jax.nn.softmax(logits) - target, atol=1e-6)
    self.assertTrue((np.asarray(slope)[~LEGAL] > 0).all())

  def test_only_the_played_action_learns_and_no_target_does(self):
    q, action = np.array([[0.5, -0.5, 0.0], [0.1, 0.2, 0.3]]), np.array([1, 2])
    goal = np.array([1.0, -1.0])
    error = lambda q, goal: losses.action_value_errors(q, action, goal).sum()
    errors = losses.action_value_errors(q, action, goal)
    np.testing.assert_allclose(errors, [1.5**2, 1.3**2], rtol=1e-6)
    by_q, by_goal = jax.grad(error, (0, 1))(q, goal)
    np.testing.assert_allclose(by_q, [[0, -3.0, 0], [0, 0, 2.6]], rtol=1e-6)
    np.testing.assert_array_equal(by_goal, 0.0)

  def test_the_opponents_best_legal_answer_counts_unless_the_game_has_ended(self):
    q = jnp.array([[0.5, -0.5, 9.0], [0.1, 9.0, -0.3]])
    found = losses.greedy_negamax_target(
      jnp.array([0.0, 1.0]), jnp.array([False, True]), q, jnp.asarray(LEGAL)
    )
    np.testing.assert_allclose(found, [-0.5, 1.0])
