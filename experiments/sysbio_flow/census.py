"""How many models of BioModels lib.sbml compiles: `python -m experiments.sysbio_flow.census`.

Each is read, compiled, and compared with libroadrunner at time 0.
"""

from collections.abc import Sequence

from absl import app, flags

from experiments.sysbio_flow import agreement, biomodels, outcomes

_FOLDER = flags.DEFINE_string('folder', '', 'With more models, NAME.xml each.')


def main(argv: Sequence[str]) -> None:
  """Takes the census."""
  if len(argv) > 1:
    raise app.UsageError(f'What is {argv[1]!r}?')
  outcomes.collect(agreement.make_worker, biomodels.sources(_FOLDER.value), 'model')


if __name__ == '__main__':
  app.run(main)
