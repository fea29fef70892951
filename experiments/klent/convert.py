"""Converts one of pgx's published networks into what `config.eval.pgx_model` names.

python -m experiments.klent.convert --model=othello_v0.ckpt --out=othello_v0.npz
"""

import sys

from absl import app, flags, logging

from experiments.klent import pgx_models

_MODEL = flags.DEFINE_string('model', None, 'A checkpoint of pgx, NAME_v0.ckpt.', required=True)
_OUT = flags.DEFINE_string('out', None, 'The file to write, of type .npz.', required=True)


def main(argv):
  del argv
  logging.set_verbosity(logging.WARNING)  # JAX tells which devices it looks for
  try:
    model = pgx_models.convert(_MODEL.value, _OUT.value)
  except (ValueError, OSError) as error:
    print(f'error: {error}', file=sys.stderr)
    sys.exit(2)
  print(
    f'{_OUT.value}: a network of {model.num_actions} actions that sees {model.cells} cells of '
    f'{model.planes} planes'
  )


if __name__ == '__main__':
  app.run(main)
