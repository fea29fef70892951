"""What the methods share: their signature, draws of times and noise, and one step of Adam."""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import ml_collections
import optax

from experiments.renyi_diffusion import networks
from lib.diffusion import losses, sde, times
from lib.diffusion.renyi import objectives

Params = Any
Metrics = dict[str, chex.Array]


class State(NamedTuple):
  """Everything that one run of one method carries from update to update.

  Attributes:
    params: of the network.
    ema: their moving average, which is what is scored and sampled from.
    opt_state: of the optimiser.
    count: updates done, int32.
    extra: what a method keeps beside, such as the parameters of a frozen reference; or 0.
  """

  params: Params
  ema: Params
  opt_state: optax.OptState
  count: chex.Array
  extra: Any


class Method(NamedTuple):
  """One objective, for one seed; `jax.vmap` gives it several.

  Attributes:
    init: `init(key, reference) -> State`; the reference's parameters, or None.
    update: `update(state, x (B, D), key) -> (State, metrics)`.
  """

  init: Callable[[chex.PRNGKey, Params], State]
  update: Callable[[State, chex.Array, chex.PRNGKey], tuple[State, Metrics]]


class Problem(NamedTuple):
  """What a loss is made of.

  Attributes:
    objective: the fields of `config.objective`.
    process: the diffusion.
    start: the earliest time.
    network: the network that is trained.
    steps: updates in all.
    optimizer: the fields of `config.optimizer`.
    dim: D of the data.
    reference: the network of the frozen reference; None where the method has none.
  """

  objective: ml_collections.ConfigDict
  process: sde.SDE
  start: float
  network: networks.Network
  steps: int
  optimizer: ml_collections.ConfigDict
  dim: int
  reference: networks.Network | None = None


class Draws(NamedTuple):
  """Points at which a batch is denoised: times t (B, K) and noise eps (B, K, D)."""

  t: chex.Array
  eps: chex.Array


# `loss(params, state, x, key) -> (loss, (metrics, extra))`.
Loss = Callable[[Params, State, chex.Array, chex.PRNGKey], tuple[chex.Array, tuple[Metrics, Any]]]


def draw(problem: Problem, x: chex.Array, key: chex.PRNGKey, law: str) -> Draws:
  """Draws K stratified times for each datum, and noise.

  By the law 'importance' or 'uniform'; 'shared' is importance with the same K times for all data.
  """
  time_key, noise_key = jax.random.split(key)
  shape = (len(x), problem.objective.num_times)
  u = times.stratified(time_key, (1, shape[1]) if law == 'shared' else shape)
  place = times.uniform_times if law == 'uniform' else times.importance_times
  eps = jax.random.normal(noise_key, (*shape, x.shape[-1]))
  return Draws(jnp.broadcast_to(place(problem.process, u, problem.start), shape), eps)


def errors(
  problem: Problem, params: Params, x: chex.Array, draws: Draws, key: chex.PRNGKey
) -> chex.Array:
  """The network's squared errors (B, K), with dropout where it has any."""
  noise = lambda points, t: problem.network.noise(params, points, t, key)
  return losses.denoising_errors(noise, problem.process, x, draws.eps, draws.t)


def denoise(
  problem: Problem, params: Params, x: chex.Array, key: chex.PRNGKey, law: str
) -> tuple[Draws, chex.Array]:
  """Draws times and noise by a law, and returns them with the network's errors (B, K) there."""
  draw_key, dropout_key = jax.random.split(key)
  draws = draw(problem, x, draw_key, law)
  return draws, errors(problem, params, x, draws, dropout_key)


def reference_errors(problem: Problem, params: Params, x: chex.Array, draws: Draws) -> chex.Array:
  """The frozen reference's squared errors (B, K) at the same points."""
  noise = lambda points, t: problem.reference.noise(params, points, t)
  found = losses.denoising_errors(noise, problem.process, x, draws.eps, draws.t)
  return jax.lax.stop_gradient(found)


def datum_losses(problem: Problem, draws: Draws, errors: chex.Array, law: str) -> chex.Array:
  """Each datum's bound on its negative log-likelihood (B,), in nats up to a constant."""
  if law != 'uniform':
    return losses.likelihood_losses(errors, normalizer(problem))
  weights = losses.likelihood_weights(problem.process, draws.t)
  return losses.likelihood_losses(weights * errors, problem.process.horizon - problem.start)


