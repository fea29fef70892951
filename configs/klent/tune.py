"""Ten tries for each method on connect four, on seeds and games that no table uses.

  python -m experiments.klent.main --config=configs/klent/tune.py:METHOD

METHOD is klent, ppo, dqn, gumbel, puct or grill. `table.py` takes from it, for every game, what
scores best against `mcts_32`.
"""

import ml_collections

from configs.klent import quick
from lib.io import fields

SEARCHED = {'play': {'games': 128, 'moves': 32}, 'optimizer': {'batch_size': 256}}
FIRST = {
  'klent': {'method': 'klent', 'agent': {'alpha': 0.03, 'beta': 0.1, 'bootstrap': False}},
  'ppo': {'method': 'ppo'},
  'dqn': {'method': 'dqn', 'play': {'moves': 16}},
  'gumbel': {'method': 'gumbel_alphazero', **SEARCHED},
  'puct': {'method': 'alphazero', **SEARCHED},
  'grill': {'method': 'regularized_alphazero', **SEARCHED},
}
RATE = {'optimizer': {'learning_rate': 3e-4}}
FEWER_GAMES = {'play': {'games': 32, 'moves': 128}}
SEARCH_TRIES = {
  'simulations_8': {'agent': {'simulations': 8}},
  'simulations_32': {'agent': {'simulations': 32}},
  'small_batches': {'optimizer': {'batch_size': 128}},
  'small_batches_8': {'optimizer': {'batch_size': 128}, 'agent': {'simulations': 8}},
  'fewer_games': FEWER_GAMES,
  'no_bootstrap': {'agent': {'bootstrap': False}},
  'rate': RATE,
}
TRIES = {  # by method, what differs from the first try
  'klent': {
    'alpha_01': {'agent': {'alpha': 0.1}},
    'alpha_02': {'agent': {'alpha': 0.2}},
    'alpha_03': {'agent': {'alpha': 0.3}},
    'slow_01': {'agent': {'alpha': 0.1, 'beta': 0.3}},
    'slow_02': {'agent': {'alpha': 0.2, 'beta': 0.3, 'bootstrap': True}},
    'bootstrap_01': {'agent': {'alpha': 0.1, 'bootstrap': True}},
    'bootstrap_02': {'agent': {'alpha': 0.2, 'bootstrap': True}},
    'bootstrap_03': {'agent': {'alpha': 0.3, 'bootstrap': True}},
    'rate_01': {'agent': {'alpha': 0.1}} | RATE,
  },
  'ppo': {
    'bonus_003': {'agent': {'entropy_bonus': 0.03}},
    'bonus_01': {'agent': {'entropy_bonus': 0.1}},
    'bonus_03': {'agent': {'entropy_bonus': 0.3}},
    'long_traces': {'agent': {'gae_lambda': 0.99}},
    'short_traces': {'agent': {'gae_lambda': 0.88}},
    'short_traces_003': {'agent': {'gae_lambda': 0.88, 'entropy_bonus': 0.03}},
    'one_epoch': {'agent': {'epochs': 1}},
    'six_epochs': {'agent': {'epochs': 6}},
    'rate': RATE,
  },
  'dqn': {
    'explores': {'agent': {'last_epsilon': 0.15}},
    'explores_long': {'agent': {'exploration_fraction': 0.8}},
    'more_updates': {'agent': {'replay_ratio': 4}},
    'more_explores': {'agent': {'replay_ratio': 4, 'last_epsilon': 0.15}},
    'fast_target': {'agent': {'target_rate': 0.05}},
    'small_batches': {'optimizer': {'batch_size': 256}},
    'remembers': {'agent': {'replay': 200_000}},
    'long': {'play': {'moves': 128}},
    'rate': RATE,
  },
  'gumbel': SEARCH_TRIES
  | {
    'raw_values': {'agent': {'rescale_values': False}},
    'fast': {'optimizer': {'learning_rate': 3e-3}},
  },
  'puct': SEARCH_TRIES
  | {
    'less_noise': {'agent': {'dirichlet_fraction': 0.1}},
    'broad_noise': {'agent': {'dirichlet_alpha': 1.0}},
  },
  'grill': SEARCH_TRIES
  | {
    'near_values': {'agent': {'search_weight': 0.5}},
    'near_priors': {'agent': {'search_weight': 2.5}},
  },
}


def tried(method: str, name: str | None) -> dict:
  """One try of a method as a variant; its first settings where `name` is None."""
  return fields.merged(FIRST[method], TRIES[method][name] if name else {})


def get_config(method: str = 'klent') -> ml_collections.ConfigDict:
  """A method as it was first set, and nine changes of that."""
  if method not in TRIES:
    raise ValueError(f'no tries of {method!r}: {", ".join(TRIES)}')
  config = quick.get_config()
  config.seed, config.num_seeds = 100, 2
  config.evaluations = 2_000_000
  config.scores = 2
  config.at_least = ()
  config.agent.replay = 50_000
  config.variants = {f'{method}_{name}': tried(method, name) for name in TRIES[method]}
  config.variants[method] = FIRST[method]
  config.methods = (method, *(f'{method}_{name}' for name in TRIES[method]))
  config.eval.opponents = {'random': 128, 'mcts_32': 256}
  config.eval.seed = 1
  return config
