"""Traced. Losses of policies and action values that are learnt from play."""

import chex
import jax
import jax.numpy as jnp


def cross_entropy(logits: chex.Array, target: chex.Array) -> chex.Array:
  """-Σ_a p(a) log softmax(ℓ)(a) (B,), of logits (B, A) and targets p (B, A).

  All logits are finite. Those of illegal actions count: a target of zero lets them sink.
  """
  return -jnp.sum(jax.lax.stop_gradient(target) * jax.nn.log_softmax(logits), axis=-1)


def action_value_errors(q: chex.Array, action: chex.Array, target: chex.Array) -> chex.Array:
  """(Q(a) - G)² (B,), of values (B, A), the actions that were played (B,) and targets G (B,)."""
  return (of_action(q, action) - jax.lax.stop_gradient(target)) ** 2


def greedy_negamax_target(
  reward: chex.Array, ended: chex.Array, next_q: chex.Array, next_legal: chex.Array
) -> chex.Array:
  """The target r - max_{a legal} Q(s', a) (B,) of Q-learning, r where the game has ended.

  Args:
    reward: r of the player who moved (B,).
    ended: (B,), bool.
    next_q: values (B, A) for the opponent, who moves next.
    next_legal: (B, A), at least one action of each state that goes on.

  Returns:
    Targets (B,), without a gradient.
  """
  best = jnp.max(jnp.where(next_legal, next_q, -jnp.inf), axis=-1)
  return jax.lax.stop_gradient(reward - jnp.where(ended, 0.0, best))


def of_action(x: chex.Array, action: chex.Array) -> chex.Array:
  """The numbers (...) of actions (...) among those of all actions (..., A)."""
  return jnp.take_along_axis(x, action[..., None], axis=-1)[..., 0]
