"""Speed of PQL's updates: widths, seeds, batches, and the public FQL beside ours in one run.

  git clone https://github.com/seohongpark/fql ../fql
  python -m experiments.bench.main --config=configs/bench/pql.py --config.peer=../fql
  python -m experiments.bench.main --config=configs/bench/pql.py --config.cpu_devices=2 \\
    --workdir=runs/bench/pql-2

Every case is one update at batch 256, 28 observations and 5 actions, 10 Euler steps, Adam, unless
its name says otherwise. 'dispatch' is ours with one update in a compiled call.
"""

import ml_collections

from configs.bench import quick
from configs.pql import ogbench

WIDTHS = {'512x4': (512,) * 4, '256x3': (256,) * 3, '128x2': (128,) * 2}


def get_config() -> ml_collections.ConfigDict:
  """Cases by width, then what each is compared with."""
  config = quick.get_config()
  config.offline.agent = ogbench.get_config().agent
  config.offline.num_seeds = 1
  config.offline.batch_size = 256
  updates, ratios = {}, []

  def add(name, baseline, method, widths, **changes):
    updates[name] = {'method': method, 'agent': {'hidden_dims': widths}, **changes}
    if baseline:
      ratios.append((name, baseline))

  for size, widths in WIDTHS.items():
    add(f'peer_{size}', '', 'peer', widths)
    add(f'fql_{size}', f'peer_{size}', 'fql', widths)
    add(f'fql_{size}_dispatch', f'fql_{size}', 'fql', widths, updates=1)
    add(f'pql_{size}', f'fql_{size}', 'pql', widths)
  for size in ('512x4', '128x2'):
    for seeds in (2, 8):
      add(f'fql_{size}_{seeds}_seeds', f'fql_{size}', 'fql', WIDTHS[size], num_seeds=seeds)
  for rows in (64, 1024):
    add(f'fql_256x3_batch_{rows}', 'fql_256x3', 'fql', WIDTHS['256x3'], batch_size=rows)
  config.updates = updates
  config.cases = tuple(updates)
  config.ratios = tuple(ratios)
  return config
