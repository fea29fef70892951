"""Traced. Look-ahead in simulators of two players, on mctx: what to play, and what to learn.

States carry a leading axis of B games; `env` is as in `lib.games.selfplay`, its players move in
turn, and a finished game that is stepped stays as it is and pays nothing. A search of n simulations
steps the simulator n times for each move, beside the move itself and the random games of
`monte_carlo`. Illegal actions are never played and have no weight.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import mctx

from lib.games import regularized, selfplay

# `evaluate(params, key, states) -> logits (B, A), values (B,)` of the players to move. Logits of
# illegal actions and values of finished games may be anything.
Evaluate = Callable[[Any, chex.PRNGKey, selfplay.State], tuple[chex.Array, chex.Array]]


def gumbel_alphazero(
  env: Any,
  evaluate: Evaluate,
  params: Any,
  key: chex.PRNGKey,
  states: selfplay.State,
  num_simulations: int,
  max_considered: int = 16,
  gumbel_scale: chex.Numeric = 1.0,
  rescale_values: bool = True,
) -> mctx.PolicyOutput:
  """Sequential halving over Gumbel-top-k actions. Danihelka et al. (2022), ICLR.

  Args:
    env: the simulator.
    evaluate: priors and values.
    params: of `evaluate`.
    key: typed PRNG key.
    states: roots (B,).
    num_simulations: > 0.
    max_considered: how many actions of the root are looked at, > 0.
    gumbel_scale: 0 plays the best action without chance.
    rescale_values: whether σ sees values between the worst and the best of siblings, as mctx does
      by default, or as they are.

  Returns:
    mctx's output: `action` (B,) to play, `action_weights` (B, A) the policy's target, which is
    softmax(log π + σ(q)) with values completed for actions that were not tried.

  Raises:
    ValueError: if a number is not positive.
  """
  if max_considered < 1:
    raise ValueError(f'A search looks at one action at least, got {max_considered=}.')
  root_key, key = jax.random.split(key)
  return mctx.gumbel_muzero_policy(
    params=params,
    rng_key=key,
    root=_root(evaluate, params, root_key, states, num_simulations),
    recurrent_fn=_recurrent(env, evaluate),
    num_simulations=num_simulations,
    invalid_actions=~states.legal_action_mask,
    max_num_considered_actions=max_considered,
    gumbel_scale=gumbel_scale,
    qtransform=functools.partial(
      mctx.qtransform_completed_by_mix_value, rescale_values=rescale_values
    ),
  )


def alphazero(
  env: Any,
  evaluate: Evaluate,
  params: Any,
  key: chex.PRNGKey,
  states: selfplay.State,
  num_simulations: int,
  dirichlet_fraction: chex.Numeric = 0.25,
  dirichlet_alpha: chex.Numeric = 0.3,
  temperature: chex.Numeric = 1.0,
) -> mctx.PolicyOutput:
  """Search by upper confidence bounds, with noise at the root. Silver et al. (2018), Science.

  Values stay on the scale of results, as in `monte_carlo`.

  Args:
    env: the simulator.
    evaluate: priors and values.
    params: of `evaluate`.
    key: typed PRNG key.
    states: roots (B,).
    num_simulations: > 0.
    dirichlet_fraction: share of noise in the root's prior, in [0, 1].
    dirichlet_alpha: concentration of the noise over legal actions, > 0.
    temperature: in [0, 1]; the action is drawn by visits^(1/temperature), at 0 it is a most visited
      one.

  Returns:
    mctx's output: `action` (B,) to play, `action_weights` (B, A) shares of visits.

  Raises:
    ValueError: if the number of simulations is not positive.
  """
  noise = dirichlet_fraction, dirichlet_alpha
  return _search(env, evaluate, params, key, states, num_simulations, noise, temperature)[0]


def monte_carlo(
  env: Any,
  key: chex.PRNGKey,
  states: selfplay.State,
  num_simulations: int,
  max_moves: int,
  qtransform: Callable[[mctx.Tree, chex.Array], chex.Array] | None = None,
) -> mctx.PolicyOutput:
  """Search without knowledge: uniform priors, and values by one random game each.

  A player that needs no network, stronger with more simulations. It plays a most visited action.
  Values stay on the scale of results, -1 to 1, and what was not tried counts as its parent: scaled
  between the worst and the best of siblings, as mctx does by itself, it plays far worse.

  Args:
    env: the simulator.
    key: typed PRNG key.
    states: roots (B,).
    num_simulations: > 0.
    max_moves: after which a random game counts as a draw.
    qtransform: mctx's map of action values to [0, 1]; the scale of results by default.

  Returns:
    As `alphazero`.
  """
  evaluate = rollouts(env, max_moves)
  root_key, key = jax.random.split(key)
  return mctx.muzero_policy(
    params=None,
    rng_key=key,
    root=_root(evaluate, None, root_key, states, num_simulations),
    recurrent_fn=_recurrent(env, evaluate),
    num_simulations=num_simulations,
    invalid_actions=~states.legal_action_mask,
    qtransform=qtransform or _result_scale,
    dirichlet_fraction=0.0,
    temperature=0.0,
  )


def regularized_search(
  env: Any,
  evaluate: Evaluate,
  params: Any,
  key: chex.PRNGKey,
  states: selfplay.State,
  num_simulations: int,
  c: chex.Numeric = 1.25,
  dirichlet_fraction: chex.Numeric = 0.25,
  dirichlet_alpha: chex.Numeric = 0.3,
) -> mctx.PolicyOutput:
  """AlphaZero's search, of which values count instead of visits: `regularized_policy` at the root.

  With n legal actions and N simulations λ = c √N/(n + N). Grill et al. (2020), arXiv:2007.12509,
  who act by this policy and learn it. Values are in units of reward, not scaled to [0, 1]; actions
  that were not tried have the mean of the root's value and of those tried (Danihelka et al., 2022,
  appendix D). The noise steers what is tried alone: the policy stays close to the prior without it.

  Args:
    env: the simulator.
    evaluate: priors and values.
    params: of `evaluate`.
    key: typed PRNG key.
    states: roots (B,).
    num_simulations: N > 0.
    c: > 0; more of it stays closer to the prior.
    dirichlet_fraction: share of noise in the root's prior, in [0, 1].
    dirichlet_alpha: concentration of the noise over legal actions, > 0.

  Returns:
    mctx's output: `action` (B,) drawn from the policy, `action_weights` (B, A) the policy.

  Raises:
    ValueError: if the number of simulations is not positive.
  """
  search_key, act_key = jax.random.split(key)
  noise = dirichlet_fraction, dirichlet_alpha
  found, prior = _search(env, evaluate, params, search_key, states, num_simulations, noise, 1.0)
  summary, raw = found.search_tree.summary(), found.search_tree.raw_values[:, 0]
  q = _completed(summary.qvalues, summary.visit_counts, prior, raw)
  num_legal = jnp.sum(states.legal_action_mask, axis=-1)
  weight = c * num_simulations**0.5 / (num_legal + num_simulations)
  policy = regularized_policy(prior, q, weight)
  action = jax.random.categorical(act_key, jnp.where(policy > 0, jnp.log(policy), -jnp.inf))
  return found.replace(action=action, action_weights=policy)


def regularized_policy(
  prior: chex.Array, q: chex.Array, weight: chex.Numeric, num_bisections: int = 40
) -> chex.Array:
  """The policy π̄ that maximises qᵀ π̄ - λ KL(π ‖ π̄), π̄(a) = λ π(a)/(ν - q(a)), as a constant.

  The number ν that makes it sum to one lies between max_a (q + λ π) and max_a q + λ, and is found
  by bisection. λ → 0 plays the best action, λ → ∞ the prior. Grill et al. (2020), arXiv:2007.12509.

  Args:
    prior: π (..., A), sums to one, zero at illegal actions.
    q: values (..., A), finite where the prior is not zero.
    weight: λ > 0, (...).
    num_bisections: each halves the error of log (ν - max_a q).

  Returns:
    π̄ (..., A), zero where the prior is; without a gradient.
  """
  chex.assert_equal_shape([prior, q])
  there = prior > 0
  best = jnp.max(q, axis=-1, where=there, initial=-jnp.inf, keepdims=True)
  # In units of λ, as the distance from the best value: no difference of near numbers is left.
  gap = jnp.where(there, (best - q) / jnp.asarray(weight)[..., None], jnp.inf)
  low = jnp.max(prior - gap, axis=-1, keepdims=True)

  def mass(nu):
    return jnp.where(there, prior / (nu + gap), 0.0)

  def halve(_, bracket):
    low, high = bracket
    middle = jnp.sqrt(low) * jnp.sqrt(high)
    much = jnp.sum(mass(middle), axis=-1, keepdims=True) > 1.0
    return jnp.where(much, middle, low), jnp.where(much, high, middle)

  _, nu = jax.lax.fori_loop(0, num_bisections, halve, (low, jnp.ones_like(low)))
  found = mass(nu)
  return jax.lax.stop_gradient(found / jnp.sum(found, axis=-1, keepdims=True))


def rollouts(env, max_moves: int) -> Evaluate:
  """Evaluates by random games: priors are uniform, values one game's result for the player to move.

  The mean of values is that of uniform play by both. `max_moves` ends a game as a draw; games of a
  batch that end before others wait for them.
  """

  def evaluate(params, key, states):
    del params
    player = states.current_player

    def going(carry):
      _, states, _, moves = carry
      return (moves < max_moves) & ~jnp.all(selfplay.over(states))

    def move(carry):
      key, states, total, moves = carry
      key, own = jax.random.split(key)
      ended = selfplay.over(states)  # and gives no more rewards
      after = jax.vmap(env.step)(states, selfplay.random_actions(own, states))
      total += jnp.where(ended, 0.0, selfplay.of_player(after.rewards, player))
      return key, after, total, moves + 1

    zeros = jnp.zeros(player.shape)
    _, _, total, _ = jax.lax.while_loop(going, move, (key, states, zeros, jnp.int32(0)))
    return jnp.zeros(states.legal_action_mask.shape), total

  return evaluate


def _search(
  env, evaluate, params, key, states, num_simulations: int, noise, temperature
) -> tuple[mctx.PolicyOutput, chex.Array]:
  """AlphaZero's search, and the prior of the root (B, A) without noise."""
  root_key, noise_key, key = jax.random.split(key, 3)
  root = _root(evaluate, params, root_key, states, num_simulations)
  legal, shape = states.legal_action_mask, root.prior_logits.shape
  prior = jax.nn.softmax(root.prior_logits)
  # mctx draws noise over illegal actions too, which leaves little of it where few are legal.
  fraction, alpha = noise
  drawn = regularized.log_softmax(jax.random.loggamma(noise_key, alpha, shape), legal)
  noisy = (1.0 - fraction) * prior + fraction * jnp.exp(drawn)
  output = mctx.muzero_policy(
    params=params,
    rng_key=key,
    root=root.replace(prior_logits=jnp.log(jnp.maximum(noisy, jnp.finfo(noisy.dtype).tiny))),
    recurrent_fn=_recurrent(env, evaluate),
    num_simulations=num_simulations,
    invalid_actions=~legal,
    qtransform=_result_scale,
    dirichlet_fraction=0.0,
    temperature=temperature,
  )
  return output, prior


