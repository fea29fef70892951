"""PQL on cube-single-play, task 1: generates the data, trains, evaluates, reports."""

import ml_collections

from configs.pql import ogbench


def get_config() -> ml_collections.ConfigDict:
  config = ogbench.get_config()
  config.num_seeds = 4
  config.methods = ('bc_flow', 'pql')
  config.data.episodes = 160
  config.steps = 40_000
  config.batch_size = 128
  config.chunk_steps = 500
  config.checkpoint_every = 2_500
  config.eval_every = 10_000
  config.agent.hidden_dims = (256, 256)
  config.agent.flow_steps = 5
  return config
