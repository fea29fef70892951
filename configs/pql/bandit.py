"""The mechanism on a synthetic bandit: λ × time law on eight Gaussian modes, 5 seeds.

  python -m experiments.pql.main --config=configs/pql/bandit.py
  python -m experiments.pql.main --config=configs/pql/bandit.py --config.data.env=two_modes
"""

import ml_collections

from configs.pql import ogbench


def get_config() -> ml_collections.ConfigDict:
  config = ogbench.get_config()
  config.num_seeds = 5
  config.methods = ()
  config.variants = {
    f'{law}_{name}': {'method': 'pql', 'time': {'law': law}, 'pde': {'weight': weight}}
    for name, weight in (('0', 0.0), ('0.001', 1e-3), ('0.01', 1e-2), ('0.1', 1e-1))
    for law in ('uniform', 'beta')
  }
  config.data.source = 'bandit'
  config.data.env = 'eight_modes'
  config.data.episodes = 100_000
  config.steps = 6_000
  config.chunk_steps = 500
  config.checkpoint_every = 2_000
  config.eval_every = 6_000
  config.agent.hidden_dims = (128, 128)
  config.agent.learning_rate = 1e-3
  config.agent.alpha = 10.0
  return config
