import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

from configs.pql import ogbench
from experiments.pql import methods
from experiments.pql.methods import agent, bc_flow, fql, pql

SPEC = agent.Spec(observation_dim=3, action_dim=2)


def tiny(**changes):
  config = ogbench.get_config().agent
  config.hidden_dims = (8, 8)
  config.flow_steps = 3
  config.update(changes)
  return config


def batch_of(key, size=16):
  keys = jax.random.split(key, 4)
  return {
    'observations': jax.random.normal(keys[0], (size, 3)),
    'actions': jax.random.uniform(keys[1], (size, 2), minval=-1.0),
    'rewards': -jnp.ones(size),
    'masks': jax.random.bernoulli(keys[2], 0.8, (size,)).astype(jnp.float32),
    'next_observations': jax.random.normal(keys[3], (size, 3)),
  }


def train(method, num_updates=3, seed=0):
  state = method.init(jax.random.key(seed))
  update = jax.jit(method.update)
  for i in range(num_updates):
    key = jax.random.key(100 + i)
    state, metrics = update(state, batch_of(key), key)
  return state, metrics


def assert_changes(before, after, changed):
  for name, tree in before.items():
    same = all(
      np.array_equal(a, b)
      for a, b in zip(jax.tree.leaves(tree), jax.tree.leaves(after[name]), strict=True)
    )
    assert same != (name in changed), name


