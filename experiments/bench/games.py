"""The cases of self-play: simulator, network, search and fitting alone, and the whole loop.

Their unit is a step that moves a game on; with those of searches, steps are `evaluations`. pgx and
mctx are imported where a case needs them: the other cases run without.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections

from experiments.bench import yardsticks
from experiments.bench.case import Case
from lib.games import losses, selfplay
from lib.io import fields
from lib.train import app, devices

LOOPS = ('klent', 'alphazero', 'gumbel_alphazero')
POSITIVE = (
  'num_seeds', 'play.games', 'play.moves', 'network.channels', 'network.blocks',
  'agent.simulations', 'optimizer.learning_rate', 'optimizer.batch_size',
)  # fmt: skip


def check(config: ml_collections.ConfigDict) -> None:
  """Raises a ValueError that names the first bad section, `config.selfplay` or of `.plays`."""
  section = 'selfplay'
  try:
    _check_sizes(config.selfplay, used(config))
    for name, changes in config.plays.items():
      section = f'plays.{name}'
      fields.check_choice('part', changes.get('part'), PARTS)
      _check_sizes(sizes_of(config, name), used(config))
  except (KeyError, TypeError, ValueError) as error:
    raise ValueError(f'config.{section}: {error}') from error


def used(config: ml_collections.ConfigDict) -> bool:
  """Whether a case needs pgx and mctx."""
  return not {*CASES, *config.plays}.isdisjoint(config.cases)


def sizes_of(config: ml_collections.ConfigDict, name: str) -> ml_collections.ConfigDict:
  """The sizes of one of `config.plays`: those of `config.selfplay` with its changes."""
  changes = {field: x for field, x in config.plays[name].to_dict().items() if field != 'part'}
  return app.vary(config.selfplay, ml_collections.ConfigDict(changes))


def build(part: str, sizes: ml_collections.ConfigDict) -> Case:
  """Builds a case.

  Args:
    part: of PARTS.
    sizes: what KLENT's experiment reads to make a game and a method, and `num_seeds`.

  Returns:
    A function of (states, keys, data), the first two with a leading axis of seeds. It plays or fits
    `play.moves` moves of each of `play.games` games. The work of what plays is the network's alone,
    by random moves it is counted in steps.
  """
  from experiments.klent import games

  game = games.make(sizes.game, sizes.binary_observations)
  fn, init, data, work, evaluations = PARTS[part](game, sizes)
  keys = jax.random.split(jax.random.key(0), (2, sizes.num_seeds))
  mesh = devices.mesh(sizes.num_seeds)
  states, keys = devices.place((jax.jit(jax.vmap(init))(keys[0]), keys[1]), mesh, 'seed')
  args = states, keys, devices.place(data, mesh)
  steps, seeds = sizes.play.games * sizes.play.moves, sizes.num_seeds
  work, counts = work and work * seeds, evaluations and {'evaluations': float(evaluations)}
  return Case(jax.vmap(fn, (0, 0, None)), args, steps, seeds, 'step', work, counts=counts)


def _loop(name: str, game: Any, sizes: ml_collections.ConfigDict):
  method, forward, descent = _method(name, game, sizes)
  work = method.evaluations * forward + sizes.play.games * sizes.play.moves * descent
  update = lambda state, key, _: method.update(state, key)
  return update, method.init, (), work, method.evaluations


def _random(game: Any, sizes: ml_collections.ConfigDict):
  policy = lambda key, states: (selfplay.random_actions(key, states), ())
  play = lambda states, key, _: selfplay.collect(game.env, policy, states, key, sizes.play.moves)
  init = lambda key: selfplay.first_states(game.env, key, sizes.play.games)
  return play, init, (), float(sizes.play.games * sizes.play.moves), None


def _played(name: str, game: Any, sizes: ml_collections.ConfigDict):
  method, forward, _ = _method(name, game, sizes)

  def policy(variables, key, states):
    if name == 'klent':
      preferences, value = method.evaluate(variables, states)
      return jax.random.categorical(key, preferences), value
    from lib.games import search

    prior = lambda variables, key, states: method.evaluate(variables, states)
    args = variables, key, states, sizes.agent.simulations
    found = search.gumbel_alphazero(game.env, prior, *args)
    return found.action, found.action_weights

  def play(state, key, _):
    move = functools.partial(policy, state.variables)
    return selfplay.collect(game.env, move, state.games, key, sizes.play.moves)

  return play, method.init, (), method.evaluations * forward, method.evaluations


def _forward(game: Any, sizes: ml_collections.ConfigDict):
  parts, observations = _learner(game, sizes)
  batches = observations.reshape(sizes.play.moves, sizes.play.games, *game.shape)
  apply = lambda state, _, x: jax.lax.map(lambda x: parts.network.apply(state.variables, x), x)
  return apply, parts.init, batches, None, None


def _fit(game: Any, sizes: ml_collections.ConfigDict):
  from experiments.klent.methods import learner

  parts, observations = _learner(game, sizes)
  count, actions = len(observations), game.num_actions
  samples = {'observation': observations, 'policy': jnp.full((count, actions), 1 / actions)}
  samples |= {'action': jnp.zeros(count, jnp.int32), 'target': jnp.zeros(count)}

  def loss(outputs, batch):  # KLENT's, where each move has a target
    errors = losses.action_value_errors(outputs[1], batch['action'], batch['target'])
    return jnp.mean(losses.cross_entropy(outputs[0], batch['policy']) + errors), {}

  fit = lambda state, key, x: learner.fit(parts, loss, state, x, key, sizes.optimizer)
  return fit, parts.init, samples, None, None


# Each returns `fn(state, key, data)` and `init(key)` of a seed, data, and a seed's work (None: XLA
# counts it) and evaluations. The first are parts of the loops, which are iterations of a method.
PARTS: dict[str, Callable[[Any, ml_collections.ConfigDict], tuple]] = {
  'random': _random, 'forward': _forward, 'fit': _fit,
  'network': functools.partial(_played, 'klent'),
  'search': functools.partial(_played, 'gumbel_alphazero'),
  **{name: functools.partial(_loop, name) for name in LOOPS},
}  # fmt: skip
# Of `config.selfplay` as it is.
CASES: dict[str, Callable[[ml_collections.ConfigDict], Case]] = {
  f'selfplay_{part}': lambda config, part=part: build(part, config.selfplay) for part in PARTS
}


def _method(name: str, game: Any, sizes: ml_collections.ConfigDict) -> tuple[Any, float, float]:
  """A method, and operations of its network on a position and of the gradient there."""
  from experiments.klent import methods

  method = methods.make(sizes, name, game)
  state = jax.eval_shape(method.init, jax.random.key(0))
  total = lambda *args: sum(jnp.sum(x) for x in method.evaluate(*args))
  fns, count = (method.evaluate, jax.grad(total)), sizes.play.games
  return method, *(yardsticks.flops(fn, state.variables, state.games) / count for fn in fns)


def _learner(game: Any, sizes: ml_collections.ConfigDict) -> tuple[Any, jax.Array]:
  """KLENT's network and optimiser, and an observation for each move, at random."""
  from experiments.klent.methods import learner

  problem = learner.Problem(
    game.env, game.shape, game.observe, game.num_actions, sizes.evaluations,
    sizes.play, sizes.network, sizes.optimizer, sizes.agent,
  )  # fmt: skip
  shape = sizes.play.games * sizes.play.moves, *game.shape
  return learner.make(problem, ('policy', 'q')), jax.random.bernoulli(jax.random.key(1), 0.3, shape)


def _check_sizes(sizes: ml_collections.ConfigDict, used: bool) -> None:
  fields.check_ranges(fields.flatten(sizes), POSITIVE)
  fields.check_choice('network.kind', sizes.network.kind, ('mlp', 'resnet'))
  batch, moves = sizes.optimizer.batch_size, sizes.play.games * sizes.play.moves
  fields.require('optimizer.batch_size', batch, batch <= moves, f'at most the {moves} moves played')
  if used:
    from experiments.klent import games

    fields.check_choice('game', sizes.game, games.MAX_MOVES)
    _learner(games.make(sizes.game, sizes.binary_observations), sizes)
