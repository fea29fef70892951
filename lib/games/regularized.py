"""Traced. Policy improvement with a reverse KL divergence and an entropy bonus, in closed form.

One state has actions A, action values q (..., A), in units of reward, and a mask of legal actions.
Policies are log-probabilities, -inf at illegal actions; α >= 0 weighs the entropy, β >= 0 the
divergence from the current policy, and α + β > 0. Both may be traced, and broadcast against (...).
Ota et al. (2026), arXiv:2602.10894.
"""

import chex
import jax
import jax.numpy as jnp


def improved_policy(
  logits: chex.Array,
  q: chex.Array,
  alpha: chex.Numeric,
  beta: chex.Numeric,
  legal: chex.Array | None = None,
) -> chex.Array:
  """The policy π' that maximises Σ_a π'(a) q(a) - β KL(π' ‖ π) + α H(π').

    π'(a) ∝ π(a)^{β/(α+β)} exp(q(a)/(α+β))

  β = 0 is softmax(q/α), without memory of π; α = 0 is mirror descent, π exp(q/β). It is a step of
  magnetic mirror descent, of size 1/β and with a uniform magnet: Sokota et al. (2023),
  arXiv:2206.05825.

  Args:
    logits: of π, (..., A), normalised or not, finite at legal actions.
    q: action values (..., A), finite at legal actions.
    alpha: weight of the entropy, (...).
    beta: weight of the divergence, (...).
    legal: mask (..., A), at least one action of each state; all are legal without it.

  Returns:
    log π' (..., A), normalised.
  """
  alpha, beta = _columns(alpha, beta)
  total = beta * _where(legal, logits) + _where(legal, q)
  return log_softmax(total / (alpha + beta), legal)


def improved_value(
  logits: chex.Array,
  q: chex.Array,
  alpha: chex.Numeric,
  beta: chex.Numeric,
  legal: chex.Array | None = None,
) -> chex.Array:
  """What the improved policy attains, (α+β) log Σ_a π(a)^{β/(α+β)} exp(q(a)/(α+β)).

  Takes the arguments of `improved_policy` and returns (...), in units of reward.
  """
  alpha, beta = _columns(alpha, beta)
  log_policy = _where(legal, log_softmax(logits, legal))
  total = (beta * log_policy + _where(legal, q)) / (alpha + beta)
  return ((alpha + beta) * jax.nn.logsumexp(total, -1, where=legal, keepdims=True))[..., 0]


def objective(
  log_policy: chex.Array,
  q: chex.Array,
  log_reference: chex.Array,
  alpha: chex.Numeric,
  beta: chex.Numeric,
) -> chex.Array:
  """The objective Σ_a p(a) q(a) - β KL(p ‖ π) + α H(p) of any policy p.

  It falls short of `improved_value` by exactly (α+β) KL(p ‖ π').

  Args:
    log_policy: log p (..., A), normalised; -inf where there is no mass.
    q: action values (..., A).
    log_reference: log π (..., A), normalised, finite where p has mass.
    alpha: weight of the entropy, (...).
    beta: weight of the divergence, (...).

  Returns:
    The objective (...), in units of reward.
  """
  return (
    expected_value(log_policy, q)
    - beta * kl_divergence(log_policy, log_reference)
    + alpha * entropy(log_policy)
  )


def policy_after(
  logits: chex.Array,
  q: chex.Array,
  alpha: chex.Numeric,
  beta: chex.Numeric,
  num_updates: chex.Numeric,
  legal: chex.Array | None = None,
) -> chex.Array:
  """The policy after k improvements with the same action values.

    log π_k = cᵏ log π_0 + (1 - cᵏ) q/α + const,  c = β/(α+β),

  and log π_0 + k q/β where α = 0.

  Args:
    logits: of π_0, (..., A).
    q: action values (..., A).
    alpha: weight of the entropy, (...).
    beta: weight of the divergence, (...).
    num_updates: k >= 0, (...).
    legal: mask (..., A).

  Returns:
    log π_k (..., A), normalised.
  """
  alpha, beta = _columns(alpha, beta)
  num_updates = jnp.asarray(num_updates)[..., None]
  some_beta = jnp.maximum(beta, 1e-30)
  log_kept = -num_updates * jnp.log1p(alpha / some_beta)
  weight = jnp.where(
    alpha == 0, num_updates / some_beta, -jnp.expm1(log_kept) / jnp.where(alpha == 0, 1.0, alpha)
  )
  return log_softmax(jnp.exp(log_kept) * _where(legal, logits) + weight * _where(legal, q), legal)


def expected_value(log_policy: chex.Array, q: chex.Array) -> chex.Array:
  """Σ_a p(a) q(a) (...), of log p and q (..., A); what p never plays counts nothing."""
  there = log_policy > -jnp.inf
  policy = jnp.where(there, jnp.exp(_where(there, log_policy)), 0.0)
  return jnp.sum(policy * _where(there, q), axis=-1)


def entropy(log_policy: chex.Array) -> chex.Array:
  """The entropy -Σ_a p(a) log p(a) (...), in nats, of log p (..., A)."""
  return -expected_value(log_policy, log_policy)


def kl_divergence(log_policy: chex.Array, log_reference: chex.Array) -> chex.Array:
  """KL(p ‖ π) (...), in nats, of log p and log π (..., A)."""
  return expected_value(log_policy, log_policy - log_reference)


def log_softmax(logits: chex.Array, legal: chex.Array | None = None) -> chex.Array:
  """Normalises logits (..., A) over legal actions; -inf elsewhere, whose gradient is zero."""
  if legal is None:
    return jax.nn.log_softmax(logits)
  safe = _where(legal, logits)
  total = jax.nn.logsumexp(safe, axis=-1, where=legal, keepdims=True)
  return jnp.where(legal, safe - total, -jnp.inf)


def _columns(*weights: chex.Numeric) -> tuple[chex.Array, ...]:
  return tuple(jnp.asarray(weight)[..., None] for weight in weights)


def _where(there: chex.Array | None, x: chex.Array) -> chex.Array:
  """x with zeros elsewhere, which keep what stands there out of values and gradients."""
  return jnp.asarray(x) if there is None else jnp.where(there, x, 0.0)
