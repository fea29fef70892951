r"""The mechanism on a synthetic bandit: λ × time law on eight Gaussian modes, 5 seeds.

  python -m experiments.pql.main --config=configs/pql/bandit.py
  python -m experiments.pql.main --config=configs/pql/bandit.py --config.data.env=two_modes \
    --workdir=runs/pql/two_modes

24 minutes on 2 cores of an AMD EPYC. ‖J‖_F² on the path falls from 11.9 ± 0.7 (FQL) to 1.4 ± 0.1
with λ = 0.1, and the distillation error from 0.007 ± 0.003 to 0.003 ± 0.001, while the energy
distance to the data rises from 0.009 ± 0.003 to 0.022 ± 0.002.
"""

import ml_collections

from configs.pql import ogbench


def get_config() -> ml_collections.ConfigDict:
  """Every cell is a variant of PQL; 'uniform_0' is FQL."""
  config = ogbench.get_config()
  config.num_seeds = 5
  config.methods = (
    'uniform_0',
    'uniform_1e-3',
    'uniform_1e-2',
    'uniform_1e-1',
    'beta_0',
    'beta_1e-3',
    'beta_1e-2',
    'beta_1e-1',
  )
  config.variants = {
    'uniform_0': variant('uniform', 0.0),
    'uniform_1e-3': variant('uniform', 1e-3),
    'uniform_1e-2': variant('uniform', 1e-2),
    'uniform_1e-1': variant('uniform', 1e-1),
    'beta_0': variant('beta', 0.0),
    'beta_1e-3': variant('beta', 1e-3),
    'beta_1e-2': variant('beta', 1e-2),
    'beta_1e-1': variant('beta', 1e-1),
  }
  config.claims = (
    ('uniform_1e-1', 'uniform_0', 'jacobian_sq', 0.0),
    ('beta_1e-1', 'beta_0', 'jacobian_sq', 0.0),
    ('uniform_1e-1', 'uniform_0', 'distillation_error', 0.0),
    ('beta_1e-1', 'beta_0', 'distillation_error', 0.0),
    ('beta_0', 'uniform_0', 'jacobian_sq', 0.0),
    ('beta_0', 'uniform_0', 'distillation_error', 0.0),
  )
  config.data.source = 'synthetic'
  config.data.env = 'eight_modes'
  config.data.episodes = 100_000
  config.steps = 6_000
  config.chunk_steps = 500
  config.checkpoint_every = 2_000
  config.eval_every = 6_000
  config.score_last = 1
  config.agent.hidden_dims = (128, 128)
  config.agent.learning_rate = 1e-3
  config.agent.alpha = 10.0
  return config


def variant(law: str, weight: float) -> dict:
  """One cell of the table: the law of the times, and λ."""
  return {'method': 'pql', 'time': {'law': law}, 'pde': {'weight': weight}}
