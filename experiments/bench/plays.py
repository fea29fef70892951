"""What the cases of self-play run, on pgx and mctx.

Each part of PARTS takes a game and sizes as `games.build` has them, and returns `fn(state, key,
data)` and `init(key)` of one seed, the data, and what `fn` does for one seed: its work, None where
XLA is to count it, and evaluations, None where it plays no network. By a network the work is that
of the network alone, for XLA counts no search; by random moves it is the number of steps.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import ml_collections

from experiments.bench import yardsticks
from experiments.klent import games, methods
from experiments.klent.methods import klent, learner
from lib.games import search, selfplay


class Part(NamedTuple):
  """See above."""

  fn: Callable[[Any, chex.PRNGKey, Any], Any]
  init: Callable[[chex.PRNGKey], Any]
  data: Any = ()
  work: float | None = None
  evaluations: int | None = None


def loop(name: str, game: games.Game, sizes: ml_collections.ConfigDict) -> Part:
  """An iteration of a method, in which it plays and makes one pass over what was played."""
  method = methods.make(sizes, name, game)
  forward, descent = _work(method, sizes)
  work = method.evaluations * forward + sizes.play.games * sizes.play.moves * descent
  update = lambda state, key, _: method.update(state, key)
  return Part(update, method.init, (), work, method.evaluations)


def random(game: games.Game, sizes: ml_collections.ConfigDict) -> Part:
  """Self-play at random: the simulator alone."""
  policy = lambda key, states: (selfplay.random_actions(key, states), ())
  play = lambda states, key, _: selfplay.collect(game.env, policy, states, key, sizes.play.moves)
  init = lambda key: selfplay.first_states(game.env, key, sizes.play.games)
  return Part(play, init, work=float(sizes.play.games * sizes.play.moves))


def network(game: games.Game, sizes: ml_collections.ConfigDict) -> Part:
  """Self-play by KLENT's network and its closed form."""
  method = methods.make(sizes, 'klent', game)

  def policy(variables, key, states):
    preferences, value = method.evaluate(variables, states)
    return jax.random.categorical(key, preferences), value

  return _played(method, policy, game, sizes)


def searched(game: games.Game, sizes: ml_collections.ConfigDict) -> Part:
  """Self-play by the search of Gumbel AlphaZero."""
  method = methods.make(sizes, 'gumbel_alphazero', game)
  prior = lambda variables, key, states: method.evaluate(variables, states)
  look = functools.partial(search.gumbel_alphazero, game.env, prior)

  def policy(variables, key, states):
    found = look(variables, key, states, sizes.agent.simulations)
    return found.action, found.action_weights

  return _played(method, policy, game, sizes)


def forward(game: games.Game, sizes: ml_collections.ConfigDict) -> Part:
  """KLENT's network alone, on a batch of all games for each move."""
  parts, observations = _learner(game, sizes)
  batches = observations.reshape(sizes.play.moves, sizes.play.games, *game.shape)
  apply = lambda state, _, x: jax.lax.map(lambda x: parts.network.apply(state.variables, x), x)
  return Part(apply, parts.init, batches)


def fit(game: games.Game, sizes: ml_collections.ConfigDict) -> Part:
  """KLENT's fitting alone, one pass over a sample for each move."""
  parts, observations = _learner(game, sizes)
  count, actions = len(observations), game.num_actions
  samples = {
    'observation': observations,
    'policy': jnp.full((count, actions), 1 / actions),
    'action': jnp.zeros(count, jnp.int32),
    'target': jnp.zeros(count),
    'valid': jnp.ones(count, bool),
  }
  run = lambda state, key, x: learner.fit(parts, klent.loss, state, x, key, sizes.optimizer)
  return Part(run, parts.init, samples)


PARTS: dict[str, Callable[[games.Game, ml_collections.ConfigDict], Part]] = {
  'random': random,
  'forward': forward,
  'network': network,
  'search': searched,
  'fit': fit,
  **{name: functools.partial(loop, name) for name in ('klent', 'alphazero', 'gumbel_alphazero')},
}


def _played(method: learner.Method, policy, game: games.Game, sizes) -> Part:
  """Play by `policy(variables, key, states)`."""

  def play(state, key, _):
    move = functools.partial(policy, state.variables)
    return selfplay.collect(game.env, move, state.games, key, sizes.play.moves)

  work = method.evaluations * _work(method, sizes)[0]
  return Part(play, method.init, (), work, method.evaluations)


def _work(method: learner.Method, sizes: ml_collections.ConfigDict) -> tuple[float, float]:
  """Operations of a method's network on one position, and of the gradient there."""
  state = jax.eval_shape(method.init, jax.random.key(0))
  total = lambda *args: sum(jnp.sum(x) for x in method.evaluate(*args))
  forward, descent = (
    yardsticks.flops(fn, state.variables, state.games) / sizes.play.games
    for fn in (method.evaluate, jax.grad(total))
  )
  return forward, descent


def _learner(game: games.Game, sizes) -> tuple[learner.Learner, chex.Array]:
  """KLENT's network and optimiser, and an observation for each move, at random."""
  parts = learner.make(methods.problem(sizes, 'klent', game), klent.HEADS)
  shape = sizes.play.games * sizes.play.moves, *game.shape
  return parts, jax.random.bernoulli(jax.random.key(1), 0.3, shape)
