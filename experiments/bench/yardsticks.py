"""What a machine can do, and how much of it a function uses, measured in one process.

A time says little without the machine, and a machine differs from hour to hour. So a function's
rate is given as a share of the rate of a large matrix product, measured beside it.
"""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core


class Spread(NamedTuple):
  """Median and quartiles of repeated measurements.

  Attributes:
    median: half of the measurements lie below.
    low: first quartile.
    high: third quartile.
  """

  median: float
  low: float
  high: float


def time_per_call(
  fn: Callable[..., Any],
  *args: Any,
  repeats: int = 10,
  warmup: int = 2,
  min_seconds: float = 0.05,
) -> Spread:
  """Times calls of `fn(*args)` until their outputs are ready.

  A repeat is a run of as many calls as fill `min_seconds`, dispatched back to back and waited for
  once: what is measured is the rate of a loop, not the latency of a dispatch.

  Args:
    fn: function of arrays, compiled already if it is to be; it must not donate `args`.
    *args: its arguments.
    repeats: number of measurements, > 0.
    warmup: calls that nobody counts before, > 0: compilation, and caches that fill.
    min_seconds: shortest repeat, in seconds, >= 0.

  Returns:
    Seconds a call.

  Raises:
    ValueError: if a number is out of its range.
  """
  if repeats <= 0 or warmup <= 0 or min_seconds < 0:
    raise ValueError(
      f'Timing needs repeats, a warm-up and time, got {repeats=}, {warmup=}, {min_seconds=}.'
    )

  def seconds(calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
      out = fn(*args)
    jax.block_until_ready(out)
    return (time.perf_counter() - start) / calls

  once = min(seconds(1) for _ in range(warmup))
  calls = max(1, math.ceil(min_seconds / once))
  low, median, high = np.percentile([seconds(calls) for _ in range(repeats)], (25, 50, 75))
  return Spread(float(median), float(low), float(high))


def matmul_rate(size: int = 2048, **timing: Any) -> Spread:
  """Measures the rate of a square float32 matrix product, 2 size³ operations.

  At JAX's default precision, as the networks of the experiments run: on a GPU or TPU this may be
  less than float32's own.

  Args:
    size: side of the matrices, > 0.
    **timing: of `time_per_call`.

  Returns:
    Operations a second.
  """
  a, b = jax.random.normal(jax.random.key(0), (2, size, size))
  return _rate(2 * size**3, time_per_call(jax.jit(jnp.matmul), a, b, **timing))


def triad_bandwidth(elements: int = 2**25, **timing: Any) -> Spread:
  """Measures memory bandwidth by the triad a ← b + 3c (McCalpin's STREAM, 1995).

  Counts what STREAM counts: two float32 arrays read and one written.

  Args:
    elements: length of each array, > 0; the default's 128 MiB are more than a cache holds.
    **timing: of `time_per_call`.

  Returns:
    Bytes a second.
  """
  # Donated: a fresh `a` a call would measure how fast the system hands out pages.
  triad = jax.jit(lambda a, b, c: b + 3.0 * c, donate_argnums=0, keep_unused=True)
  a, b, c = jnp.zeros(elements), jnp.ones(elements), jnp.ones(elements)

  def step() -> jax.Array:
    nonlocal a
    a = triad(a, b, c)
    return a

  return _rate(3 * a.dtype.itemsize * elements, time_per_call(step, **timing))


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
  return _flops(jax.make_jaxpr(fn)(*args))


def measure(fn: Callable[..., Any], *args: Any, peak: float, **timing: Any) -> dict[str, float]:
  """Times a function and compares its rate with the machine's.

  Args:
    fn: a function that `jax.jit` takes.
    *args: its arguments.
    peak: operations a second to compare with, such as `matmul_rate().median`.
    **timing: of `time_per_call`.

  Returns:
    A dict of `seconds` (median), `seconds_low` and `seconds_high` (quartiles) a call, `gflop` a
    call, `gflop_per_s`, and `share`, the rate as a fraction of `peak`.
  """
  work = flops(fn, *args)
  seconds = time_per_call(jax.jit(fn), *args, **timing)
  rate = work / seconds.median
  return {
    'seconds': seconds.median,
    'seconds_low': seconds.low,
    'seconds_high': seconds.high,
    'gflop': work / 1e9,
    'gflop_per_s': rate / 1e9,
    'share': rate / peak,
  }


def _rate(work: float, seconds: Spread) -> Spread:
  return Spread(work / seconds.median, work / seconds.high, work / seconds.low)


def _flops(program: core.ClosedJaxpr) -> float:
  total = _flops_by_xla(program)
  for body, length, unroll in _scans(program.jaxpr):
    turns, rest = divmod(length, unroll)
    seen = rest + (unroll if turns else 0)
    total += length * _flops(body) - seen * _flops_by_xla(body)
  return total


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
