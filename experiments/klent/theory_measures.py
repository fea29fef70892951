"""What the study of matrix games and trees measures. Traced; in float64 where it runs."""

import functools
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import flatten_util

from lib.games import finite_length, normal_form, regularized
from lib.games.normal_form import Dynamics, Profile

GAMES = {
  'matching pennies': ((1.0, -1.0), (-1.0, 1.0)),
  'rock paper scissors': ((0.0, -1.0, 1.0), (1.0, 0.0, -1.0), (-1.0, 1.0, 0.0)),
  'biased rock paper scissors': ((0.0, -1.0, 3.0), (1.0, 0.0, -1.0), (-3.0, 1.0, 0.0)),
}
_TOLERANCE = 1e-6  # of an equilibrium's logits; the solver's last step leaves about 1e-12
_BLOCK = 64  # games
_NEAR = 1e-7  # from the equilibrium: far above rounding, far below what is not linear


class Judged(NamedTuple):
  """A game and its coefficients, all of shape (...).

  Attributes:
    distance: of the last strategies to the equilibrium, the largest difference of probabilities.
    rate: factor by which a step changes small errors, measured.
    exact: the same, of `normal_form.local_rate`.
    inside: whether the condition of the theorem holds.
    inside_mirror: whether the earlier condition, of magnetic mirror descent, does.
  """

  distance: chex.Array
  rate: chex.Array
  exact: chex.Array
  inside: chex.Array
  inside_mirror: chex.Array


def equilibria(payoffs: chex.Array, alphas: chex.Array) -> Profile:
  """Logits of the logit equilibria of games (N, m, n), each at its own α (N,)."""
  count = len(payoffs)
  whole = -(-count // _BLOCK) * _BLOCK
  # In blocks of one size, so that games of one shape share what is compiled.
  spread = np.arange(whole).reshape(-1, _BLOCK) % count
  found = [_block_of_equilibria(payoffs[some], alphas[some]) for some in spread]
  return jax.tree.map(lambda *z: jnp.concatenate(z)[:count], *found)


@jax.jit
def _block_of_equilibria(payoffs, alphas):
  # One after the other: this compiles in two thirds of the time that `vmap` takes.
  solve = lambda game: normal_form.logit_equilibrium(game[0], game[1], _TOLERANCE)
  return jax.lax.map(solve, (payoffs, alphas))


@functools.partial(jax.jit, static_argnames=('num_steps', 'rate_steps'))
@functools.partial(jax.vmap, in_axes=(0, 0, 0, 0, 0, None, None))
def judge(
  payoff: chex.Array,
  alpha: chex.Numeric,
  beta: chex.Numeric,
  start: Profile,
  equilibrium: Profile,
  num_steps: int,
  rate_steps: int,
) -> Judged:
  """Plays each of N games from `start`, and near the equilibrium, both in logits."""
  dynamics = normal_form.regularized_dynamics(alpha, beta)
  one = lambda _, logits: dynamics.step(payoff, logits)
  last = jax.lax.fori_loop(0, num_steps, one, dynamics.init(payoff, start))
  at, reached = normal_form.softmax(equilibrium), normal_form.softmax(last)
  far = jax.tree.map(lambda p, q: jnp.abs(p - q).max(), at, reached)
  return Judged(
    distance=jnp.maximum(*far),
    rate=measured_rate(payoff, alpha, beta, equilibrium, rate_steps),
    exact=normal_form.local_rate(payoff, at, alpha, beta),
    inside=normal_form.converges(payoff, alpha, beta),
    inside_mirror=normal_form.converges_by_mirror_descent(payoff, alpha, beta),
  )


def measured_rate(
  payoff: chex.Array,
  alpha: chex.Numeric,
  beta: chex.Numeric,
  equilibrium: Profile,
  num_steps: int,
) -> chex.Array:
  """The factor by which the last of many steps changes an error that is kept small.

  After each step the error is scaled back to its first size, so that neither rounding nor growth
  ends the measurement. Errors of logits count by their variance under the equilibrium: in that norm
  the Jacobian is β plus a skew matrix, over α + β, and no rotation hides the rate.
  """
  step = normal_form.regularized_dynamics(alpha, beta).step
  strategies = normal_form.softmax(equilibrium)
  moved = step(payoff, equilibrium)

  def shrink(_, carry):
    error, _ = carry
    near = jax.tree.map(lambda z, e: z + _NEAR * e, equilibrium, error)
    now = jax.tree.map(lambda z, z0: (z - z0) / _NEAR, step(payoff, near), moved)
    now = jax.tree.map(lambda e, p: e - p @ e, now, strategies)
    factor = jnp.sqrt(sum(p @ e**2 for p, e in zip(strategies, now, strict=True)))
    return jax.tree.map(lambda e: e / factor, now), factor

  flat, restore = flatten_util.ravel_pytree(equilibrium)
  first = restore(jax.random.normal(jax.random.key(0), flat.shape, flat.dtype))
  return jax.lax.fori_loop(0, num_steps, shrink, (first, jnp.ones((), flat.dtype)))[1]


def falling(alpha: float, beta: float, power: float) -> Dynamics:
  """KLENT with α t^{-p} and β t^p at step t = 1, 2, ...: its equilibrium moves to Nash."""

  def step(payoff, state):
    t, logits = state
    now = normal_form.regularized_dynamics(alpha * t**-power, beta * t**power)
    return t + 1.0, now.step(payoff, logits)

  init = lambda payoff, logits: (jnp.ones((), payoff.dtype), logits)
  return Dynamics(init, step, lambda state: normal_form.softmax(state[1]))


def moving_magnet(alpha: float, beta: float, share: float) -> Dynamics:
  """Magnetic mirror descent whose magnet moves a share of the way to the logits at each step."""

  def step(payoff, state):
    logits, magnet = state
    logits = normal_form.regularized_dynamics(alpha, beta, magnet).step(payoff, logits)
    return logits, jax.tree.map(lambda rho, z: rho + share * (z - rho), magnet, logits)

  def init(payoff, logits):
    return logits, jax.tree.map(jnp.zeros_like, logits)

  return Dynamics(init, step, lambda state: normal_form.softmax(state[0]))


def tree_errors(
  game: finite_length.Game,
  alpha: chex.Numeric,
  beta: chex.Numeric,
  depth: int,
  num_steps: int,
) -> chex.Array:
  """Errors (T + 1, H) of the policies at steps 0 to T, the largest of each height 1 to H.

  An error is the range over actions of log π_k - log π*, which no constant changes. The first
  policy is uniform.
  """
  best = finite_length.equilibrium(game, alpha, depth)

  def error(log_policy):
    off = jnp.ptp(log_policy - best, axis=-1)
    return jax.ops.segment_max(off, game.height - 1, depth)

  def step(log_policy, _):
    after = finite_length.update_all_states(game, log_policy, alpha, beta, depth)
    return after, error(log_policy)

  start = regularized.log_softmax(jnp.zeros_like(game.reward), game.legal)
  return jax.lax.scan(step, start, length=num_steps + 1)[1]
