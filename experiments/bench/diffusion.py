"""The cases of diffusion models: training, the likelihood of data, neighbours of samples."""

import functools
import math
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import ml_collections

from experiments.bench import yardsticks
from experiments.bench.case import Case, training
from experiments.renyi_diffusion import data, evaluate, methods
from lib.diffusion import likelihood, sde
from lib.io import fields
from lib.stats import neighbors


def check(config: ml_collections.ConfigDict) -> None:
  """Raises a ValueError that names the first bad field of `config.diffusion` or `.neighbors`."""
  sizes = config.diffusion
  for name in ('mlp', 'unet'):
    for field in ('num_seeds', 'updates', 'batch_size', 'rows', 'shape'):
      _positive(f'diffusion.{name}.{field}', sizes[name][field])
    try:
      methods.make(sizes[name], 'likelihood', sizes[name].shape)
    except (KeyError, TypeError, ValueError) as error:
      raise ValueError(f'config.diffusion.{name}: {error}') from error
  for field in ('points', 'rtol', 'atol'):
    _positive(f'diffusion.likelihood.{field}', sizes.likelihood[field])
  for field in ('updates', 'probes'):
    number = sizes.likelihood[field]
    fields.require(f'diffusion.likelihood.{field}', number, number >= 0, 'zero or more')
  if 'digits_likelihood' in config.cases:
    try:
      data.check(sizes.likelihood.data)
    except ValueError as error:
      raise ValueError(f'config.diffusion.likelihood: {error}') from error
  for field in ('points', 'features', 'k'):
    _positive(f'neighbors.{field}', config.neighbors[field])
  count = config.neighbors.points
  fields.require('neighbors.points', count, count > config.neighbors.k, 'more than k')


def updates(method_name: str, network: str, config: ml_collections.ConfigDict) -> Case:
  """The inner loop of training by a method of the Rényi experiment, on random points.

  Args:
    method_name: of `experiments.renyi_diffusion.methods`.
    network: 'mlp' or 'unet', sections of `config.diffusion`. Each has what that experiment's config
      says of `sde`, `network`, `objective` and `optimizer`, and the `shape` of a datum.
    config: of the benchmark.

  Returns:
    As `case.training`.
  """
  sizes = config.diffusion[network]
  method = methods.make(sizes, method_name, sizes.shape)
  points = jax.random.normal(jax.random.key(1), (sizes.rows, math.prod(sizes.shape)))
  return training(method, points, sizes)


def digits_likelihood(config: ml_collections.ConfigDict) -> Case:
  """The log-likelihood of scikit-learn's digits, by the probability flow.

  The flow of a fresh network takes few steps: it is trained before.

  Args:
    config: its `diffusion.likelihood` has the numbers of `points`, of `probes` of the divergence
      (0: exact) and of the `updates` of training before, and the tolerances; `diffusion.mlp` is
      the model.

  Returns:
    A function of (params, x, key). Its work is that of the field's evaluations, which are counted
    in a call of their own.
  """
  sizes, model = config.diffusion.likelihood, config.diffusion.mlp
  point_key, probe_key = jax.random.split(jax.random.key(0))
  digits = data.load(sizes.data, sizes.points, 0)
  x = jax.jit(digits.sample)(digits.train, point_key)
  params = _fit(x, fields.vary(model, ml_collections.ConfigDict({'updates': sizes.updates})))
  process, network = methods.process(model), methods.network(model, model.shape, 'likelihood')

  def score(params: Any) -> sde.Field:
    return sde.score_of_noise(process, lambda y, t: network.noise(params, y, t))

  def log_p(params, x, key, seen: Callable[[], None] | None = None):
    def traced(f, y):
      if seen:
        jax.debug.callback(seen)
      return evaluate.divergence(sizes.probes, key)(f, y)

    return likelihood.log_likelihood(
      score(params), process, x, model.start, traced, sizes.rtol, sizes.atol
    )[0]

  def rates(params, x, key):  # the velocity, and a trace that shares its pass
    velocity = sde.probability_flow(process, score(params))
    moved, push = jax.linearize(lambda y: velocity(y, jnp.full((len(y), 1), 0.5)), x)
    return moved, evaluate.divergence(sizes.probes, key)(push, x)

  args = (params, x, probe_key)
  _, evaluations = counted(log_p, *args)
  work = evaluations * yardsticks.flops(rates, *args)
  counts = {'evaluations': float(evaluations)}
  return Case(log_p, args, sizes.points, 1, 'point', work, counts=counts)


def counted(fn: Callable[..., Any], *args: Any) -> tuple[Any, int]:
  """Returns `fn(*args, seen=seen)` and how often the compiled program calls `seen()`."""
  count = 0

  def seen() -> None:
    nonlocal count
    count += 1

  out = jax.block_until_ready(jax.jit(functools.partial(fn, seen=seen))(*args))
  jax.effects_barrier()
  return out, count


def neighbors_of_samples(config: ml_collections.ConfigDict) -> Case:
  """Precision, recall, density and coverage of two samples of one normal law.

  Args:
    config: its `neighbors` has the `points` of each sample, their `features`, and `k`.

  Returns:
    A function of (real, fake).
  """
  sizes = config.neighbors
  real, fake = jax.random.normal(jax.random.key(0), (2, sizes.points, sizes.features))
  fn = lambda real, fake: neighbors.prdc(real, fake, sizes.k)
  return Case(fn, (real, fake), unit='run')


def _fit(x: chex.Array, sizes: ml_collections.ConfigDict) -> Any:
  """Parameters after `sizes.updates` of maximum likelihood on the points, of the first seed."""
  loop = training(methods.make(sizes, 'likelihood', sizes.shape), x, sizes)
  states, _ = jax.jit(loop.fn)(*loop.args)
  return jax.tree.map(lambda p: p[0], states.params)


def _positive(name: str, numbers: Any) -> None:
  several = numbers if isinstance(numbers, tuple) else (numbers,)
  fields.require(name, numbers, bool(several) and all(x > 0 for x in several), 'positive')


CASES: dict[str, Callable[[ml_collections.ConfigDict], Case]] = {
  'diffusion_mlp_likelihood': functools.partial(updates, 'likelihood', 'mlp'),
  'diffusion_mlp_renyi': functools.partial(updates, 'renyi', 'mlp'),
  'diffusion_unet': functools.partial(updates, 'likelihood', 'unet'),
  'digits_likelihood': digits_likelihood,
  'neighbors': neighbors_of_samples,
}
