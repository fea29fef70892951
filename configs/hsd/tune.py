r"""Tries of every network: five settings each, by the error on validation samples.

  python -m experiments.hsd.main --config=configs/hsd/tune.py

Three learning rates with first sizes, then two other sizes at the middle rate: the tables take the
best. One seed, which no table uses, and half of the updates.
"""

import ml_collections

from configs.hsd import quick
from lib.io import fields

RATES = (2e-3, 5e-3, 1e-2)
SMALL = {'modes': 3, 'layers': 2}
SMALL_FIBER = {'modes': 3, 'fourier_layers': 2}
FIRST = {
  'hsd_form': {'space': {'modes': 12}, 'hsd_form': SMALL_FIBER},
  'hsd_reference': {'space': {'modes': 12}, 'hsd_reference': SMALL_FIBER},
  'fno': {'fno': SMALL},
  'geo_fno': {'geo_fno': SMALL},
}
SIZES = {
  'hsd_form': ({'space': {'modes': 3}}, {'hsd_form': {'fourier_layers': 3, 'modes': 4}}),
  'hsd_reference': ({'space': {'modes': 48}}, {'hsd_reference': {'width': 24}}),
  'fno': ({'fno': {'width': 24}}, {'fno': {'layers': 3, 'modes': 4}}),
  'geo_fno': ({'geo_fno': {'width': 24}}, {'geo_fno': {'layers': 3, 'modes': 4}}),
  'gno': ({'gno': {'radius': 0.25}}, {'gno': {'layers': 5}}),
  'mgn': ({'mgn': {'width': 48}}, {'mgn': {'layers': 9}}),
  'deeponet': ({'deeponet': {'basis': 128}}, {'deeponet': {'branch': (128, 128)}}),
  'simplicial': ({'simplicial': {'width': 48}}, {'simplicial': {'layers': 6}}),
  'transolver': ({'transolver': {'slices': 64}}, {'transolver': {'layers': 2}}),
}


def tried(method: str, i: int) -> dict:
  """Try i of a method, from 0 on, as a variant."""
  changes = [{'optimizer': {'learning_rate': rate}} for rate in RATES]
  first = {'method': method, **FIRST.get(method, {})}
  return fields.merged(first, [*changes, *SIZES[method]][i])


def get_config(task: str = 'circulation') -> ml_collections.ConfigDict:
  """The tries on a task."""
  config = quick.get_config()
  config.seed, config.num_seeds = 100, 1
  config.task = {'name': task}
  config.claims = config.bounds = ()
  config.data.update({'test': 4, 'finer': 0})
  config.steps, config.checkpoint_every = 500, 500
  config.variants = {f'{method}_{i}': tried(method, i) for method in SIZES for i in range(5)}
  config.methods = tuple(config.variants)
  return config
