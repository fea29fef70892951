"""What a config must satisfy before anything is compiled or written."""

import ml_collections

from experiments.renyi_diffusion import data, evaluate, methods, networks, report
from lib.io import fields
from lib.stats import claims

POSITIVE = (
  'num_seeds', 'cpu_devices', 'steps', 'batch_size', 'chunk_steps', 'checkpoint_every', 'start',
  'network.time_frequencies', 'optimizer.learning_rate', 'optimizer.eps', 'objective.num_times',
  'objective.alpha', 'objective.gamma', 'objective.path_steps', 'objective.num_paths',
  'objective.discriminator.learning_rate', 'objective.discriminator.sampler_steps',
  'objective.discriminator.time_frequencies',
  'eval.samples', 'eval.compared', 'eval.neighbors', 'eval.rtol', 'eval.atol',
  'eval.sampler_steps', 'eval.dequantizations', 'eval.bound_times', 'eval.classifier_steps',
)  # fmt: skip
NOT_NEGATIVE = (
  'seed', 'optimizer.clip', 'objective.simple_weight', 'objective.truncation_exponent',
  'eval.seed', 'eval.probes', 'eval.classifier_seed',
)  # fmt: skip
UNIT_INTERVAL = ('optimizer.ema', 'objective.mix', 'objective.warmup_fraction')
BELOW_ONE = (
  'optimizer.warmup_fraction',
  'optimizer.beta1',
  'objective.normalizer_decay',
  'network.dropout',
)
CHOICES = {
  'sde.kind': methods.SDES,
  'network.kind': ('mlp', 'unet', 'energy'),
  'optimizer.schedule': ('constant', 'cosine'),
  'objective.times': ('importance', 'uniform', 'shared'),
  'objective.discriminator.clock': networks.CLOCKS,
  'network.clock': networks.CLOCKS,
  'objective.base': ('likelihood', 'variance'),
  'objective.scale': ('nats', 'dimension', 'fraction'),
  'eval.sampler': evaluate.SAMPLERS,
}


def check(config: ml_collections.ConfigDict) -> None:
  """Raises a ValueError in one line that names the first bad field and its value."""
  known = fields.check_methods(config, methods.METHODS, ('objective', 'network', 'optimizer'))
  _check_values(config)
  fields.check_variants(config.variants, lambda name: _check_values(fields.varied(config, name)))
  _check_references(config)
  if config.batch_size < 2 and any(fields.kind(config, n) == 'mixed' for n in config.methods):
    raise ValueError('config.batch_size must be 2 or more for mixed, which halves it.')
  if config.checkpoint_every % config.chunk_steps:
    raise ValueError(
      f'config.checkpoint_every must be a multiple of chunk_steps, got '
      f'{config.checkpoint_every} and {config.chunk_steps}.'
    )
  claims.check(config.claims, known, report.BETTER)
  data.check(config.data)


def _check_references(config) -> None:
  before: list[str] = []
  for name in config.methods:
    if fields.kind(config, name) in methods.NEED_REFERENCE:
      reference = fields.varied(config, name).objective.reference
      if reference not in before:
        raise ValueError(
          f'config.methods: {name} needs the trained {reference!r} (objective.reference) before it.'
        )
    before.append(name)


def _check_values(config) -> None:
  flat = fields.flatten(config)
  fields.check_ranges(flat, POSITIVE, NOT_NEGATIVE, UNIT_INTERVAL)
  for name in BELOW_ONE:
    fields.require(name, flat[name], 0 <= flat[name] < 1, 'in [0, 1)')
  for name, choices in CHOICES.items():
    fields.check_choice(name, flat[name], choices)
  hidden = flat['objective.discriminator.hidden']
  whole = all(isinstance(width, int) and width > 0 for width in hidden)
  fields.require('objective.discriminator.hidden', hidden, whole, 'of widths above 0')
  fraction = flat['objective.fraction']
  fields.require('objective.fraction', fraction, 0 < fraction <= 1, 'in (0, 1]')
  fewest = min(flat['eval.samples'], flat['eval.compared'])
  if flat['data.source'] == 'ring':  # images are compared with training ones
    fewest = min(fewest, flat['data.test'])
  neighbors = flat['eval.neighbors']
  fields.require('eval.neighbors', neighbors, neighbors < fewest, f'below the {fewest} compared')
  weight = flat['objective.max_weight']
  fields.require('objective.max_weight', weight, weight >= 1, 'at least 1')
  fields.require('seed', flat['seed'], flat['seed'] + flat['num_seeds'] <= 2**31, 'below 2³¹')
  try:
    horizon = methods.process(config).horizon
  except (ValueError, TypeError) as error:
    raise ValueError(f'config.sde: {error}') from error
  fields.require('start', config.start, config.start < horizon, f'below the horizon {horizon}')
