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
  config.hidden_dims = (8,)
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


def flow_gradients(config, size=16):
  """Loss, metrics and gradient by the flow's parameters of one regularised batch."""
  nets = agent.networks(config, SPEC)
  params = nets.init_flow(jax.random.key(0))
  batch = batch_of(jax.random.key(1), size)
  loss = pql.flow_loss_of(config)
  differentiate = jax.value_and_grad(
    lambda params: loss(nets.flow, params, batch, jax.random.key(2)), has_aux=True
  )
  return jax.jit(differentiate)(params)


def update_once(method, seed=0):
  state = jax.jit(method.init)(jax.random.key(seed))
  batch = batch_of(jax.random.key(seed + 1))
  return state, *jax.jit(method.update)(state, batch, jax.random.key(seed + 2))


def assert_changes(before, after, changed):
  for name, tree in before.items():
    same = all(
      np.array_equal(a, b)
      for a, b in zip(jax.tree.leaves(tree), jax.tree.leaves(after[name]), strict=True)
    )
    assert same != (name in changed), name


class FlowLossTest(chex.TestCase):
  @parameterized.parameters(*pql.FORMS)
  def test_penalty_reaches_the_flow_and_vanishes_with_its_weight(self, form):
    uniform = {'law': 'uniform'}
    off, weak, strong = (
      flow_gradients(tiny(pde={'form': form, 'weight': weight}, time=uniform))
      for weight in (0.0, 1e-9, 1.0)
    )
    chex.assert_trees_all_close(weak[1], off[1], rtol=1e-3, atol=1e-5)
    (loss, metrics), gradients = strong
    self.assertGreater(float(metrics['pde_penalty']), 0.0)
    self.assertAlmostEqual(
      float(loss), float(metrics['flow_loss'] + metrics['pde_penalty']), delta=1e-5 * float(loss)
    )
    difference = jax.tree.map(lambda a, b: jnp.abs(a - b).max(), gradients, off[1])
    self.assertGreater(float(max(jax.tree.leaves(difference))), 1e-4)

  @parameterized.parameters('jacobian', 'divergence_match')
  def test_probes_estimate_the_exact_penalty(self, form):
    config = lambda probes: tiny(pde={'form': form, 'num_probes': probes})
    exact, probed = (flow_gradients(config(n), size=256)[0][1] for n in (0, 64))
    np.testing.assert_allclose(probed['pde_penalty'], exact['pde_penalty'], rtol=0.1)
    np.testing.assert_allclose(probed['flow_loss'], exact['flow_loss'], rtol=1e-5)

  def test_sum_reduction_is_the_mean_times_the_dimension(self):
    by_sum = flow_gradients(tiny(pde={'reduction': 'sum', 'weight': 0.1}))
    by_mean = flow_gradients(tiny(pde={'reduction': 'mean', 'weight': 0.1 * SPEC.action_dim}))
    np.testing.assert_allclose(by_sum[0][0], by_mean[0][0], rtol=1e-5)
    chex.assert_trees_all_close(by_sum[1], by_mean[1], rtol=1e-4, atol=1e-6)

  def test_time_laws_have_the_expected_flow_loss(self):
    nets = agent.networks(tiny(hidden_dims=(8, 8)), SPEC)
    params = nets.init_flow(jax.random.key(0))
    batch = batch_of(jax.random.key(1), size=4096)

    def mean_loss(loss):
      keys = jax.random.split(jax.random.key(2), 16)
      values = jax.jit(lambda ks: jax.lax.map(lambda k: loss(nets.flow, params, batch, k)[0], ks))(
        keys
      )
      return float(values.mean()), float(values.std()) / 4

    law = lambda **time: pql.flow_loss_of(tiny(pde={'weight': 0.0}, time=time))
    uniform, error = mean_loss(bc_flow.flow_loss)
    same, same_error = mean_loss(law(law='beta', a=1.0, b=1.0))
    other, _ = mean_loss(law(law='beta', a=1.5, b=1.5))
    weighted, weighted_error = mean_loss(law(law='beta', a=1.5, b=1.5, importance_weight=True))
    self.assertLess(abs(same - uniform), 5 * (error + same_error))
    self.assertLess(abs(weighted - uniform), 5 * (error + weighted_error) + 0.01 * uniform)
    self.assertGreater(abs(other - uniform), abs(weighted - uniform))


