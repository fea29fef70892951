"""Host. Small programs over changes of weight and edits of beliefs, in float64.

Beliefs are normalised log-probabilities log P (K,), -∞ where impossible, and functions of the
outcomes (K,), whose values there do not count. Theorems are those of Lee, Kondor and Ngo,
arXiv:2509.06701.
"""

from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

# BFGS stops at a gradient below this, in units of the first-order reduction.
_GRADIENT_TOLERANCE = 1e-8

# How often a scale is doubled or halved: where a ray has not reached its divergence by then, it
# nears a belief that is sure of what it holds.
_MAX_DOUBLINGS = 60


class Budget(NamedTuple):
  """The least movement of the pool that a change of weights needs.

  Attributes:
    budget: ‖Σ_i Δβ_i v_i‖_P, in nats.
    dbeta: the change Δβ (n,) that needs it.
  """

  budget: float
  dbeta: np.ndarray


class Edit(NamedTuple):
  """An edited belief.

  Attributes:
    logp: log P' (K,).
    probability: P'(A).
    kl: KL(P'‖P), in nats.
  """

  logp: np.ndarray
  probability: float
  kl: float


def smallest_budget(
  v: ArrayLike, logp: ArrayLike, beta: ArrayLike, h: int, w: int, delta: float
) -> Budget:
  """The least budget at which member H gains δ without member W gaining, the reach of Theorem 19.

    min ‖Σ_i Δβ_i v_i‖_P  over  Δβ_H = δ,  Δβ_W <= 0,  Σ_i Δβ_i = 0,  β + Δβ >= 0

  a convex program. Within a smaller budget W has to gain. Theorem 19 alone shows as much only for
  budgets below δ ‖v_H‖_P, and where W is the only anti-aligned member and no aligned one loses.

  Args:
    v: profiles (n, K), centred under P.
    logp: log P (K,).
    beta: weights β (n,), >= 0 and of sum 1.
    h: member H.
    w: member W.
    delta: δ in (0, 1 - β_H].

  Returns:
    The budget, and a change of weights that needs no more.

  Raises:
    ValueError: if shapes do not match, values are not finite where P(o) > 0, weights are not on the
      simplex, H and W are not two members, or δ is out of range.
    RuntimeError: if the program did not converge.
  """
  logp, functions = _check_functions(logp, v)
  beta = np.asarray(beta, np.float64)
  n = len(functions)
  if beta.shape != (n,) or not ((beta >= 0).all() and abs(beta.sum() - 1) <= 1e-5):
    raise ValueError(f'Expected {n} weights on the simplex, got {beta}.')
  if not (0 <= h < n and 0 <= w < n and h != w):
    raise ValueError(f'H and W must be two of {n} members, got {h=} and {w=}.')
  others = np.arange(n) != h
  left = beta[others].sum()  # not 1 - β_H, which rounding may put out of reach
  if not 0 < delta <= left * (1 + 1e-12):
    raise ValueError(f'δ must lie in (0, {left}], what the others have, got {delta=}.')

  # The changes that are allowed are the hull of these: one of the others keeps all that is left, or
  # all but W's whole weight.
  left = max(left - delta, 0.0)
  keep, kept = np.eye(n)[others & (np.arange(n) != w)], np.eye(n)[w]
  if beta[w] < left:
    ends = np.concatenate([left * keep, (left - beta[w]) * keep + beta[w] * kept])
  else:
    ends = left * np.concatenate([keep, kept[None]])
  changes = ends - beta
  changes[:, h] = delta
  # R with ‖R x‖ = ‖Σ_i x_i v_i‖_P.
  factor = scipy.linalg.qr((functions * np.exp(0.5 * logp)).T, mode='r')[0][:n]
  points = factor @ changes.T
  scale = np.abs(points).max() or 1.0
  # The hull's point of least norm (Wolfe, 1976), by non-negative least squares.
  system = np.concatenate([points / scale, np.ones((1, len(ends)))])
  shares, _ = scipy.optimize.nnls(system, np.eye(len(system))[-1], maxiter=100 * len(ends))
  shares /= shares.sum()
  return Budget(float(np.linalg.norm(points @ shares)), shares @ changes)


