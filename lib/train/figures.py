"""Host. Figures."""

import os

from matplotlib import figure

from lib.io import files


def save(drawing: figure.Figure, path: str | os.PathLike) -> None:
  """Writes a PNG, whole or not at all; its directory is made."""
  with files.replacing(path) as stream:
    drawing.savefig(stream, format='png', dpi=150, bbox_inches='tight')
