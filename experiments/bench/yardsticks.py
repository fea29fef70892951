"""What a machine can do, and how much of it a function uses, measured side by side.

A time says little without the machine, and a machine differs from hour to hour. So a function's
rate is compared with that of a large matrix product, measured in turn with it.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend import core


class Task(NamedTuple):
  """Something to time.

  Attributes:
    call: dispatches the work once and returns arrays; they are waited for.
    work: operations or bytes of one call.
    memory: bytes that it needs, arguments and results included; NaN if unknown.
    traffic: bytes that one call has to read from memory, at least; NaN if unknown.
  """

  call: Callable[[], Any]
  work: float
  memory: float = math.nan
  traffic: float = math.nan


def matmul(size: int = 2048) -> Task:
  """A square float32 matrix product, 2 size³ operations.

  At JAX's default precision, as the networks of the experiments run: on a GPU or TPU this may be
  less than float32's own.

  Args:
    size: side of the matrices, > 0.
  """
  a, b = jax.random.normal(jax.random.key(0), (2, size, size))
  product = jax.jit(jnp.matmul)
  return Task(lambda: product(a, b), 2 * size**3)


def triad(elements: int = 2**25) -> Task:
  """The triad a ← b + 3c (McCalpin's STREAM, 1995), whose rate is the memory's bandwidth.

  Counts the bytes that STREAM counts: two float32 arrays read and one written.

  Args:
    elements: length of each array, > 0; the default's 128 MiB are more than a cache holds.
  """
  # Donated: a fresh `a` a call would measure how fast the system hands out pages.
  step = jax.jit(lambda a, b, c: b + 3.0 * c, donate_argnums=0, keep_unused=True)
  a, b, c = jnp.zeros(elements), jnp.ones(elements), jnp.ones(elements)

  def call() -> jax.Array:
    nonlocal a
    a = step(a, b, c)
    return a

  return Task(call, 3 * a.dtype.itemsize * elements)


def function(
  fn: Callable[..., Any], *args: Any, work: float | None = None, traffic: float | None = None
) -> Task:
  """A function that `jax.jit` takes, with its arguments; its operations are those of `flops`.

  Args:
    fn: the function.
    *args: its arguments.
    work: operations of a call, instead of counting them.
    traffic: bytes that a call has to read.
  """
  compiled = jax.jit(fn).lower(*args).compile()
  sizes = compiled.memory_analysis()
  names = ('argument', 'output', 'temp')
  memory = sum(getattr(sizes, f'{name}_size_in_bytes', math.nan) for name in names)
  work = flops(fn, *args) if work is None else work
  return Task(lambda: compiled(*args), work, memory, math.nan if traffic is None else traffic)


def rates(
  tasks: Mapping[str, Task], num_rounds: int, min_seconds: float = 0.05
) -> Iterator[dict[str, float]]:
  """Times tasks in turn, round after round, so that what else the machine does befalls them alike.

  One measurement is a run of as many calls as fill `min_seconds`, dispatched back to back and
  waited for once: the rate of a loop, not the latency of a dispatch.

  Args:
    tasks: by name.
    num_rounds: measurements of each task, > 0.
    min_seconds: shortest measurement, in seconds, >= 0.

  Yields:
    Each task's work a second, round by round. Before the first come calls that nobody counts:
    compilation, and caches that fill.

  Raises:
    ValueError: if a number is out of its range.
  """
  if num_rounds <= 0 or min_seconds < 0:
    raise ValueError(f'Timing needs rounds and time, got {num_rounds=}, {min_seconds=}.')
  calls = {}
  for name, task in tasks.items():
    _seconds(task.call, 1)
    calls[name] = max(1, math.ceil(min_seconds / _seconds(task.call, 1)))
  for _ in range(num_rounds):
    yield {
      name: task.work * calls[name] / _seconds(task.call, calls[name])
      for name, task in tasks.items()
    }


def flops(fn: Callable[..., Any], *args: Any) -> float:
  """Counts the floating-point operations of `fn(*args)`, by XLA's cost analysis of the program.

  The program as written, before XLA's optimisations, so that the count is the same on each
  backend. XLA counts the body of a loop once, whatever the number of turns: the body of each
  `scan` is here counted apart and multiplied by its length. (A scan in a branch of a `cond` counts
  as if its branch were taken.) Transcendental functions and calls of libraries, such as matrix
  decompositions, are not counted.

  Args:
    fn: a function that `jax.jit` takes.
    *args: its arguments, or `jax.ShapeDtypeStruct`s.

  Returns:
    Operations a call.

  Raises:
    ValueError: if `fn` holds a `while_loop`, for the number of its turns is not known; count its
      body instead.
  """
  return _flops(jax.make_jaxpr(fn)(*args))[0]


def _seconds(call: Callable[[], Any], times: int) -> float:
  start = time.perf_counter()
  for _ in range(times):
    out = call()
  jax.block_until_ready(out)
  return time.perf_counter() - start


def _flops(program: core.ClosedJaxpr) -> tuple[float, float]:
  """Counts a program's operations, and those that XLA sees."""
  total = seen = _flops_by_xla(program)
  for body, length, unroll in _scans(program.jaxpr):
    turns, rest = divmod(length, unroll)
    body_total, body_seen = _flops(body)
    total += length * body_total - (rest + (unroll if turns else 0)) * body_seen
  return total, seen


def _flops_by_xla(program: core.ClosedJaxpr) -> float:
  """Counts the body of each loop once."""
  inputs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in program.in_avals]
  cost = jax.jit(core.jaxpr_as_fun(program)).lower(*inputs).cost_analysis()
  if cost is None:
    raise NotImplementedError(f'XLA has no cost analysis on {jax.default_backend()}.')
  return cost.get('flops', 0.0)


def _scans(jaxpr: core.Jaxpr) -> Iterator[tuple[core.ClosedJaxpr, int, int]]:
  """Yields body, length and unrolled turns of each scan that is not inside another one."""
  for eqn in jaxpr.eqns:
    if eqn.primitive.name == 'while':
      raise ValueError('The turns of a while_loop are not known: count the FLOPs of its body.')
    if eqn.primitive.name == 'scan':
      yield eqn.params['jaxpr'], eqn.params['length'], eqn.params['unroll']
    else:
      for inner in core.jaxprs_in_params(eqn.params):
        yield from _scans(inner)
