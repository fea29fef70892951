"""What the AlphaZero family shares: a search chooses the moves, and the network is fitted to it.

The policy is fitted to what the search recommends, the value to the games' results, or to its
own estimate where the window ends before the game. The search's steps of the simulator count.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import mctx

from experiments.klent.methods import learner
from lib.games import losses

# `look(evaluate, variables, key, states, num_simulations)` searches from the states.
Look = Callable[..., mctx.PolicyOutput]


def make(problem: learner.Problem, look: Look) -> learner.Method:
  """Builds a method; without `agent.bootstrap`, moves of unfinished games teach no value."""
  agent, parts = problem.agent, learner.make(problem, ('policy', 'value'))

  def evaluate(variables, states):
    return parts.network.apply(variables, problem.observe(states.observation))

  prior = lambda variables, key, states: evaluate(variables, states)

  def update(state, key):
    play_key, fit_key = jax.random.split(key)

    def policy(key, states):
      found = look(prior, state.variables, key, states, agent.simulations)
      return found.action, jnp.where(states.legal_action_mask, found.action_weights, 0.0)

    games, window = learner.play(problem, state, policy, play_key)
    last = evaluate(state.variables, games)[1] if agent.bootstrap else None
    target, valid = learner.returns_of(window, jnp.zeros_like(window.reward), 1.0, last)
    samples = learner.flat({
      'observation': problem.observe(window.observation),
      'policy': window.info,
      'target': target,
      'valid': valid,
    })  # fmt: skip

    def loss(outputs, batch):
      logits, value = outputs
      policy_loss = jnp.mean(losses.cross_entropy(logits, batch['policy']))
      value_loss = 0.5 * learner.masked_mean((value - batch['target']) ** 2, batch['valid'])
      return policy_loss + value_loss, {'policy_loss': policy_loss, 'value_loss': value_loss}

    state, metrics = learner.fit(parts, loss, state, samples, fit_key, problem.optimizer)
    metrics |= learner.policy_metrics(jnp.log(window.info), window) | {'kept': jnp.mean(valid)}
    return state._replace(games=games), metrics

  evaluations = problem.play.games * problem.play.moves * (agent.simulations + 1)
  return learner.Method(parts.init, update, evaluate, evaluations)