def _result_scale(tree: mctx.Tree, node: chex.Array) -> chex.Array:
  """Action values of a node from [-1, 1] to [0, 1], the node's own where nothing was tried."""
  tried = tree.children_visits[node] > 0
  return 0.5 * (1.0 + jnp.where(tried, tree.qvalues(node), tree.node_values[node]))


def _completed(q: chex.Array, visits: chex.Array, prior: chex.Array, raw: chex.Array) -> chex.Array:
  """Action values (B, A), where nothing was tried the mean of the root's value and of those."""
  tried, count = visits > 0, jnp.sum(visits, axis=-1)
  share = jnp.where(tried, jnp.maximum(prior, jnp.finfo(prior.dtype).tiny), 0.0)
  mean = jnp.sum(share * q, axis=-1) / jnp.sum(share, axis=-1)
  return jnp.where(tried, q, ((raw + count * mean) / (1.0 + count))[:, None])


def _root(evaluate: Evaluate, params, key, states, num_simulations: int) -> mctx.RootFnOutput:
  if num_simulations < 1:
    raise ValueError(f'A search needs a simulation, got {num_simulations=}.')
  logits, values = evaluate(params, key, states)
  return mctx.RootFnOutput(
    prior_logits=_masked(logits, states), value=values, embedding=_without_view(states)
  )


def _recurrent(env, evaluate: Evaluate):
  def step(params, key, actions, states):
    after = jax.vmap(env.step)(states, actions)
    ended = selfplay.over(after)
    logits, values = evaluate(params, key, after)
    output = mctx.RecurrentFnOutput(
      reward=selfplay.of_player(after.rewards, states.current_player),
      discount=jnp.where(ended, 0.0, -1.0),
      prior_logits=_masked(logits, after),
      value=jnp.where(ended, 0.0, values),
    )
    return output, _without_view(after)

  return step


def _masked(logits: chex.Array, states) -> chex.Array:
  return jnp.where(states.legal_action_mask, logits, jnp.finfo(logits.dtype).min)


def _without_view(states):
  """States as a tree keeps them: a view is the bulk of many, and the simulator makes it anew."""
  return dataclasses.replace(states, observation=())
