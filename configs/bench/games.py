r"""Speed of self-play: simulator, network, search, fitting and the loop, with AlphaZero beside.

  pip install -r experiments/klent/requirements.txt
  python -m experiments.bench.main --config=configs/bench/games.py
  python -m experiments.bench.main --config=configs/bench/games.py --config.cpu_devices=2 \
    --config.cases="('connect_four_klent_2_seeds',)" --config.ratios="()" \
    --workdir=runs/bench/games-2

'random', 'network' and 'search' play, 'forward' and 'fit' are the network without a game; 'klent'
and 'gumbel_alphazero' play and fit. A case plays 32 moves of 256 games by a perceptron of 256x256,
'resnet' 16 moves of 64 games by 2 blocks of 32 channels, and a search has 16 simulations a move.
The work of what plays is the network's alone: the share of the matrix product's rate is that of the
time for which the network would be enough. Random moves have no network, and their work is steps.
"""

import ml_collections

from configs.bench import quick

PARTS = ('random', 'forward', 'network', 'search', 'fit', 'klent', 'gumbel_alphazero')
SETTINGS = {
  'connect_four': {'game': 'connect_four'},
  'othello': {'game': 'othello'},
  'othello_resnet': {
    'game': 'othello', 'network': {'kind': 'resnet', 'channels': 32, 'blocks': 2},
    'play': {'games': 64, 'moves': 16},
  },
}  # fmt: skip


def get_config() -> ml_collections.ConfigDict:
  """Cases by game and network, then more or fewer games at once, then seeds."""
  config = quick.get_config()
  config.selfplay.optimizer.batch_size = 512
  plays, ratios = {}, []
  for setting, changes in SETTINGS.items():
    for part in PARTS[1:] if setting == 'othello_resnet' else PARTS:
      plays[f'{setting}_{part}'] = {'part': part, **changes}
      if part != 'klent':
        ratios.append((f'{setting}_{part}', f'{setting}_klent'))
  for setting in ('connect_four', 'othello'):
    for part in ('random', 'klent'):
      for games in (64, 1024):
        name = f'{setting}_{part}_{games}_games'
        plays[name] = {'part': part, **SETTINGS[setting], 'play': {'games': games}}
        ratios.append((name, f'{setting}_{part}'))
  plays['connect_four_klent_2_seeds'] = {'part': 'klent', 'num_seeds': 2}
  ratios.append(('connect_four_klent_2_seeds', 'connect_four_klent'))
  config.plays = plays
  config.cases = tuple(plays)
  config.ratios = tuple(ratios)
  config.rounds = 5
  return config
