"""SBML files of BioModels: where they lie, and what their annotations say of them.

The curated ones up to number 1045 come inside the package SBMLKinetics; newer ones are read from a
folder of the user's. Malik-Sheriff et al. (2020), doi:10.1093/nar/gkz1055.
"""

import hashlib
import importlib.util
import pathlib
import re
import zipfile
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

_MAX_BYTES = 2**25  # of one file
_PROCESSES = ('metabolic', 'signalling')  # archives of the package that list some of its models
ORGANISMS = {  # by their numbers in the NCBI taxonomy
  9606: 'Homo sapiens',
  10090: 'Mus musculus',
  10116: 'Rattus norvegicus',
  4932: 'Saccharomyces cerevisiae',
  40674: 'Mammalia',
  562: 'Escherichia coli',
}
_PUBLICATION = re.compile(r'(?:pubmed|doi)[/:]([^"\s<>]+)')
_TAXON = re.compile(r'taxonomy[/:](?:NCBITaxon:)?(\d+)')
_DESCRIBED = re.compile(r'<bqmodel:isDescribedBy>(.*?)</bqmodel:isDescribedBy>', re.DOTALL)
_SPECIES = re.compile(r'<species\s[^>]*?\bid\s*=\s*"([^"]+)"')
_LIST = re.compile(r'<listOf')


class Source(NamedTuple):
  """Where the text of a model lies.

  Attributes:
    path: of the file, or of the archive that holds it.
    size: of the text, in bytes.
    member: its name in the archive; '' for a file.
  """

  path: str
  size: int
  member: str = ''

  def read(self) -> bytes:
    """The text; raises ValueError where it is too large or no member, OSError if unreadable."""
    path = pathlib.Path(self.path)
    if self.size > _MAX_BYTES:
      raise ValueError(f'{path}: {self.member} takes {self.size} bytes, more than {_MAX_BYTES}')
    if not self.member:
      return path.read_bytes()
    try:
      with zipfile.ZipFile(path) as archive:
        return archive.read(self.member)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
      raise ValueError(f'{path}: no whole member {self.member}: {error}') from error


class Facts(NamedTuple):
  """What a file says of its model.

  Attributes:
    publications: identifiers of what describes it.
    species: identifiers of its species, sorted.
    organism: a name of `ORGANISMS`, 'other', or 'unknown' where none is named.
  """

  publications: tuple[str, ...]
  species: tuple[str, ...]
  organism: str


def sources(folder: str = '') -> dict[str, Source]:
  """Where each model lies, by name.

  Args:
    folder: of the user's, with more models, NAME.xml each; '' for none. Where the package has a
      model of that name, it is that of the folder that counts.

  Returns:
    Sources by name, sorted.

  Raises:
    ModuleNotFoundError: if the package is not installed.
    ValueError: if it has no models, or the folder none.
  """
  archive = _package() / 'curated.zip'
  found = {
    pathlib.PurePath(member.filename).stem: Source(str(archive), member.file_size, member.filename)
    for member in _members(archive)
  }
  if folder:
    own = sorted(pathlib.Path(folder).glob('*.xml'))
    if not own:
      raise ValueError(f'{folder}: has no file NAME.xml')
    found |= {path.stem: Source(str(path), path.stat().st_size) for path in own}
  return dict(sorted(found.items()))


def processes() -> dict[str, str]:
  """The kind of process of the models of which the package knows it, by name."""
  found = {}
  for kind in _PROCESSES:
    for member in _members(_package() / f'{kind}.zip'):
      found[pathlib.PurePath(member.filename).stem] = kind
  return found


def facts(text: bytes) -> Facts:
  """Reads a model's annotations; what is not there is left out."""
  words = text.decode(errors='replace')
  head = words[: first.start()] if (first := _LIST.search(words)) else words
  described = ' '.join(_DESCRIBED.findall(words)) or head
  taxa = [int(number) for number in _TAXON.findall(head)]
  known = [ORGANISMS[number] for number in taxa if number in ORGANISMS]
  return Facts(
    publications=tuple(sorted({p.lower().rstrip('/.') for p in _PUBLICATION.findall(described)})),
    species=tuple(sorted(set(_SPECIES.findall(words)))),
    organism=known[0] if known else 'other' if taxa else 'unknown',
  )


def groups(all_facts: Mapping[str, Facts]) -> dict[str, str]:
  """Puts together what are variants of one model: one publication, or the same species.

  Args:
    all_facts: by name.

  Returns:
    The first name of each one's group, by name; groups are closed under both relations.
  """
  parents = {name: name for name in all_facts}

  def root(name: str) -> str:
    while parents[name] != name:
      parents[name] = name = parents[parents[name]]
    return name

  firsts: dict[object, str] = {}
  for name in sorted(all_facts):
    own = all_facts[name]
    keys: Iterable[object] = (*own.publications, *((own.species,) if own.species else ()))
    for key in keys:
      one, other = sorted((root(name), root(firsts.setdefault(key, name))))
      parents[other] = one
  return {name: root(name) for name in all_facts}


def split(of_groups: Mapping[str, str], shares: Mapping[str, float], seed: int) -> dict[str, str]:
  """Deals whole groups to the splits, in an order of their own.

  So another group more or less, as on a machine on which another model takes too long, moves the
  ends of the splits by one group, not all groups.

  Args:
    of_groups: the group of each model, by name.
    shares: of each split, which sum to 1.
    seed: of the order.

  Returns:
    The split of each model, by name.
  """
  names = sorted(set(of_groups.values()))
  names.sort(key=lambda name: hashlib.sha256(f'{seed} {name}'.encode()).digest())
  ends = np.cumsum([*shares.values()]) * len(names)
  kinds = list(shares)
  dealt = {
    name: kinds[min(int(np.searchsorted(ends, place, side='right')), len(kinds) - 1)]
    for place, name in enumerate(names)
  }
  return {name: dealt[group] for name, group in of_groups.items()}


def _package() -> pathlib.Path:
  """The directory of the package's data, without importing it."""
  spec = importlib.util.find_spec('SBMLKinetics')
  if spec is None or not spec.submodule_search_locations:
    raise ModuleNotFoundError('the models come with the package SBMLKinetics, not installed')
  return pathlib.Path(spec.submodule_search_locations[0]) / 'data'


def _members(archive: pathlib.Path) -> list[zipfile.ZipInfo]:
  with zipfile.ZipFile(archive) as stream:
    return [member for member in stream.infolist() if member.filename.endswith('.xml')]
