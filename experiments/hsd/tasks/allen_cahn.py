"""Phase separation in a flow on a closed surface (0 -> 0).

  u_t = ν Δu - v · ∇u + u - u³        div v = 0

from a random start. Strang's splitting: half a step of the reaction, exactly; one of Crank and
Nicolson of the rest; half a step of the reaction. So no step is too long to be stable.
"""

import numpy as np

from experiments.hsd.tasks import advection, domains, random_fields, record

DEFAULTS = {
  'surface': 'torus',  # or 'nut'
  'mesh': '',  # path of a mesh to take instead
  'size': 32,  # vertices around the torus
  'contrast': 1.0,  # standard deviation of the start
  'length': 0.4,  # of its correlation
  'viscosity': 0.05,  # ν; fronts are about √(8 ν) wide
  'speed': 0.5,  # angular velocity of the rotation v
  'steps': 40,
  'step': 0.05,  # of time
}


def react(u: np.ndarray, time: float) -> np.ndarray:
  """The solution of u_t = u - u³ after a time."""
  return u / np.sqrt(u**2 - (u**2 - 1) * np.exp(-2 * time))


def make(options, refine: int = 0) -> record.Task:
  """Makes the task from `DEFAULTS` or other values of their fields."""
  surface = domains.surface(options['surface'], options['mesh'], options['size'], refine)
  step = options['step']
  advance = advection.stepper(surface, options['viscosity'], options['speed'], step)

  def sample(rng):
    start = options['contrast'] * random_fields.draw(rng, 3, options['length'])(surface.points)
    end = start
    for _ in range(options['steps']):
      end = react(advance(react(end, step / 2)), step / 2)
    return {'start': start, 'given': np.zeros(0), 'end': end}

  return record.Task(
    name='allen_cahn',
    complex=surface.complex,
    points=surface.points,
    stars=surface.stars,
    inputs=(record.Field('start', 0),),
    output=record.Field('end', 0),
    start='start',
    keeps_harmonic=False,
    cycles=np.zeros((0, len(surface.points))),
    invariants=(),
    sample=sample,
  )
