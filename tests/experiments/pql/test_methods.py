import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from jax import flatten_util

from configs.pql import ogbench
from experiments.pql import methods
from experiments.pql.methods import agent, bc_flow, fawac, fbrac, fql, ifql, iql, pql, rebrac

SPEC = agent.Spec(observation_dim=3, action_dim=2)
DETERMINISTIC = ('iql', 'rebrac')


def tiny(**changes):
  config = ogbench.get_config().agent
  config.hidden_dims = (8,)
  config.flow_steps = 3
  config.update(changes)
  return config


def batch_of(key, size=16):
  keys = jax.random.split(key, 6)
  return {
    'observations': jax.random.normal(keys[0], (size, 3)),
    'actions': jax.random.uniform(keys[1], (size, 2), minval=-1.0),
    'rewards': -jnp.ones(size),
    'masks': jax.random.bernoulli(keys[2], 0.8, (size,)).astype(jnp.float32),
    'next_observations': jax.random.normal(keys[3], (size, 3)),
    'next_actions': jax.random.uniform(keys[4], (size, 2), minval=-1.0),
    'next_action_masks': jax.random.bernoulli(keys[5], 0.5, (size,)).astype(jnp.float32),
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


def update_and_batch(method, seed=0):
  state = jax.jit(method.init)(jax.random.key(seed))
  batch = batch_of(jax.random.key(seed + 1))
  return state, *jax.jit(method.update)(state, batch, jax.random.key(seed + 2)), batch


def update_once(method, seed=0):
  return update_and_batch(method, seed)[:3]


def assert_changes(before, after, changed):
  for name, tree in before.items():
    same = all(
      np.array_equal(a, b)
      for a, b in zip(jax.tree.leaves(tree), jax.tree.leaves(after[name]), strict=True)
    )
    assert same != (name in changed), name


def metric_gradients(method, batch, key):
  """The state, its metrics, and for each metric its gradient by each network's parameters."""
  state = jax.jit(method.init)(jax.random.key(0))
  # Other parameters than their average, as after some updates.
  state = state._replace(target=jax.tree.map(lambda x: 0.5 * x, state.target))

  def metrics(params):
    values = method.update(state._replace(params=params), batch, key)[1]
    return values, values

  gradients, values = jax.jit(jax.jacrev(metrics, has_aux=True))(state.params)
  return state, values, gradients


def networks_moved(gradients):
  """For each loss, the networks of which some parameter has a gradient."""
  moved = lambda tree: any(bool(jnp.any(x != 0)) for x in jax.tree.leaves(tree))
  return {
    metric: {name for name, tree in by_network.items() if moved(tree)}
    for metric, by_network in gradients.items()
    if metric.endswith('_loss')
  }


def total(*trees):
  return jax.tree.map(lambda *parts: sum(parts), *trees)


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
    by_another_key = float(jnp.abs(actions - act(jax.random.key(3))).max())
    self.assertEqual(by_another_key == 0, name in DETERMINISTIC)

  def test_variants_change_their_fields_alone(self):
    config = ogbench.get_config()
    config.variants = {'sharp': {'method': 'pql', 'pde': {'weight': 0.0}}}
    changed = methods.with_variant(config, 'sharp')
    self.assertEqual(changed.agent.pde.weight, 0.0)
    self.assertEqual(config.agent.pde.weight, 0.01)
    changed.agent.pde.weight = config.agent.pde.weight
    self.assertEqual(changed.to_dict(), config.to_dict())


class ImplicitTest(chex.TestCase):
  def test_each_loss_of_iql_moves_its_own_network(self):
    config, batch = tiny(iql={'expectile': 0.7}), batch_of(jax.random.key(1))
    state, metrics, gradients = metric_gradients(iql.make(config, SPEC), batch, jax.random.key(2))
    expected = {'value_loss': {'value'}, 'critic_loss': {'critic'}, 'actor_loss': {'actor'}}
    self.assertEqual(networks_moved(gradients), expected)
    self.assertGreater(float(jnp.abs(metrics['advantage_weight'] - 1)), 1e-3)
    parts = [gradients[name] for name in expected]
    chex.assert_trees_all_close(gradients['loss'], total(*parts), rtol=1e-5, atol=1e-7)
    # The value regresses on the expectile of the target critics; the critics bootstrap from it.
    nets, params = agent.networks(config, SPEC), state.params
    s, a, next_s = (batch[name] for name in ('observations', 'actions', 'next_observations'))
    q, target_q = (np.asarray(nets.critic(p, s, a)) for p in (params['critic'], state.target))
    v, next_v = (np.asarray(nets.value(params['value'], x)) for x in (s, next_s))
    losses = [(0.7 if x > 0 else 0.3) * x**2 for x in target_q.min(axis=0) - v]
    np.testing.assert_allclose(metrics['value_loss'], np.mean(losses), rtol=1e-5)
    y = batch['rewards'] + config.discount * batch['masks'] * next_v
    np.testing.assert_allclose(metrics['critic_loss'], np.mean((q - y) ** 2), rtol=1e-5)

  def test_iql_without_temperature_clones_behaviour(self):
    method = iql.make(tiny(iql={'inverse_temperature': 0.0}), SPEC)
    batch = batch_of(jax.random.key(1))
    state, metrics, gradients = metric_gradients(method, batch, jax.random.key(2))
    self.assertEqual(float(metrics['advantage_weight']), 1.0)

    @jax.jit
    @jax.value_and_grad
    def cloning(params):
      # Actions start near the centre of the box, so that nothing is clipped.
      actions = method.act(params, batch['observations'], jax.random.key(0))
      return jnp.mean(jnp.sum((actions - batch['actions']) ** 2, axis=-1)) / 2

    loss, gradient = cloning(state.params)
    np.testing.assert_allclose(metrics['actor_loss'], loss, rtol=1e-6)
    chex.assert_trees_all_close(gradients['actor_loss'], gradient, rtol=1e-5, atol=1e-7)

  def test_each_loss_of_ifql_moves_its_own_network(self):
    _, _, gradients = metric_gradients(
      ifql.make(tiny(), SPEC), batch_of(jax.random.key(1)), jax.random.key(2)
    )
    expected = {'value_loss': {'value'}, 'critic_loss': {'critic'}, 'flow_loss': {'flow'}}
    self.assertEqual(networks_moved(gradients), expected)

  def test_ifql_acts_by_the_sample_that_its_worst_critic_likes_best(self):
    config = tiny(ifql={'num_samples': 6})
    nets, method = agent.networks(config, SPEC), ifql.make(config, SPEC)
    params = jax.jit(method.init)(jax.random.key(0)).params
    observations, key = jax.random.normal(jax.random.key(1), (5, 3)), jax.random.key(2)

    @jax.jit
    def everything(params):
      actions = method.act(params, observations, key)
      noise = jax.random.normal(key, (6, 5, 2))
      samples = jax.lax.map(
        lambda z: bc_flow.integrate_flow(nets.flow, params['flow'], observations, z, 3), noise
      )
      worst = lambda a: nets.critic(params['critic'], observations, a).min(axis=0)
      return actions, samples, worst(actions), jax.lax.map(worst, samples)

    actions, samples, chosen, values = map(np.asarray, everything(params))
    np.testing.assert_allclose(chosen, values.max(axis=0), rtol=1e-5, atol=1e-6)
    gaps = np.abs(actions - samples).max(axis=-1)  # (6, 5)
    self.assertLess(gaps.min(axis=0).max(), 1e-5)
    self.assertGreater(len({*gaps.argmin(axis=0)}), 1)

  def test_ifql_with_one_sample_is_the_flow_policy(self):
    config = tiny(ifql={'num_samples': 1})
    one, plain = ifql.make(config, SPEC), bc_flow.make(config, SPEC)
    params = jax.jit(one.init)(jax.random.key(0)).params
    observations, key = jax.random.normal(jax.random.key(1), (5, 3)), jax.random.key(2)
    found, expected = (jax.jit(m.act)(params, observations, key) for m in (one, plain))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


class FlowActorCriticTest(chex.TestCase):
  def test_fawac_weighs_flow_matching_by_the_advantage(self):
    batch, key = batch_of(jax.random.key(1)), jax.random.key(2)
    nets = agent.networks(tiny(), SPEC)
    for beta in (0.0, 1.0):
      method = fawac.make(tiny(fawac={'inverse_temperature': beta}), SPEC)
      state, metrics, gradients = metric_gradients(method, batch, key)
      expected = {'critic_loss': {'critic'}, 'flow_loss': {'flow'}}
      self.assertEqual(networks_moved(gradients), expected)
      _, actor_key = jax.random.split(key)
      _, flow_key = jax.random.split(actor_key)
      plain = jax.jit(
        jax.grad(lambda p: bc_flow.flow_loss(nets.flow, p, batch, flow_key)[0])  # noqa: B023
      )(state.params['flow'])
      same = jax.tree.map(
        lambda a, b: np.allclose(a, b, rtol=1e-4, atol=1e-6), gradients['flow_loss']['flow'], plain
      )
      self.assertEqual(all(jax.tree.leaves(same)), beta == 0.0)
      self.assertEqual(float(metrics['advantage_weight']) == 1.0, beta == 0.0)

  def test_fbrac_moves_the_flow_by_both_losses_and_by_matching_alone_in_the_limit(self):
    batch, key = batch_of(jax.random.key(1)), jax.random.key(2)
    method = fbrac.make(tiny(fbrac={'alpha': 1e4}), SPEC)
    _, metrics, gradients = metric_gradients(method, batch, key)
    expected = {'critic_loss': {'critic'}, 'flow_loss': {'flow'}, 'policy_value_loss': {'flow'}}
    self.assertEqual(networks_moved(gradients), expected)
    np.testing.assert_allclose(
      metrics['loss'],
      metrics['critic_loss'] + 1e4 * metrics['flow_loss'] + metrics['policy_value_loss'],
      rtol=1e-5,
    )
    matching = gradients['flow_loss']['flow']
    chex.assert_trees_all_close(
      gradients['loss']['flow'],
      jax.tree.map(lambda a, b: 1e4 * a + b, matching, gradients['policy_value_loss']['flow']),
      rtol=1e-4,
      atol=1e-2,
    )
    flat = [flatten_util.ravel_pytree(g)[0] for g in (gradients['loss']['flow'], matching)]
    cosine = flat[0] @ flat[1] / jnp.linalg.norm(flat[0]) / jnp.linalg.norm(flat[1])
    self.assertGreater(float(cosine), 1 - 1e-4)


class RebracTest(chex.TestCase):
  def test_policy_and_targets_move_once_in_so_many_updates(self):
    method = rebrac.make(tiny(rebrac={'actor_every': 3}), SPEC)
    update = jax.jit(method.update)
    before = jax.jit(method.init)(jax.random.key(0))
    for number in range(1, 7):
      after, _ = update(before, batch_of(jax.random.key(number)), jax.random.key(-number))
      now = number % 3 == 0
      assert_changes(before.params, after.params, {'critic', 'actor'} if now else {'critic'})
      assert_changes(before.target, after.target, {'critic', 'actor'} if now else {})
      optimisers = [{k: s.opt_state[k] for k in ('critic', 'actor')} for s in (before, after)]
      assert_changes(*optimisers, {'critic', 'actor'} if now else {'critic'})
      before = after

  @parameterized.parameters(
    {'critic_penalty': 2.0, 'policy_noise': 0.0},
    {'critic_penalty': 0.0, 'policy_noise': 0.0},
    {'critic_penalty': 2.0, 'policy_noise': 0.2, 'noise_clip': 0.0},
  )
  def test_the_next_action_is_penalised_where_there_is_one(self, **changes):
    config = tiny(rebrac=changes)
    nets, method = agent.networks(config, SPEC), rebrac.make(config, SPEC)
    state = jax.jit(method.init)(jax.random.key(0))
    state = state._replace(target=jax.tree.map(lambda x: 2.0 * x, state.target))
    update, batch = jax.jit(method.update), batch_of(jax.random.key(1))

    s, next_s, r, m = (batch[k] for k in ('observations', 'next_observations', 'rewards', 'masks'))
    next_a = np.asarray(method.act(state.target, next_s, jax.random.key(5)))
    next_q = np.asarray(nets.critic(state.target['critic'], next_s, next_a)).min(axis=0)
    squares = ((next_a - np.asarray(batch['next_actions'])) ** 2).sum(axis=-1)
    value = next_q - changes['critic_penalty'] * np.asarray(batch['next_action_masks']) * squares
    y = r + config.discount * m * value
    q = nets.critic(state.params['critic'], s, batch['actions'])
    _, metrics = update(state, batch, jax.random.key(2))
    np.testing.assert_allclose(metrics['critic_loss'], np.mean((q - y) ** 2), rtol=1e-5)

    there = batch['next_action_masks'][:, None]
    for where, matters in ((1 - there, False), (there, changes['critic_penalty'] > 0)):
      moved = batch | {'next_actions': batch['next_actions'] + where}
      _, other = update(state, moved, jax.random.key(3))
      self.assertEqual(float(other['critic_loss']) != float(metrics['critic_loss']), matters)

  def test_losses_of_the_actor(self):
    config = tiny(rebrac={'actor_penalty': 0.5})
    nets, method = agent.networks(config, SPEC), rebrac.make(config, SPEC)
    state, _, metrics, batch = update_and_batch(method)
    s = batch['observations']
    actions = method.act(state.params, s, jax.random.key(0))
    q = np.asarray(nets.critic(state.params['critic'], s, actions)).min(axis=0)
    # The value is in units of its own size, so that the penalty's weight has none.
    np.testing.assert_allclose(
      metrics['policy_value_loss'], -q.mean() / np.abs(q).mean(), rtol=1e-5
    )
    cloning = np.mean(np.sum((np.asarray(actions) - np.asarray(batch['actions'])) ** 2, axis=-1))
    np.testing.assert_allclose(metrics['cloning_loss'], cloning, rtol=1e-5)
    np.testing.assert_allclose(
      metrics['loss'],
      metrics['critic_loss'] + metrics['policy_value_loss'] + 0.5 * metrics['cloning_loss'],
      rtol=1e-5,
    )
