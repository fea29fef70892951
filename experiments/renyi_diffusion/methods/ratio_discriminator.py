"""Rényi training, objective B with a discriminator, B2: its logit is log p_t/q_t.

A small network tells noised data from noised samples of the model; both learn together.
Reconstructed.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from experiments.renyi_diffusion import networks
from experiments.renyi_diffusion.methods import learner
from lib.diffusion import samplers, sde
from lib.diffusion.renyi import objectives
from lib.nn import embeddings, mlp


class Discriminator(NamedTuple):
  """Its parameters and its optimiser's state."""

  params: learner.Params
  opt_state: optax.OptState


def make(problem: learner.Problem) -> learner.Method:
  """α Z/2 times the mean of the errors, weighted by the discriminator's ratios."""
  process, sizes = problem.process, problem.objective.discriminator
  network = mlp.MLP(sizes.hidden, 1)
  optimizer = optax.adam(sizes.learning_rate)
  grid = samplers.log_snr_grid(process, problem.start, sizes.sampler_steps)

  def logits(params, points, t):
    s = networks.CLOCKS[sizes.clock](process, t)
    inputs = jnp.concatenate([points, s, embeddings.fourier(s[:, 0], sizes.time_frequencies)], -1)
    return network.apply(params, inputs)[:, 0]

  def init_extra(key, reference):
    width = problem.dim + 1 + 2 * sizes.time_frequencies
    params = network.init(key, jnp.zeros((1, width)))
    return Discriminator(params, optimizer.init(params))

  def loss(params, state, x, key):
    draw_key, dropout_key, sample_key, noise_key = jax.random.split(key, 4)
    draws = learner.draw(problem, x, draw_key, 'importance')
    errors = learner.errors(problem, params, x, draws, dropout_key)
    frozen = jax.lax.stop_gradient(params)
    samples = samplers.dpm_solver(
      lambda y, t: problem.network.noise(frozen, y, t),
      process,
      samplers.prior(process, sample_key, x.shape),
      grid,
    )
    t = draws.t.reshape(-1, 1)
    spread = lambda y: jnp.repeat(y, draws.t.shape[1], axis=0)
    real = sde.perturb(process, spread(x), draws.eps.reshape(-1, x.shape[-1]), t)
    fake = sde.perturb(process, spread(samples), jax.random.normal(noise_key, real.shape), t)
    value = lambda p: objectives.discriminator_loss(logits(p, real, t), logits(p, fake, t))
    told, grads = jax.value_and_grad(value)(state.extra.params)
    updates, opt_state = optimizer.update(grads, state.extra.opt_state)
    extra = Discriminator(optax.apply_updates(state.extra.params, updates), opt_state)
    ratios = logits(state.extra.params, real, t).reshape(draws.t.shape)
    total, metrics = learner.ratio_weighted(problem, errors, ratios)
    return total, ({**metrics, 'discriminator_loss': told}, extra)

  return learner.learner(problem, loss, init_extra)
