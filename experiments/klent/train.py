"""From a config to a report: self-play and learning of each method in turn, matches, comparison."""

import contextlib
import math

import jax
import jax.numpy as jnp
import ml_collections

from experiments.klent import (
  checks,
  evaluate,
  games,
  methods,
  pgx_models,
  records,
  report,
  theory,
  tournament,
)
from lib.train import app, checkpoint, console, devices, loop, metrics


def prepare(config: ml_collections.ConfigDict) -> games.Game | None:
  """Checks the config, and that every method suits the game; None for matrix games."""
  if config.game == checks.MATRICES:
    theory.check(config)
    return None
  checks.check(config)
  game = with_model(games.make(config.game, config.binary_observations), config.eval.pgx_model)
  for name in config.methods:
    methods.make(config, name, game)
  return game


def with_model(game: games.Game, path: str | None) -> games.Game:
  """The game with pgx's network, if a path is given; a ValueError says what is wrong with it."""
  if not path:
    return game
  try:
    return game._replace(model=pgx_models.of_game(path, game.shape, game.num_actions))
  except (ValueError, OSError) as error:
    raise ValueError(f'config.eval.pgx_model: {error}') from error


def train(run: app.Run, game: games.Game | None) -> None:
  """Trains and examines every method under one budget, lets them meet, then writes the report."""
  if game is None:
    theory.study(run)
    return
  config = run.config
  console.say(
    f'game: {config.game}, {game.num_actions} actions, positions of {game.shape}; '
    f'{config.evaluations:,} simulator steps a seed'
  )
  for name in config.methods:
    if config.eval_only or not records.is_finished(run, game, name):
      train_method(run, name, game)
  if jax.process_index() == 0:
    table = tournament.play(run, game) if config.tournament.games else None
    report.write(run, game, table)


def train_method(run: app.Run, name: str, game: games.Game) -> None:
  """Trains one method, all seeds at once, in WORKDIR/NAME, and examines it along the way."""
  config, workdir = run.config, run.workdir / name
  method = methods.make(config, name, game)
  iterations = methods.iterations(config, method)
  chunk = math.ceil(iterations / (config.scores * config.chunks_per_score))
  due = chunk * config.chunks_per_score
  keys = jax.vmap(jax.random.key)(jnp.arange(config.seed, config.seed + config.num_seeds))
  init_keys, train_keys = jax.vmap(jax.random.split, out_axes=1)(keys)
  state = jax.jit(jax.vmap(method.init))(init_keys)
  checkpoints = checkpoint.Checkpoints(workdir)
  examine = evaluate.Examiner(config, game, name)
  with metrics.Writer(workdir) as writer:
    if config.eval_only:
      if (found := checkpoints.restore(state)) is None or found[0] < iterations:
        raise checkpoint.CheckpointError(f'{workdir}: not trained to the end')
      writer.write(iterations, 'eval', **examine(devices.gather(found[1].variables), iterations))
      return
    trained = loop.chunks(
      lambda state, batch, key: method.update(state, key),
      lambda data, key: (),
      (),
      state,
      train_keys,
      num_steps=iterations,
      chunk_steps=chunk,
      writer=writer,
      checkpoints=checkpoints,
      checkpoint_every=chunk,
    )
    with contextlib.closing(trained):
      for done, state in trained:
        if done % due == 0 or done == iterations:
          variables = devices.gather(state.variables)
          if jax.process_index() == 0:
            writer.write(done, 'eval', **examine(variables, done))
