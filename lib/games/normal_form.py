"""Traced. Zero-sum games of two players as matrices, the dynamics that play them, their equilibria.

A payoff R (m, n) is what the row player gets, and the column player loses. Mixed strategies x (m,)
and y (n,) are probabilities; where a function takes logits, they are any numbers whose softmax is
the strategy. Both players move at once, and see only the payoffs R y and -Rᵀ x of their actions.
Everything batches under `vmap`, over games as over coefficients.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optimistix

from lib.games import regularized


class Profile(NamedTuple):
  """A strategy of each player, or logits, or payoffs of actions: row (m,), column (n,)."""

  row: chex.Array
  column: chex.Array


class Dynamics(NamedTuple):
  """A rule by which both players learn.

  Attributes:
    init: `init(payoff, logits) -> state`, from a Profile of logits.
    step: `step(payoff, state) -> state`.
    strategies: `strategies(state) -> Profile` of probabilities.
  """

  init: Callable[[chex.Array, Profile], Any]
  step: Callable[[chex.Array, Any], Any]
  strategies: Callable[[Any], Profile]


def softmax(logits: Profile) -> Profile:
  """The strategies of both players' logits."""
  return jax.tree.map(jax.nn.softmax, logits)


def action_payoffs(payoff: chex.Array, strategies: Profile) -> Profile:
  """What each action is worth against the other's strategy: R y (m,) and -Rᵀ x (n,)."""
  return Profile(payoff @ strategies.column, -payoff.T @ strategies.row)


def exploitability(payoff: chex.Array, strategies: Profile) -> chex.Array:
  """The sum of what both would gain by a best response, max_i (R y)_i - min_j (Rᵀ x)_j, >= 0.

  It is the duality gap (NashConv), zero at the Nash equilibria alone.
  """
  row, column = action_payoffs(payoff, strategies)
  return jnp.max(row) + jnp.max(column)


def regularized_gap(payoff: chex.Array, strategies: Profile, alpha: chex.Numeric) -> chex.Array:
  """The duality gap of the game in which each player also earns α times its entropy.

    α log Σ_i exp((R y)_i/α) - α H(y) + α log Σ_j exp(-(Rᵀ x)_j/α) - α H(x) >= 0,

  zero at the logit equilibrium alone. α > 0.
  """
  gains = action_payoffs(payoff, strategies)
  best = sum(alpha * jax.nn.logsumexp(gain / alpha) for gain in gains)
  return best - alpha * sum(jax.scipy.special.entr(p).sum() for p in strategies)


def logit_equilibrium(
  payoff: chex.Array, alpha: chex.Numeric, tolerance: float = 1e-6, max_steps: int = 512
) -> Profile:
  """The logit quantal response equilibrium, x = softmax(R y/α), y = softmax(-Rᵀ x/α).

  McKelvey and Palfrey (1995). It is the fixed point of the regularised dynamics for any β, unique
  in zero-sum games, and at most α (log m + log n) exploitable. Found as the root of u = R y/α,
  v = -Rᵀ x/α by a dogleg method on the logits u and v. The Jacobian is the identity plus a matrix
  of imaginary eigenvalues, so that no other point draws the solver in.

  Args:
    payoff: R (m, n).
    alpha: weight of the entropy, > 0.
    tolerance: of the logits, relative and absolute. With α far below the payoffs float32 does not
      reach 1e-6; float64 does.
    max_steps: of the solver.

  Returns:
    Logits, NaN if the solver did not converge.
  """

  def residual(logits, _):
    return jax.tree.map(
      lambda u, gain: u - gain / alpha, logits, action_payoffs(payoff, softmax(logits))
    )

  rows, columns = payoff.shape
  start = Profile(jnp.zeros(rows, payoff.dtype), jnp.zeros(columns, payoff.dtype))
  found: optimistix.Solution = optimistix.root_find(
    residual,
    optimistix.Dogleg(rtol=tolerance, atol=tolerance),
    start,
    max_steps=max_steps,
    throw=False,
  )
  # The solver may stall where rounding ends its progress, and call that a failure.
  scale = 1.0 + jnp.max(jnp.abs(jnp.concatenate(found.value)))
  worst = jnp.max(jnp.abs(jnp.concatenate(residual(found.value, None))))
  rounding = 1e3 * jnp.finfo(payoff.dtype).eps
  good = (found.result == optimistix.RESULTS.successful) | (worst <= rounding * scale)
  return jax.tree.map(lambda x: jnp.where(good, x, jnp.nan), found.value)


def coupling(payoff: chex.Array, strategies: Profile) -> chex.Array:
  """σ_max, the root of the largest eigenvalue of R D_y Rᵀ D_x, D_p = diag(p) - p pᵀ.

  It is how strongly small changes of the two strategies drive each other, at most ‖R‖₂/2. D_p =
  B Bᵀ with B = diag(√p) (I - √p √pᵀ), so that it is the spectral norm of B_xᵀ R B_y.
  """
  left, right = (jnp.sqrt(p) for p in strategies)
  scaled = left[:, None] * payoff * right
  scaled = scaled - left[:, None] * (left @ scaled)
  scaled = scaled - (scaled @ right)[:, None] * right
  return jnp.linalg.norm(scaled, 2)


def local_rate(
  payoff: chex.Array, strategies: Profile, alpha: chex.Numeric, beta: chex.Numeric
) -> chex.Array:
  """The factor √(β² + σ_max²)/(α + β) by which a step of the dynamics shrinks small errors.

  The Jacobian of a step at its fixed point, in logits without their mean, has the eigenvalues
  (β ± iσ)/(α + β): `strategies` are the logit equilibrium. Below one exactly where
  σ_max² < α (α + 2β). Derived from the update.
  """
  return jnp.sqrt(beta**2 + coupling(payoff, strategies) ** 2) / (alpha + beta)


