r"""Every method on cube-single-play, task 1, under one budget on a CPU.

make pql-table    # this, its rest, and scene.py
python -m experiments.pql.main --config=configs/pql/cube.py       # the core of the claim, 5 seeds
python -m experiments.pql.main --config=configs/pql/cube.py:rest  # the other methods, 3 seeds

68 and 65 minutes on 2 cores of an AMD EPYC beside other jobs. Success: FQL 0.34 [0.28, 0.40], PQL
0.31 [0.16, 0.45], FBRAC 0.26, IFQL 0.24, IQL and FAWAC 0.12, ReBRAC 0.01, the flow 0.03.
"""

import ml_collections

from configs.pql import quick


def get_config(part: str = 'core') -> ml_collections.ConfigDict:
  """The core has PQL, what it adds to, and the strongest baseline besides; the rest the others."""
  config = quick.get_config()
  if part == 'core':
    config.num_seeds = 5
    config.methods = ('bc_flow', 'rebrac', 'fql', 'pql')
    config.claims = (
      ('pql', 'bc_flow', 'success', 0.2),
      ('pql', 'rebrac', 'success', 0.0),
      ('pql', 'fql', 'success', 0.0),
      ('pql', 'fql', 'success_std', 0.0),
      ('pql', 'fql', 'jacobian_sq', 0.0),
      ('pql', 'fql', 'distillation_error', 0.0),
    )
  elif part == 'rest':
    config.methods = ('iql', 'ifql', 'fawac', 'fbrac')
    config.claims = ()
  else:
    raise ValueError(f'cube.py has the parts core and rest, not {part!r}')
  config.steps = 40_000
  config.eval_every = 2_000
  config.eval_from = 32_000
  config.eval_episodes = 20
  config.score_last = 3
  config.agent.hidden_dims = (128, 128)
  # Three tries each with 2 seeds of their own and half of the updates, as many as FQL's alpha had.
  config.agent.rebrac.actor_penalty = 0.1  # of 0.1, 1 and 10
  config.agent.iql.inverse_temperature = 10.0  # of 1, 3 and 10
  config.agent.fawac.inverse_temperature = 1.0  # of 1, 3 and 10
  config.agent.fbrac.alpha = 100.0  # of 30, 100 and 300
  return config
