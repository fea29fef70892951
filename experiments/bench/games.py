"""The cases of self-play: simulator, network, search and fitting alone, and the whole loop.

What they run is in `plays`, which needs pgx and mctx and is imported where a case is built: the
other cases run without.
"""

import functools
from collections.abc import Callable

import jax
import ml_collections

from experiments.bench.case import Case
from lib.io import fields
from lib.train import devices

PARTS = ('random', 'forward', 'network', 'search', 'fit', 'klent', 'alphazero', 'gumbel_alphazero')
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
  return fields.vary(config.selfplay, ml_collections.ConfigDict(changes))


def build(part: str, sizes: ml_collections.ConfigDict) -> Case:
  """Builds a case, whose unit is a step that moves a game on.

  Args:
    part: of PARTS.
    sizes: what KLENT's experiment reads to make a game and a method, and `num_seeds`.

  Returns:
    A function of (states, keys, data), the first two with a leading axis of seeds, that plays or
    fits `play.moves` moves of each of `play.games` games. It counts as `evaluations` all steps of
    the simulator for which a network is asked, those of searches included.
  """
  from experiments.bench import plays
  from experiments.klent import games

  game = games.make(sizes.game, sizes.binary_observations)
  fn, init, data, work, evaluations = plays.PARTS[part](game, sizes)
  seeds, steps = sizes.num_seeds, sizes.play.games * sizes.play.moves
  keys = jax.random.split(jax.random.key(0), (2, seeds))
  mesh = devices.mesh(seeds)
  states, keys = devices.place((jax.jit(jax.vmap(init))(keys[0]), keys[1]), mesh, 'seed')
  args = states, keys, devices.place(data, mesh)
  work, counts = work and work * seeds, evaluations and {'evaluations': float(evaluations)}
  return Case(jax.vmap(fn, (0, 0, None)), args, steps, seeds, 'step', work, counts=counts)


def _default(part: str, config: ml_collections.ConfigDict) -> Case:
  return build(part, config.selfplay)


CASES: dict[str, Callable[[ml_collections.ConfigDict], Case]] = {
  f'selfplay_{part}': functools.partial(_default, part) for part in PARTS
}


def _check_sizes(sizes: ml_collections.ConfigDict, used: bool) -> None:
  fields.check_ranges(fields.flatten(sizes), POSITIVE)
  kind, widths = sizes.network.kind, sizes.network.hidden
  fields.check_choice('network.kind', kind, ('mlp', 'resnet'))
  fields.require('network.hidden', widths, all(n > 0 for n in widths), 'positive')
  batch, moves = sizes.optimizer.batch_size, sizes.play.games * sizes.play.moves
  fields.require('optimizer.batch_size', batch, batch <= moves, f'at most the {moves} moves played')
  if used:
    from experiments.klent import games

    fields.check_choice('game', sizes.game, games.MAX_MOVES)