class MethodsTest(chex.TestCase):
  def test_pql_without_penalty_and_with_uniform_times_is_fql(self):
    plain, plain_metrics = train(fql.make(tiny(), SPEC))
    config = tiny(pde={'weight': 0.0}, time={'law': 'uniform'})
    regularised, metrics = train(pql.make(config, SPEC))
    chex.assert_trees_all_equal(plain.params, regularised.params)
    for name, value in plain_metrics.items():
      np.testing.assert_array_equal(value, metrics[name])

  @parameterized.parameters(*pql.FORMS)
  def test_penalty_vanishes_with_its_weight(self, form):
    config = tiny(pde={'form': form, 'weight': 1e-12}, time={'law': 'uniform'})
    regularised, _ = train(pql.make(config, SPEC), num_updates=1)
    plain, _ = train(fql.make(tiny(), SPEC), num_updates=1)
    chex.assert_trees_all_close(regularised.params, plain.params, rtol=1e-3, atol=1e-5)

  def test_beta_one_one_is_uniform_in_law_alone(self):
    uniform, _ = train(pql.make(tiny(pde={'weight': 0.0}, time={'law': 'uniform'}), SPEC))
    config = tiny(pde={'weight': 0.0}, time={'law': 'beta', 'a': 1.0, 'b': 1.0})
    beta, _ = train(pql.make(config, SPEC))
    assert_changes(uniform.params, beta.params, {'flow', 'one_step'})

  @parameterized.parameters(*pql.FORMS)
  def test_penalty_reaches_the_flow_and_neither_policy_nor_critic(self, form):
    weak, _ = train(pql.make(tiny(pde={'form': form, 'weight': 0.0}), SPEC), num_updates=1)
    strong, _ = train(pql.make(tiny(pde={'form': form, 'weight': 1.0}), SPEC), num_updates=1)
    # One step: the policy follows the changed flow from the next one on.
    assert_changes(weak.params, strong.params, {'flow'})

  def test_only_flow_matching_moves_the_flow(self):
    no_flow_loss = lambda flow, params, batch, key: (jnp.zeros(()), {})
    method = fql.make(tiny(), SPEC, flow_loss=no_flow_loss)
    before = method.init(jax.random.key(0))
    after, _ = method.update(before, batch_of(jax.random.key(1)), jax.random.key(2))
    assert_changes(before.params, after.params, {'one_step', 'critic'})

  def test_the_actor_does_not_move_the_critic(self):
    weak, _ = train(fql.make(tiny(alpha=1.0), SPEC), num_updates=1)
    strong, _ = train(fql.make(tiny(alpha=100.0), SPEC), num_updates=1)
    assert_changes(weak.params, strong.params, {'one_step'})

  def test_target_follows_the_critic_from_before_the_step(self):
    method = fql.make(tiny(polyak_step=0.25), SPEC)
    before = method.init(jax.random.key(0))
    before = before._replace(target=jax.tree.map(jnp.zeros_like, before.target))
    after, _ = method.update(before, batch_of(jax.random.key(1)), jax.random.key(2))
    expected = jax.tree.map(lambda p: 0.25 * p, before.params['critic'])
    chex.assert_trees_all_close(after.target, expected, rtol=1e-6)

  def test_without_bootstrap_the_critic_learns_the_reward(self):
    method = fql.make(tiny(learning_rate=1e-2, critic_layer_norm=False), SPEC)
    batch = batch_of(jax.random.key(0))
    batch = batch | {'masks': jnp.zeros(16), 'rewards': batch['actions'].sum(1)}
    state = method.init(jax.random.key(1))
    update = jax.jit(method.update)
    for i in range(500):
      state, metrics = update(state, batch, jax.random.key(i))
    self.assertLess(float(metrics['critic_loss']), 0.05 * float(batch['rewards'].var()))

  @parameterized.parameters(*methods.METHODS)
  def test_seeds_under_vmap_equal_a_loop(self, name):
    method = methods.METHODS[name](tiny(), SPEC)
    keys = jax.random.split(jax.random.key(0), 3)
    batches = jax.vmap(batch_of)(keys)
    states = jax.vmap(method.init)(keys)
    together, _ = jax.jit(jax.vmap(method.update))(states, batches, keys)
    for i in range(3):
      row = lambda tree, i=i: jax.tree.map(lambda x: x[i], tree)
      alone, _ = method.update(row(states), row(batches), keys[i])
      chex.assert_trees_all_close(row(together).params, alone.params, rtol=1e-4, atol=1e-5)

  @chex.variants(with_jit=True, without_jit=True)
  @parameterized.parameters(*methods.METHODS)
  def test_acts_in_the_action_box_and_by_its_key_alone(self, name):
    method = methods.METHODS[name](tiny(), SPEC)
    params = method.init(jax.random.key(0)).params
    act = self.variant(method.act)
    observations = 100 * jax.random.normal(jax.random.key(1), (32, 3))
    actions = act(params, observations, jax.random.key(2))
    chex.assert_shape(actions, (32, 2))
    self.assertLessEqual(float(jnp.abs(actions).max()), 1.0)
    np.testing.assert_array_equal(actions, act(params, observations, jax.random.key(2)))
    self.assertGreater(
      float(jnp.abs(actions - act(params, observations, jax.random.key(3))).max()), 0
    )

  def test_sum_reduction_is_the_mean_times_the_dimension(self):
    by_sum, _ = train(pql.make(tiny(pde={'reduction': 'sum', 'weight': 0.1}), SPEC))
    by_mean, _ = train(pql.make(tiny(pde={'reduction': 'mean', 'weight': 0.2}), SPEC))
    chex.assert_trees_all_close(by_sum.params, by_mean.params, rtol=1e-5, atol=1e-6)

  def test_importance_weights_make_the_flow_loss_uniform_in_expectation(self):
    method_loss = lambda **time: pql.flow_loss_of(tiny(pde={'weight': 0.0}, time=time))
    params = agent.networks(tiny(), SPEC).init_flow(jax.random.key(0))
    flow = agent.networks(tiny(), SPEC).flow
    batch = batch_of(jax.random.key(1), size=4096)

    def mean_loss(loss):
      keys = jax.random.split(jax.random.key(2), 32)
      values = jax.jit(jax.vmap(lambda k: loss(flow, params, batch, k)[1]['flow_loss']))(keys)
      return float(values.mean()), float(values.std()) / np.sqrt(32)

    uniform, error = mean_loss(bc_flow.flow_loss)
    beta, _ = mean_loss(method_loss(law='beta', a=1.5, b=1.5))
    weighted, weighted_error = mean_loss(
      method_loss(law='beta', a=1.5, b=1.5, importance_weight=True)
    )
    self.assertLess(abs(weighted - uniform), 5 * (error + weighted_error) + 0.01 * uniform)
    self.assertGreater(abs(beta - uniform), abs(weighted - uniform))

  def test_variants_change_their_fields_alone(self):
    config = ogbench.get_config()
    config.variants = {'sharp': {'method': 'pql', 'pde': {'weight': 0.0}}}
    changed = methods.with_variant(config, 'sharp')
    self.assertEqual(changed.agent.pde.weight, 0.0)
    self.assertEqual(config.agent.pde.weight, 0.01)
    changed.agent.pde.weight = config.agent.pde.weight
    self.assertEqual(changed.to_dict(), config.to_dict())
