"""What the methods share: their signature, their networks, and one step of Adam."""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import ml_collections
import optax

from lib.nn import mlp
from lib.rl import critics

Params = Any
Batch = dict[str, chex.Array]
Metrics = dict[str, chex.Array]


class Spec(NamedTuple):
  """Sizes that the data set decides."""

  observation_dim: int
  action_dim: int


class State(NamedTuple):
  """Everything that one run of one method carries from update to update."""

  params: Params
  target: Params  # the critic's Polyak average; empty where there is no critic
  opt_state: optax.OptState


class Method(NamedTuple):
  """One algorithm, for one seed; `jax.vmap` gives it several.

  Attributes:
    init: `init(key) -> State`.
    update: `update(state, batch, key) -> (State, metrics)`.
    act: `act(params, observations (B, o), key) -> actions (B, A)` in [-1, 1].
    behaviour: `behaviour(params, observations (B, o), actions (B, A), times (B, 1)) -> velocities
      (B, A)` of the behaviour flow.
    one_step: `one_step(params, observations, noise) -> actions (B, A)` of the distilled policy,
      before clipping; None for the methods that act by integrating the flow.
  """

  init: Callable[[chex.PRNGKey], State]
  update: Callable[[State, Batch, chex.PRNGKey], tuple[State, Metrics]]
  act: Callable[[Params, chex.Array, chex.PRNGKey], chex.Array]
  behaviour: Callable[[Params, chex.Array, chex.Array, chex.Array], chex.Array]
  one_step: Callable[[Params, chex.Array, chex.Array], chex.Array] | None


class Networks(NamedTuple):
  """Pure functions of (parameters, inputs) with their initialisers.

  Attributes:
    init_flow: `init_flow(key) -> params` of the behaviour flow.
    init_one_step: `init_one_step(key) -> params` of the one-step policy.
    init_critic: `init_critic(key) -> params` of the critics.
    flow: `flow(params, s, a, t) -> u` (B, A).
    one_step: `one_step(params, s, z) -> a` (B, A), unclipped.
    critic: `critic(params, s, a) -> q` (E, B).
  """

  init_flow: Callable[[chex.PRNGKey], Params]
  init_one_step: Callable[[chex.PRNGKey], Params]
  init_critic: Callable[[chex.PRNGKey], Params]
  flow: Callable[..., chex.Array]
  one_step: Callable[..., chex.Array]
  critic: Callable[..., chex.Array]


def networks(config: ml_collections.ConfigDict, spec: Spec) -> Networks:
  """Builds FQL's networks (Park et al., 2025, arXiv:2502.02538): raw time, no output squashing."""
  actor = mlp.MLP(config.hidden_dims, spec.action_dim)
  critic = mlp.MLP(config.hidden_dims, 1, layer_norm=config.critic_layer_norm)
  state_action = jnp.zeros((1, spec.observation_dim + spec.action_dim))
  state_action_time = jnp.zeros((1, spec.observation_dim + spec.action_dim + 1))

  def value(params, x):
    return critic.apply(params, x)[..., 0]

  return Networks(
    init_flow=lambda key: actor.init(key, state_action_time),
    init_one_step=lambda key: actor.init(key, state_action),
    init_critic=lambda key: critics.ensemble_init(
      critic.init, key, config.num_critics, state_action
    ),
    flow=lambda params, s, a, t: actor.apply(params, _concat(s, a, t)),
    one_step=lambda params, s, z: actor.apply(params, _concat(s, z)),
    critic=lambda params, s, a: critics.ensemble_apply(value, params, _concat(s, a)),
  )


def adam_step(
  optimizer: optax.GradientTransformation,
  loss: Callable[[Params], tuple[chex.Array, Metrics]],
  params: Params,
  opt_state: optax.OptState,
) -> tuple[Params, optax.OptState, Metrics]:
  """One gradient step on `loss`; the loss joins its own metrics under the name 'loss'."""
  (value, metrics), grads = jax.value_and_grad(loss, has_aux=True)(params)
  updates, opt_state = optimizer.update(grads, opt_state, params)
  return optax.apply_updates(params, updates), opt_state, {'loss': value, **metrics}


def _concat(*parts: chex.Array) -> chex.Array:
  return jnp.concatenate(parts, axis=-1)
