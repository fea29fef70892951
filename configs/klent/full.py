"""The paper's scale: Ota et al. (2026), by the authors' public code.

  python -m experiments.klent.main --config=configs/klent/full.py:go_9x9

An accelerator is needed; not run. The paper's opponent is pgx's own network: README.md says how to
convert it for `config.eval.pgx_model`.
"""

import ml_collections

from configs.klent import quick

BUDGETS = {  # simulator steps of the paper's figures
  'animal_shogi': 400_000_000,
  'gardner_chess': 400_000_000,
  'go_9x9': 800_000_000,
  'hex': 800_000_000,
  'othello': 800_000_000,
}


def get_config(game: str = 'othello') -> ml_collections.ConfigDict:
  """A residual network of 6 blocks and 128 channels on a game of BUDGETS."""
  if game not in BUDGETS:
    raise ValueError(f'no budget for {game!r}: {", ".join(BUDGETS)}')
  config = quick.get_config()
  config.game = game
  config.num_seeds = 1
  config.evaluations = BUDGETS[game]
  config.scores = 20
  config.at_least = ()
  config.binary_observations = True
  config.variants = {
    'gumbel_alphazero_32': {
      'method': 'gumbel_alphazero',
      'agent': {'simulations': 32},
      'play': {'moves': 256},
    },
  }
  config.methods = ('klent', 'gumbel_alphazero_32')
  config.agent.alpha = 0.03
  config.agent.beta = 0.1
  config.agent.bootstrap = False
  config.play.games = 1024
  config.play.moves = 2048
  config.play.carry = False
  config.network.kind = 'resnet'
  config.network.channels = 128
  config.network.blocks = 6
  config.optimizer.batch_size = 4096
  config.eval.opponents = {'random': 256, 'mcts_32': 256}
  config.tournament.games = 256
  return config
