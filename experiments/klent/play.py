"""A person plays a trained agent in the terminal.

  python -m experiments.klent.play --workdir=runs/klent/quick [--method=klent] [--seed=0] [--second]

The board is drawn in the terminal, and as WORKDIR/play.svg after each move.
"""

import pathlib
import sys

import jax
import pgx
from absl import app, flags, logging

from experiments.klent import boards, evaluate, games, tournament
from lib.train import checkpoint

_WORKDIR = flags.DEFINE_string('workdir', None, 'Of a run, maybe unfinished.', required=True)
_METHOD = flags.DEFINE_string('method', None, 'One of the run; the first by default.')
_SEED = flags.DEFINE_integer('seed', 0, 'Which of the seeds of the run, from 0.')
_SECOND = flags.DEFINE_bool('second', False, 'The agent begins.')
_GAME_SEED = flags.DEFINE_integer('game_seed', 0, 'Of chance, where the agent searches.')


def main(argv):
  del argv
  logging.set_verbosity(logging.WARNING)  # a checkpoint's reader says a lot
  try:
    config, game, act = load(_WORKDIR.value, _METHOD.value, _SEED.value)
  except (ValueError, OSError) as error:
    print(f'error: {error}', file=sys.stderr)
    sys.exit(2)
  picture = pathlib.Path(_WORKDIR.value, 'play.svg')
  try:
    play(config.game, game, act, not _SECOND.value, jax.random.key(_GAME_SEED.value), picture)
  except (EOFError, KeyboardInterrupt):
    print('\nStopped.')


def load(workdir: str, method: str | None, seed: int):
  """Returns the run's config, its game and `act(key, state) -> action` of one seed's agent.

  Raises a ValueError or an OSError that names what is missing.
  """
  directory = pathlib.Path(workdir)
  trained = sorted(p.parent.name for p in directory.glob('*/checkpoints'))
  if not trained:
    raise ValueError(f'{workdir}: no trained method there')
  if method is None:
    method = 'klent' if 'klent' in trained else trained[0]
  if method not in trained:
    raise ValueError(f'--method must be one of {", ".join(trained)}, got {method!r}')
  config, state = checkpoint.restore(directory / method)
  if not 0 <= seed < config.num_seeds:
    raise ValueError(f'--seed must be from 0 to {config.num_seeds - 1}, got {seed}')
  game = games.make(config.game, config.binary_observations)
  player = jax.jit(evaluate.agents(config, game, method))
  own = tournament.of_seed(state['variables'], seed)

  def act(key, state):
    return int(player(own, key, jax.tree.map(lambda x: x[None], state))[0])

  return config, game, act


def play(name: str, game: games.Game, act, begins: bool, key: jax.Array, picture: pathlib.Path):
  """Plays one game; `begins` says whether the person does. Ends where the input does."""
  step = jax.jit(game.env.step)
  key, own = jax.random.split(key)
  state = jax.jit(game.env.init)(own)
  first = int(state.current_player)
  person = first if begins else 1 - first
  side = 'capital letters' if name in boards.PIECES else boards.STONES[0]
  other = 'small letters' if name in boards.PIECES else boards.STONES[1]
  print(f'{name}: you have {side if begins else other}. The board is also in {picture}.')
  while True:
    pgx.save_svg(state, picture)
    over = bool(state.terminated | state.truncated)
    mine = int(state.current_player) == person
    if mine or over:
      print('\n' + boards.draw(name, state, int(state.current_player) != first) + '\n')
    if over:
      break
    if mine:
      action = ask(boards.moves(name, state, step))
    else:
      key, own = jax.random.split(key)
      action = act(own, state)
      print(f'The agent plays {boards.moves(name, state, step)[action]}.')
    state = step(state, action)
  reward = float(state.rewards[person])
  print('You win.' if reward > 0 else 'You lose.' if reward < 0 else 'A draw.')


def ask(moves: dict[int, str]) -> int:
  """Asks for one of the moves by its name and returns its number; EOFError at the end."""
  numbers = {name: number for number, name in moves.items()}
  while True:
    answer = input('Your move (? lists them, q ends): ').strip().lower()
    if answer in numbers:
      return numbers[answer]
    if answer == 'q':
      raise EOFError
    if answer not in ('', '?'):
      print(f'Not a move now: {answer}')
    print('Moves: ' + ' '.join(numbers))


if __name__ == '__main__':
  app.run(main)
