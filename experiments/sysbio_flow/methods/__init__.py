"""The methods that are compared, a file each, with one signature (`learner.Method`)."""

import ml_collections

from experiments.sysbio_flow.methods import (
  cfm,
  closed_form,
  csdi,
  deepar,
  dlinear,
  flow,
  latent_ode,
  learner,
  mlp,
  nbeats,
  patchtst,
)
from lib.io import fields

CLOSED_FORM = {
  'persistence': closed_form.persistence,
  'drift': closed_form.drift,
  'holt': closed_form.holt,
  'harmonic': closed_form.harmonic,
  'parroting': closed_form.parroting,
  'analogue': closed_form.analogue,
  'prior': closed_form.prior,
}
SAMPLED = ('analogue', 'prior')  # of those, what has a law
METHODS = {
  'flow': flow.make,
  'cfm': cfm.make,
  'mlp': mlp.make,
  'patchtst': patchtst.make,
  'nbeats': nbeats.make,
  'dlinear': dlinear.make,
  'deepar': deepar.make,
  'latent_ode': latent_ode.make,
  'csdi': csdi.make,
  **CLOSED_FORM,
}


def make(config: ml_collections.ConfigDict, name: str, problem: learner.Problem) -> learner.Method:
  """Builds one of `config.methods`."""
  which = fields.kind(config, name)
  return METHODS[which](problem, fields.varied(config, name).get(which))


def steps(config: ml_collections.ConfigDict, name: str) -> int:
  """How many updates one of `config.methods` is trained for: none in closed form."""
  return 0 if fields.kind(config, name) in CLOSED_FORM else config.steps
