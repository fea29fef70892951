"""Behaviour cloning by flow matching: the policy that the others improve on."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import ml_collections
import optax

from experiments.pql.methods import agent
from lib.flow import integrate, losses, paths, timesteps


class Interpolation(NamedTuple):
  """A batch of points on the linear path from noise to the data's actions."""

  points: chex.Array  # a_t (B, A)
  times: chex.Array  # t (B, 1)
  velocities: chex.Array  # a_1 - a_0 (B, A)


def interpolate(actions: chex.Array, times: chex.Array, key: chex.PRNGKey) -> Interpolation:
  """Draws a_t = (1 - t) a_0 + t a_1 with a_0 ~ N(0, I), for actions a_1 (B, A) and times (B, 1)."""
  noise = jax.random.normal(key, actions.shape)
  points, velocities = paths.linear_path(noise, actions, times)
  return Interpolation(points, times, velocities)


def flow_loss(flow, params, batch, key, weights=None) -> tuple[chex.Array, agent.Metrics]:
  """Flow matching at uniform times: E (1/A) ‖u(s, a_t, t) - (a_1 - a_0)‖².

  Args:
    flow: `flow(params, s, a, t) -> u` (B, A).
    params: of the flow.
    batch: has `observations` (B, o) and `actions` (B, A).
    key: typed PRNG key.
    weights: of the rows (B,); None for ones.

  Returns:
    The scalar loss, and metrics.
  """
  noise_key, time_key, _ = jax.random.split(key, 3)  # the third is the regulariser's
  actions = batch['actions']
  times = timesteps.sample_uniform(time_key, (actions.shape[0], 1))
  path = interpolate(actions, times, noise_key)
  prediction = flow(params, batch['observations'], path.points, path.times)
  loss = losses.flow_matching_loss(prediction, path.velocities, weights)
  return loss, {'flow_loss': loss}


def integrate_flow(flow, params, observations, noise, num_steps: int) -> chex.Array:
  """The flow policy ψ(s, z) (B, A): Euler steps from noise z (B, A), clipped to the action box."""
  field = lambda a, t: flow(params, observations, a, t)
  return jnp.clip(integrate.euler(field, noise, num_steps), -1.0, 1.0)


def policy(flow, num_steps: int, action_dim: int):
  """The flow policy as `act(params, observations, key)`, from noise that it draws."""

  def act(params, observations, key):
    noise = jax.random.normal(key, (observations.shape[0], action_dim))
    return integrate_flow(flow, params['flow'], observations, noise, num_steps)

  return act


def make(config: ml_collections.ConfigDict, spec: agent.Spec) -> agent.Method:
  """Behaviour cloning with the flow alone."""
  nets = agent.networks(config, spec)
  optimizer = optax.adam(config.learning_rate)

  def init(key):
    params = {'flow': nets.init_flow(key)}
    return agent.State(params, {}, optimizer.init(params))

  def update(state, batch, key):
    def loss(params):
      return flow_loss(nets.flow, params['flow'], batch, key)

    params, opt_state, metrics = agent.adam_step(optimizer, loss, state.params, state.opt_state)
    return agent.State(params, state.target, opt_state), metrics

  return agent.Method(
    init=init,
    update=update,
    act=policy(nets.flow, config.flow_steps, spec.action_dim),
    flow=nets.velocity,
  )
