"""Traced. How badly a question wants its next sample: the largest score is sampled next.

A score reads `paths.Votes` of any shape, so that it is computed once along whole paths.
`rank_blend` alone compares the questions with one another, and needs the spent part of the budget.
"""

from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp

from lib.voting import confidence
from lib.voting.paths import Votes


def uniform(votes: Votes) -> chex.Array:
  """Self-consistency: the fewest samples first (Wang et al., 2023)."""
  return -votes.total.astype(jnp.float32)


def adaptive_consistency(votes: Votes) -> chex.Array:
  """The least certain leader first: log Pr[θ <= 1/2 | votes] under a uniform prior.

  The ordering form of adaptive consistency (Aggarwal et al., 2023), which itself stops at a
  threshold (`stopping.beta`). Its uncertainty stays near 1/2 at a tie however long that lasts, so
  nearly tied questions take the whole budget.
  """
  return confidence.beta_log_uncertainty(votes.first, votes.second)


def ppr(votes: Votes) -> chex.Array:
  """The largest mistake level of PPR-1v1 first, clipped at 1 (Jain et al., AISTATS 2022)."""
  return confidence.ppr_log_level(votes.first, votes.second, votes.seen)


def ppr_unclipped(votes: Votes) -> chex.Array:
  """As `ppr` without the clip: the ratio grows as √n at a tie, and attracts ever more samples."""
  union = jnp.log(jnp.maximum(votes.seen, 2) - 1.0)
  return confidence.ppr_log_ratio(votes.first, votes.second) + union


def plugin_margin(votes: Votes) -> chex.Array:
  """The smallest n (√p̂1 - √p̂2)² first, the exponent of the error at the estimated margin."""
  return -confidence.plugin_information(votes.first, votes.second, votes.total)


def blend(votes: Votes, exponent: float = 2.0, max_votes: int | None = None) -> chex.Array:
  """Blend-ASC of this library: the error to be gained for one sample.

    s = log u + k (log u - log R + log √((a + b + 2)/(n + 2)))
    u = Pr[θ <= 1/2 | votes],  R = density of θ at 1/2

  u is what adaptive consistency ranks by, R what PPR-1v1 stops by. For many votes θ is normal with
  deviation σ = 1/(2√(a + b)), and for a leader z deviations ahead u = Φ(-z), R = φ(z)/σ. So

    (u / R)² = σ² M(z)² = M(z)² / 4(a + b),  Mills' ratio M being 1.25 at 0 and 1/z far off,

  and with k = 2 the score is the probability of a wrong leader over the number of samples that
  would overturn one: about n at a tie, n z² for one z deviations ahead. Its units, an error per
  sample, fix k, and nothing is tuned; the last term is for samples that vote for neither. At a tie
  it falls as 1/n, where u alone stays at 1/2 and R alone grows as √n; for a clear leader log u
  decides, as it does in both. No horizon appears: it serves any budget. `lookahead` is the same
  value by dynamic programming; k = 0 is `adaptive_consistency`.

  The published rule blends the same two statistics; its formula was not public (Feng, Alonso and
  Odonnat, arXiv:2511.12309), so this one is a reconstruction from what is claimed for it.

  Args:
    votes: summary of the votes.
    exponent: k >= 0.
    max_votes: the largest number of votes, all of them whole, that `votes` may hold for one answer.
      Where it is given, u and R are computed once for all such votes, and then looked up: far
      faster along the paths of many questions.

  Returns:
    Scores, larger first.
  """
  pair = votes.first, votes.second
  if max_votes is None:
    log_u, log_r = confidence.beta_log_uncertainty(*pair), confidence.ppr_log_ratio(*pair)
  else:
    a, b = jnp.meshgrid(*2 * [jnp.arange(max_votes + 1)], indexing='ij')
    both = jnp.stack([confidence.beta_log_uncertainty(a, b), confidence.ppr_log_ratio(a, b)], -1)
    found = both.at[pair].get(mode='clip')
    log_u, log_r = found[..., 0], found[..., 1]
  cost = log_u - log_r + 0.5 * _log_share(votes)
  return log_u + exponent * cost


