"""What a config must satisfy before anything is compiled or written."""

import math
from collections.abc import Collection

import jax
import ml_collections

from experiments.pql import data, methods, online, report
from experiments.pql.methods import agent, pql
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
  _check_methods(config)
  _check_values(config)
  if config.checkpoint_every % config.chunk_steps or config.eval_every % config.chunk_steps:
    raise ValueError(
      f'config.checkpoint_every and config.eval_every must be multiples of chunk_steps, got '
      f'{config.checkpoint_every}, {config.eval_every} and {config.chunk_steps}.'
    )
  _check_online(config)
  for name in config.variants:
    try:
      _check_values(methods.with_variant(config, name))
    except (ValueError, KeyError, TypeError) as error:
      raise ValueError(f'config.variants.{name}: {error}') from error
  known = [*methods.METHODS, *config.variants]
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


def _check_methods(config) -> None:
  if not config.methods:
    raise ValueError('config.methods is empty: there is nothing to train.')
  for name in config.methods:
    _check_choice('methods', name, [*methods.METHODS, *config.variants])
  for name, changes in config.variants.items():
    if name in methods.METHODS:
      raise ValueError(f'config.variants.{name} has the name of a method.')
    if name.endswith(online.SUFFIX):
      raise ValueError(f"config.variants.{name} has the name of a method's fine-tuning.")
    method = changes.get('method')
    _check_choice(f'variants.{name}.method', method, methods.METHODS)
    if method != 'pql' and ('time' in changes or 'pde' in changes):
      raise ValueError(
        f'config.variants.{name}: {method} has no time law and no penalty to change.'
      )


def _check_values(config) -> None:
  flat = dict(_flatten(config))
  for name in POSITIVE:
    _require(name, flat[name], 0 < flat[name] < math.inf, 'positive')
  for name in NOT_NEGATIVE:
    _require(name, flat[name], 0 <= flat[name] < math.inf, 'zero or more')
  _require('seed', flat['seed'], flat['seed'] + flat['num_seeds'] <= 2**31, 'below 2³¹')
  for name in UNIT_INTERVAL:
    _require(name, flat[name], 0 <= flat[name] <= 1, 'in [0, 1]')
  for name in OPEN_UNIT_INTERVAL:
    _require(name, flat[name], 0 < flat[name] < 1, 'in (0, 1)')
  for width in flat['agent.hidden_dims']:
    right = isinstance(width, int) and width > 0
    _require('agent.hidden_dims', flat['agent.hidden_dims'], right, 'positive widths')
  for name, choices in CHOICES.items():
    _check_choice(name, flat[name], choices)


def _require(name: str, value, holds: bool, what: str) -> None:
  if not holds:  # also for nan, which satisfies no comparison
    raise ValueError(f'config.{name} must be {what}, got {value}.')


def _check_choice(name: str, value, choices: Collection[str]) -> None:
  if value not in choices:
    raise ValueError(f'config.{name} must be one of {", ".join(choices)}, got {value!r}.')


def _flatten(config, prefix=''):
  for name, value in config.items():
    if isinstance(value, (ml_collections.ConfigDict, ml_collections.FrozenConfigDict)):
      yield from _flatten(value, f'{prefix}{name}.')
    else:
      yield prefix + name, value
