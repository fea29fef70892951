"""Flow behaviour-regularised actor-critic: the value is differentiated through the whole flow.

A baseline of Park, Li and Levine (2025), arXiv:2502.02538: what flow Q-learning avoids by a
distilled policy.
"""

import jax
import ml_collections

from experiments.pql.methods import agent, bc_flow
from lib.rl import losses


def init_params(nets: agent.Networks):
  """Builds `init_params(key)` of a flow with critics."""

  def init(key):
    flow_key, critic_key = jax.random.split(key)
    return {'flow': nets.init_flow(flow_key), 'critic': nets.init_critic(critic_key)}

  return init


def critic_loss(config, nets: agent.Networks, act, params, target, batch, key):
  """The critics' loss with the next action by the flow policy `act(params, observations, key)`."""
  next_actions = act(params, batch['next_observations'], key)
  next_q = nets.critic(target, batch['next_observations'], next_actions)
  next_values = agent.AGGREGATIONS[config.q_aggregation](next_q, axis=0)
  return agent.td_loss(nets, params, batch, next_values, config.discount)


def make(config: ml_collections.ConfigDict, spec: agent.Spec) -> agent.Method:
  """Minimises α L_BC - Q(s, ψ(s, z)) through all Euler steps of ψ."""
  nets = agent.networks(config, spec)
  act = bc_flow.policy(nets.flow, config.flow_steps, spec.action_dim)

  def actor_loss(params, batch, key):
    flow_key, act_key = jax.random.split(key)
    matching, metrics = bc_flow.flow_loss(nets.flow, params['flow'], batch, flow_key)
    observations = batch['observations']
    actions = act(params, observations, act_key)
    q = nets.critic(jax.lax.stop_gradient(params['critic']), observations, actions)
    value = losses.policy_value_loss(q, config.normalize_q)
    return config.fbrac.alpha * matching + value, {**metrics, 'policy_value_loss': value}

  def loss(params, target, batch, key):
    critic_key, actor_key = jax.random.split(key)
    return agent.joint(
      critic_loss(config, nets, act, params, target, batch, critic_key),
      actor_loss(params, batch, actor_key),
    )

  init, update = agent.learner(config, init_params(nets), loss)
  return agent.Method(
    init=init,
    update=update,
    act=act,
    flow=nets.velocity,
  )
