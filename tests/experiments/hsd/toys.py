"""A problem that is small, for tests of methods."""

import functools

import jax
import numpy as np

from configs.hsd import quick
from experiments.hsd import data, problems, tasks
from experiments.hsd.tasks import record

SMALL = {
  'darcy': {'size': 7},
  'circulation': {'size': 10},
  'allen_cahn': {'size': 10, 'steps': 4},
  'transport': {'size': 10},
  'shell': {'size': 2, 'outer': 1.2},
}


def config(name='circulation', **changes):
  """A config of few modes and channels."""
  found = quick.get_config()
  found.task = {'name': name, **SMALL[name]}
  found.space.modes = 12
  small = {'grid': 6, 'width': 4, 'modes': 2, 'fourier_layers': 2, 'commutator_width': 4}
  found.hsd_form.update({**small, 'hidden': 8})
  found.hsd_reference.update(small)
  found.update(changes)
  return found


@functools.cache
def loaded(name='circulation', finer=False):
  """A few samples, drawn in this process."""
  made = [tasks.make({'name': name, **SMALL[name]}, refine) for refine in (0, 1)[: 1 + finer]]
  parts = [record.generate(made[0], range(start, start + 6)) for start in (0, 6, 12)]
  extra = (made[1], record.generate(made[1], range(12, 14))) if finer else (None, None)
  return data.Data(made[0], *parts, *extra, {'task': name})


def problem(name='circulation', method='hsd_form', **changes):
  """A config and its problem."""
  found = config(name, **changes)
  return found, problems.build(found, method, loaded(name))


def random_like(tree, seed=0):
  """Numbers of order 1 in place of parameters."""
  rng = np.random.default_rng(seed)
  return jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32) * 0.3, tree)
