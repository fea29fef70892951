"""Host. The manifest of a cached directory: its files' digests, and how they were made."""

import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

from lib.io import files

NAME = 'manifest.json'
_SEAL = 'sha256'
_MAX_BYTES = 2**20


def sha256(path: str | os.PathLike) -> str:
  """Returns the SHA-256 digest of a file, in hexadecimal."""
  with open(path, 'rb') as stream:
    return hashlib.file_digest(stream, 'sha256').hexdigest()


def seal(directory: str | os.PathLike) -> None:
  """Writes a digest of all files below a directory into it, which says that they are complete."""
  pathlib.Path(directory, _SEAL).write_text(_digest_below(pathlib.Path(directory)))


def is_sealed(directory: str | os.PathLike) -> bool:
  """Returns whether a directory was sealed, and holds the same names and bytes as then."""
  seal = pathlib.Path(directory, _SEAL)
  return seal.is_file() and seal.read_text(errors='replace') == _digest_below(seal.parent)


def environment() -> dict[str, Any]:
  """Returns what a computation's last bits depend on: Python, the machine, and the code's commit.

  The commit is that of this repository, with a mark if files differ from it, and '' without git.
  """
  command = ['git', 'describe', '--always', '--dirty', '--abbrev=40', '--exclude=*']
  here = pathlib.Path(__file__).parent
  try:
    git = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False).stdout
  except FileNotFoundError:
    git = ''
  machine = f'{platform.platform()}, {os.cpu_count()} CPUs'
  return {'python': platform.python_version(), 'machine': machine, 'git': git.strip()}


def versions(packages: Iterable[str]) -> dict[str, str]:
  """Returns the installed version of each package, by name."""
  return {package: importlib.metadata.version(package) for package in packages}


def write(directory: str | os.PathLike, names: Iterable[str], facts: Mapping[str, Any]) -> None:
  """Writes the manifest of a directory, which says that it is complete.

  Args:
    directory: where the files are.
    names: the files, by their names in `directory`.
    facts: what else to record: the recipe, the versions, the seeds. JSON values.

  Raises:
    OSError: if a file is missing or the manifest cannot be written.
  """
  directory = pathlib.Path(directory)
  digests = {
    name: {'sha256': sha256(directory / name), 'bytes': (directory / name).stat().st_size}
    for name in names
  }
  files.write_json(directory / NAME, {**facts, 'files': digests})


def verify(directory: str | os.PathLike) -> dict[str, Any] | None:
  """Reads the manifest of a directory and compares every file with it.

  Args:
    directory: where the manifest and its files are.

  Returns:
    The manifest, or None where there is none: the directory was never completed.

  Raises:
    ValueError: naming the file that is missing or differs, or the manifest if it is malformed.
  """
  path = pathlib.Path(directory) / NAME
  if not path.exists():
    return None
  try:
    if path.stat().st_size > _MAX_BYTES:
      raise ValueError(f'is larger than {_MAX_BYTES} bytes')
    manifest = json.loads(path.read_bytes())
    digests = {name: (entry['sha256'], entry['bytes']) for name, entry in manifest['files'].items()}
    if any(name != os.path.basename(name) for name in digests):
      raise ValueError('names a file of another directory')
  except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
    raise ValueError(f'{path}: not a manifest: {error!r}.') from error
  for name, (digest, size) in digests.items():
    file = path.with_name(name)
    if not file.is_file():
      raise ValueError(f'{file}: missing, though {NAME} lists it; delete {directory} to remake it.')
    if file.stat().st_size != size or sha256(file) != digest:
      raise ValueError(
        f'{file}: its sha256 differs from {NAME}; restore it, or delete {directory} to remake it.'
      )
  return manifest


def _digest_below(directory: pathlib.Path) -> str:
  seal = directory / _SEAL
  paths = sorted(path for path in directory.rglob('*') if path.is_file() and path != seal)
  lines = (f'{path.relative_to(directory)} {sha256(path)}\n' for path in paths)
  return hashlib.sha256(''.join(lines).encode()).hexdigest()
