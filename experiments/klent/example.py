"""A game of a trained agent as a picture that moves; pgx draws it."""

import jax

from experiments.klent import evaluate, games, players, tournament
from lib.train import app

FILE = 'game.svg'
_SECONDS = 0.7  # a move


def record(run: app.Run, game: games.Game, name: str, opponent: str) -> str:
  """Draws a game of a method's first seed against a known player in WORKDIR/figures.

  Returns:
    A caption.
  """
  sides = (evaluate.agents(run.config, game, name), players.known(game, opponent))
  own = tournament.of_seed(tournament.variables(run, name), 0)
  variables = own, players.variables(game, opponent)
  states = play(game, sides, variables, jax.random.key(run.config.eval.seed))
  path = run.workdir / 'figures' / FILE
  path.parent.mkdir(parents=True, exist_ok=True)
  import pgx  # here, as in `games`

  pgx.save_svg_animation(states, path, frame_duration_seconds=_SECONDS)
  reward = float(states[-1].rewards[int(states[0].current_player)])
  result = 'wins' if reward > 0 else 'loses' if reward < 0 else 'draws'
  return (
    f'A game of {len(states) - 1} moves: {name}, seed {run.config.seed}, begins against '
    f'{opponent}, and {result}.'
  )


def play(
  game: games.Game,
  sides: tuple[players.Player, players.Player],
  variables: tuple,
  key: jax.Array,
) -> list:
  """Plays one game; returns its states, from the first to the last."""
  begin, step, acts = jax.jit(game.env.init), jax.jit(game.env.step), [*map(jax.jit, sides)]
  key, own = jax.random.split(key)
  states = [begin(own)]
  while not (states[-1].terminated or states[-1].truncated) and len(states) <= game.max_moves:
    key, own = jax.random.split(key)
    turn = (len(states) - 1) % 2
    alone = jax.tree.map(lambda x: x[None], states[-1])
    states.append(step(states[-1], acts[turn](variables[turn], own, alone)[0]))
  return states
