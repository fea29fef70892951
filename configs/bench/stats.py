r"""Speed of allocating samples and of permutation tests, with NumPy and SciPy beside them.

python -m experiments.bench.main --config=configs/bench/stats.py
"""

import ml_collections

from configs.bench import quick


def get_config() -> ml_collections.ConfigDict:
  """2,000 questions, 64 budgets, 32 seeds; 10,000 draws over 40,000 pairs."""
  config = quick.get_config()
  config.cases = ('voting', 'sign_flip')
  config.ratios = ()
  config.host_peers = True
  config.rounds = 3
  return config
