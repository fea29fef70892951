import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

from lib.games import finite_length, regularized, trees

DEPTH, BRANCHING = 4, 3


def tree(seed=0):
  game = trees.random_tree(seed, DEPTH, BRANCHING)
  return jax.tree.map(jnp.asarray, game)._replace(reward=jnp.asarray(game.reward, float))


def random_policy(game, seed=0):
  logits = np.random.default_rng(seed).normal(size=game.legal.shape)
  return regularized.log_softmax(jnp.asarray(logits), game.legal)


def by_recursion(game, log_policy, state=0):
  """Value of the player to move, by walking the tree."""
  total = 0.0
  for action in np.flatnonzero(game.legal[state]):
    child = int(game.child[state, action])
    value = game.reward[state, action] - (
      by_recursion(game, log_policy, child) if child >= 0 else 0
    )
    total += np.exp(log_policy[state, action]) * value
  return total


def spread(x):
  return np.ptp(np.asarray(x), axis=-1)


class ValuesTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_are_those_of_the_tree_walked(self):
    game = tree()
    log_policy = random_policy(game)
    found = self.variant(finite_length.state_values, static_argnums=2)(game, log_policy, DEPTH)
    self.assertAlmostEqual(found[0], by_recursion(game, log_policy), places=5)

  def test_illegal_actions_and_shared_positions(self):
    # 0 -> 1 or 2; 1 -> 2 or the end; 2 ends by its only action.
    game = finite_length.Game(
      child=jnp.array([[1, 2], [2, -1], [-1, -1]]),
      reward=jnp.array([[0.0, 0.0], [0.0, 0.5], [1.0, 9.0]]),
      legal=jnp.array([[True, True], [True, True], [True, False]]),
      height=jnp.array([3, 2, 1]),
    )
    log_policy = regularized.log_softmax(jnp.zeros((3, 2)), game.legal)
    # V2 = 1; V1 = (-1 + 0.5)/2; V0 = (0.25 - 1)/2.
    values = finite_length.state_values(game, log_policy, 3)
    np.testing.assert_allclose(values, [-0.375, -0.25, 1.0], rtol=1e-6)


class UpdateAllStatesTest(chex.TestCase):
  def errors(self, alpha, beta, num_steps):
    """Deviation of log π from the equilibrium's by step and layer, the lowest first."""
    with jax.enable_x64(True):
      game = tree()
      goal = finite_length.equilibrium(game, alpha, DEPTH)

      def step(policy, _):
        policy = finite_length.update_all_states(game, policy, alpha, beta, DEPTH)
        return policy, policy

      start = regularized.log_softmax(jnp.zeros(game.legal.shape), game.legal)
      _, policies = jax.lax.scan(step, start, None, length=num_steps)
      found = np.concatenate([np.asarray(start)[None], policies])
      off = spread(found - np.asarray(goal))
      layers = [off[:, np.asarray(game.height) == h].max(-1) for h in range(1, DEPTH + 1)]
    return np.stack(layers, axis=-1)

  def test_without_divergence_each_layer_is_exact_after_its_height(self):
    errors = self.errors(0.3, 0.0, DEPTH + 2)
    for height in range(1, DEPTH + 1):
      self.assertLess(errors[height:, height - 1].max(), 1e-13)
      self.assertGreater(errors[height - 1, height - 1], 1e-3)

  @parameterized.parameters((0.3, 0.5), (0.03, 0.1))
  def test_leaves_shrink_by_c_and_all_layers_come_to_rest(self, alpha, beta):
    c = beta / (alpha + beta)
    errors = self.errors(alpha, beta, 100)
    lowest = errors[:, 0]
    np.testing.assert_allclose(lowest[1:40] / lowest[:39], c, rtol=1e-6)
    self.assertLess(errors[-1].max(), 1e-6)
    # k^(h-1) c^k: over many steps the rate of every layer is c.
    for layer in errors.T:
      self.assertAlmostEqual((layer[60] / layer[30]) ** (1 / 30), c, delta=0.12)

  def test_layers_obey_the_recursion(self):
    alpha, beta = 0.3, 0.5
    errors = self.errors(alpha, beta, 30)
    c = beta / (alpha + beta)
    for height in range(2, DEPTH + 1):
      # |V error| below a layer is at most half the spread of log π's errors, for values in [-1, 1],
      # plus what lies still deeper.
      below = errors[:, : height - 1].sum(-1)
      bound = c * errors[:-1, height - 1] + 2 * below[:-1] / (alpha + beta)
      self.assertTrue((errors[1:, height - 1] <= bound + 1e-12).all())


