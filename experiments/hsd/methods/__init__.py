"""The methods that are compared, a file each, with one signature (`learner.Method`)."""

import ml_collections

from experiments.hsd.methods import (
  closed_form,
  deeponet,
  fno,
  geo_fno,
  gno,
  hsd_form,
  hsd_reference,
  learner,
  mgn,
  simplicial,
  transolver,
)
from lib.io import fields

CLOSED_FORM = {
  'identity': closed_form.identity,
  'mean': closed_form.mean,
  'ridge': closed_form.ridge,
  'kernel_ridge': closed_form.kernel_ridge,
  'spectral_linear': closed_form.spectral_linear,
}
METHODS = {
  'hsd_form': hsd_form.make,
  'hsd_reference': hsd_reference.make,
  'fno': fno.make,
  'geo_fno': geo_fno.make,
  'gno': gno.make,
  'mgn': mgn.make,
  'deeponet': deeponet.make,
  'simplicial': simplicial.make,
  'transolver': transolver.make,
  **CLOSED_FORM,
}


def make(config: ml_collections.ConfigDict, name: str, problem: learner.Problem) -> learner.Method:
  """Builds one of `config.methods`."""
  which = fields.kind(config, name)
  return METHODS[which](problem, fields.varied(config, name).get(which))


def steps(config: ml_collections.ConfigDict, name: str) -> int:
  """How many updates one of `config.methods` is trained for: none in closed form."""
  return 0 if fields.kind(config, name) in CLOSED_FORM else config.steps
