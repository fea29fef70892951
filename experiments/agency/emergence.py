"""Waluigi emergence: what raising one persona costs, on a model's beliefs."""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.agency import census
from lib.pooling import compensation, pools, profiles, programs
from lib.stats import intervals, tables


def random_shifts(
  rng: np.random.Generator, beta: np.ndarray, h: int, delta: float, count: int
) -> np.ndarray:
  """Draws changes of weights with Δβ_H = δ that keep the weights on the simplex, (count, n)."""
  others = np.arange(len(beta)) != h
  weights = np.zeros((count, len(beta)))
  weights[:, h] = beta[h] + delta
  shares = rng.dirichlet(np.ones(others.sum()), size=count)
  weights[:, others] = shares * (1 - weights[:, [h]])
  return weights - beta


@jax.jit
def least_slack(shifts, v, logp):
  """The least of Theorem 19's left side minus its right side over changes (N, n).

  Member 0 is H, and the budget is the least that the change needs.
  """

  def slack(dbeta):
    budget = profiles.norm(profiles.first_order_shift(dbeta, v), logp)
    bound = compensation.compensation_bound(dbeta, v, logp, 0, budget)
    return compensation.compensation(dbeta, v, logp, 0) - bound

  return jnp.min(jax.lax.map(slack, shifts, batch_size=16))


def rows(
  logp: np.ndarray, h: int, w: int, deltas: tuple[float, ...], count: int, seed: int
) -> list[tables.Row]:
  """Checks the inequality and finds the least budgets, context by context, with equal weights.

  Args:
    logp: beliefs (C, n, K).
    h: the member that gains.
    w: the member that is not to gain.
    deltas: gains δ.
    count: random changes of weights in all, for each δ.
    seed: of the changes.
  """
  contexts, members, _ = logp.shape
  beta = np.full(members, 1.0 / members)
  order = [h, *(i for i in range(members) if i != h)]
  found = []
  for delta in deltas:
    rng = np.random.default_rng(seed)
    worst, budgets, strict, anti = [], [], [], []
    for beliefs in logp:
      pool = pools.log_pool(jnp.asarray(beliefs), jnp.asarray(beta))
      v = profiles.centre(jnp.asarray(beliefs[order]), pool)
      shifts = random_shifts(rng, beta, 0, delta, -(-count // contexts))
      worst.append(float(least_slack(jnp.asarray(shifts), v, pool)))
      least = programs.smallest_budget(
        np.asarray(v), np.asarray(pool), beta, 0, order.index(w), delta
      )
      size = float(profiles.norm(v[0], pool))
      budgets.append(least.budget / (delta * size))
      strict.append(least.budget < delta * size)
      anti.append(float(profiles.inner(v[order.index(w)], v[0], pool)) < 0)
    name = f'raise by {delta:g}'
    violated = np.array(worst) < -1e-9
    found.append(census.share(name, 'inequality_violated', violated, {}))
    interval = intervals.mean_interval(budgets)
    found.append(tables.row(name, 'budget_over_reach', interval, n=contexts, seeds=1))
    found.append(census.share(name, 'avoidable_within_reach', np.array(strict), {}))
    found.append(census.share(name, 'anti_aligned', np.array(anti), {}))
  return found