def min_event(
  logp: ArrayLike,
  directions: ArrayLike,
  event: ArrayLike,
  kappa: float,
  rank_tolerance: float = 1e-8,
) -> Edit:
  """The edit along given directions that makes an event least likely within a divergence.

    min P'(A)  over  P' ∝ P exp(h),  h ∈ S,  KL(P'‖P) <= κ

  To first order it is P(A) - √(2κ) ‖Proj_S g_A‖_P, as Lemma 71 has it. The divergence is of the
  edited belief from the old one; KL(P‖P') differs at third order. It rises along every ray of h, so
  that a direction in S has one edit of divergence κ, and BFGS searches the directions, with the
  gradient of P'(A) + μ KL(P'‖P) at the multiplier μ that makes it vanish along the ray. The program
  is not convex: for small κ this is its minimum, and in general a local one. Where P'(A) would rise
  again before the ray ends, the edit may stop halfway.

  Args:
    logp: log P (K,).
    directions: (m, K), which span S; constants among them change nothing.
    event: booleans (K,), whether the outcome belongs to A.
    kappa: κ > 0, in nats.
    rank_tolerance: the part of its norm that a direction must have outside the span of the others
      to count.

  Returns:
    The edit, of a P'(A) not above P(A). Where no direction changes P(A) to first order it is P
    itself. Its divergence is κ, or less where more would not help.

  Raises:
    ValueError: if shapes do not match, values are not finite where P(o) > 0, or κ or the tolerance
      is out of range.
  """
  logp, functions = _check_functions(logp, directions)
  event = np.asarray(event)
  if event.dtype != bool or event.shape != logp.shape:
    raise ValueError(f'An event is {logp.shape} booleans, got {event.shape} of {event.dtype}.')
  if not (np.isfinite(kappa) and kappa > 0):
    raise ValueError(f'The divergence must be positive and finite, got {kappa=}.')
  if not 0 <= rank_tolerance < 1:
    raise ValueError(f'The rank tolerance must lie in [0, 1), got {rank_tolerance=}.')
  basis = _orthonormal_basis(logp, functions, rank_tolerance)
  p = np.exp(logp)
  score = event - p[event].sum()
  slope = basis @ (p * score)
  steepest = np.linalg.norm(slope)
  if not steepest > rank_tolerance * np.sqrt(p @ score**2):
    return _edit(logp, np.zeros_like(logp), event)

  def ray(d: np.ndarray) -> np.ndarray:
    return d @ basis / np.linalg.norm(d)

  def objective(d: np.ndarray) -> tuple[float, np.ndarray]:
    h = ray(d)
    scale = _scale(logp, h, event, kappa)
    edit = _edit(logp, scale * h, event)
    p = np.exp(edit.logp)
    # Derivatives along the directions are covariances under P', with 1_A and with scale · h.
    of_event = basis @ (p * (event - edit.probability))
    of_kl = basis @ (p * (h - p @ h)) * scale
    along = d @ of_kl
    multiplier = -(d @ of_event) / along if along > 0 else 0.0
    gradient = (of_event + multiplier * of_kl) * scale / np.linalg.norm(d)
    return edit.probability / unit, gradient / unit

  unit = np.sqrt(2 * kappa) * steepest
  start = -slope / steepest
  options = {'gtol': _GRADIENT_TOLERANCE}
  found = scipy.optimize.minimize(objective, start, jac=True, method='BFGS', options=options)
  edits = []
  for h in (ray(found.x), ray(start)):
    scale = _scale(logp, h, event, kappa)
    edits += [_edit(logp, scale * 0.5**i * h, event) for i in range(_MAX_DOUBLINGS)]
  return min(edits, key=lambda edit: edit.probability)


def _edit(logp: np.ndarray, h: np.ndarray, event: np.ndarray) -> Edit:
  """P' ∝ P exp(h)."""
  h = h - h[np.argmax(logp + h)]  # a constant that keeps digits where h is large
  log_partition = scipy.special.logsumexp(logp + h)
  edited = logp + h - log_partition
  p = np.exp(edited)
  return Edit(edited, float(p[event].sum()), float(p @ (h - log_partition)))


def _scale(logp: np.ndarray, h: np.ndarray, event: np.ndarray, kappa: float) -> float:
  """The scale s at which P' ∝ P exp(s h) has divergence κ, for ‖h‖_P = 1, or a large one."""

  def excess(scale: float) -> float:
    return _edit(logp, scale * h, event).kl - kappa

  low = high = np.sqrt(2 * kappa)  # to second order
  for _ in range(_MAX_DOUBLINGS):
    if excess(low) <= 0:
      break
    low *= 0.5
  for _ in range(_MAX_DOUBLINGS):
    if excess(high) >= 0:
      return scipy.optimize.brentq(excess, low, high, xtol=1e-15 * low)
    high *= 2
  return high


def _orthonormal_basis(
  logp: np.ndarray, functions: np.ndarray, rank_tolerance: float
) -> np.ndarray:
  """What functions span beyond the constants, orthonormal in <·,·>_P, by pivoted QR."""
  p = np.exp(logp)
  sizes = np.sqrt(functions**2 @ p)
  functions = functions[sizes > 0] / sizes[sizes > 0, None]
  functions = functions - (functions @ p)[:, None]
  if not len(functions):
    return functions
  r, pivots = scipy.linalg.qr((functions * np.sqrt(p)).T, mode='r', pivoting=True)
  rank = int((np.abs(np.diag(r)) > rank_tolerance).sum())
  # Not Q / √P, which would divide rounding by the roots of tiny probabilities.
  return scipy.linalg.solve_triangular(
    r[:rank, :rank], functions[pivots[:rank]], trans='T', lower=False
  )


def _check_functions(logp: ArrayLike, functions: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
  """Checks a belief and functions; normalises the one to rounding, and clears what does not count.

  Raises:
    ValueError: if a shape or a value is out of the domain.
  """
  logp, functions = np.asarray(logp, np.float64), np.asarray(functions, np.float64)
  if logp.ndim != 1 or logp.size < 2 or functions.ndim != 2 or functions.shape[1:] != logp.shape:
    raise ValueError(
      f'Expected log-probabilities (K,) with K >= 2 and functions (m, K), got shapes {logp.shape} '
      f'and {functions.shape}.'
    )
  total = scipy.special.logsumexp(logp)
  if not abs(total) <= 1e-3:
    raise ValueError(f'Probabilities must sum to one, but the logarithm of their sum is {total}.')
  possible = logp > -np.inf
  functions = np.where(possible, functions, 0.0)
  if not np.isfinite(functions).all():
    raise ValueError('Functions must be finite wherever the probability is positive.')
  return logp - total, functions
