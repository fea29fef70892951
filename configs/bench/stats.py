r"""Speed of allocating samples and of permutation tests, with NumPy and SciPy beside them.

python -m experiments.bench.main --config=configs/bench/stats.py
python -m experiments.bench.main --config=configs/bench/stats.py --config.rounds=1 \
  --config.cases="('voting',)" --config.voting.peer_apart=True --workdir=runs/bench/stats-apart

45 seconds on 2 cores of an AMD EPYC beside another job. With its seeds over two CPU devices, a seed
of the policy takes 0.16 [0.14, 0.18] of the time of a NumPy loop that notes all budgets in one pass
and scores only what has changed, and 1/206 of one that runs each budget by itself; two thirds of it
are the rounds. A draw of the sign flips takes 1/1090 of SciPy's, and 1/950 with 5 pairs an item.
Before it is timed each is checked to agree with its peer; compilation, some 3 s, is not counted.
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
