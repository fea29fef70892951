"""Flow Q-learning: a one-step policy distilled from a behaviour flow and pushed up a critic.

Park, Li and Levine (2025), arXiv:2502.02538.
"""

import jax
import jax.numpy as jnp
import ml_collections

from experiments.pql.methods import agent, bc_flow
from lib.rl import losses


def make(
  config: ml_collections.ConfigDict, spec: agent.Spec, flow_loss=bc_flow.flow_loss
) -> agent.Method:
  """Flow Q-learning over a given loss of the behaviour flow.

  Args:
    config: the fields of `config.agent`.
    spec: sizes of the data set.
    flow_loss: `flow_loss(flow, params, batch, key) -> (loss, metrics)`, as `bc_flow.flow_loss`.

  Returns:
    The method.
  """
  nets = agent.networks(config, spec)
  aggregate = agent.AGGREGATIONS[config.q_aggregation]

  def init_params(key):
    flow_key, one_step_key, critic_key = jax.random.split(key, 3)
    return {
      'flow': nets.init_flow(flow_key),
      'one_step': nets.init_one_step(one_step_key),
      'critic': nets.init_critic(critic_key),
    }

  def one_step_policy(params, observations, key):
    noise = jax.random.normal(key, (observations.shape[0], spec.action_dim))
    return jnp.clip(nets.one_step(params['one_step'], observations, noise), -1.0, 1.0)

  def critic_loss(params, target, batch, key):
    next_actions = one_step_policy(params, batch['next_observations'], key)
    next_q = aggregate(nets.critic(target, batch['next_observations'], next_actions), axis=0)
    return agent.td_loss(nets, params, batch, next_q, config.discount)

  def actor_loss(params, batch, key):
    observations = batch['observations']
    noise = jax.random.normal(key, batch['actions'].shape)
    teacher = bc_flow.integrate_flow(
      nets.flow, params['flow'], observations, noise, config.flow_steps
    )
    student = nets.one_step(params['one_step'], observations, noise)
    distillation = losses.distillation_loss(student, teacher)
    frozen_critic = jax.lax.stop_gradient(params['critic'])
    q = nets.critic(frozen_critic, observations, jnp.clip(student, -1.0, 1.0))
    value = losses.policy_value_loss(q, config.normalize_q)
    loss = config.alpha * distillation + value
    return loss, {'distillation_loss': distillation, 'policy_value_loss': value}

  def loss(params, target, batch, key):
    critic_key, flow_key, actor_key = jax.random.split(key, 3)
    return agent.joint(
      critic_loss(params, target, batch, critic_key),
      flow_loss(nets.flow, params['flow'], batch, flow_key),
      actor_loss(params, batch, actor_key),
    )

  init, update = agent.learner(config, init_params, loss)
  return agent.Method(
    init=init,
    update=update,
    act=one_step_policy,
    flow=nets.velocity,
    one_step=lambda params, s, z: nets.one_step(params['one_step'], s, z),
  )
