"""Seven tries for each method on connect four, on seeds and games that no table uses.

  python -m experiments.klent.main --config=configs/klent/tune.py:METHOD

METHOD is klent, ppo, dqn, gumbel, puct or grill. `table.py` takes from it, for every game, what
scores best against `mcts_32`.
"""

import ml_collections

from configs.klent import quick

SEARCHED = {'play': {'games': 128, 'moves': 32}, 'optimizer': {'batch_size': 256}}
FIRST = {
  'gumbel': {'method': 'gumbel_alphazero', **SEARCHED},
  'puct': {'method': 'alphazero', **SEARCHED},
  'grill': {'method': 'regularized_alphazero', **SEARCHED},
}
RATE = {'optimizer': {'learning_rate': 3e-4}}
TRIES = {  # by method, what differs from the first try
  'klent': {
    'alpha_01': {'agent': {'alpha': 0.1}},
    'alpha_02': {'agent': {'alpha': 0.2}},
    'alpha_03': {'agent': {'alpha': 0.3}},
    'slower': {'agent': {'alpha': 0.1, 'beta': 0.3}},
    'bootstrap': {'agent': {'alpha': 0.1, 'bootstrap': True}},
    'rate': {'agent': {'alpha': 0.1}} | RATE,
  },
  'ppo': {
    'bonus_003': {'agent': {'entropy_bonus': 0.03}},
    'bonus_01': {'agent': {'entropy_bonus': 0.1}},
    'long_traces': {'agent': {'gae_lambda': 0.99}},
    'short_traces': {'agent': {'gae_lambda': 0.88}},
    'one_epoch': {'agent': {'epochs': 1}},
    'rate': RATE,
  },
  'dqn': {
    'explores': {'agent': {'last_epsilon': 0.15}},
    'explores_long': {'agent': {'exploration_fraction': 0.8}},
    'more_updates': {'agent': {'replay_ratio': 4}},
    'fast_target': {'agent': {'target_rate': 0.05}},
    'small_batches': {'optimizer': {'batch_size': 256}},
    'rate': RATE,
  },
  'gumbel': {
    'simulations_8': {'agent': {'simulations': 8}},
    'simulations_32': {'agent': {'simulations': 32}},
    'long': {'play': {'moves': 64}},
    'fewer_games': {'play': {'games': 64}},
    'small_batches': {'optimizer': {'batch_size': 128}},
    'rate': RATE,
  },
  'puct': {
    'simulations_8': {'agent': {'simulations': 8}},
    'simulations_32': {'agent': {'simulations': 32}},
    'less_noise': {'agent': {'dirichlet_fraction': 0.1}},
    'broad_noise': {'agent': {'dirichlet_alpha': 1.0}},
    'small_batches': {'optimizer': {'batch_size': 128}},
    'rate': RATE,
  },
  'grill': {
    'simulations_8': {'agent': {'simulations': 8}},
    'simulations_32': {'agent': {'simulations': 32}},
    'near_values': {'agent': {'search_weight': 0.5}},
    'near_priors': {'agent': {'search_weight': 2.5}},
    'small_batches': {'optimizer': {'batch_size': 128}},
    'rate': RATE,
  },
}


def get_config(method: str = 'klent') -> ml_collections.ConfigDict:
  """A method of the table as it was first set, and six changes of that."""
  if method not in TRIES:
    raise ValueError(f'no tries of {method!r}: {", ".join(TRIES)}')
  config = quick.get_config()
  config.seed, config.num_seeds = 100, 2
  config.evaluations = 2_000_000
  config.scores = 2
  config.at_least = ()
  config.agent.replay = 50_000
  first = FIRST.get(method, {'method': method})
  config.variants = {
    f'{method}_{name}': first
    | {part: first.get(part, {}) | fields for part, fields in changes.items()}
    for name, changes in TRIES[method].items()
  }
  if method in FIRST:
    config.variants[method] = first
  config.methods = (method, *(f'{method}_{name}' for name in TRIES[method]))
  config.eval.opponents = {'random': 128, 'mcts_32': 256}
  config.eval.seed = 1
  return config
