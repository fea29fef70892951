"""What is compared: allocations of a budget, and rules that stop each question on their own."""

import functools
from collections.abc import Callable, Sequence

import chex
import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from lib.voting import allocation, confidence, paths, policies, stopping, theory

LOOKAHEAD = 64  # samples that `lookahead` looks ahead

# Scores of one question's votes: one run serves all budgets.
SCORES: dict[str, Callable[[paths.Votes], chex.Array]] = {
  'sc': policies.uniform,
  'asc': policies.adaptive_consistency,
  'ppr': policies.ppr,
  'ppr_unclipped': policies.ppr_unclipped,
  'plugin_margin': policies.plugin_margin,
  'blend': policies.blend,
  **{f'blend_{k:g}': functools.partial(policies.blend, exponent=k) for k in (0.5, 1, 1.5, 3, 4, 6)},
}

# Blends of ranks: one run a budget.
SCHEDULES: dict[str, Callable[[chex.Array], chex.Array]] = {
  'asc_to_ppr': policies.asc_to_ppr,
  'ppr_to_asc': policies.ppr_to_asc,
  'half_and_half': lambda progress: jnp.full_like(progress, 0.5),
}

# The oracle knows the margins; it bounds what a fixed allocation can do.
POLICIES = (*SCORES, 'lookahead', *SCHEDULES, 'oracle_fixed')


@functools.partial(jax.jit, static_argnames=('name', 'budgets', 'init', 'batch'))
def allocate(
  name: str, votes: paths.Votes, rates: chex.Array, budgets: Sequence[int], init: int, batch: int
) -> chex.Array:
  """Samples (S, B, Q) of a policy at each of the budgets."""
  cap = votes.total.shape[-1] - 1
  ends = jnp.asarray(budgets, jnp.int32)

  def one(votes: paths.Votes, rates: chex.Array) -> chex.Array:
    if name in SCHEDULES:
      signals, score = policies.rank_blend(SCHEDULES[name])
      run = functools.partial(
        allocation.run_policy,
        signals(votes),
        score,
        max_budget=max(budgets),
        init=init,
        batch=batch,
      )
      return jax.lax.map(run, ends)  # not vmap: small budgets need fewer rounds
    if name == 'oracle_fixed':
      return jnp.stack([
        theory.integer_allocation(theory.fixed_allocation(rates, budget, cap), budget, cap)
        for budget in budgets
      ])  # fmt: skip
    if name == 'lookahead':
      scores = policies.lookahead(votes, cap, LOOKAHEAD)
    else:
      scores = SCORES[name](votes)
    return allocation.run_index(scores, budgets, init=init, batch=batch)

  return jax.vmap(one)(votes, rates)


@functools.partial(jax.jit, static_argnames=('init', 'batch', 'max_budget'))
def match(scores: chex.Array, budgets: chex.Array, init: int, batch: int, max_budget: int):
  """Samples (S, Q) by scores at a budget (S,) of each seed's own, what a stopping rule took."""

  def one(scores: chex.Array, budget: chex.Array) -> chex.Array:
    run = functools.partial(allocation.run_policy, scores, lambda score, _: score)
    return run(budget, max_budget, init=init, batch=batch)

  return jax.vmap(one)(scores, budgets)


@jax.jit
def pick(errors: chex.Array, samples: chex.Array) -> chex.Array:
  """Mean error over the questions: paths (S, Q, T + 1) at samples (S, ..., Q) to (S, ...)."""

  def one(errors: chex.Array, samples: chex.Array) -> chex.Array:
    rows = samples.reshape(-1, samples.shape[-1])
    found = jax.vmap(lambda n: paths.pick(errors, n).mean())(rows)
    return found.reshape(samples.shape[:-1])

  return jax.vmap(one)(errors, samples)


def stopping_rules(
  thresholds: Sequence[float], deltas: Sequence[float], windows: Sequence[int]
) -> dict[str, Callable[[chex.Array, paths.Votes], chex.Array]]:
  """Rules by name: they map answers (..., T) and votes to booleans (..., T + 1)."""
  rules: dict[str, Callable] = {}
  for level in thresholds:
    rules[f'asc {level:g}'] = lambda _, votes, level=level: stopping.beta(votes, level)
  for delta in deltas:
    rules[f'ppr {delta:g}'] = lambda _, votes, delta=delta: stopping.ppr(votes, delta)
  for size in windows:
    rules[f'esc {size}'] = lambda answers, _, size=size: stopping.window(answers, size)
    rules[f'esc running {size}'] = lambda answers, _, size=size: stopping.running_window(
      answers, size
    )
  return rules


@functools.partial(jax.jit, static_argnames=('caps', 'thresholds', 'deltas', 'windows'))
def stopped(
  answers: chex.Array,
  votes: paths.Votes,
  caps: Sequence[int],
  thresholds: Sequence[float],
  deltas: Sequence[float],
  windows: Sequence[int],
) -> list[list[chex.Array]]:
  """Samples (S, Q) by cap, then rule in the order of `stopping_rules`: one program for all."""
  stops = [rule(answers, votes) for rule in stopping_rules(thresholds, deltas, windows).values()]
  return [[allocation.run_stopping(rows, cap) for rows in stops] for cap in caps]


def dirichlet_stops(
  answers: chex.Array, num_answers: int, cap: int, level: float, num_draws: int, seed: int
) -> np.ndarray:
  """Adaptive consistency over the first five answers: booleans (..., cap + 1).

  Its probability has no closed form. Most questions pass through the same votes, so it is estimated
  once for each set of votes that occurs, where bounds do not decide.
  """
  tops = np.asarray(paths.top_paths(answers[..., :cap], num_answers, 5))
  states, inverse = np.unique(tops.reshape(-1, tops.shape[-1]), axis=0, return_inverse=True)
  # The leader beats each answer alone with a known probability: all together with at most the
  # least of them, and with at least what the union bound leaves. Few states are open between.
  doubt = special.betainc(states[:, :1] + 1, states[:, 1:] + 1, 0.5)
  stops = 1 - doubt.sum(1) >= level
  open_states = np.flatnonzero(~stops & (1 - doubt[:, 0] >= level))
  blocks = -(-len(open_states) // _BLOCK)
  padded = np.resize(open_states, blocks * _BLOCK).reshape(blocks, _BLOCK)
  key = jax.random.key(seed)
  levels = [np.asarray(_dirichlet(key, states[block], num_draws)) for block in padded]
  stops[padded.ravel()] = np.ravel(levels) >= level
  return stops[inverse].reshape(tops.shape[:-1])


_BLOCK = 512  # states at once
_dirichlet = jax.jit(confidence.dirichlet_confidence, static_argnums=2)

stop = jax.jit(allocation.run_stopping, static_argnums=1)
blend = jax.jit(policies.blend)
