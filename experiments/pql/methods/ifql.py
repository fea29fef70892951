"""Implicit flow Q-learning: implicit Q-learning's critics choose among samples of a behaviour flow.

The flow variant of implicit diffusion Q-learning (Hansen-Estruch et al., 2023, arXiv:2304.10573),
after Park, Li and Levine (2025), arXiv:2502.02538.
"""

import jax
import jax.numpy as jnp
import ml_collections

from experiments.pql.methods import agent, bc_flow, iql


def make(config: ml_collections.ConfigDict, spec: agent.Spec) -> agent.Method:
  """Implicit Q-learning with rejection sampling from the flow when it acts."""
  nets = agent.networks(config, spec)
  num_samples = config.ifql.num_samples

  def init_params(key):
    values_key, flow_key = jax.random.split(key)
    return {**iql.init_values(nets, values_key), 'flow': nets.init_flow(flow_key)}

  def loss(params, target, batch, key):
    return agent.joint(
      iql.values_loss(config, nets, params, target, batch),
      bc_flow.flow_loss(nets.flow, params['flow'], batch, key),
    )

  def act(params, observations, key):
    size = observations.shape[0]
    noise = jax.random.normal(key, (num_samples, size, spec.action_dim))
    sample = lambda z: bc_flow.integrate_flow(
      nets.flow, params['flow'], observations, z, config.flow_steps
    )
    actions = jax.vmap(sample)(noise)  # (N, B, A)
    q = jax.vmap(lambda a: nets.critic(params['critic'], observations, a))(actions)  # (N, E, B)
    best = jnp.argmax(jnp.min(q, axis=1), axis=0)  # (B,)
    return actions[best, jnp.arange(size)]

  init, update = agent.learner(config, init_params, loss)
  return agent.Method(
    init=init,
    update=update,
    act=act,
    flow=nets.velocity,
  )
