"""Host. Strengths of players from the games between them: Bradley and Terry's model with ties."""

from typing import NamedTuple

import numpy as np
from scipy import optimize, special
from scipy.sparse import csgraph

ELO = 400.0 / np.log(10.0)  # points of Elo in a unit of log-odds


class Ratings(NamedTuple):
  """A fitted model.

  Attributes:
    elo: of each player (P,), relative to the anchor's.
    covariance: of `elo` (P, P), from the curvature at the fit; zero for the anchor.
    tie: log ν, how common draws are between equals; -inf without any draw.
  """

  elo: np.ndarray
  covariance: np.ndarray
  tie: float


def bradley_terry(
  wins: np.ndarray, draws: np.ndarray | None = None, anchor: int = 0, prior: float = 0.1
) -> Ratings:
  """Fits strengths by maximum likelihood, with draws as in Davidson (1970).

    P(i beats j) = s_i/d, P(draw) = ν √(s_i s_j)/d, d = s_i + s_j + ν √(s_i s_j), s = 10^{elo/400}

  A player who won all games would be infinitely strong: `prior` games are added to each pair that
  met, half of them won by either side. The problem is convex, and Newton's method solves it.

  Args:
    wins: (P, P), of the row's player over the column's.
    draws: (P, P), symmetric; none by default.
    anchor: whose Elo is zero.
    prior: added games of a pair, >= 0.

  Returns:
    The fit. Its intervals are elo ± 1.96 √diag(covariance), and those of differences follow.

  Raises:
    ValueError: if counts are negative or not square, draws not symmetric, the anchor is no player,
      or the players fall into groups that never met.
  """
  wins = np.asarray(wins, np.float64)
  draws = np.zeros_like(wins) if draws is None else np.asarray(draws, np.float64)
  num = len(wins)
  if wins.shape != (num, num) or draws.shape != (num, num):
    raise ValueError(f'counts must be square and alike, got {wins.shape} and {draws.shape}')
  if min(wins.min(), draws.min()) < 0 or prior < 0:
    raise ValueError('counts and prior must not be negative')
  if not np.allclose(draws, draws.T):
    raise ValueError('draws must be symmetric')
  if not 0 <= anchor < num:
    raise ValueError(f'the anchor must be one of {num} players, got {anchor}')
  off = ~np.eye(num, dtype=bool)
  met = ((wins + wins.T + draws) > 0) & off
  if csgraph.connected_components(met, directed=False, return_labels=False) > 1:
    raise ValueError('the players fall into groups that never met')
  wins = np.where(met, wins + prior / 2, 0.0)
  rows, columns = np.triu_indices(num, 1)
  ties = int(draws[off].sum() > 0)
  outcomes = 2 + ties  # draws are no outcome where there are none
  counts = np.stack([wins[rows, columns], wins.T[rows, columns], draws[rows, columns]])[:outcomes]
  # Each outcome's log-odds are linear in (strengths, log ν).
  first, second = np.eye(num, num + 1)[rows], np.eye(num, num + 1)[columns]
  tie = np.eye(num + 1)[num]
  features = np.stack([first, second, (first + second) / 2 + tie])[:outcomes]
  free = np.delete(np.arange(num + ties), anchor)
  total = counts.sum(0)

  def log_probabilities(theta):
    full = np.zeros(num + 1)
    full[free] = theta
    return special.log_softmax(features @ full, axis=0)

  def loss(theta):
    return -np.sum(counts * log_probabilities(theta))

  def gradient(theta):
    p = np.exp(log_probabilities(theta))
    return np.einsum('kn,knf->f', total * p - counts, features)[free]

  def hessian(theta):
    p = np.exp(log_probabilities(theta))
    mean = np.einsum('kn,knf->nf', p, features)
    square = np.einsum('n,kn,knf,kng->fg', total, p, features, features)
    return (square - np.einsum('n,nf,ng->fg', total, mean, mean))[np.ix_(free, free)]

  fit = optimize.minimize(
    loss, np.zeros(len(free)), jac=gradient, hess=hessian, method='trust-exact',
    options={'gtol': 1e-8 * max(1.0, total.sum())},
  )  # fmt: skip
  full = np.zeros(num + 1)
  full[free] = fit.x
  covariance = np.zeros((num + 1, num + 1))
  covariance[np.ix_(free, free)] = np.linalg.pinv(hessian(fit.x))
  return Ratings(
    elo=ELO * full[:num],
    covariance=ELO**2 * covariance[:num, :num],
    tie=float(full[num]) if ties else -np.inf,
  )


def expected_score(gap: np.ndarray, tie: float = -np.inf) -> np.ndarray:
  """The mean of win 1, draw ½, loss 0 for a player `gap` points of Elo above the other."""
  half = np.asarray(gap, np.float64) / ELO / 2
  won, _, drawn = special.softmax(np.stack([half, -half, np.full_like(half, tie)]), axis=0)
  return won + 0.5 * drawn
