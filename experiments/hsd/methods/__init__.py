"""The methods that are compared, a file each, with one signature (`learner.Method`)."""

import ml_collections

from experiments.hsd.methods import hsd_form, hsd_reference, learner
from lib.io import fields

CLOSED_FORM = ('identity', 'mean', 'ridge', 'kernel_ridge', 'spectral_linear')
METHODS = {
  'hsd_form': hsd_form.make,
  'hsd_reference': hsd_reference.make,
}


def make(config: ml_collections.ConfigDict, name: str, problem: learner.Problem) -> learner.Method:
  """Builds one of `config.methods`."""
  which = fields.kind(config, name)
  return METHODS[which](problem, fields.varied(config, name).get(which))


def steps(config: ml_collections.ConfigDict, name: str) -> int:
  """How many updates one of `config.methods` is trained for: none in closed form."""
  return 0 if fields.kind(config, name) in CLOSED_FORM else config.steps