def lookahead(votes: Votes, max_votes: int, horizon: int = 64) -> chex.Array:
  """The largest expected gain a sample over the next 1 .. `horizon` samples of a question.

    s = log max_k (V_0 - E V_k) / k,  V_k = Pr[the leader after k more samples is wrong]

  for two answers, under the posterior of a uniform prior: the knowledge gradient with many samples
  (Frazier and Powell, 2010), which one sample has not, since it rarely changes a leader. The
  difference is E max(0, 1 - 2 Pr[the leader of today is right]), a sum of positive terms. Samples
  that vote for neither gain nothing, so their share of the votes so far is taken off.

  Args:
    votes: summary of the votes.
    max_votes: the largest number of votes that `votes` may hold for one answer.
    horizon: the farthest look, > 0.

  Returns:
    Scores, larger first; -inf where no leader within the horizon would change.
  """
  if max_votes < 1 or horizon < 1:
    raise ValueError(f'A lookahead needs votes and a horizon, got {max_votes=}, {horizon=}.')
  a, b = jnp.meshgrid(*2 * [jnp.arange(max_votes + horizon + 1)], indexing='ij')
  # With the roles exchanged where today's leader has fallen behind.
  wrong = jnp.exp(confidence.beta_log_uncertainty(a, b))
  theta = (a + 1) / (a + b + 2)

  def step(carry, k):
    gain, best = carry
    # What leaves the table is cut off below: a state needs only those `horizon` around it.
    gain = theta * jnp.roll(gain, -1, 0) + (1 - theta) * jnp.roll(gain, -1, 1)
    return (gain, jnp.maximum(best, gain / k)), None

  start = jnp.maximum(0.0, 2 * wrong - 1), jnp.zeros_like(theta)
  (_, best), _ = jax.lax.scan(step, start, jnp.arange(1, horizon + 1))
  return jnp.log(best[votes.first, votes.second]) + _log_share(votes)


def rank_blend(
  weight: Callable[[chex.Array], chex.Array],
) -> tuple[Callable[[Votes], Votes], Callable[[chex.ArrayTree, chex.Array], chex.Array]]:
  """Blends the ranks of `adaptive_consistency` and `ppr` by a weight that moves with the budget.

    s_q = (1 - w) rank(u_q) + w rank(p_q),  w = weight(spent / budget)

  with ascending ranks over the questions, where fewer samples, then the lower index, rank higher
  among equals. w = 0 orders as `adaptive_consistency`, w = 1 as `ppr`.

  Args:
    weight: maps the spent part of the budget, in [0, 1], to the weight of PPR's rank, in [0, 1].

  Returns:
    The signals of votes, and the score of signals, both for `allocation.run_policy`.
  """

  def signals(votes: Votes) -> chex.ArrayTree:
    return _places(adaptive_consistency(votes), votes), _places(ppr(votes), votes)

  def score(now: chex.ArrayTree, progress: chex.Array) -> chex.Array:
    uncertainty, level = now
    w = weight(progress)
    return (1 - w) * _ranks(uncertainty) + w * _ranks(level)

  return signals, score


def asc_to_ppr(progress: chex.Array) -> chex.Array:
  """Uncertainty at first, PPR-1v1 at the end: the schedule as the paper is described."""
  return progress


def ppr_to_asc(progress: chex.Array) -> chex.Array:
  """PPR-1v1 at first, uncertainty at the end."""
  return 1 - progress


def _log_share(votes: Votes) -> chex.Array:
  """log of the share of the samples that voted for one of the two leading answers."""
  return jnp.log((votes.first + votes.second + 2.0) / (votes.total + 2.0))


def _places(signal: chex.Array, votes: Votes) -> chex.Array:
  """The place of every state of every question (Q, ...) among all of them, once and for all."""
  question = jnp.arange(len(signal)).reshape(-1, *[1] * (signal.ndim - 1))
  keys = (-jnp.broadcast_to(question, signal.shape), -votes.total, signal)
  order = jnp.lexsort([key.reshape(-1) for key in keys])
  return (
    jnp.zeros(order.size, jnp.int32).at[order].set(jnp.arange(order.size)).reshape(signal.shape)
  )


def _ranks(places: chex.Array) -> chex.Array:
  """Ranks 0 .. Q-1 of different numbers (Q,); all pairs are cheaper than a sort in a loop."""
  return (places[:, None] > places).sum(-1).astype(jnp.float32)
