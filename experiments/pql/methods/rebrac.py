"""Revisited behaviour-regularised actor-critic: TD3+BC with penalties in actor and critic.

Tarasov, Kurenkov, Nikulin and Kolesnikov (2023), arXiv:2305.09836.
"""

import jax
import jax.numpy as jnp
import ml_collections
import optax

from experiments.pql.methods import agent
from lib.rl import losses


def make(config: ml_collections.ConfigDict, spec: agent.Spec) -> agent.Method:
  """A deterministic policy, tanh of a network; it is updated once in `actor_every` updates.

  The critic's penalty needs the data's next action. Where the episode ends there is none, and no
  penalty (`next_action_masks`).
  """
  nets = agent.networks(config, spec)
  optimizer = optax.adam(config.learning_rate)
  sizes = config.rebrac

  def policy(actor, observations):
    return jnp.tanh(nets.actor(actor, observations))

  def init(key):
    critic_key, actor_key = jax.random.split(key)
    params = {'critic': nets.init_critic(critic_key), 'actor': nets.init_actor(actor_key)}
    opt_state = {name: optimizer.init(tree) for name, tree in params.items()}
    opt_state['updates'] = jnp.zeros((), jnp.int32)
    return agent.State(params, jax.tree.map(jnp.copy, params), opt_state)

  def critic_loss(critic, target, batch, key):
    s = batch['next_observations']
    noise = sizes.policy_noise * jax.random.normal(key, batch['actions'].shape)
    noise = jnp.clip(noise, -sizes.noise_clip, sizes.noise_clip)
    actions = jnp.clip(policy(target['actor'], s) + noise, -1.0, 1.0)
    squares = jnp.sum((actions - batch['next_actions']) ** 2, axis=-1)
    penalty = sizes.critic_penalty * batch['next_action_masks'] * squares
    next_values = jnp.min(nets.critic(target['critic'], s, actions), axis=0) - penalty
    return agent.td_loss(nets, {'critic': critic}, batch, next_values, config.discount)

  def actor_loss(actor, critic, batch):
    s, a = batch['observations'], batch['actions']
    actions = policy(actor, s)
    q = jnp.min(nets.critic(critic, s, actions), axis=0, keepdims=True)
    value = losses.policy_value_loss(q, normalize=True)
    cloning = jnp.mean(jnp.sum((actions - a) ** 2, axis=-1))
    return value + sizes.actor_penalty * cloning, {
      'policy_value_loss': value,
      'cloning_loss': cloning,
    }

  def update(state, batch, key):
    critic, critic_opt, critic_metrics = agent.adam_step(
      optimizer,
      lambda critic: critic_loss(critic, state.target, batch, key),
      state.params['critic'],
      state.opt_state['critic'],
    )
    actor, actor_opt, actor_metrics = agent.adam_step(
      optimizer,
      lambda actor: actor_loss(actor, state.params['critic'], batch),
      state.params['actor'],
      state.opt_state['actor'],
    )
    updates = state.opt_state['updates'] + 1
    params = {'critic': critic, 'actor': actor}
    target = optax.incremental_update(params, state.target, config.polyak_step)
    # The policy and both targets move together, once in `actor_every` updates.
    moved = (actor, actor_opt, target)
    stayed = (state.params['actor'], state.opt_state['actor'], state.target)
    now = updates % sizes.actor_every == 0
    actor, actor_opt, target = jax.tree.map(lambda a, b: jnp.where(now, a, b), moved, stayed)
    opt_state = {'critic': critic_opt, 'actor': actor_opt, 'updates': updates}
    loss = {'loss': critic_metrics['loss'] + actor_metrics['loss']}
    metrics = {**critic_metrics, **actor_metrics, **loss}
    return agent.State({'critic': critic, 'actor': actor}, target, opt_state), metrics

  def act(params, observations, key):
    del key
    return policy(params['actor'], observations)

  return agent.Method(init=init, update=update, act=act)
