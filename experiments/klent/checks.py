"""What a config must satisfy before anything is compiled or written."""

import ml_collections

from experiments.klent import games, methods, players, report
from lib.io import fields
from lib.stats import bounds, claims

MATRICES = 'normal_form'  # config.game of the study of matrix games

POSITIVE = (
  'num_seeds', 'cpu_devices', 'evaluations', 'scores', 'chunks_per_score',
  'play.games', 'play.moves', 'optimizer.learning_rate', 'optimizer.batch_size',
  'network.channels', 'network.blocks',
  'agent.simulations', 'agent.clip', 'agent.epochs', 'agent.replay', 'agent.replay_ratio',
  'agent.exploration_fraction', 'agent.target_rate', 'agent.dirichlet_alpha', 'agent.search_weight',
)  # fmt: skip
NOT_NEGATIVE = (
  'seed', 'optimizer.clip', 'agent.alpha', 'agent.beta', 'agent.value_weight',
  'agent.entropy_bonus', 'eval.seed', 'eval.simulations', 'tournament.games',
  'tournament.opening_moves',
)  # fmt: skip
UNIT_INTERVAL = (
  'agent.lambda_', 'agent.gae_lambda', 'agent.first_epsilon', 'agent.last_epsilon',
  'agent.target_rate', 'agent.exploration_fraction', 'agent.dirichlet_fraction',
)  # fmt: skip
VARIED = ('play', 'network', 'optimizer', 'agent')


def check(config: ml_collections.ConfigDict) -> None:
  """Raises a ValueError in one line that names the first bad field and its value."""
  fields.check_choice('game', config.game, [*games.MAX_MOVES, MATRICES])
  known = fields.check_methods(config, methods.METHODS, VARIED)
  _check_values(config)
  fields.check_variants(config.variants, lambda name: _check_values(fields.varied(config, name)))
  _check_matches(config)
  claims.check(config.claims, known, report.better(config))
  bounds.check('at_least', config.at_least, known, report.better(config))


def _check_values(config) -> None:
  flat = fields.flatten(config)
  fields.check_ranges(flat, POSITIVE, NOT_NEGATIVE, UNIT_INTERVAL)
  fields.check_choice('network.kind', config.network.kind, ('mlp', 'resnet'))
  hidden = config.network.hidden
  fields.require(
    'network.hidden', hidden, all(isinstance(n, int) and n > 0 for n in hidden), 'of widths above 0'
  )
  total = config.agent.alpha + config.agent.beta
  fields.require('agent.alpha', config.agent.alpha, total > 0, 'above 0 where beta is 0')
  size, moves = config.optimizer.batch_size, config.play.games * config.play.moves
  fields.require('optimizer.batch_size', size, size <= moves, f'at most the {moves} moves played')
  fields.require('evaluations', config.evaluations, config.evaluations < 2**31, 'below 2³¹')
  fields.require('seed', config.seed, config.seed + config.num_seeds <= 2**31, 'below 2³¹')


def _check_matches(config) -> None:
  opponents = config.eval.opponents
  fields.require('eval.opponents', opponents, len(opponents) > 0, 'one player at least')
  for name, count in opponents.items():
    _check_player('eval.opponents', name)
    fields.require(f'eval.opponents.{name}', count, count > 0 and count % 2 == 0, 'even, above 0')
  for name in config.tournament.known:
    _check_player('tournament.known', name)
  count, known = config.tournament.games, config.tournament.known
  fields.require('tournament.games', count, count % 2 == 0, 'even')
  if count:
    fields.require('tournament.known', known, len(known) > 0, 'one player at least, of Elo 0')
    both = set(known) & set(opponents)
    fields.require('tournament.known', known, bool(both), 'one of eval.opponents at least')
  model, wanted = config.eval.pgx_model, players.PGX in (*opponents, *known)
  condition = f'the path of a network where {players.PGX!r} is a player, and nothing elsewhere'
  fields.require('eval.pgx_model', model, bool(model) == wanted, condition)


def _check_player(field: str, name: str) -> None:
  try:
    players.known(None, name)
  except ValueError as error:
    raise ValueError(f'config.{field}: {error}') from error
