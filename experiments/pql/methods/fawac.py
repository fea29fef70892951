"""Flow advantage-weighted actor-critic: flow matching, weighted by the advantage of the action.

The flow variant of AWAC (Nair et al., 2020, arXiv:2006.09359), a baseline of Park, Li and Levine
(2025), arXiv:2502.02538, who give its actor's loss; critic and value are AWAC's.
"""

import jax
import jax.numpy as jnp
import ml_collections

from experiments.pql.methods import agent, bc_flow, fbrac
from lib.rl import losses


def make(config: ml_collections.ConfigDict, spec: agent.Spec) -> agent.Method:
  """Weights min(exp(β (Q(s, a) - V(s))), 100) with V(s) = Q(s, ψ(s, z)) by one sample."""
  nets = agent.networks(config, spec)
  act = bc_flow.policy(nets.flow, config.flow_steps, spec.action_dim)

  def actor_loss(params, batch, key):
    value_key, flow_key = jax.random.split(key)
    s, a = batch['observations'], batch['actions']
    q, v = (
      jnp.mean(nets.critic(params['critic'], s, actions), axis=0)
      for actions in (a, act(params, s, value_key))
    )
    weights = losses.advantage_weights(q - v, config.fawac.inverse_temperature)
    loss, metrics = bc_flow.flow_loss(nets.flow, params['flow'], batch, flow_key, weights)
    return loss, {**metrics, 'advantage_weight': jnp.mean(weights)}

  def loss(params, target, batch, key):
    critic_key, actor_key = jax.random.split(key)
    return agent.joint(
      fbrac.critic_loss(config, nets, act, params, target, batch, critic_key),
      actor_loss(params, batch, actor_key),
    )

  init, update = agent.learner(config, fbrac.init_params(nets), loss)
  return agent.Method(
    init=init,
    update=update,
    act=act,
    flow=nets.velocity,
  )
