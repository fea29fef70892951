"""The methods on one game, under the same number of simulator steps, and a round robin.

  python -m experiments.klent.main --config=configs/klent/table.py:connect_four

Likewise othello, hex, animal_shogi. None has been run to the end yet.
"""

import ml_collections

from configs.klent import quick

BUDGETS = {  # simulator steps of a seed, those of searches included
  'connect_four': 2_000_000,
  'othello': 2_000_000,
  'hex': 1_000_000,
  'animal_shogi': 1_000_000,
}
# Windows as long as a search's cost allows, and as many games as fill its batches.
SEARCHED = {'play': {'games': 128, 'moves': 32}, 'optimizer': {'batch_size': 256}}


def get_config(game: str = 'connect_four') -> ml_collections.ConfigDict:
  """KLENT, its ablations and the baselines on a game of BUDGETS."""
  if game not in BUDGETS:
    raise ValueError(f'no table of {game!r}: {", ".join(BUDGETS)}')
  config = quick.get_config()
  config.game = game
  config.evaluations = BUDGETS[game]
  config.at_least = ()
  config.agent.replay = 10_000 if game == 'animal_shogi' else 50_000  # its positions are large
  config.methods = (
    'klent', 'no_kl', 'no_entropy', 'one_step', 'monte_carlo',
    'ppo', 'dqn', 'gumbel', 'puct', 'grill',
  )  # fmt: skip
  config.variants = {
    'no_kl': {'method': 'klent', 'agent': {'beta': 0.0}},
    'no_entropy': {'method': 'klent', 'agent': {'alpha': 0.0}},
    'one_step': {'method': 'klent', 'agent': {'lambda_': 0.0}},
    'monte_carlo': {'method': 'klent', 'agent': {'lambda_': 1.0}},
    'gumbel': {'method': 'gumbel_alphazero', **SEARCHED},
    'puct': {'method': 'alphazero', **SEARCHED},
    'grill': {'method': 'regularized_alphazero', **SEARCHED},
  }
  config.claims = tuple(('klent', other, 'elo', 0.0) for other in config.methods[1:])
  config.eval.opponents = {'random': 256, 'mcts_32': 64}
  config.tournament.games = 64
  return config