def tilted(
  bounds: chex.Array, base: chex.Array, weights: chex.Array, tilt: chex.Array
) -> tuple[chex.Array, Metrics]:
  """The weighted mean of losses (B,), and what their tilted bounds (B,) tell."""
  metrics = {
    'bound': jnp.mean(bounds),
    'effective_fraction': objectives.effective_fraction(weights),
    'effective_alpha': 1.0 + tilt,
  }
  return jnp.mean(weights * base), metrics


def ratio_weighted(
  problem: Problem, errors: chex.Array, log_ratios: chex.Array
) -> tuple[chex.Array, Metrics]:
  """Objective B of errors (B, K), weighted by ratios of densities (B, K)."""
  config = problem.objective
  weights = objectives.ratio_weights(log_ratios, config.alpha, config.max_weight)
  metrics = {'effective_fraction': jnp.mean(jax.vmap(objectives.effective_fraction)(weights.T))}
  return objectives.ratio_loss(errors, weights, normalizer(problem), config.alpha), metrics


def normalizer(problem: Problem) -> chex.Array:
  """Z of the importance-sampled times."""
  return times.importance_normalizer(problem.process, problem.start)


def tilt(problem: Problem, values: chex.Array, dim: int, count: chex.Array) -> chex.Array:
  """The tilt c of the batch's losses that `config.objective` asks for.

  'nats': c = α - 1. 'dimension': c = (α - 1)/D. 'fraction': the sign of α - 1, as strong as leaves
  the effective sample that fraction of the batch. It grows from 0 over the first updates.
  """
  config = problem.objective
  ramp = 1.0
  if config.warmup_fraction:
    ramp = jnp.minimum(1.0, count / (config.warmup_fraction * problem.steps))
  if config.scale == 'fraction' and config.alpha != 1:
    sign = 1.0 if config.alpha > 1 else -1.0
    found = objectives.tilt_for_fraction(jax.lax.stop_gradient(values), config.fraction, sign)
  else:
    found = jnp.float32((config.alpha - 1.0) / (dim if config.scale == 'dimension' else 1))
  return ramp * found


def learner(problem: Problem, loss: Loss, init_extra: Callable | None = None) -> Method:
  """Builds a method from its loss.

  Args:
    problem: network, diffusion and numbers.
    loss: see `Loss`; the `extra` that it returns is the next state's.
    init_extra: `init_extra(key, reference) -> extra`.

  Returns:
    The method, which trains by Adam and averages its parameters.
  """
  optimizer = make_optimizer(problem.optimizer, problem.steps)

  def init(key, reference=None):
    params_key, extra_key = jax.random.split(key)
    params = problem.network.init(params_key)
    extra = init_extra(extra_key, reference) if init_extra else jnp.int32(0)
    ema = jax.tree.map(jnp.copy, params)
    return State(params, ema, optimizer.init(params), jnp.int32(0), extra)

  def update(state, x, key):
    value = lambda params: loss(params, state, x, key)
    (total, (metrics, extra)), grads = jax.value_and_grad(value, has_aux=True)(state.params)
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    # An average that starts at the initial parameters forgets them at the rate of its steps.
    decay = jnp.minimum(problem.optimizer.ema, (1.0 + state.count) / (10.0 + state.count))
    ema = optax.incremental_update(params, state.ema, 1.0 - decay)
    return State(params, ema, opt_state, state.count + 1, extra), {'loss': total, **metrics}

  return Method(init, update)


def make_optimizer(config: ml_collections.ConfigDict, steps: int) -> optax.GradientTransformation:
  """Adam with a warm-up, then a constant or a falling cosine rate, and clipped gradients."""
  warmup = min(round(config.warmup_fraction * steps), steps - 1)
  if config.schedule == 'cosine':
    rate = optax.warmup_cosine_decay_schedule(
      config.learning_rate if warmup == 0 else 0.0, config.learning_rate, warmup, steps
    )
  else:
    rate = (
      optax.linear_schedule(0.0, config.learning_rate, warmup) if warmup else config.learning_rate
    )
  adam = optax.adam(rate, b1=config.beta1, eps=config.eps)
  return optax.chain(optax.clip_by_global_norm(config.clip), adam) if config.clip else adam
