"""What the methods share: their signature, and one pass of Adam over what was played."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import ml_collections
import optax

from experiments.klent import networks
from lib.games import regularized, returns, selfplay

Metrics = dict[str, chex.Array]


class State(NamedTuple):
  """Everything that one run of one method carries from iteration to iteration.

  Attributes:
    variables: of the network.
    opt_state: of the optimiser.
    games: where the games of self-play stand (B,).
    extra: what a method keeps beside, such as a replay buffer; or ().
  """

  variables: Any
  opt_state: optax.OptState
  games: selfplay.State
  extra: Any


class Method(NamedTuple):
  """One way to learn from self-play, for one seed; `jax.vmap` gives it several.

  Attributes:
    init: `init(key) -> State`.
    update: `update(state, key) -> (State, metrics)`, one iteration of play and fitting.
    evaluate: `evaluate(variables, states) -> (B, A), (B,)`: preferences, of which the agent plays
      the best legal one, and the value for the player to move.
    evaluations: simulator steps of an iteration, those of searches included.
  """

  init: Callable[[chex.PRNGKey], State]
  update: Callable[[State, chex.PRNGKey], tuple[State, Metrics]]
  evaluate: Callable[[Any, selfplay.State], tuple[chex.Array, chex.Array]]
  evaluations: int


class Problem(NamedTuple):
  """What a method is made of.

  Attributes:
    env: the simulator.
    shape: of an observation as the network sees it.
    observe: `observe(observation (..., *shape))`, as the network sees it.
    num_actions: A.
    evaluations: the budget of simulator steps.
    play: the fields of `config.play`.
    network: the fields of `config.network`.
    optimizer: the fields of `config.optimizer`.
    agent: the fields of `config.agent`.
  """

  env: Any
  shape: tuple[int, ...]
  observe: Callable[[chex.Array], chex.Array]
  num_actions: int
  evaluations: int
  play: ml_collections.ConfigDict
  network: ml_collections.ConfigDict
  optimizer: ml_collections.ConfigDict
  agent: ml_collections.ConfigDict


class Learner(NamedTuple):
  """Network and optimiser of a method, and how they begin."""

  network: networks.Network
  optimizer: optax.GradientTransformation
  init: Callable[..., State]


def make(problem: Problem, heads: tuple[str, ...]) -> Learner:
  """Builds the network with `heads`, its optimiser, and `init(key, extra) -> State`."""
  network = networks.make(problem.network, problem.shape, problem.num_actions, heads)
  optimizer = optax.adam(problem.optimizer.learning_rate)
  if problem.optimizer.clip:
    optimizer = optax.chain(optax.clip_by_global_norm(problem.optimizer.clip), optimizer)

  def init(key, extra=()):
    network_key, game_key = jax.random.split(key)
    variables = network.init(network_key)
    games = selfplay.first_states(problem.env, game_key, problem.play.games)
    return State(variables, optimizer.init(variables['params']), games, extra)

  return Learner(network, optimizer, init)


def play(problem: Problem, state: State, policy, key: chex.PRNGKey):
  """Plays a window of moves; from new games unless `play.carry`. Returns games and window."""
  fresh_key, key = jax.random.split(key)
  games = state.games
  if not problem.play.carry:
    games = selfplay.first_states(problem.env, fresh_key, problem.play.games)
  return selfplay.collect(problem.env, policy, games, key, problem.play.moves)


def fit(
  learner: Learner,
  loss: Callable[[tuple[chex.Array, ...], Any], tuple[chex.Array, Metrics]],
  state: State,
  samples: Any,
  key: chex.PRNGKey,
  config: ml_collections.ConfigDict,
  epochs: int = 1,
) -> tuple[State, Metrics]:
  """Fits the network to samples in random order.

  Args:
    learner: network and optimiser.
    loss: `loss(outputs, batch) -> (scalar, metrics)` of the network's outputs on a batch.
    state: before.
    samples: tree of arrays (N, ...), one of them named `observation`.
    key: typed PRNG key.
    config: the fields of `config.optimizer`. `batch_size` is N at most; the rest of each pass,
      what fills no batch, is not used.
    epochs: passes over the samples.

  Returns:
    The state after it, and the means of metrics over batches.
  """

  def step(carry, rows):
    batch = jax.tree.map(lambda x: jnp.take(x, rows, axis=0), samples)
    variables, opt_state, metrics = descend(learner, loss, *carry, batch)
    return (variables, opt_state), metrics

  count = jax.tree.leaves(samples)[0].shape[0]
  batch_size = min(config.batch_size, count)
  num_batches = count // batch_size
  orders = jax.vmap(functools.partial(jax.random.permutation, x=count))(
    jax.random.split(key, epochs)
  )
  rows = orders[:, : num_batches * batch_size].reshape(-1, batch_size)
  carry = state.variables, state.opt_state
  (variables, opt_state), metrics = jax.lax.scan(step, carry, rows)
  metrics = jax.tree.map(jnp.mean, metrics)
  return state._replace(variables=variables, opt_state=opt_state), metrics


def descend(
  learner: Learner, loss: Callable, variables: Any, opt_state: optax.OptState, batch: Any
) -> tuple[Any, optax.OptState, Metrics]:
  """One step of Adam on a batch, with the loss of `fit`."""

  def total(params):
    outputs, moved = learner.network.train(variables | {'params': params}, batch['observation'])
    value, metrics = loss(outputs, batch)
    return value, (moved, metrics | {'loss': value})

  grads, (moved, metrics) = jax.grad(total, has_aux=True)(variables['params'])
  updates, opt_state = learner.optimizer.update(grads, opt_state, variables['params'])
  params = optax.apply_updates(variables['params'], updates)
  return moved | {'params': params}, opt_state, metrics


def returns_of(
  window: selfplay.Window,
  values: chex.Array,
  lambda_: float,
  last: chex.Array | None = None,
) -> tuple[chex.Array, chex.Array]:
  """The λ-returns of all games of a window, (T, B), and which moves have one.

  Args:
    window: of self-play.
    values: of the states (T, B).
    lambda_: λ.
    last: values of the states after the window (B,); without them unfinished games have no target.
  """
  find = jax.vmap(
    returns.negamax_lambda_returns, (1, 1, 1, None, None if last is None else 0), out_axes=1
  )
  return find(window.reward, values, window.ended, lambda_, last)


def flat(tree: Any) -> Any:
  """Joins the leading axes (T, B) of arrays."""
  return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)


def masked_mean(x: chex.Array, valid: chex.Array) -> chex.Array:
  """The mean of x (B,) where it is valid (B,); zero if it is nowhere."""
  return jnp.sum(jnp.where(valid, x, 0.0)) / jnp.maximum(jnp.sum(valid), 1)


def policy_metrics(log_policy: chex.Array, window: selfplay.Window) -> Metrics:
  """What tells how play goes: entropy of policies (T, B, A), share of moves that end a game."""
  return {
    'entropy': jnp.mean(regularized.entropy(log_policy)),
    'ended': jnp.mean(window.ended),
  }
