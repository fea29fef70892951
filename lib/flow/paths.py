"""Traced. The linear probability path from noise to data, and marginal fields in closed form.

Times t run from noise at 0 to data at 1: x_t = (1 - t) x_0 + t x_1 with x_0 ~ N(0, I). A time is
(B, 1) beside points (B, A).
"""

import chex
import jax
import jax.numpy as jnp


def linear_path(x0: chex.Array, x1: chex.Array, t: chex.Array) -> tuple[chex.Array, chex.Array]:
  """Interpolates x_t = (1 - t) x_0 + t x_1, whose velocity is x_1 - x_0.

  Lipman et al. (2023), arXiv:2210.02747; Liu et al. (2023), arXiv:2209.03003.

  Args:
    x0: noise (B, A).
    x1: data (B, A).
    t: times (B, 1), or one for all (), in [0, 1].

  Returns:
    Points x_t (B, A) and velocities (B, A).
  """
  chex.assert_equal_shape([x0, x1])
  chex.assert_rank(t, {0, x0.ndim})
  return (1.0 - t) * x0 + t * x1, x1 - x0


def score_from_velocity(velocity: chex.Array, x: chex.Array, t: chex.Array) -> chex.Array:
  """The score of the linear path's marginal, ∇ log ρ_t(x) = (t u(x, t) - x) / (1 - t).

  Args:
    velocity: the marginal velocity u(x, t) (B, A).
    x: points (B, A).
    t: times (B, 1) in [0, 1); the score has a pole at 1.

  Returns:
    Scores (B, A).
  """
  return (t * velocity - x) / (1.0 - t)


def velocity_from_score(score: chex.Array, x: chex.Array, t: chex.Array) -> chex.Array:
  """The marginal velocity of the linear path, u(x, t) = ((1 - t) ∇ log ρ_t(x) + x) / t.

  Args:
    score: the score ∇ log ρ_t(x) (B, A).
    x: points (B, A).
    t: times (B, 1) in (0, 1]; at 0 the score does not know the data.

  Returns:
    Velocities (B, A).
  """
  return ((1.0 - t) * score + x) / t


def conditional_divergence(t: chex.Array, dim: int) -> chex.Array:
  """The divergence -A / (1 - t) of the field (x_1 - x) / (1 - t) towards one data point.

  Args:
    t: times (B, 1) in [0, 1).
    dim: A, > 0.

  Returns:
    Divergences (B,).
  """
  return -dim / (1.0 - t[..., 0])


def gaussian_variance(t: chex.Array, std: float, source_std: float = 1.0) -> chex.Array:
  """The variance σ_t² = (1 - t)² s² + t² σ² of the path from N(m, s² I) to N(μ, σ² I)."""
  return ((1.0 - t) * source_std) ** 2 + (t * std) ** 2


def gaussian_rate(
  t: chex.Array, std: float, weight: float = 0.0, source_std: float = 1.0
) -> chex.Array:
  """The rate c(t) at which the path to N(μ, σ² I) stretches: its velocity's Jacobian is c(t) I.

    c_λ(t) = (t σ² - (1 - t) s²) / (σ_t² + λ)

  is, among all fields, the minimiser of E (1/A) (‖u - (x_1 - x_0)‖² + λ ‖∂u/∂x‖_F²), whatever the
  law of the times; λ = 0 is the marginal field's.

  Args:
    t: times, of any shape, in [0, 1]; where λ = 0, below 1 for σ = 0 and above 0 for s = 0, which
      have a pole there.
    std: σ of the data, >= 0.
    weight: λ, >= 0.
    source_std: s of the source at t = 0, >= 0.

  Returns:
    Rates, of the shape of t.

  Raises:
    ValueError: if a deviation or λ is negative.
  """
  if not (std >= 0 and weight >= 0 and source_std >= 0):
    raise ValueError(
      'Standard deviations and the weight must not be negative, got '
      f'{std=}, {weight=}, {source_std=}.'
    )
  rate = t * std**2 - (1.0 - t) * source_std**2
  return rate / (gaussian_variance(t, std, source_std) + weight)


