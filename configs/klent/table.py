"""The methods on one game, under the same number of simulator steps, and a round robin.

  python -m experiments.klent.main --config=configs/klent/table.py:connect_four

Likewise othello, hex, animal_shogi; and othello_remedies, KLENT with other coefficients. What each
method's settings are was tried on connect four by `tune.py`, as often for one as for the other, and
is kept for the other games.
"""

import ml_collections

from configs.klent import quick, tune
from lib.io import fields

BEST = {  # of `tune.TRIES`
  'klent': 'slow_02',
  'ppo': 'bonus_03',
  'dqn': 'more_explores',
  'gumbel': 'raw_values',
  'puct': 'small_batches',
  'grill': 'simulations_8',
}
# Simulator steps of a seed, those of searches included; seeds; games of a pair and seed; players
# that do not learn, as strong as the simulator's speed allows; the first has Elo 0.
GAMES = {
  'connect_four': (2_000_000, 5, 64, ('mcts_32', 'random', 'one_ply', 'mcts_128')),
  'othello': (2_000_000, 3, 32, ('mcts_8', 'random', 'one_ply', 'mcts_32')),
  'hex': (1_000_000, 3, 32, ('mcts_8', 'random', 'one_ply', 'mcts_32')),
  'animal_shogi': (500_000, 3, 32, ('mcts_8', 'random', 'one_ply')),
}
# Transitions that DQN keeps: what fits into memory, for positions differ in size.
REPLAY = {'connect_four': 50_000, 'othello': 50_000, 'hex': 50_000, 'animal_shogi': 20_000}
ABLATIONS = {
  'no_kl': {'agent': {'beta': 0.0}},
  'no_entropy': {'agent': {'alpha': 0.0}},
  'one_step': {'agent': {'lambda_': 0.0}},
  'monte_carlo': {'agent': {'lambda_': 1.0}},
}
REMEDIES = {
  'paper': {'agent': {'alpha': 0.03, 'beta': 0.1}},
  'alpha_005': {'agent': {'alpha': 0.05}},
  'small_batches': {'agent': {'alpha': 0.05}, 'optimizer': {'batch_size': 256}},
}
BASELINES = ('ppo', 'dqn', 'gumbel', 'puct', 'grill')


def get_config(game: str = 'connect_four') -> ml_collections.ConfigDict:
  """KLENT, its ablations and the baselines on a game of GAMES; or only KLENT, with REMEDIES."""
  remedies, game = game.endswith('_remedies'), game.removesuffix('_remedies')
  if game not in GAMES:
    raise ValueError(f'no table of {game!r}: {", ".join(GAMES)}')
  config = quick.get_config()
  config.game = game
  config.evaluations, config.num_seeds, config.tournament.games, known = GAMES[game]
  config.tournament.known = known
  config.eval.opponents = {'random': 128, known[0]: 32}
  config.at_least = ()
  config.agent.replay = REPLAY[game]
  chosen = {method: tune.tried(method, BEST[method]) for method in ('klent', *BASELINES)}
  changes = REMEDIES if remedies else ABLATIONS
  changed = {name: fields.merged(chosen['klent'], new) for name, new in changes.items()}
  config.variants = chosen | changed
  if remedies:
    config.methods = ('klent', *REMEDIES)
    config.claims = tuple((name, 'klent', 'elo', 0.0) for name in REMEDIES)
    return config
  ablated = ABLATIONS if game == 'connect_four' else ('no_kl', 'no_entropy')
  config.methods = ('klent', *ablated, *BASELINES)
  config.claims = tuple(('klent', other, 'elo', 0.0) for other in config.methods[1:])
  return config
