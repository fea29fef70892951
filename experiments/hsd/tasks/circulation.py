"""Flow of prescribed circulations on a closed surface of random conductivity (0, 0, 1 -> 1).

For random κ > 0, f of mean 0 and periods c, the output is the closed 1-form w = dψ + h_c with

  -div(κ w) = f        ∫ w = c_i along the cycle i

where h_c is the harmonic form of periods c, which is then the harmonic part of w whatever κ is.
Linear elements: d0ᵀ ⋆κ (d0 ψ + h_c) = ⋆0 f with the cotangent weights of each face times the mean
of κ at its corners.
"""

import numpy as np

from experiments.hsd.tasks import domains, random_fields, record
from lib.hodge import matrices

DEFAULTS = {
  'surface': 'torus',  # or 'nut'
  'mesh': '',  # path of a mesh to take instead
  'size': 32,  # vertices around the torus
  'contrast': 1.0,  # standard deviation of log κ
  'length': 0.4,  # of correlation, of log κ and f
  'source': 1.0,  # standard deviation of f
}


def make(options, refine: int = 0) -> record.Task:
  """Makes the task from `DEFAULTS` or other values of their fields."""
  surface = domains.surface(options['surface'], options['mesh'], options['size'], refine)
  c, star0 = surface.complex, surface.stars[0]
  d0 = matrices.incidence(c, 0).astype(float)

  def sample(rng):
    draw = lambda: random_fields.draw(rng, 3, options['length'])(surface.points)
    log_conductivity = options['contrast'] * draw()
    source = options['source'] * draw()
    source -= star0 @ source / star0.sum()
    given = rng.normal(size=len(surface.cycles))
    harmonic = given @ surface.harmonic
    conductivity = np.exp(log_conductivity)[c.faces].mean(axis=1)
    weights = domains.edge_sums(c, conductivity[:, None] * surface.weights)
    solve = domains.grounded(domains.stiffness(c, weights))
    potential = solve(star0 * source - d0.T @ (weights * harmonic))
    return {
      'log_conductivity': log_conductivity,
      'source': source,
      'given': given,
      'harmonic': harmonic,
      'form': d0 @ potential + harmonic,
    }

  closed = record.linear_invariant('closed', matrices.incidence(c, 1), lambda samples: 0.0)
  return record.Task(
    name='circulation',
    complex=c,
    points=surface.points,
    stars=surface.stars,
    inputs=(
      record.Field('log_conductivity', 0),
      record.Field('source', 0),
      record.Field('harmonic', 1),
    ),
    output=record.Field('form', 1),
    start='harmonic',
    keeps_harmonic=True,
    cycles=surface.cycles,
    invariants=(closed, record.periods_kept(surface.cycles)),
    sample=sample,
  )
