r"""The methods on one task, each with the best of its tries in `tune.py`.

  python -m experiments.hsd.main --config=configs/hsd/table.py:circulation
  python -m experiments.hsd.main --config=configs/hsd/table.py:circulation_rest

Likewise darcy, allen_cahn, transport, shell. The first has the method, what it is without its
parts, its strongest rivals and all closed forms, of 5 seeds; `_rest` the other networks, of 3. The
control, transport, has fewer of either.
"""

import ml_collections

from configs.hsd import quick, tune

BEST = {  # of the tries of `tune.tried`; those of hsd_form, fno and geo_fno are in quick.py
  'hsd_reference': 4, 'gno': 1, 'mgn': 3, 'deeponet': 4, 'simplicial': 2, 'transolver': 4,
}  # fmt: skip
# Modes of hsd_form, and whether the change from the start is a derivative.
TASKS = {
  'darcy': (12, True),
  'circulation': (12, True),
  'allen_cahn': (3, False),
  'transport': (3, False),
  'shell': (3, True),
}
RIVALS = ('fno', 'geo_fno')
CLOSED = ('ridge', 'spectral_linear', 'kernel_ridge', 'mean', 'identity')


def get_config(part: str = 'circulation') -> ml_collections.ConfigDict:
  """One of TASKS, or the rest of it."""
  rest, name = part.endswith('_rest'), part.removesuffix('_rest')
  if name not in TASKS:
    raise ValueError(f'no table of {name!r}: {", ".join(TASKS)}')
  modes, has_potential = TASKS[name]
  config = quick.get_config()
  config.task = {'name': name}
  config.steps, config.checkpoint_every = 1000, 500
  others = {method: tune.tried(method, i) for method, i in BEST.items()}
  config.variants = quick.variants(modes) | others
  if rest:
    config.num_seeds = 3
    kept = () if name == 'allen_cahn' else ('no_overwrite',)
    potentials = ('fno_potential',) if has_potential else ()
    config.methods = (*potentials, *kept, 'no_commutator', 'no_metric', 'modes_48', *others)
    config.claims = config.bounds = ()
    return config
  config.num_seeds = 5
  config.claims = (*quick.CLAIMS, ('hsd_form', 'no_projection', 'log_error', 0.0))
  alone = ('no_projection', 'spectral_only')
  ours = ('free_modes', 'potential') if has_potential else ()
  config.methods = ('hsd_form', *ours, *alone, *RIVALS, *CLOSED)
  if has_potential:
    gains = ('hsd_form', 0.0), ('fno', 0.105), ('geo_fno', 0.0)
    config.claims += tuple((one, other, 'log_error', gain) for one in ours for other, gain in gains)
    config.bounds += tuple((one, 'harmonic_error', 1e-6) for one in ours)
  else:
    config.bounds = (('hsd_form', 'finer_growth', 1.5),)
  if name == 'transport':  # the control, which a linear map must win
    config.num_seeds = 3
    config.methods = ('hsd_form', 'spectral_only', *RIVALS, *CLOSED)
    config.claims = tuple(('ridge', other, 'log_error', 0.693) for other in ('hsd_form', *RIVALS))
    config.bounds = (*config.bounds, ('ridge', 'error', 1e-3))
  return config
