r"""The ablation λ × law of the times on scene-play, task 1, with 5 seeds, and the behaviour flow.

make pql-table                                                   # this, after cube.py
python -m experiments.pql.main --config=configs/pql/scene.py

About an hour on 2 cores of an AMD EPYC beside other jobs. Success: the flow 0.02, FQL 0.45
[0.23, 0.67], PQL 0.35 [0.09, 0.60]; no cell of the 2×2 is safely above another.
"""

import ml_collections

from configs.pql import cube


def get_config() -> ml_collections.ConfigDict:
  """FQL is λ = 0 with uniform times; the first four methods after the flow are the 2×2."""
  config = cube.get_config()
  config.data.env = 'scene-play-singletask-task1-v0'
  config.methods = (
    'bc_flow',
    'fql',
    'pql',
    'pql_uniform',
    'fql_beta',
  )
  config.claims = (
    ('pql', 'bc_flow', 'success', 0.2),
    ('pql', 'fql', 'success', 0.0),
    ('pql', 'pql_uniform', 'success', 0.0),
    ('pql', 'fql_beta', 'success', 0.0),
    ('pql', 'fql', 'success_std', 0.0),
    ('pql', 'fql', 'jacobian_sq', 0.0),
    ('pql', 'fql', 'distillation_error', 0.0),
  )
  config.eval_episodes = 10  # they are almost four times as long as the cube's
  return config
