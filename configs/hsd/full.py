"""The paper's scale: 3,000 samples on meshes of about 3,000 vertices, 64 modes, grids of 16³.

  python -m experiments.hsd.main --config=configs/hsd/full.py:circulation

Likewise darcy, allen_cahn, transport, shell. For an accelerator, all seeds at once; not run. The
mesh's size, samples, modes, grids, epochs (100 of 2,040 samples in batches of 64) and learning rate
are the released ones; the tasks and the other widths are ours.
"""

import ml_collections

from configs.hsd import quick, table

SIZES = {  # of the meshes, for about 3,000 vertices
  'darcy': {'size': 55}, 'circulation': {'size': 84}, 'allen_cahn': {'size': 84},
  'transport': {'size': 84}, 'shell': {'size': 9},
}  # fmt: skip
OTHERS = (
  'hsd_reference', 'geo_fno', 'gno', 'mgn', 'deeponet', 'simplicial', 'transolver', 'identity',
)  # fmt: skip
SAMPLES = {'train': 2040, 'valid': 360, 'test': 600, 'finer': 100}


def get_config(task: str = 'circulation') -> ml_collections.ConfigDict:
  """All methods on one of SIZES."""
  if task not in SIZES:
    raise ValueError(f'no size for {task!r}: {", ".join(SIZES)}')
  config = quick.get_config()
  config.vmapped = True
  config.task = {'name': task, **SIZES[task]}
  config.data.update(SAMPLES)
  config.space.modes = 64
  config.variants = quick.variants(64)
  config.batch_size = 64
  config.steps = 100 * 2040 // 64
  config.checkpoint_every = 1000
  config.optimizer.learning_rate = 1e-3
  for section in ('hsd_form', 'hsd_reference'):
    config[section].update({'grid': 16, 'modes': 4, 'fourier_layers': 4})
  config.hsd_form.layers = 2
  for section in ('fno', 'geo_fno'):
    config[section] = {
      **config[section].to_dict(),
      'grid': 16,
      'modes': 4,
      'layers': 3,
      'width': 24,
    }
  ablations = tuple(f'no_{part}' for part in (*quick.PARTS, 'metric'))
  _, has_potential = table.TASKS[task]
  potential = ('potential',) if has_potential else ()
  config.methods = (*config.methods, *potential, *ablations, *OTHERS)
  return config
