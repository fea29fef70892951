"""The methods that are compared, a file each, with one signature (`agent.Method`)."""

import ml_collections

from experiments.pql.methods import agent, bc_flow, fawac, fbrac, fql, ifql, iql, pql, rebrac
from lib.io import fields

METHODS = {
  'bc_flow': bc_flow.make,
  'iql': iql.make,
  'ifql': ifql.make,
  'fawac': fawac.make,
  'fbrac': fbrac.make,
  'rebrac': rebrac.make,
  'fql': fql.make,
  'pql': pql.make,
}


def make(config: ml_collections.ConfigDict, name: str, spec: agent.Spec) -> agent.Method:
  """Builds one of `config.methods` by its name: of METHODS, or of `config.variants`."""
  if name in METHODS:
    return METHODS[name](config.agent, spec)
  changed = with_variant(config, name)
  return METHODS[config.variants[name].method](changed.agent, spec)


def cell(config: ml_collections.ConfigDict, name: str) -> tuple[str, float] | None:
  """Returns the law of the times and λ of a method: its place in the ablation, if it has one."""
  if fields.kind(config, name) not in ('fql', 'pql'):
    return None
  if fields.kind(config, name) == 'fql':
    return 'uniform', 0.0
  settings = (with_variant(config, name) if name in config.variants else config).agent
  law = settings.time.law
  if law == 'beta':
    law = f'Beta({settings.time.a:g}, {settings.time.b:g})'
  return law, settings.pde.weight


def with_variant(config: ml_collections.ConfigDict, name: str) -> ml_collections.ConfigDict:
  """The config with `agent` changed as the variant says.

  Raises:
    KeyError: if the variant changes a field that `agent` lacks.
    TypeError: if a value has another type than the field.
  """
  changed = ml_collections.ConfigDict(config.to_dict())
  changed.agent = fields.vary(config.agent, config.variants[name])
  return changed
