"""DQN in self-play: one-step targets from the opponent's best answer, replay, ε-greedy play.

Mnih et al. (2015), Nature 518, with a moving average for the network of the targets.
"""

import jax
import jax.numpy as jnp
import optax

from experiments.klent.methods import learner
from lib.games import losses, selfplay
from lib.rl import replay


def make(problem: learner.Problem) -> learner.Method:
  """Builds the method."""
  agent, play = problem.agent, problem.play
  if play.moves < 2:
    raise ValueError(f'config.play.moves must be 2 or more for dqn, got {play.moves}.')
  parts = learner.make(problem, ('q',))
  moves = play.games * play.moves

  def evaluate(variables, states):
    (q,) = parts.network.apply(variables, problem.observe(states.observation))
    q = jnp.where(states.legal_action_mask, q, -jnp.inf)
    return q, jnp.max(q, axis=-1)

  def init(key):
    state = parts.init(key)
    observation = problem.observe(state.games.observation)
    like = {
      'observation': observation,
      'next_observation': observation,
      'next_legal': state.games.legal_action_mask,
      'action': jnp.zeros(1, jnp.int32),
      'reward': jnp.zeros(1),
      'ended': jnp.zeros(1, bool),
    }
    extra = {
      'target': jax.tree.map(jnp.copy, state.variables),
      'buffer': replay.empty(like, agent.replay),
      'played': jnp.zeros(()),
    }
    return state._replace(extra=extra)

  def update(state, key):
    play_key, fit_key = jax.random.split(key)
    played = state.extra['played'] + moves
    share = jnp.minimum(played / (agent.exploration_fraction * problem.evaluations), 1.0)
    epsilon = agent.first_epsilon + share * (agent.last_epsilon - agent.first_epsilon)

    def policy(key, states):
      which_key, key = jax.random.split(key)
      best = jnp.argmax(evaluate(state.variables, states)[0], axis=-1)
      explore = jax.random.bernoulli(which_key, epsilon, best.shape)
      return jnp.where(explore, selfplay.random_actions(key, states), best), ()

    games, window = learner.play(problem, state, policy, play_key)
    observation = problem.observe(window.observation)
    rows = learner.flat({
      'observation': observation[:-1],
      'next_observation': observation[1:],  # of the next game where this one has ended
      'next_legal': window.legal[1:],
      'action': window.action[:-1],
      'reward': window.reward[:-1],
      'ended': window.ended[:-1],
    })  # fmt: skip
    buffer = replay.add(state.extra['buffer'], rows, jnp.ones(rows['ended'].shape, bool))

    def step(carry, key):
      variables, opt_state, target = carry
      batch = replay.sample(buffer, key, problem.optimizer.batch_size)
      (next_q,) = parts.network.apply(target, batch['next_observation'])
      goal = losses.greedy_negamax_target(
        batch['reward'], batch['ended'], next_q, batch['next_legal']
      )

      def loss(outputs, batch):
        (q,) = outputs
        error = optax.losses.huber_loss(losses.of_action(q, batch['action']), goal)
        return jnp.mean(error), {}

      variables, opt_state, metrics = learner.descend(parts, loss, variables, opt_state, batch)
      target = optax.incremental_update(variables, target, agent.target_rate)
      return (variables, opt_state, target), metrics

    num_updates = max(1, agent.replay_ratio * moves // problem.optimizer.batch_size)
    carry = state.variables, state.opt_state, state.extra['target']
    (variables, opt_state, target), metrics = jax.lax.scan(
      step, carry, jax.random.split(fit_key, num_updates)
    )
    extra = {'target': target, 'buffer': buffer, 'played': played}
    metrics = jax.tree.map(jnp.mean, metrics)
    metrics |= {'ended': jnp.mean(window.ended), 'epsilon': epsilon}
    return learner.State(variables, opt_state, games, extra), metrics

  return learner.Method(init, update, evaluate, moves)
