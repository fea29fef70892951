"""Host. Metrics of a run: JSON lines to compute with, TensorBoard events and a bar to look at."""

import contextlib
import json
import math
import os
import pathlib
import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike
from tensorboardX import event_file_writer, summary
from tensorboardX.proto import event_pb2

from lib.io import files, jsonl, progress

Record = dict[str, Any]
_FIELDS = {'step': int, 'kind': str}


class Writer(contextlib.AbstractContextManager):
  """Appends records to WORKDIR/metrics.jsonl and to TensorBoard's events beside it.

  Events are written at once: tensorboardX's own thread dies of a full disk in silence, and is then
  waited for for ever. Of several hosts only the first writes.

  Args:
    workdir: directory of the run, or None to write nothing.
  """

  def __init__(self, workdir: str | os.PathLike | None):
    self.label = pathlib.Path(workdir or 'run').name
    self._workdir = pathlib.Path(workdir) if workdir and jax.process_index() == 0 else None
    self._progress: progress.Progress | None = None
    self._num_steps = 0
    self._lines: Any = None
    self._events: Any = None

  def __exit__(self, *exception) -> None:
    self.close()

  def start(self, step: int, num_steps: int) -> None:
    """Begins at `step`: drops the records that come again, all later ones and its evaluations."""
    self.close()
    self._progress = progress.Progress(self.label, 'step', silent=jax.process_index() > 0)
    self._progress(step, num_steps)
    self._num_steps = num_steps
    if self._workdir:
      self._open(self._workdir, step)
      session = event_pb2.SessionLog(status=event_pb2.SessionLog.START)  # hides the later events
      self._events.write_event(event_pb2.Event(step=step + 1, session_log=session))

  def train(self, step: int, means: Mapping[str, ArrayLike]) -> None:
    """Writes a record of kind 'train', and shows the loss, or else the last metric, in the bar."""
    self.write(step, 'train', **means)
    name = 'loss' if 'loss' in means else ['', *means][-1]
    if self._progress:
      note = f'{name} {np.asarray(means[name]).mean():.4g}' if name else ''
      self._progress(step, self._num_steps, note)

  def write(self, step: int, kind: str, **values: ArrayLike) -> None:
    """Writes a record.

    Args:
      step: number of steps done.
      kind: what the record is about, such as 'train' or 'eval'.
      **values: scalars, or arrays (S,) of one number a seed; TensorBoard gets their mean.

    Raises:
      ValueError: if a value has more axes.
      OSError: if the disk is full.
    """
    arrays = {name: np.asarray(value) for name, value in values.items()}
    for name, array in arrays.items():
      if array.ndim > 1:
        raise ValueError(f'Metric {name} must be a scalar or (S,), got shape {array.shape}.')
    if self._workdir is None:
      return
    if self._lines is None:
      self._open(self._workdir)
    record = {'step': step, 'kind': kind, **{name: _plain(x) for name, x in arrays.items()}}
    self._lines.write(json.dumps(record, allow_nan=False) + '\n')
    self._lines.flush()
    for name, array in arrays.items():
      value = summary.scalar(f'{kind}/{name}', float(array.mean()))
      self._events.write_event(event_pb2.Event(wall_time=time.time(), step=step, summary=value))
    self._events.flush()

  def close(self) -> None:
    """Closes the files and the bar."""
    for stream in (self._lines, self._events, self._progress):
      if stream is not None:
        stream.close()
    self._lines = self._events = self._progress = None

  def _open(self, workdir: pathlib.Path, start: float = math.inf) -> None:
    """Opens the files at their end, the lines without a torn one and what `start` drops."""
    path = workdir / 'metrics.jsonl'
    found = jsonl.read(path, _FIELDS) if path.exists() else []
    with files.replacing(path) as stream:
      for line, record in found:
        if (record['step'], record['kind'] != 'train') < (start, True):
          stream.write(line)
    self._lines = open(path, 'a')  # noqa: SIM115
    self._events = event_file_writer.EventsWriter(str(workdir / 'events'), f'.{time.time_ns()}')


def read(path: str | os.PathLike) -> list[Record]:
  """Reads metrics.jsonl; numbers that were not finite are NaN.

  A last line that a killed run left unfinished is no record. Raises OSError if the file cannot be
  read, and ValueError, naming the line, if it is of something else.
  """
  number = lambda x: math.nan if x is None else x
  return [
    {name: [*map(number, x)] if isinstance(x, list) else number(x) for name, x in record.items()}
    for _, record in jsonl.read(path, _FIELDS)
  ]


def series(path: str | os.PathLike, kind: str) -> dict[str, dict[int, np.ndarray]]:
  """Reads the values of one kind of records by metric and step; the later one of a step counts."""
  found: dict[str, dict[int, np.ndarray]] = {}
  for record in read(path) if os.path.isfile(path) else []:
    if record['kind'] == kind:
      for metric in record.keys() - _FIELDS.keys():
        found.setdefault(metric, {})[record['step']] = np.asarray(record[metric])
  return found


def _plain(array: np.ndarray) -> Any:
  """Returns JSON's own numbers; it has none for NaN and infinity, which become null."""
  array = array if array.dtype.kind in 'biu' else array.astype(np.float64)
  return np.where(np.isfinite(array), array.astype(object), np.array(None)).tolist()
