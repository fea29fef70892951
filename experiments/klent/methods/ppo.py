"""PPO in self-play: the clipped surrogate on advantages whose next value is the opponent's.

Schulman et al. (2017), arXiv:1707.06347.
"""

import jax
import jax.numpy as jnp

from experiments.klent.methods import learner
from lib.games import losses, regularized, returns
from lib.rl import policy_gradients


def make(problem: learner.Problem) -> learner.Method:
  """Builds the method."""
  agent, parts = problem.agent, learner.make(problem, ('policy', 'value'))

  def evaluate(variables, states):
    logits, value = parts.network.apply(variables, problem.observe(states.observation))
    return regularized.log_softmax(logits, states.legal_action_mask), value

  def update(state, key):
    play_key, fit_key = jax.random.split(key)

    def policy(key, states):
      log_policy, value = evaluate(state.variables, states)
      return jax.random.categorical(key, log_policy), (log_policy, value)

    games, window = learner.play(problem, state, policy, play_key)
    log_policy, value = window.info
    last = evaluate(state.variables, games)[1]
    advantage = jax.vmap(returns.advantages, in_axes=(1, 1, 1, None, 0), out_axes=1)(
      window.reward, value, window.ended, agent.gae_lambda, last
    )
    samples = learner.flat({
      'observation': problem.observe(window.observation),
      'legal': window.legal,
      'action': window.action,
      'log_prob': losses.of_action(log_policy, window.action),
      'advantage': (advantage - advantage.mean()) / (advantage.std() + 1e-8),
      'target': advantage + value,
    })  # fmt: skip

    def loss(outputs, batch):
      logits, value = outputs
      log_policy = regularized.log_softmax(logits, batch['legal'])
      log_prob = losses.of_action(log_policy, batch['action'])
      surrogate = policy_gradients.clipped_surrogate(
        log_prob, batch['log_prob'], batch['advantage'], agent.clip
      )
      policy_loss = jnp.mean(surrogate)
      value_loss = jnp.mean((value - batch['target']) ** 2)
      bonus = jnp.mean(regularized.entropy(log_policy))
      total = policy_loss + agent.value_weight * value_loss - agent.entropy_bonus * bonus
      return total, {'policy_loss': policy_loss, 'value_loss': value_loss}

    state, metrics = learner.fit(
      parts, loss, state, samples, fit_key, problem.optimizer, agent.epochs
    )
    return state._replace(games=games), metrics | learner.policy_metrics(log_policy, window)

  return learner.Method(parts.init, update, evaluate, problem.play.games * problem.play.moves)
