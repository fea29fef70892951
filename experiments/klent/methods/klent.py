"""KLENT: the policy regularised twice, and action values from λ-returns of self-play.

At each move the closed form of `lib.games.regularized` improves the network's policy, and the move
is drawn from it. Then the policy head is fitted to the improved policies, and the values of the
moves to their returns. Ota et al. (2026), arXiv:2602.10894.
"""

from typing import Any

import chex
import jax
import jax.numpy as jnp

from experiments.klent.methods import learner
from lib.games import losses, regularized

HEADS = ('policy', 'q')


def loss(outputs: tuple[chex.Array, ...], batch: Any) -> tuple[chex.Array, learner.Metrics]:
  """Cross-entropy to the improved policies plus squared errors of the moves' values."""
  logits, q = outputs
  mean = lambda x: learner.masked_mean(x, batch['valid'])
  policy_loss = mean(losses.cross_entropy(logits, batch['policy']))
  value_loss = mean(losses.action_value_errors(q, batch['action'], batch['target']))
  return policy_loss + value_loss, {'policy_loss': policy_loss, 'value_loss': value_loss}


def make(problem: learner.Problem) -> learner.Method:
  """Builds the method; α = 0 and β = 0 are its ablations, and λ sets its targets."""
  agent, parts = problem.agent, learner.make(problem, HEADS)

  def improve(variables, states):
    """Returns log π', log π and Q (B, A)."""
    logits, q = parts.network.apply(variables, problem.observe(states.observation))
    legal = states.legal_action_mask
    improved = regularized.improved_policy(logits, q, agent.alpha, agent.beta, legal)
    return improved, regularized.log_softmax(logits, legal), q

  def evaluate(variables, states):
    improved, before, q = improve(variables, states)
    return before, regularized.expected_value(improved, q)

  def update(state, key):
    play_key, fit_key = jax.random.split(key)

    def policy(key, states):
      improved, before, q = improve(state.variables, states)
      value = regularized.expected_value(improved, q)
      info = {
        'policy': improved,
        'value': value,
        'kl': regularized.kl_divergence(improved, before),
        'gain': value - regularized.expected_value(before, q),
      }
      return jax.random.categorical(key, improved), info

    games, window = learner.play(problem, state, policy, play_key)
    info = window.info
    last = evaluate(state.variables, games)[1] if agent.bootstrap else None
    target, valid = learner.returns_of(window, info['value'], agent.lambda_, last)
    samples = learner.flat({
      'observation': problem.observe(window.observation),
      'action': window.action,
      'policy': jnp.exp(info['policy']),
      'target': target,
      'valid': valid,
    })  # fmt: skip

    state, metrics = learner.fit(parts, loss, state, samples, fit_key, problem.optimizer)
    metrics |= learner.policy_metrics(info['policy'], window)
    metrics |= {'kl': info['kl'].mean(), 'gain': info['gain'].mean(), 'kept': jnp.mean(valid)}
    return state._replace(games=games), metrics

  return learner.Method(parts.init, update, evaluate, problem.play.games * problem.play.moves)
