"""Implicit Q-learning: values by expectile regression, a policy by weighted regression.

Kostrikov, Nair and Levine (2022), arXiv:2110.06169.
"""

import chex
import jax
import jax.numpy as jnp
import ml_collections

from experiments.pql.methods import agent
from lib.rl import losses


def init_values(nets: agent.Networks, key: chex.PRNGKey) -> agent.Params:
  """Draws the parameters of critics and value."""
  critic_key, value_key = jax.random.split(key)
  return {'critic': nets.init_critic(critic_key), 'value': nets.init_value(value_key)}


def values_loss(
  config: ml_collections.ConfigDict,
  nets: agent.Networks,
  params: agent.Params,
  target: agent.Params,
  batch: agent.Batch,
) -> tuple[chex.Array, agent.Metrics]:
  """The losses of V, an upper expectile of the target critics, and of Q, which bootstraps from V.

  No action but the data's is ever valued.
  """
  q = jnp.min(nets.critic(target, batch['observations'], batch['actions']), axis=0)
  v = nets.value(params['value'], batch['observations'])
  loss = losses.expectile_loss(q - v, config.iql.expectile)
  next_v = nets.value(params['value'], batch['next_observations'])
  critic = agent.td_loss(nets, params, batch, next_v, config.discount)
  return agent.joint((loss, {'value_loss': loss}), critic)


def make(config: ml_collections.ConfigDict, spec: agent.Spec) -> agent.Method:
  """Implicit Q-learning with a Gaussian policy of unit variance, which acts by its mean."""
  nets = agent.networks(config, spec)

  def init_params(key):
    values_key, actor_key = jax.random.split(key)
    return {**init_values(nets, values_key), 'actor': nets.init_actor(actor_key)}

  def actor_loss(params, batch):
    s, a = batch['observations'], batch['actions']
    advantages = jnp.min(nets.critic(params['critic'], s, a), axis=0) - nets.value(
      params['value'], s
    )
    weights = losses.advantage_weights(advantages, config.iql.inverse_temperature)
    squares = jnp.sum((nets.actor(params['actor'], s) - a) ** 2, axis=-1)
    loss = jnp.mean(weights * squares) / 2  # the negative log-likelihood but for a constant
    return loss, {'actor_loss': loss, 'advantage_weight': jnp.mean(weights)}

  def loss(params, target, batch, key):
    del key
    return agent.joint(values_loss(config, nets, params, target, batch), actor_loss(params, batch))

  def act(params, observations, key):
    del key
    return jnp.clip(nets.actor(params['actor'], observations), -1.0, 1.0)

  init, update = agent.learner(config, init_params, loss)
  return agent.Method(init=init, update=update, act=act)