class EquilibriumTest(chex.TestCase):
  @parameterized.parameters(0.0, 0.4, 3.0)
  def test_is_where_updates_come_to_rest_for_any_beta(self, beta):
    with jax.enable_x64(True):
      game = tree(1)
      goal = finite_length.equilibrium(game, 0.2, DEPTH)
      moved = finite_length.update_all_states(game, goal, 0.2, beta, DEPTH)
    np.testing.assert_allclose(moved, goal, atol=1e-12)

  def test_soft_values_are_log_sum_exp(self):
    with jax.enable_x64(True):
      game, alpha = tree(2), 0.5

      def soft_value(state):
        q = [
          game.reward[state, a] - (soft_value(int(c)) if c >= 0 else 0.0)
          for a, c in enumerate(game.child[state])
        ]
        return alpha * np.log(np.sum(np.exp(np.array(q) / alpha)))

      q0 = np.array([-soft_value(int(c)) for c in game.child[0]])
      found = finite_length.equilibrium(game, alpha, DEPTH, entropy_in_value=True)
      np.testing.assert_allclose(np.exp(found[0]), jax.nn.softmax(q0 / alpha), rtol=1e-9)
      other = finite_length.equilibrium(game, alpha, DEPTH)
    self.assertGreater(np.abs(found[0] - other[0]).max(), 1e-3)

  def test_comes_to_minimax_as_alpha_falls(self):
    game = tree(3)

    def minimax(state):
      return max(
        float(game.reward[state, a]) - (minimax(int(c)) if c >= 0 else 0.0)
        for a, c in enumerate(game.child[state])
      )

    gaps = [
      finite_length.exploitability(game, finite_length.equilibrium(game, a, DEPTH), DEPTH)
      for a in (1.0, 0.1, 1e-3)
    ]
    self.assertEqual(gaps, sorted(gaps, reverse=True))
    self.assertLess(gaps[-1], 1e-4)
    log_policy = finite_length.equilibrium(game, 1e-3, DEPTH)
    value = finite_length.state_values(game, log_policy, DEPTH)[0]
    self.assertAlmostEqual(value, minimax(0), places=4)


class BestResponsesTest(chex.TestCase):
  def test_no_other_policy_of_one_player_does_better(self):
    game = tree(4)
    fixed = random_policy(game)
    mover, other = finite_length.best_responses(game, fixed, DEPTH)
    value = finite_length.state_values(game, fixed, DEPTH)
    self.assertTrue((mover >= value - 1e-6).all() and (value >= other - 1e-6).all())
    first = np.asarray((DEPTH - game.height) % 2 == 0)[:, None]  # states of the root's player
    root_value = jax.jit(lambda policy: finite_length.state_values(game, policy, DEPTH)[0])
    for seed in range(50):
      # Deterministic ones: a best response is among them.
      rival = jnp.where(jax.random.normal(jax.random.key(seed), game.legal.shape).argmax(
        -1, keepdims=True) == jnp.arange(BRANCHING), 0.0, -jnp.inf)  # fmt: skip
      mine = jnp.where(first, rival, fixed)
      theirs = jnp.where(first, fixed, rival)
      values = root_value(mine), root_value(theirs)
      self.assertLessEqual(values[0], mover[0] + 1e-6)
      self.assertGreaterEqual(values[1], other[0] - 1e-6)
    # One does as well: the best action at each state against what the other side then makes of it.
    best = finite_length.backed_up(game, other).argmax(-1, keepdims=True)
    best = jnp.where(best == jnp.arange(BRANCHING), 0.0, -jnp.inf)
    for seat, expected in ((first, mover[0]), (~first, other[0])):
      reached = by_recursion(game, np.asarray(jnp.where(seat, best, fixed)))
      self.assertAlmostEqual(reached, expected, places=5)
    self.assertGreater(mover[0] - other[0], 0.1)
    self.assertAlmostEqual(
      finite_length.exploitability(game, fixed, DEPTH), mover[0] - other[0], places=6
    )


class RandomTreeTest(chex.TestCase):
  def test_is_a_full_tree(self):
    game = trees.random_tree(0, 3, 2)
    self.assertEqual(game.child.tolist(), [[1, 2], [3, 4], [5, 6], *[[-1, -1]] * 4])
    self.assertEqual(game.height.tolist(), [3, 2, 2, 1, 1, 1, 1])
    self.assertTrue((game.reward[:3] == 0).all() and (game.reward[3:] != 0).all())

  @parameterized.parameters((0, 2), (2, 0))
  def test_refuses_an_empty_one(self, depth, branching):
    with self.assertRaisesRegex(ValueError, f'{depth=}, {branching=}'):
      trees.random_tree(0, depth, branching)
