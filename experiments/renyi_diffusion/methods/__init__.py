"""The objectives that are compared, a file each, with one signature (`learner.Method`)."""

import math

import ml_collections

from experiments.renyi_diffusion import networks
from experiments.renyi_diffusion.methods import (
  excess,
  learner,
  likelihood,
  min_snr,
  mixed,
  ratio_discriminator,
  ratio_potential,
  ratio_proxy,
  renyi,
  soft_truncation,
  tilted,
  variance,
  variational,
)
from lib.diffusion import sde
from lib.io import fields

METHODS = {
  'likelihood': likelihood.make,
  'variance': variance.make,
  'soft_truncation': soft_truncation.make,
  'mixed': mixed.make,
  'min_snr': min_snr.make,
  'tilted': tilted.make,
  'renyi': renyi.make,
  'excess': excess.make,
  'ratio_proxy': ratio_proxy.make,
  'ratio_discriminator': ratio_discriminator.make,
  'ratio_potential': ratio_potential.make,
  'variational': variational.make,
}
NEED_REFERENCE = ('excess', 'ratio_proxy', 'ratio_potential')
SDES = {'vp': sde.vp, 'sub_vp': sde.sub_vp, 've': sde.ve, 'cosine': sde.cosine}


def process(config: ml_collections.ConfigDict) -> sde.SDE:
  """Builds the diffusion."""
  return SDES[config.sde.kind](**config.sde.get(config.sde.kind, {}))


def network(config: ml_collections.ConfigDict, shape: tuple[int, ...], name: str):
  """Builds the network of one of `config.methods`, for data of `shape`."""
  return networks.make(fields.varied(config, name).network, shape, process(config))


def make(config: ml_collections.ConfigDict, name: str, shape: tuple[int, ...]) -> learner.Method:
  """Builds one of `config.methods`, for data of `shape`."""
  changed, which = fields.varied(config, name), fields.kind(config, name)
  other = changed.objective.reference if which in NEED_REFERENCE else None
  problem = learner.Problem(
    objective=changed.objective,
    process=process(config),
    start=config.start,
    network=network(config, shape, name),
    steps=config.steps,
    optimizer=changed.optimizer,
    dim=math.prod(shape),
    reference=network(config, shape, other) if other else None,
  )
  return METHODS[which](problem)
