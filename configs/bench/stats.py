r"""Speed of allocating samples and of permutation tests, with NumPy and SciPy beside them.

python -m experiments.bench.main --config=configs/bench/stats.py
python -m experiments.bench.main --config=configs/bench/stats.py --config.rounds=1 \
  --config.voting.peer_apart=True --workdir=runs/bench/stats-apart

53 seconds on 2 cores of an AMD EPYC. A seed of the policy takes 0.20 [0.15, 0.25] of the time of a
NumPy loop that notes all budgets in passing, and 1/181 of one that runs each budget by itself; 40 %
of it are the scores of all states, 47 % the rounds. A draw of the sign-flip test takes 1/650 of
SciPy's.
"""

import ml_collections

from configs.bench import quick


def get_config() -> ml_collections.ConfigDict:
  """2,000 questions, 64 budgets, 32 seeds; 10,000 draws over 40,000 pairs."""
  config = quick.get_config()
  config.cases = ('voting', 'sign_flip', 'sign_flip_clustered')
  config.ratios = ()
  config.host_peers = True
  config.cpu_devices = 2  # over which the seeds are spread
  config.rounds = 3
  return config