def converges(payoff: chex.Array, alpha: chex.Numeric, beta: chex.Numeric) -> chex.Array:
  """Whether α (α + 2β) > ‖R‖₂²/4: sufficient for local linear convergence, not necessary.

  Ota et al. (2026), arXiv:2602.10894.
  """
  return alpha * (alpha + 2.0 * beta) > jnp.linalg.norm(payoff, 2) ** 2 / 4.0


def converges_by_mirror_descent(
  payoff: chex.Array, alpha: chex.Numeric, beta: chex.Numeric
) -> chex.Array:
  """Whether α β >= ‖R‖₂²/4: the earlier condition, of magnetic mirror descent at step size 1/β.

  From η <= α/L² of Sokota et al. (2023), arXiv:2206.05825, with the constant L = ‖R‖₂/2 that makes
  the figure of Ota et al. (2026): reconstructed. `converges` wherever this holds, for α > 0.
  """
  return alpha * beta >= jnp.linalg.norm(payoff, 2) ** 2 / 4.0


def regularized_dynamics(
  alpha: chex.Numeric, beta: chex.Numeric, magnet: Profile | None = None
) -> Dynamics:
  """Both players improve by `regularized.improved_policy` at once: KLENT's update.

  Magnetic mirror descent with magnet ρ, temperature α and step size η = 1/β is
  x' ∝ (x ρ^{ηα} exp(η R y))^{1/(1+ηα)}; ρ is uniform unless `magnet` gives its logits.
  """

  def step(payoff, logits):
    gains = action_payoffs(payoff, softmax(logits))
    if magnet is not None:
      gains = jax.tree.map(lambda gain, rho: gain + alpha * rho, gains, magnet)
    improve = lambda own, gain: regularized.improved_policy(own, gain, alpha, beta)
    return jax.tree.map(improve, logits, gains)

  return Dynamics(init=lambda payoff, logits: _normalized(logits), step=step, strategies=softmax)


def multiplicative_weights(step_size: chex.Numeric) -> Dynamics:
  """Hedge, x' ∝ x exp(η R y): its averages approach equilibria, its last iterates circle.

  Freund and Schapire (1999).
  """
  return regularized_dynamics(0.0, 1.0 / step_size)


def optimistic_multiplicative_weights(step_size: chex.Numeric) -> Dynamics:
  """Hedge on the forecast 2 g_t - g_{t-1}, g_t = R y_t: its last iterates approach equilibria.

  Daskalakis and Panageas (2019), arXiv:1807.04252. The first step has g_{-1} = g_0.
  """

  def init(payoff, logits):
    return _normalized(logits), action_payoffs(payoff, softmax(logits))

  def step(payoff, state):
    logits, last = state
    now = action_payoffs(payoff, softmax(logits))
    forecast = lambda own, new, old: jax.nn.log_softmax(own + step_size * (2.0 * new - old))
    return jax.tree.map(forecast, logits, now, last), now

  return Dynamics(init, step, strategies=lambda state: softmax(state[0]))


def regret_matching_plus() -> Dynamics:
  """Plays in proportion to regrets that are kept above zero: its averages approach equilibria.

  Q' = max(Q + g - <p, g>, 0), p = Q/ΣQ, uniform where Q = 0. Tammelin (2014), arXiv:1407.5042,
  whose averages weigh step t by t: `average_power=1` of `run`.
  """

  def strategies(regrets):
    def normalized(q):
      total = jnp.sum(q)
      return jnp.where(total > 0, q / jnp.where(total > 0, total, 1.0), 1.0 / q.size)

    return jax.tree.map(normalized, regrets)

  def step(payoff, regrets):
    played = strategies(regrets)
    return jax.tree.map(
      lambda q, p, gain: jnp.maximum(q + gain - p @ gain, 0.0),
      regrets,
      played,
      action_payoffs(payoff, played),
    )

  return Dynamics(lambda payoff, logits: softmax(logits), step, strategies)


class Played(NamedTuple):
  """What a run leaves: strategies, and what was measured of them at each step (T, ...)."""

  last: Profile
  average: Profile
  curve: Any
  average_curve: Any


def run(
  dynamics: Dynamics,
  payoff: chex.Array,
  start: Profile,
  num_steps: int,
  measure: Callable[[Profile], Any],
  average_power: float = 0.0,
) -> Played:
  """Lets both players learn for T steps.

  Args:
    dynamics: the rule of both.
    payoff: R (m, n).
    start: logits of the first strategies.
    num_steps: T.
    measure: `measure(strategies) -> arrays`, such as `exploitability` of a game.
    average_power: k >= 0; the average weighs step t in 1, 2, ... by about t^k, uniformly at 0.

  Returns:
    Last and average strategies after T steps, and both measured after each of them.
  """

  def one(carry, t):
    state, average = carry
    state = dynamics.step(payoff, state)
    last = dynamics.strategies(state)
    share = (average_power + 1.0) / (t + average_power)
    average = jax.tree.map(lambda a, p: a + share * (p - a), average, last)
    return (state, average), (measure(last), measure(average))

  state = dynamics.init(payoff, start)
  times = jnp.arange(1, num_steps + 1, dtype=payoff.dtype)
  (state, average), curves = jax.lax.scan(one, (state, dynamics.strategies(state)), times)
  return Played(dynamics.strategies(state), average, *curves)


def _normalized(logits: Profile) -> Profile:
  return jax.tree.map(jax.nn.log_softmax, logits)
