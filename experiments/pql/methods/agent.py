"""What the methods share: their signature, their networks, and one step of Adam."""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import ml_collections
import optax

from lib.nn import mlp
from lib.rl import critics, losses

AGGREGATIONS = {'mean': jnp.mean, 'min': jnp.min}  # of the target critics
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
  target: Params  # Polyak averages, of the critic where there is one
  opt_state: optax.OptState


class Method(NamedTuple):
  """One algorithm, for one seed; `jax.vmap` gives it several.

  Attributes:
    init: `init(key) -> State`.
    update: `update(state, batch, key) -> (State, metrics)`.
    act: `act(params, observations (B, o), key) -> actions (B, A)` in [-1, 1].
    flow: `flow(params, observations (B, o), actions (B, A), times (B, 1)) -> velocities (B, A)` of
      the flow that the method trains; None if it has none.
    one_step: `one_step(params, observations, noise) -> actions (B, A)` of the policy that is
      distilled from the flow, before clipping; None if there is none.
  """

  init: Callable[[chex.PRNGKey], State]
  update: Callable[[State, Batch, chex.PRNGKey], tuple[State, Metrics]]
  act: Callable[[Params, chex.Array, chex.PRNGKey], chex.Array]
  flow: Callable[[Params, chex.Array, chex.Array, chex.Array], chex.Array] | None = None
  one_step: Callable[[Params, chex.Array, chex.Array], chex.Array] | None = None


class Networks(NamedTuple):
  """Pure functions of (parameters, inputs) with their initialisers.

  Attributes:
    init_flow: `init_flow(key) -> params` of the behaviour flow.
    init_one_step: `init_one_step(key) -> params` of the one-step policy.
    init_critic: `init_critic(key) -> params` of the critics.
    init_value: `init_value(key) -> params` of the state's value.
    init_actor: `init_actor(key) -> params` of a deterministic policy.
    flow: `flow(params, s, a, t) -> u` (B, A).
    one_step: `one_step(params, s, z) -> a` (B, A), unclipped.
    critic: `critic(params, s, a) -> q` (E, B).
    value: `value(params, s) -> v` (B,).
    actor: `actor(params, s) -> a` (B, A), neither squashed nor clipped.
  """

  init_flow: Callable[[chex.PRNGKey], Params]
  init_one_step: Callable[[chex.PRNGKey], Params]
  init_critic: Callable[[chex.PRNGKey], Params]
  init_value: Callable[[chex.PRNGKey], Params]
  init_actor: Callable[[chex.PRNGKey], Params]
  flow: Callable[..., chex.Array]
  one_step: Callable[..., chex.Array]
  critic: Callable[..., chex.Array]
  value: Callable[..., chex.Array]
  actor: Callable[..., chex.Array]

  def velocity(self, params: Params, s: chex.Array, a: chex.Array, t: chex.Array) -> chex.Array:
    """The field of the flow among a method's parameters, as `Method.flow`."""
    return self.flow(params['flow'], s, a, t)


def networks(config: ml_collections.ConfigDict, spec: Spec) -> Networks:
  """Builds FQL's networks (Park et al., 2025, arXiv:2502.02538): raw time, no output squashing."""
  actor = mlp.MLP(config.hidden_dims, spec.action_dim)
  mean = mlp.MLP(config.hidden_dims, spec.action_dim, output_scale=1e-2)
  critic = mlp.MLP(config.hidden_dims, 1, layer_norm=config.critic_layer_norm)
  state = jnp.zeros((1, spec.observation_dim))
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
    init_value=lambda key: critic.init(key, state),
    init_actor=lambda key: mean.init(key, state),
    flow=lambda params, s, a, t: actor.apply(params, _concat(s, a, t)),
    one_step=lambda params, s, z: actor.apply(params, _concat(s, z)),
    critic=lambda params, s, a: critics.ensemble_apply(value, params, _concat(s, a)),
    value=value,
    actor=mean.apply,
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


def learner(
  config: ml_collections.ConfigDict,
  init_params: Callable[[chex.PRNGKey], Params],
  loss: Callable[[Params, Params, Batch, chex.PRNGKey], tuple[chex.Array, Metrics]],
) -> tuple[Callable[[chex.PRNGKey], State], Callable[..., tuple[State, Metrics]]]:
  """Builds `init` and `update` of a method that takes one step of Adam on a sum of losses.

  Args:
    config: the fields of `config.agent`.
    init_params: `init_params(key) -> params`, a dict; `params['critic']` has a target.
    loss: `loss(params, target, batch, key) -> (loss, metrics)`.

  Returns:
    As in `Method`.
  """
  optimizer = optax.adam(config.learning_rate)

  def init(key):
    params = init_params(key)
    target = jax.tree.map(jnp.copy, params['critic'])
    return State(params, target, optimizer.init(params))

  def update(state, batch, key):
    params, opt_state, metrics = adam_step(
      optimizer, lambda p: loss(p, state.target, batch, key), state.params, state.opt_state
    )
    # As in FQL's authors' code, the average follows the critic from before this step.
    target = optax.incremental_update(state.params['critic'], state.target, config.polyak_step)
    return State(params, target, opt_state), metrics

  return init, update


def td_loss(
  nets: Networks, params: Params, batch: Batch, next_values: chex.Array, discount: float
) -> tuple[chex.Array, Metrics]:
  """The critics' error to r + γ m V(s') with V(s') (B,) given."""
  y = losses.td_target(batch['rewards'], batch['masks'], next_values, discount)
  q = nets.critic(params['critic'], batch['observations'], batch['actions'])
  loss = losses.td_loss(q, y)
  return loss, {'critic_loss': loss, 'q_mean': jnp.mean(q)}


def joint(*parts: tuple[chex.Array, Metrics]) -> tuple[chex.Array, Metrics]:
  """Adds losses up and joins their metrics."""
  return sum(loss for loss, _ in parts), {k: v for _, metrics in parts for k, v in metrics.items()}


def _concat(*parts: chex.Array) -> chex.Array:
  return jnp.concatenate(parts, axis=-1)
