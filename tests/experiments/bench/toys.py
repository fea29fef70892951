"""What the tests of benchmarked computations share."""

import jax

from experiments.bench import cases


def abstract(name, config):
  """The case with the shapes of its arguments: nothing is compiled, which would take seconds."""
  made = []

  def args():
    made.append(cases.CASES[name](config))
    return made[0].args

  shapes = jax.eval_shape(args)
  return made[0]._replace(args=shapes)
