"""Diffusion under rotation on a closed surface, which is linear (0 -> 0): the control.

  u_t = ν Δu - div(u v)

from a random start; the total ∫ u is conserved. A linear map of the start is exact, so that no
network has anything to win. The paper's operator, without the mistakes of its released stiffness
matrix and the loss of mass of its released advection.
"""

import numpy as np

from experiments.hsd.tasks import advection, domains, random_fields, record

DEFAULTS = {
  'surface': 'torus',  # or 'nut'
  'mesh': '',  # path of a mesh to take instead
  'size': 32,  # vertices around the torus
  'length': 0.4,  # of correlation, of the start, to which a constant in [-1, 1] is added
  'viscosity': 0.01,  # ν
  'speed': 1.0,  # angular velocity of the rotation v
  'steps': 15,
  'step': 0.02,  # of time
}


def make(options, refine: int = 0) -> record.Task:
  """Makes the task from `DEFAULTS` or other values of their fields."""
  surface = domains.surface(options['surface'], options['mesh'], options['size'], refine)
  advance = advection.stepper(surface, options['viscosity'], options['speed'], options['step'])

  def sample(rng):
    start = random_fields.draw(rng, 3, options['length'])(surface.points) + rng.uniform(-1, 1)
    end = start
    for _ in range(options['steps']):
      end = advance(end)
    return {'start': start, 'given': np.zeros(0), 'end': end}

  star0 = surface.stars[0]
  total = record.linear_invariant(
    'mass', star0[None], lambda samples: samples['start'] @ star0[:, None]
  )
  return record.Task(
    name='transport',
    complex=surface.complex,
    points=surface.points,
    stars=surface.stars,
    inputs=(record.Field('start', 0),),
    output=record.Field('end', 0),
    start='start',
    keeps_harmonic=True,
    cycles=np.zeros((0, len(star0))),
    invariants=(total,),
    sample=sample,
  )
