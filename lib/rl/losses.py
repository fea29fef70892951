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


def expectile_loss(difference: chex.Array, expectile: float) -> chex.Array:
  """The asymmetric squared loss E[|κ - 1(d < 0)| d²], whose minimiser is the κ-expectile.

  Kostrikov, Nair and Levine (2022), arXiv:2110.06169, equation 4.

  Args:
    difference: d = x - v (B,), of samples x to the estimate v that is fitted.
    expectile: κ in (0, 1); 1/2 gives half the mean squared error, and κ → 1 the maximum.

  Returns:
    Scalar loss.

  Raises:
    ValueError: if the expectile is outside (0, 1).
  """
  if not 0.0 < expectile < 1.0:
    raise ValueError(f'The expectile must lie in (0, 1), got {expectile=}.')
  return jnp.mean(jnp.where(difference >= 0, expectile, 1.0 - expectile) * difference**2)


def advantage_weights(
  advantage: chex.Array, inverse_temperature: float, limit: float = 100.0
) -> chex.Array:
  """The weights of advantage-weighted regression, min(exp(β A), w), without a gradient.

  Peng et al. (2019), arXiv:1910.00177.

  Args:
    advantage: A = Q(s, a) - V(s), of any shape; however large, the weights are finite.
    inverse_temperature: β >= 0; at 0 the weights are 1, which is behaviour cloning.
    limit: w >= 1.

  Returns:
    Weights of the same shape.

  Raises:
    ValueError: if a number is out of its range.
  """
  if inverse_temperature < 0 or limit < 1:
    raise ValueError(f'Need β >= 0 and w >= 1, got {inverse_temperature=}, {limit=}.')
  exponent = jnp.minimum(inverse_temperature * advantage, jnp.log(limit))
  return jax.lax.stop_gradient(jnp.exp(exponent))
