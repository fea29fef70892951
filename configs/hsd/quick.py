"""Flow of prescribed circulation on a torus of random conductivity.

  python -m experiments.hsd.main --config=configs/hsd/quick.py

6 min 6 s on 2 cores of an AMD EPYC, data included. Relative errors: hsd_form 0.290, free_modes
0.275, a Fourier operator 0.286, modes alone 0.574, ridge 0.606.
"""

import functools

import ml_collections

from lib.io import fields

PARTS = {
  'commutator': {'commutator': False},
  'projection': {'project': 'none'},
  'overwrite': {'overwrite': False},
}
CLAIMS = (  # (method, baseline, metric, least gain)
  ('hsd_form', 'fno', 'log_error', 0.105),  # 10 % less
  ('hsd_form', 'spectral_only', 'log_error', 0.105),
  ('hsd_form', 'ridge', 'log_error', 0.693),  # half
)


def variants(modes: int = 12) -> dict[str, dict]:
  """The method with a base of so many modes, and what it is without its parts."""
  form = {'method': 'hsd_form', 'space': {'modes': modes}}
  of_form = functools.partial(fields.merged, form)
  return {
    'hsd_form': form,
    **{f'no_{part}': of_form({'hsd_form': changes}) for part, changes in PARTS.items()},
    'no_metric': of_form({'space': {'stars': 'combinatorial'}}),
    'modes_48': of_form({'space': {'modes': 48}}),
    'spectral_only': {'method': 'hsd_form', 'hsd_form': {'fiber': False, 'commutator': False}},
    # Ours: only harmonic modes are for the base alone; or none, and the change is a derivative.
    'free_modes': of_form({'hsd_form': {'project': 'harmonic'}}),
    'potential': of_form(
      {'space': {'modes': max(modes, 12), 'potential': True}, 'hsd_form': {'project': 'none'}}
    ),
    'fno_potential': {'method': 'fno', 'space': {'potential': True}},
  }


def get_config() -> ml_collections.ConfigDict:
  """Task B, as a base for the others."""
  config = ml_collections.ConfigDict()
  config.seed = 0
  config.num_seeds = 3
  config.vmapped = False  # seeds one by one, which CPUs want; True: all at once
  config.cpu_devices = 1
  config.eval_only = False
  config.methods = (
    'hsd_form', 'free_modes', 'spectral_only', 'fno',
    'ridge', 'spectral_linear', 'kernel_ridge', 'mean',
  )  # fmt: skip
  # NAME: a method with other numbers; only its section, space and optimizer may differ.
  config.variants = variants()
  config.claims = (*CLAIMS, ('hsd_form', 'free_modes', 'log_error', 0.0))
  config.bounds = (  # (method, metric, bound)
    ('hsd_form', 'harmonic_error', 1e-6),
    ('hsd_form', 'finer_growth', 1.5),
  )

  config.task = ml_collections.ConfigDict()
  config.task.name = 'circulation'  # darcy, circulation, allen_cahn, transport, shell
  config.task.surface = 'torus'
  config.task.mesh = ''  # path of a surface to take instead

  config.data = ml_collections.ConfigDict()
  config.data.dir = 'data/hsd'
  config.data.seed = 0
  config.data.workers = 0  # processes; 0: one a core
  config.data.train = 2000
  config.data.valid = 100
  config.data.test = 200
  config.data.finer = 50  # of the test problems, solved on a finer mesh too

  config.space = ml_collections.ConfigDict()
  config.space.modes = 48  # of each degree, at most: clusters are not cut
  config.space.gap = 1e-2  # relative, between clusters of eigenvalues
  config.space.stars = 'metric'  # of the bases; or combinatorial
  config.space.potential = False  # networks write (k-1)-forms, whose d the change is

  config.steps = 600
  config.batch_size = 16
  config.chunk_steps = 100
  config.checkpoint_every = 300

  config.optimizer = ml_collections.ConfigDict()
  config.optimizer.learning_rate = 5e-3
  config.optimizer.warmup_fraction = 0.05
  config.optimizer.weight_decay = 1e-5
  config.optimizer.clip = 1.0

  config.hsd_form = ml_collections.ConfigDict()
  config.hsd_form.layers = 1
  config.hsd_form.hidden = 64
  config.hsd_form.skip = True  # a linear map of the coefficients beside the gated one
  config.hsd_form.fiber = True
  config.hsd_form.commutator = True
  config.hsd_form.project = 'modes'  # that only the base writes: all; or harmonic, or none
  config.hsd_form.overwrite = True
  config.hsd_form.gate = 1.0  # of the fiber, at the start
  config.hsd_form.grid = 12
  config.hsd_form.width = 16  # multiples of 8 are fast on CPUs
  config.hsd_form.fourier_layers = 3
  config.hsd_form.modes = 4
  config.hsd_form.commutator_width = 32

  config.hsd_reference = ml_collections.ConfigDict()
  config.hsd_reference.hidden = (32, 32)
  config.hsd_reference.grid = 12
  config.hsd_reference.width = 16
  config.hsd_reference.fourier_layers = 2
  config.hsd_reference.modes = 3
  config.hsd_reference.commutator_width = 32
  config.hsd_reference.penalty = 0.01

  config.fno = {'grid': 12, 'width': 16, 'layers': 3, 'modes': 4}
  config.geo_fno = {'grid': 12, 'width': 16, 'layers': 3, 'modes': 4, 'hidden': (64, 32)}
  config.gno = {'width': 64, 'layers': 3, 'radius': 0.15}
  config.mgn = {'width': 32, 'layers': 6}
  config.deeponet = {'branch': (48, 64), 'trunk': (64, 64), 'basis': 64}
  config.simplicial = {'width': 32, 'layers': 4}
  config.transolver = {'width': 64, 'layers': 3, 'heads': 4, 'slices': 32}
  penalties = tuple(10.0**n for n in range(-9, 2))
  config.identity = {}
  config.mean = {}
  config.ridge = {'penalties': penalties}
  config.spectral_linear = {'penalties': penalties}
  config.kernel_ridge = {'penalties': penalties, 'widths': (0.5, 1.0, 2.0, 4.0)}

  config.eval = ml_collections.ConfigDict()
  config.eval.shown = 4
  return config