def gaussian_marginal_velocity(
  x: chex.Array,
  t: chex.Array,
  mean: chex.Numeric,
  std: float,
  weight: float = 0.0,
  source_mean: chex.Numeric = 0.0,
  source_std: float = 1.0,
) -> chex.Array:
  """The velocity of the path from N(m, s² I), noise by default, to N(μ, σ² I).

    μ - m + c_λ(t) (x - (1 - t) m - t μ)

  with the rate c_λ of `gaussian_rate`.

  Args:
    x: points (B, A).
    t: times (B, 1) in [0, 1].
    mean: μ, a number, or an array that broadcasts to x.
    std: σ, >= 0.
    weight: λ of the regularised optimum, >= 0; 0 for the marginal field itself.
    source_mean: m, like μ.
    source_std: s, >= 0.

  Returns:
    Velocities (B, A).

  Raises:
    ValueError: if a deviation or λ is negative.
  """
  centre = (1.0 - t) * source_mean + t * mean
  return mean - source_mean + gaussian_rate(t, std, weight, source_std) * (x - centre)


def gaussian_flow_map(
  x: chex.Array,
  mean: chex.Numeric,
  std: float,
  source_mean: chex.Numeric = 0.0,
  source_std: float = 1.0,
) -> chex.Array:
  """Where the flow of `gaussian_marginal_velocity` takes x from t = 0 to 1, μ + (σ/s) (x - m).

  It is the optimal transport between the two laws, whatever the coupling that it was learnt from.

  Args:
    x: points (B, A).
    mean: μ, a number, or an array that broadcasts to x.
    std: σ, >= 0.
    source_mean: m, like μ.
    source_std: s, > 0.

  Returns:
    Points (B, A).

  Raises:
    ValueError: if σ is negative or s not positive.
  """
  if not (std >= 0 and source_std > 0):
    raise ValueError(f'Needs std >= 0 and source_std > 0, got {std=}, {source_std=}.')
  return mean + std / source_std * (x - source_mean)


def gaussian_loss(t: chex.Array, std: float, source_std: float = 1.0) -> chex.Array:
  """The least flow-matching loss at time t between N(m, s² I) and N(μ, σ² I), s² σ² / σ_t².

  It is what the path's velocity varies by, per dimension, where the two ends are independent; no
  network goes below it. Its integral over t is (π/2) s σ.
  """
  return (source_std * std) ** 2 / gaussian_variance(t, std, source_std)


def mixture_marginal_velocity(
  x: chex.Array, t: chex.Array, means: chex.Array, std: float
) -> chex.Array:
  """The velocity of the path to an equal mixture of K Gaussians N(μ_k, σ² I).

    u(x, t) = Σ_k w_k u_k(x, t),  w_k ∝ exp(-‖x - t μ_k‖² / 2 σ_t²)

  with each component's `gaussian_marginal_velocity` u_k and its posterior probability w_k.

  Args:
    x: points (B, A).
    t: times (B, 1) in [0, 1].
    means: μ (K, A), or one set for each row, (B, K, A).
    std: σ, > 0.

  Returns:
    Velocities (B, A).

  Raises:
    ValueError: if σ is not positive.
  """
  if std <= 0:
    raise ValueError(f'The standard deviation must be positive, got {std=}.')
  x, t = x[:, None], t[:, None]  # beside the components
  squares = jnp.sum((x - t * means) ** 2, axis=-1, keepdims=True)
  weights = jax.nn.softmax(-squares / (2.0 * gaussian_variance(t, std)), axis=1)
  return jnp.sum(weights * gaussian_marginal_velocity(x, t, means, std), axis=1)


def gaussian_terminal_std(std: float, weight: float = 0.0) -> float:
  """The standard deviation √((σ² + λ) / (1 + λ)) at t = 1 under the regularised optimum.

  So λ is a noise floor: σ = 0, a deterministic policy, comes out with √(λ / (1 + λ)). Both numbers
  are >= 0.
  """
  return ((std**2 + weight) / (1.0 + weight)) ** 0.5


def bimodal_marginal_velocity(x: chex.Array, t: chex.Array, mode: float) -> chex.Array:
  """The velocity of the path to equal point masses at ±m in one dimension.

    u(x, t) = (m tanh(m t x / (1 - t)²) - x) / (1 - t)

  Once m² t > (1 - t)² it separates trajectories at x = 0, without bound as t → 1.

  Args:
    x: points (B, 1).
    t: times (B, 1) in [0, 1).
    mode: m.

  Returns:
    Velocities (B, 1).
  """
  return (mode * jnp.tanh(mode * t * x / (1.0 - t) ** 2) - x) / (1.0 - t)
