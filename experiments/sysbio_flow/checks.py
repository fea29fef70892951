"""What a config must satisfy before anything is simulated, compiled or written."""

import ml_collections

from experiments.sysbio_flow import data, methods, networks, report
from experiments.sysbio_flow.methods import cfm, csdi, nbeats, sources
from lib.io import fields
from lib.stats import claims

POSITIVE = (
  'num_seeds', 'cpu_devices', 'steps', 'batch_size', 'chunk_steps', 'checkpoint_every',
  'optimizer.learning_rate', 'optimizer.clip', 'eval.samples', 'eval.valid', 'eval.shown',
)  # fmt: skip
NOT_NEGATIVE = (
  'seed', 'optimizer.weight_decay', 'flow.flow_weight', 'flow.steps', 'cfm.s1', 'prior.s1',
  'deepar.noise',
)  # fmt: skip
OPEN = ('average',)
VARIED = ('optimizer', *methods.METHODS)


def check(config: ml_collections.ConfigDict) -> None:
  """Raises a ValueError in one line that names the first bad field and its value."""
  known = fields.check_methods(config, methods.METHODS, VARIED)
  _check_values(config)
  fields.check_variants(config.variants, lambda name: _check_values(fields.varied(config, name)))
  every = config.checkpoint_every
  whole = every % config.chunk_steps == 0
  fields.require('checkpoint_every', every, whole, f'a multiple of {config.chunk_steps=}')
  fields.require('eval.samples', config.eval.samples, config.eval.samples >= 20, 'at least 20')
  fields.check_choice('eval.split', config.eval.split, ('valid', 'test'))
  claims.check(config.claims, known, report.BETTER)
  data.check(config)
  horizon = config.recipe.points - config.recipe.context
  thirds = horizon % 3 == 0
  fields.require('recipe.points', config.recipe.points, thirds, 'the context and a multiple of 3')


def _check_values(config) -> None:
  flat = fields.flatten(config)
  of_methods = {name: x for name, x in flat.items() if name.split('.')[0] in methods.METHODS}
  sizes = [n for n, x in of_methods.items() if type(x) in (int, float) and n not in NOT_NEGATIVE]
  fields.check_ranges(flat, (*POSITIVE, *sizes), NOT_NEGATIVE, open_unit_interval=OPEN)
  warmup = flat['optimizer.warmup_fraction']
  fields.require('optimizer.warmup_fraction', warmup, 0 <= warmup < 1, 'in [0, 1)')
  fields.require('mix', flat['mix'], 0 <= flat['mix'] <= 1, 'in [0, 1]')
  choices = {
    'cfm.source': cfm.SOURCES, 'csdi.schedule': csdi.SCHEDULES, 'csdi.sampler': csdi.SAMPLERS,
  }  # fmt: skip
  choices |= {name: networks.SPACES for name in flat if name.endswith('.space')}
  choices |= {name: sources.REGIMES for name in flat if name.endswith('.regimes')}
  for name, known in choices.items():
    fields.check_choice(name, flat[name], known)
  for name in flat['nbeats.stacks']:
    fields.check_choice('nbeats.stacks', name, nbeats.STACKS)
  context = flat['recipe.context']
  for section in ('flow', 'cfm', 'prior'):
    held_out = flat[f'{section}.held_out']
    fields.require(f'{section}.held_out', held_out, held_out <= context - 2, 'below the context')
  points = flat['parroting.points']
  fields.require('parroting.points', points, points < context, 'below the context')
  fields.require('drift.points', flat['drift.points'], flat['drift.points'] < context, 'likewise')
  patch, width = flat['patchtst.patch'], flat['patchtst.width']
  fields.require('patchtst.patch', patch, 4 <= patch <= context, 'from 4 to the context')
  fields.require('patchtst.width', width, width % flat['patchtst.heads'] == 0, 'heads divide it')
  kernel = flat['dlinear.kernel']
  fields.require('dlinear.kernel', kernel, kernel <= context, 'at most the context')
  fields.require('seed', flat['seed'], flat['seed'] + flat['num_seeds'] <= 2**31, 'below 2³¹')
