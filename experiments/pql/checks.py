"""What a config must satisfy before anything is compiled or written."""

import jax
import ml_collections

from experiments.pql import data, methods, online, report
from experiments.pql.methods import agent, pql
from lib.io import fields
from lib.stats import claims

POSITIVE = (
  'num_seeds',
  'cpu_devices',
  'steps',
  'batch_size',
  'chunk_steps',
  'checkpoint_every',
  'eval_every',
  'eval_envs',
  'score_last',
  'online.chunk_steps',
  'online.episodes',
  'online.capacity',
  'online.eval_every',
  'agent.learning_rate',
  'agent.num_critics',
  'agent.flow_steps',
  'agent.time.a',
  'agent.time.b',
  'agent.ifql.num_samples',
  'agent.rebrac.actor_every',
)
NOT_NEGATIVE = (
  'seed',
  'eval_episodes',
  'eval_from',
  'online.steps',
  'agent.alpha',
  'agent.pde.weight',
  'agent.pde.num_probes',
  'agent.iql.inverse_temperature',
  'agent.fawac.inverse_temperature',
  'agent.fbrac.alpha',
  'agent.rebrac.actor_penalty',
  'agent.rebrac.critic_penalty',
  'agent.rebrac.policy_noise',
  'agent.rebrac.noise_clip',
)
OPEN_UNIT_INTERVAL = ('agent.iql.expectile',)
UNIT_INTERVAL = ('agent.discount', 'agent.polyak_step')
CHOICES = {
  'agent.q_aggregation': agent.AGGREGATIONS,
  'agent.time.law': pql.TIME_LAWS,
  'agent.pde.form': pql.FORMS,
  'agent.pde.reduction': pql.REDUCTIONS,
}


def check(config: ml_collections.ConfigDict) -> None:
  """Raises a ValueError in one line that names the first bad field and its value."""
  known = _check_methods(config)
  _check_values(config)
  if config.checkpoint_every % config.chunk_steps or config.eval_every % config.chunk_steps:
    raise ValueError(
      f'config.checkpoint_every and config.eval_every must be multiples of chunk_steps, got '
      f'{config.checkpoint_every}, {config.eval_every} and {config.chunk_steps}.'
    )
  _check_online(config)
  fields.check_variants(
    config.variants, lambda name: _check_values(methods.with_variant(config, name))
  )
  claims.check(config.claims, [*known, *map(online.phase, known)], report.BETTER)
  data.check(config.data)


def _check_online(config) -> None:
  sizes = config.online
  if sizes.eval_every % sizes.chunk_steps:
    raise ValueError(
      f'config.online.eval_every must be a multiple of online.chunk_steps, got '
      f'{sizes.eval_every} and {sizes.chunk_steps}.'
    )
  if sizes.steps and config.data.source not in ('generate', 'npz'):
    raise ValueError(f'config.online.steps: {config.data.source} data have no environment.')
  if sizes.steps and jax.process_count() > 1:
    raise ValueError('config.online.steps: fine-tuning runs on one host.')


def _check_methods(config) -> list[str]:
  known = fields.check_methods(config, methods.METHODS)
  for name, changes in config.variants.items():
    if name.endswith(online.SUFFIX):
      raise ValueError(f"config.variants.{name} has the name of a method's fine-tuning.")
    if changes.method != 'pql' and ('time' in changes or 'pde' in changes):
      raise ValueError(
        f'config.variants.{name}: {changes.method} has no time law and no penalty to change.'
      )
  return known


def _check_values(config) -> None:
  flat = fields.flatten(config)
  fields.check_ranges(flat, POSITIVE, NOT_NEGATIVE, UNIT_INTERVAL, OPEN_UNIT_INTERVAL)
  fields.require('seed', flat['seed'], flat['seed'] + flat['num_seeds'] <= 2**31, 'below 2³¹')
  for width in flat['agent.hidden_dims']:
    right = isinstance(width, int) and width > 0
    fields.require('agent.hidden_dims', flat['agent.hidden_dims'], right, 'positive widths')
  for name, choices in CHOICES.items():
    fields.check_choice(name, flat[name], choices)
