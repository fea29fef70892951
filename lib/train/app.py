"""Host. Start-up of every run: flags, checks before anything is written, one exit code each."""

import contextlib
import errno
import json
import os
import pathlib
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import ml_collections
from absl import flags
from ml_collections import config_flags

from lib.io import files, jsonl, manifest
from lib.nn import trees
from lib.train import checkpoint, console, loop, signals

_PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'orbax-checkpoint', 'numpy')
_REFUSED = (checkpoint.CheckpointError, jsonl.MalformedError)
_FAILURES = (RuntimeError, MemoryError)  # a worker died, jax has begun; no memory
_MACHINE_FAILS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


class Run(NamedTuple):
  """One run: `config`, frozen; the `experiment`'s name; the `config_file`; and its `workdir`."""

  config: ml_collections.FrozenConfigDict
  experiment: str
  config_file: str
  workdir: pathlib.Path


def run(prepare: Callable[[Any], Any], train: Callable[[Run, Any], None]) -> None:
  """Runs an experiment from the command line, and ends the process; see `main`."""
  sys.exit(main(sys.argv, prepare, train))


def main(
  argv: Sequence[str], prepare: Callable[[Any], Any], train: Callable[[Run, Any], None]
) -> int:
  """Runs an experiment.

  Args:
    argv: name of the program, `--config=FILE`, and what else `--help` tells.
    prepare: `prepare(config)` checks the config and loads the data, before anything is compiled
      or written to the workdir; its ValueError or OSError is the user's bad input.
    train: `train(run, prepared)` does the rest, in the module `experiments.NAME.train`.

  Returns:
    0 if done, 2 for bad input, 3 if it diverged, 4 if the machine failed, 130 or 143 if a signal
    stopped it after saving. What went wrong is told in one line.
  """
  try:
    with contextlib.ExitStack() as stack:
      try:
        if (this := _start(argv, train)) is None:
          return 0
        prepared = prepare(this.config)
        if jax.process_index() == 0:
          stack.enter_context(files.locked(this.workdir / 'lock'))
          _check_workdir(this)  # again: another run may have begun meanwhile
          if not this.config.get('eval_only', False):
            _write_facts(this, argv)
      except KeyboardInterrupt:
        return _fail('stopped by SIGINT', 130)
      except (ValueError, OSError, *_FAILURES) as error:
        failed = isinstance(error, _FAILURES) or getattr(error, 'errno', 0) in _MACHINE_FAILS
        return _fail(error, 4 if failed else 2)
      stack.enter_context(signals.handled())
      train(this, prepared)
  except (*_REFUSED, OSError, MemoryError, jax.errors.JaxRuntimeError) as error:
    return _fail(error, 2 if isinstance(error, _REFUSED) else 4)
  except loop.Diverged as error:
    return _fail(f'{error}; the checkpoint before it is kept', 3)
  except signals.Stopped as error:
    return _fail(f'{error}; the same command goes on', 128 + error.signum)
  console.say(f'Done: {this.workdir}')
  return 0


def _start(argv: Sequence[str], train: Callable) -> Run | None:
  """Reads the flags and finds the devices; None if only help was wanted."""
  values = flags.FlagValues()
  config_flags.DEFINE_config_file(
    'config', None, 'The config, a Python file.', flag_values=values, sys_argv=list(argv)
  )
  flags.DEFINE_string('workdir', None, 'Default: runs/EXPERIMENT/CONFIG.', flag_values=values)
  flags.DEFINE_bool('distributed', False, 'Start on each host of several.', flag_values=values)
  flags.DEFINE_bool('help', False, 'Show this.', short_name='h', flag_values=values)
  for path in (arg.removeprefix('--config=') for arg in argv if arg.startswith('--config=')):
    if not pathlib.Path(path.partition(':')[0]).is_file():
      raise ValueError(f'no config file {path}')
  try:
    rest = values(argv)[1:]
    if values.help:
      print(*(f'--{name}: {values[name].help}' for name in ('config', 'workdir', 'distributed')),
        '--config.FIELD=VALUE: changes a field of the config.', sep='\n')  # fmt: skip
      return None
    if rest or values.config is None:
      raise ValueError(f'unknown argument {rest[0]!r}' if rest else 'give --config=FILE')
    config = ml_collections.FrozenConfigDict(values.config)
  except (AttributeError, KeyError) as error:
    detail = getattr(error.args[0], 'args', error.args)[0]  # it may hold another error
    raise ValueError(f'no such field in the config: {detail}') from error
  except Exception as error:  # a config is code, and may fail in any way
    raise ValueError(str(error)) from error
  config_file = config_flags.get_config_filename(values['config'])
  experiment = train.__module__.removeprefix('experiments.').partition('.')[0]
  name = pathlib.Path(config_file).name.replace('.py:', '-').removesuffix('.py')
  workdir = values.workdir or pathlib.Path('runs', experiment, name)
  this = Run(config, experiment, config_file, pathlib.Path(workdir))
  _check_workdir(this)
  cpus = config.get('cpu_devices', 1)
  if cpus < 1:
    raise ValueError(f'config.cpu_devices must be positive, got {cpus}.')
  if cpus > 1 and jax.config.jax_num_cpu_devices != cpus:  # type: ignore[attr-defined]
    jax.config.update('jax_num_cpu_devices', cpus)
  if values.distributed:
    jax.distributed.initialize()
  kinds = ', '.join(sorted({device.device_kind for device in jax.devices()}))
  console.say(f'{experiment}: {config_file} in {this.workdir}, {jax.device_count()} × {kinds}')
  return this


def _check_workdir(this: Run) -> None:
  """Refuses a workdir that cannot be written, or whose run had another config."""
  existing = next(p for p in (this.workdir, *this.workdir.absolute().parents) if p.exists())
  if not existing.is_dir() or not os.access(existing, os.W_OK):
    raise ValueError(f'{this.workdir}: {existing} is no directory that can be written to')
  path = this.workdir / 'config.json'
  only = this.config.get('eval_only', False)
  if not path.is_file():
    if only:
      raise ValueError(f'config.eval_only: no finished run in {this.workdir}')
    return
  try:
    before = trees.named_leaves(json.loads(path.read_bytes()))
  except (ValueError, RecursionError) as error:
    raise ValueError(f'{path}: not a config: {error}') from error
  now = trees.named_leaves(this.config.to_dict())
  for name in sorted(before.keys() | now.keys()):
    old, new = before.get(name), now.get(name)
    if old != new and name != 'eval_only' and not (only and name.startswith(('eval_', 'eval.'))):
      raise ValueError(f'{path} has {name} = {old}, not {new}; choose another --workdir')


def _write_facts(this: Run, argv: Sequence[str]) -> None:
  facts = {
    'command': shlex.join(argv),
    'devices': [str(device) for device in jax.devices()],
    'versions': manifest.versions(_PACKAGES),
    **manifest.environment(),
  }
  files.write_json(this.workdir / 'config.json', this.config.to_dict())
  files.write_json(this.workdir / 'environment.json', facts)


def _fail(error: object, code: int) -> int:
  console.say('error: ' + ' '.join(str(error).split()))
  return code
