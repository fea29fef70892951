"""What a config must satisfy before anything is compiled or written."""

import math

import ml_collections

from experiments.hsd import data, methods, report
from lib.io import fields
from lib.stats import bounds, claims

POSITIVE = (
  'num_seeds', 'cpu_devices', 'steps', 'batch_size', 'chunk_steps', 'checkpoint_every',
  'space.modes', 'space.gap', 'optimizer.learning_rate', 'optimizer.clip', 'eval.shown',
)  # fmt: skip
NOT_NEGATIVE = ('seed', 'optimizer.weight_decay', 'hsd_form.gate', 'hsd_reference.penalty')
GRIDS = ('hsd_form', 'hsd_reference', 'fno', 'geo_fno')
VARIED = ('space', 'optimizer', *methods.METHODS)


def check(config: ml_collections.ConfigDict) -> None:
  """Raises a ValueError in one line that names the first bad field and its value."""
  known = fields.check_methods(config, methods.METHODS, VARIED)
  _check_values(config)
  fields.check_variants(config.variants, lambda name: _check_values(fields.varied(config, name)))
  every = config.checkpoint_every
  whole = every % config.chunk_steps == 0
  fields.require('checkpoint_every', every, whole, f'a multiple of {config.chunk_steps=}')
  claims.check(config.claims, known, report.BETTER)
  bounds.check('bounds', config.bounds, known, report.BETTER)
  data.check(config)


def _check_values(config) -> None:
  flat = fields.flatten(config)
  of_methods = {name: x for name, x in flat.items() if name.split('.')[0] in methods.METHODS}
  sizes = [n for n, x in of_methods.items() if type(x) in (int, float) and n not in NOT_NEGATIVE]
  fields.check_ranges(flat, (*POSITIVE, *sizes), NOT_NEGATIVE)
  for name, x in of_methods.items():
    if isinstance(x, tuple):
      whole = x and all(type(one) in (int, float) and 0 < one < math.inf for one in x)
      fields.require(name, x, whole, 'of positive numbers')
  fields.check_choice('space.stars', flat['space.stars'], ('metric', 'combinatorial'))
  projected = flat['hsd_form.project']
  fields.check_choice('hsd_form.project', projected, ('modes', 'harmonic', 'none'))
  warmup = flat['optimizer.warmup_fraction']
  fields.require('optimizer.warmup_fraction', warmup, 0 <= warmup < 1, 'in [0, 1)')
  for section in GRIDS:
    side, least = flat[f'{section}.grid'], 2 * flat[f'{section}.modes'] - 1
    fields.require(f'{section}.grid', side, side >= max(least, 2), f'at least {max(least, 2)}')
  width, heads = flat['transolver.width'], flat['transolver.heads']
  fields.require('transolver.width', width, width % heads == 0, f'a multiple of the heads, {heads}')
  fields.require('seed', flat['seed'], flat['seed'] + flat['num_seeds'] <= 2**31, 'below 2³¹')
