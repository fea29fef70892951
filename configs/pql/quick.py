"""PQL on cube-single-play, task 1: generates the data, trains, evaluates, reports.

  python -m experiments.pql.main --config=configs/pql/quick.py

On 2 cores of an AMD EPYC 22 minutes: 4 to generate the data, 1.5 for the behaviour flow, 14 for
PQL, and the rest for 600 episodes of evaluation. PQL's success is 0.29 [0.11, 0.48], that of the
behaviour flow 0.01 [-0.02, 0.04], over 3 seeds of 50 episodes each. After half of the updates it
is 0.19.
"""

import ml_collections

from configs.pql import ogbench


def get_config() -> ml_collections.ConfigDict:
  """The paper's setting, with less data, smaller networks and batches, and larger steps."""
  config = ogbench.get_config()
  config.num_seeds = 3
  config.methods = ('bc_flow', 'pql')
  config.claims = (('pql', 'bc_flow', 'success', 0.2),)
  config.data.episodes = 160
  config.steps = 40_000
  config.batch_size = 128
  config.chunk_steps = 500
  config.checkpoint_every = 2_500
  config.eval_every = 20_000
  config.score_last = 1
  config.agent.hidden_dims = (256, 256)
  config.agent.learning_rate = 1e-3
  config.agent.polyak_step = 0.02
  config.agent.flow_steps = 5
  return config
