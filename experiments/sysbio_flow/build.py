"""Builds the benchmark alone: `python -m experiments.sysbio_flow.build --config=FILE`."""

from experiments.sysbio_flow import benchmark
from lib.io import files
from lib.train import app, console


def report(run: app.Run, built: benchmark.Benchmark) -> None:
  """Tells what there is, and which models are missing for which reason."""
  groups = {system['group'] for system in built.systems}
  console.say(
    f'{built.origin}: {len(built.values):,} series of {len(built.systems)} systems in '
    f'{len(groups)} groups; {len(built.failures)} models have none'
  )
  for reason, count in benchmark.count_reasons(built.failures).items():
    console.say(f'{count:5d}  {reason}')
  files.write_json(run.workdir / 'failures.json', built.failures)


if __name__ == '__main__':
  app.run(prepare=benchmark.build, train=report)
