"""Host. The training loop: many steps in one compiled call, checkpoints, logs, a clean stop."""

import functools
import time
from collections.abc import Callable, Generator
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from lib.train import console, devices, signals
from lib.train.checkpoint import Checkpoints
from lib.train.metrics import Writer

State = Any
Step = Callable[[State, Any, chex.PRNGKey], tuple[State, dict[str, chex.Array]]]
Sample = Callable[[Any, chex.PRNGKey], Any]


class Diverged(ArithmeticError):  # noqa: N818 - it is a result, as StopIteration is
  """A metric stopped being finite, or the state holds a NaN (then `metric` is 'state').

  `step` is the first such update, counted from 1, and `seed` the index of the seed.
  """

  def __init__(self, step: int, metric: str, seed: int):
    super().__init__(f'diverged: {metric} is not finite at step {step}, in seed {seed}')
    self.step, self.metric, self.seed = step, metric, seed


def chunks(
  step: Step,
  sample: Sample,
  data: chex.ArrayTree,
  state: State,
  keys: chex.PRNGKey,
  *,
  num_steps: int,
  chunk_steps: int,
  writer: Writer,
  checkpoints: Checkpoints | None,
  checkpoint_every: int,
  vmapped: bool = True,
) -> Generator[tuple[int, State], State | None, None]:
  """Trains, and hands the state to the caller's evaluation after every chunk of steps.

  A step's randomness depends on its seed's key and its number alone: a run that goes on from a
  checkpoint ends with the same bits, and no seed's result depends on the others.

  Args:
    step: `step(state, batch, key) -> (state, metrics)` for one seed; metrics are named scalars.
    sample: `sample(data, key) -> batch` for one seed.
    data: arrays, put on the devices once and shared by the seeds.
    state: initial state, with a leading axis of seeds where `keys` has one; it is copied.
    keys: typed keys (S,): S seeds train at once under `vmap`. Or one key (), without that axis.
    num_steps: steps in all.
    chunk_steps: steps in one compiled call; the last call may have fewer.
    writer: takes the metrics' means over each chunk as records of kind 'train'.
    checkpoints: where to go on from and to save to, if anywhere.
    checkpoint_every: steps between checkpoints, a multiple of `chunk_steps`; the end is saved too.
    vmapped: False trains the seeds one after another within a step, which a CPU wants where each
      convolves with kernels of its own: under `vmap` those leave its fast path.

  Yields:
    (steps done, state): first step 0 or the latest checkpoint, whose evaluations are to be written
    again, for `writer` dropped them; then after every chunk, saved where it is due. The state is
    valid until the next chunk, which donates it and trains the one that the caller sent, if any.

  Raises:
    ValueError: if the numbers of steps do not fit together.
    CheckpointError: if the checkpoint is of a state with another structure.
    Diverged: if a metric is not finite; the checkpoint before it is kept.
    Stopped: after saving, if a signal came.
  """
  if chunk_steps <= 0 or checkpoint_every <= 0 or checkpoint_every % chunk_steps:
    raise ValueError(f'{checkpoint_every=} must be a multiple of {chunk_steps=}, both positive.')
  mesh = devices.mesh(keys.size)
  lead = ('seed',) if keys.ndim else ()
  data, (keys, state) = devices.place(data, mesh), devices.place((keys, state), mesh, *lead)
  # A copy, because chunks donate it: the caller keeps his, and no two leaves share a buffer.
  state = jax.tree.map(jnp.copy, state)
  done, state = (checkpoints and checkpoints.restore(state)) or (0, state)
  if done > num_steps:
    raise ValueError(f'The checkpoint has {done} steps, more than {num_steps=}.')
  size = sum(x.size for x in jax.tree.leaves(state)) // keys.size
  console.say(
    f'{writer.label}: {keys.size} seed(s) of {size:,} numbers (parameters, optimiser) on '
    f'{mesh.size} device(s), steps {done:,} to {num_steps:,}'
  )
  writer.start(done, num_steps)

  @functools.cache
  def compiled(length: int) -> Callable:
    placed = NamedSharding(mesh, PartitionSpec(*lead))
    everywhere = NamedSharding(mesh, PartitionSpec())
    chunk = functools.partial(_chunk, step, sample, mesh, length, vmapped)
    jitted = jax.jit(chunk, donate_argnums=0, out_shardings=(placed, everywhere, everywhere))
    return jitted.lower(state, data, keys, np.int32(0)).compile()

  saved = True
  while True:
    try:
      signals.check_together()
      sent = yield done, state
      signals.check_together()
    except (signals.Stopped, GeneratorExit):  # the latter where the caller's own check raised
      if checkpoints and not saved and signals.received():
        checkpoints.save(done, state)
      raise
    if done == num_steps:
      return
    state = state if sent is None else sent
    length = min(chunk_steps - done % chunk_steps, num_steps - done)
    run_chunk = compiled(length)
    begin = time.perf_counter()
    state, *seen = run_chunk(state, data, keys, np.int32(done))
    metrics, has_nan = jax.device_get(seen)
    seconds = time.perf_counter() - begin
    _check_finite(metrics, has_nan, done, length)
    done += length
    means = {name: values.mean(axis=0, dtype=np.float64) for name, values in metrics.items()}
    writer.train(done, {'steps_per_second': length / seconds, **means})
    saved = done % checkpoint_every == 0 or done == num_steps
    if checkpoints and saved:
      checkpoints.save(done, state)


def _chunk(
  step: Step, sample: Sample, mesh: Mesh, length: int, vmapped: bool, state, data, keys, start
):
  """Traced. Returns the state after `length` steps, metrics (length, [S]), and who has a NaN."""
  over_seeds = jax.vmap if keys.ndim else lambda fn, in_axes=0: fn
  train = over_seeds(step)
  if keys.ndim and not vmapped:
    train = lambda *each: jax.lax.map(lambda one: step(*one), each)

  def body(state, index):
    now = over_seeds(lambda key: jax.random.split(jax.random.fold_in(key, index)))(keys)
    batch = over_seeds(sample, in_axes=(None, 0))(data, now[..., 0])
    batch = devices.constrain_batch(batch, mesh, seeded=keys.ndim == 1)
    state, metrics = train(state, batch, now[..., 1])
    chex.assert_shape(list(metrics.values()), keys.shape)
    return state, metrics

  def has_nan(state):
    floats = [x for x in jax.tree.leaves(state) if jnp.issubdtype(x.dtype, jnp.inexact)]
    return jnp.stack([jnp.isnan(x).any() for x in floats] or [jnp.array(False)]).any()

  state, metrics = jax.lax.scan(body, state, start + jnp.arange(length))
  return state, metrics, over_seeds(has_nan)(state)


def _check_finite(metrics: dict[str, np.ndarray], has_nan: np.ndarray, done: int, length: int):
  """Raises `Diverged` for the first step of a chunk at which a metric is not finite."""
  bad = {name: ~np.isfinite(values.reshape(length, -1)) for name, values in metrics.items()}
  bad = {name: steps for name, steps in bad.items() if steps.any()}
  if bad:
    first = min(int(steps.any(axis=1).argmax()) for steps in bad.values())
    names = [name for name, steps in bad.items() if steps[first].any()]
    raise Diverged(done + first + 1, ', '.join(names), int(bad[names[0]][first].argmax()))
  if has_nan.any():  # the last gradient overflowed, too late for this chunk's metrics
    raise Diverged(done + length, 'state', int(has_nan.argmax()))
