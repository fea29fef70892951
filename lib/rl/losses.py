"""Traced. Losses of actor-critic learning from logged transitions."""

import chex
import jax
import jax.numpy as jnp


def td_target(
  reward: chex.Array, mask: chex.Array, next_value: chex.Array, discount: float
) -> chex.Array:
  """The one-step temporal-difference target y = r + γ m V(s'), without a gradient.

  Args:
    reward: rewards r (B,).
    mask: bootstrap masks m (B,), 0 where the task ends in s'. A time limit is no such end.
    next_value: values of s' (B,).
    discount: γ in [0, 1].

  Returns:
    Targets (B,).

  Raises:
    ValueError: if the discount is outside [0, 1].
  """
  if not 0.0 <= discount <= 1.0:
    raise ValueError(f'The discount must lie in [0, 1], got {discount=}.')
  chex.assert_equal_shape([reward, mask, next_value])
  return jax.lax.stop_gradient(reward + discount * mask * next_value)


def td_loss(q: chex.Array, target: chex.Array) -> chex.Array:
  """The mean squared temporal-difference error of an ensemble, E[(Q_i - y)²].

  Args:
    q: predictions (E, B) of E critics.
    target: shared targets (B,).

  Returns:
    Scalar loss, the mean over critics and batch.
  """
  chex.assert_rank([q, target], [2, 1])
  return jnp.mean((q - target) ** 2)


def distillation_loss(student: chex.Array, teacher: chex.Array) -> chex.Array:
  """The mean squared distance of a student's actions to its teacher's, (1/A) ‖μ - sg(ψ)‖².

  Args:
    student: actions (B, A), differentiated.
    teacher: actions (B, A), a constant.

  Returns:
    Scalar loss, the mean over batch and dimensions.
  """
  chex.assert_equal_shape([student, teacher])
  return jnp.mean((student - jax.lax.stop_gradient(teacher)) ** 2)


def policy_value_loss(q: chex.Array, normalize: bool = False) -> chex.Array:
  """The negative value of the policy's actions, -E[mean_i Q_i(s, π(s))].

  Args:
    q: values (E, B) of the policy's actions under E critics whose parameters the caller froze.
    normalize: whether to divide by sg(mean |Q|), so that a weight beside this loss does not depend
      on the scale of the rewards (Fujimoto and Gu, 2021, arXiv:2106.06860).

  Returns:
    Scalar loss.
  """
  chex.assert_rank(q, 2)
  value = jnp.mean(q, axis=0)
  scale = jax.lax.stop_gradient(jnp.mean(jnp.abs(value))) if normalize else 1.0
  return -jnp.mean(value) / scale
