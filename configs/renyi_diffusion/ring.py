"""Baselines and the other estimators on the ring, beside maximum likelihood.

  python -m experiments.renyi_diffusion.main --config=configs/renyi_diffusion/ring.py

On 2 cores of an AMD EPYC 27 minutes beside other jobs. No estimator whose optimum is the data's own
law gains by alpha; the claims that it does fail.
"""

import ml_collections

from configs.renyi_diffusion import quick

ESTIMATORS = {  # of objectives A' and B
  'excess': {},
  'ratio_proxy': {},
  'ratio_discriminator': {},
  'ratio_potential': {'network': {'kind': 'energy'}, 'objective': {'reference': 'teacher_energy'}},
}


def get_config() -> ml_collections.ConfigDict:
  """As quick.py, with two larger networks that serve as references."""
  config = quick.get_config()
  config.gaussian_fit = False
  config.num_seeds = 3
  estimators = {
    f'{kind}_{name}': {
      **changes,
      'method': kind,
      'objective': {**changes.get('objective', {}), 'alpha': alpha},
    }
    for kind, changes in ESTIMATORS.items()
    for name, alpha in {'0_8': 0.8, '1_3': 1.3}.items()
  }
  config.variants = {
    'teacher': {'method': 'likelihood', 'network': {'hidden': (128, 128)}},
    'teacher_energy': {
      'method': 'likelihood',
      'network': {'kind': 'energy', 'hidden': (128, 128)},
    },
    'energy': {'method': 'likelihood', 'network': {'kind': 'energy'}},
    'tilted_0_8': {'method': 'tilted', 'objective': {'alpha': 0.8}},
    'tilted_1_3': {'method': 'tilted', 'objective': {'alpha': 1.3}},
    'variational_0': {'method': 'variational', 'objective': {'alpha': 1e-6}},
    'variational_1': {'method': 'variational', 'objective': {'alpha': 1.0}},
    **estimators,
  }
  config.methods = (
    'likelihood', 'variance', 'soft_truncation', 'mixed', 'min_snr', 'tilted_0_8', 'tilted_1_3',
    'teacher', 'teacher_energy', 'energy', *estimators, 'variational_1', 'variational_0',
  )  # fmt: skip
  config.claims = (  # a proper estimator is to gain by α where the network is too small
    *((f'{kind}_1_3', 'likelihood', 'rare_nll', 0.0) for kind in list(ESTIMATORS)[:3]),
    ('ratio_potential_1_3', 'energy', 'rare_nll', 0.0),
    *((f'{kind}_0_8', 'likelihood', 'precision', 0.0) for kind in list(ESTIMATORS)[:3]),
    ('ratio_potential_0_8', 'energy', 'precision', 0.0),
    ('variance', 'likelihood', 'precision', 0.0),
  )
  return config
