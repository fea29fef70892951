"""Host. Worker processes that answer requests, and that never outlive their parent."""

import atexit
import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing import connection
from typing import Any, NamedTuple, Self

Handler = Callable[[Any], Any]
_START_SECONDS = 120.0  # that a process may take before its first request
_PING = '__ping__'  # a request that every worker answers, once it has started


class Lost(NamedTuple):
  """Why there is no answer to a request: its worker failed, died, or took too long."""

  reason: str


def num_cores() -> int:
  """Returns how many cores this process may use."""
  return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


class Workers:
  """Processes with one handler each; `with Workers(...) as workers:` ends them.

  Args:
    makes: for each worker a picklable `make() -> handle`, called in its process;
      `handle(request) -> answer` then serves.
  """

  def __init__(self, makes: Sequence[Callable[[], Handler]]):
    self._makes = list(makes)
    self._processes: list[multiprocessing.process.BaseProcess] = []
    self._connections: list[connection.Connection] = []
    atexit.register(self.close)
    for make in self._makes:
      process, pipe = _start(make)
      self._processes.append(process)
      self._connections.append(pipe)

  def __enter__(self) -> Self:
    return self

  def __exit__(self, *exception) -> None:
    self.close()

  def __len__(self) -> int:
    return len(self._processes)

  def send(self, worker: int, request: Any) -> None:
    """Sends a request to one worker.

    Raises:
      RuntimeError: if the worker died.
    """
    try:
      self._connections[worker].send(request)
    except OSError:
      self.receive(worker)  # it may have said why

  def receive(self, worker: int) -> Any:
    """Waits for the answer to the oldest request that this worker has not answered.

    Raises:
      RuntimeError: with the worker's traceback, if its handler raised, or if it died.
    """
    try:
      answer, error = self._connections[worker].recv()
    except (EOFError, OSError):
      self._processes[worker].join(timeout=1.0)
      code = self._processes[worker].exitcode
      raise RuntimeError(f'Worker process {worker} died with exit code {code}.') from None
    if error is not None:
      raise RuntimeError(f'Worker process {worker} failed:\n{error}')
    return answer

  def map_unordered(self, requests: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Serves requests by whichever worker is free.

    Args:
      requests: what to send, in this order.

    Yields:
      (request, answer), as they come.

    Raises:
      RuntimeError: if a worker fails or dies.
    """
    remaining = iter(requests)
    pending: dict[Any, tuple[int, Any]] = {}
    for worker, request in zip(range(len(self)), remaining, strict=False):
      self.send(worker, request)
      pending[self._connections[worker]] = worker, request
    while pending:
      for ready in connection.wait(list(pending)):
        worker, request = pending.pop(ready)
        answer = self.receive(worker)
        with contextlib.suppress(StopIteration):
          following = next(remaining)
          self.send(worker, following)
          pending[ready] = worker, following
        yield request, answer

  def map_within(self, requests: Iterable[Any], seconds: float) -> Iterator[tuple[Any, Any | Lost]]:
    """As `map_unordered`, but what a request does to its worker concerns no other request.

    A worker that fails, dies or takes too long is replaced by a new one.

    Args:
      requests: what to send, in this order.
      seconds: the most that one may take, > 0, beside the start of its worker.

    Yields:
      (request, answer), or (request, Lost), as they come.

    Raises:
      RuntimeError: if a worker cannot start.
    """
    remaining = iter(requests)
    pending = {worker: self._ping(worker) for worker in range(len(self))}
    while pending:
      pipes = {self._connections[worker]: worker for worker in pending}
      first = min(deadline for _, deadline in pending.values())
      ready = connection.wait(list(pipes), max(0.0, first - time.monotonic()))
      done = {pipes[pipe] for pipe in ready}  # type: ignore[index]
      late = {worker for worker, (_, when) in pending.items() if when <= time.monotonic()}
      for worker in done | late:
        request, _ = pending.pop(worker)
        try:
          if worker not in done:
            raise RuntimeError(f'took more than {seconds:g} s')
          answer = self.receive(worker)
        except RuntimeError as error:
          if request == _PING:
            raise
          answer = Lost(str(error).splitlines()[-1])
          self._replace(worker)
          pending[worker] = self._ping(worker)
        else:
          with contextlib.suppress(StopIteration):
            following = next(remaining)
            pending[worker] = following, time.monotonic() + seconds
            self._connections[worker].send(following)
        if request != _PING:
          yield request, answer

  def _ping(self, worker: int) -> tuple[Any, float]:
    self.send(worker, _PING)
    return _PING, time.monotonic() + _START_SECONDS

  def _replace(self, worker: int) -> None:
    self._processes[worker].kill()
    self._processes[worker].join()
    self._connections[worker].close()
    self._processes[worker], self._connections[worker] = _start(self._makes[worker])

  def close(self) -> None:
    """Ends the processes at once."""
    atexit.unregister(self.close)
    for process in self._processes:
      process.kill()
    for process, pipe in zip(self._processes, self._connections, strict=True):
      process.join()
      pipe.close()
    self._processes.clear()
    self._connections.clear()


def _start(
  make: Callable[[], Handler],
) -> tuple[multiprocessing.process.BaseProcess, connection.Connection]:
  context = multiprocessing.get_context('spawn')
  ours, theirs = context.Pipe()
  with _bystander_signals_blocked(), _main_module_hidden():
    process = context.Process(target=_serve, args=(theirs, make), daemon=True)
    process.start()
  theirs.close()
  return process, ours


def _serve(pipe: connection.Connection, make: Callable[[], Handler]) -> None:
  threading.Thread(target=_exit_with_parent, daemon=True).start()
  try:
    handle = make()
    while True:
      request = pipe.recv()
      pipe.send((None if request == _PING else handle(request), None))
  except EOFError:
    pass
  except Exception:
    pipe.send((None, traceback.format_exc()))


def _exit_with_parent() -> None:
  parent = multiprocessing.parent_process()
  assert parent is not None
  connection.wait([parent.sentinel])
  os._exit(1)  # also in the middle of an episode


@contextlib.contextmanager
def _bystander_signals_blocked() -> Iterator[None]:
  """Processes that start here leave Ctrl-C and SIGTERM to their parent.

  Terminals and schedulers signal the whole group; the parent decides what to finish first.
  """
  mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
  try:
    yield
  finally:
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextlib.contextmanager
def _main_module_hidden() -> Iterator[None]:
  """Processes that start here do not import the caller's main module, and with it all of jax."""
  main = sys.modules['__main__']
  sys.modules['__main__'] = types.ModuleType('__main__')
  try:
    yield
  finally:
    sys.modules['__main__'] = main