class MethodsTest(chex.TestCase):
  def test_pql_without_penalty_and_with_uniform_times_is_fql(self):
    _, plain, plain_metrics = update_once(fql.make(tiny(), SPEC))
    config = tiny(pde={'weight': 0.0}, time={'law': 'uniform'})
    _, regularised, metrics = update_once(pql.make(config, SPEC))
    chex.assert_trees_all_equal(plain, regularised)
    for name, value in plain_metrics.items():
      np.testing.assert_array_equal(value, metrics[name])

  def test_penalty_moves_neither_policy_nor_critic(self):
    _, plain, _ = update_once(fql.make(tiny(), SPEC))
    _, regularised, _ = update_once(pql.make(tiny(pde={'weight': 1.0}), SPEC))
    # One step: the policy follows the changed flow from the next one on.
    assert_changes(plain.params, regularised.params, {'flow'})

  def test_only_flow_matching_moves_the_flow_and_only_values_the_critic(self):
    no_flow_loss = lambda flow, params, batch, key: (jnp.zeros(()), {})
    before, after, _ = update_once(fql.make(tiny(), SPEC, flow_loss=no_flow_loss))
    assert_changes(before.params, after.params, {'one_step', 'critic'})
    _, stronger, _ = update_once(fql.make(tiny(alpha=1.0), SPEC, flow_loss=no_flow_loss))
    assert_changes(after.params, stronger.params, {'one_step'})

  def test_target_follows_the_critic_from_before_the_step(self):
    method = fql.make(tiny(polyak_step=0.25), SPEC)
    before = jax.jit(method.init)(jax.random.key(0))
    before = before._replace(target=jax.tree.map(jnp.zeros_like, before.target))
    after, _ = jax.jit(method.update)(before, batch_of(jax.random.key(1)), jax.random.key(2))
    expected = jax.tree.map(lambda p: 0.25 * p, before.params['critic'])
    chex.assert_trees_all_close(after.target, expected, rtol=1e-6)

  def test_without_bootstrap_the_critic_learns_the_reward(self):
    method = fql.make(tiny(learning_rate=1e-2, critic_layer_norm=False), SPEC)
    batch = batch_of(jax.random.key(0))
    batch = batch | {'masks': jnp.zeros(16), 'rewards': batch['actions'].sum(1)}

    @jax.jit
    def learn(state):
      update = lambda state, key: method.update(state, batch, key)
      return jax.lax.scan(update, state, jax.random.split(jax.random.key(2), 500))

    _, metrics = learn(jax.jit(method.init)(jax.random.key(1)))
    self.assertLess(float(metrics['critic_loss'][-1]), 0.05 * float(batch['rewards'].var()))

  def test_seeds_under_vmap_equal_a_loop(self):
    method = pql.make(tiny(), SPEC)
    keys = jax.random.split(jax.random.key(0), 3)
    states, batches = jax.jit(jax.vmap(lambda k: (method.init(k), batch_of(k))))(keys)
    together, _ = jax.jit(jax.vmap(method.update))(states, batches, keys)
    alone, _ = jax.jit(lambda *inputs: jax.lax.map(lambda x: method.update(*x), inputs))(
      states, batches, keys
    )
    chex.assert_trees_all_close(together.params, alone.params, rtol=1e-4, atol=1e-5)

  @parameterized.parameters(*methods.METHODS)
  def test_acts_in_the_action_box_and_by_its_key_alone(self, name):
    method = methods.METHODS[name](tiny(), SPEC)
    params = jax.jit(method.init)(jax.random.key(0)).params
    observations = 100 * jax.random.normal(jax.random.key(1), (32, 3))
    act = jax.jit(lambda key: method.act(params, observations, key))
    actions = act(jax.random.key(2))
    chex.assert_shape(actions, (32, SPEC.action_dim))
    self.assertLessEqual(float(jnp.abs(actions).max()), 1.0)
    np.testing.assert_array_equal(actions, act(jax.random.key(2)))
    self.assertGreater(float(jnp.abs(actions - act(jax.random.key(3))).max()), 0)

  def test_variants_change_their_fields_alone(self):
    config = ogbench.get_config()
    config.variants = {'sharp': {'method': 'pql', 'pde': {'weight': 0.0}}}
    changed = methods.with_variant(config, 'sharp')
    self.assertEqual(changed.agent.pde.weight, 0.0)
    self.assertEqual(config.agent.pde.weight, 0.01)
    changed.agent.pde.weight = config.agent.pde.weight
    self.assertEqual(changed.to_dict(), config.to_dict())
