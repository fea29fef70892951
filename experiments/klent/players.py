"""Who plays an evaluation: trained agents, and players of known strength that learn nothing.

A player is `act(variables, key, states) -> actions (B,)`; the latter have no variables, but for
pgx's own network.
"""

from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import mctx

from experiments.klent import games
from experiments.klent.methods import learner
from lib.games import search, selfplay

Player = Callable[[Any, chex.PRNGKey, selfplay.State], chex.Array]
NOBODY = ()  # the variables of who has none
PGX = 'pgx'
_SCALES = {'mcts': None, 'mctx': mctx.qtransform_by_parent_and_siblings}


def agent(game: games.Game, method: learner.Method, num_simulations: int = 0) -> Player:
  """Plays the best legal move by a method's preferences, or by a search with them as priors."""

  def act(variables, key, states):
    if num_simulations:
      prior = lambda variables, key, states: method.evaluate(variables, states)
      found = search.gumbel_alphazero(
        game.env, prior, variables, key, states, num_simulations, gumbel_scale=0.0
      )
      return found.action
    preferences, _ = method.evaluate(variables, states)
    return jnp.argmax(jnp.where(states.legal_action_mask, preferences, -jnp.inf), axis=-1)

  return act


def known(game: games.Game, name: str) -> Player:
  """A player by its name.

  'random' moves uniformly. 'one_ply' wins where one move wins, and moves uniformly elsewhere.
  'mcts_N' searches with N random games a move, and no network. 'mctx_N' does so with values scaled
  between the worst and the best of siblings, as mctx does by default, and is far weaker.
  'pgx' draws moves from the policy of pgx's own network, and takes what `variables` gives.

  Raises:
    ValueError: if there is no such player.
  """
  if name == 'random':
    return lambda variables, key, states: selfplay.random_actions(key, states)
  if name == 'one_ply':
    return lambda variables, key, states: _one_ply(game, key, states)
  if name == PGX:
    return lambda variables, key, states: _sampled(game, variables, key, states)
  kind, _, number = name.partition('_')
  if kind in _SCALES and number.isdecimal() and int(number) > 0:
    return lambda variables, key, states: (
      search.monte_carlo(game.env, key, states, int(number), game.max_moves, _SCALES[kind]).action
    )
  raise ValueError(f'no player {name!r}: random, one_ply, mcts_N, mctx_N or {PGX}')


def variables(game: games.Game, name: str) -> Any:
  """The variables of a player that is known by its name."""
  return game.model.variables if name == PGX and game.model else NOBODY


def _sampled(game: games.Game, variables: Any, key: chex.PRNGKey, states: selfplay.State):
  assert game.model is not None, 'the game has no network'
  logits, _ = game.model.apply(variables, states.observation)
  return jax.random.categorical(key, jnp.where(states.legal_action_mask, logits, -jnp.inf))


def _one_ply(game: games.Game, key: chex.PRNGKey, states: selfplay.State) -> chex.Array:
  every = jnp.arange(game.num_actions)
  after = jax.vmap(jax.vmap(game.env.step, (None, 0)), (0, None))(states, every)
  gain = jax.vmap(selfplay.of_player, (1, None), 1)(after.rewards, states.current_player)
  wins = states.legal_action_mask & (gain > 0)
  among = jnp.where(wins.any(axis=-1, keepdims=True), wins, states.legal_action_mask)
  return jax.random.categorical(key, jnp.where(among, 0.0, -jnp.inf))
