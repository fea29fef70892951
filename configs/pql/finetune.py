"""Offline, then online: FQL and PQL on cube-single-play, task 1, go on in the environment.

  python -m experiments.pql.main --config=configs/pql/finetune.py

On 2 cores of an AMD EPYC half an hour beside other jobs. Success goes from 0.10 [-0.23, 0.43] to
0.48 [0.41, 0.56] for FQL, and from 0.17 [-0.19, 0.53] to 0.33 [0.26, 0.41] for PQL.
"""

import ml_collections

from configs.pql import cube


def get_config() -> ml_collections.ConfigDict:
  """Half of cube.py's updates on the data set, then as many with the environment beside it."""
  config = cube.get_config()
  config.num_seeds = 3
  config.methods = ('fql', 'pql')
  config.claims = (('pql_online', 'pql', 'success', 0.0), ('fql_online', 'fql', 'success', 0.0))
  config.steps = 20_000
  config.eval_from = 0
  config.eval_every = 10_000
  config.score_last = 1
  config.online.steps = 20_000
  return config
