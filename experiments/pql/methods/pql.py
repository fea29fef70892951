"""PDE-regularised Q-learning: flow Q-learning whose behaviour flow is smooth along its whole path.

Two changes to flow Q-learning: a penalty on the velocity field that the continuity equation
motivates, and times from a Beta law. With weight 0 and uniform times it is flow Q-learning.
"""

import jax
import jax.numpy as jnp
import ml_collections

from experiments.pql.methods import agent, bc_flow, fql
from lib.flow import losses, paths, regularizers, timesteps

# A form maps (field, path, key, num_probes) to the velocities (B, A) at the path's points, which
# flow matching needs too, and to its penalty there (B,). `field` is u(a, t) at the batch's states,
# (B, A) and (B, 1) to (B, A); 0 probes stand for the exact penalty. For `divergence` and
# `divergence_match`, whose squares need independent probes, `num_probes` counts pairs.


def jacobian(field, path, key, num_probes):
  """‖∂u/∂a‖_F²."""
  f = lambda a: field(a, path.times)
  if num_probes == 0:
    return f(path.points), regularizers.frobenius_sq_exact(f, path.points)
  return regularizers.velocity_and_frobenius_sq(f, path.points, key, num_probes)


def strain(field, path, key, num_probes):
  """‖(J + Jᵀ)/2‖_F², the part of the Jacobian that separates trajectories."""
  f = lambda a: field(a, path.times)
  if num_probes == 0:
    return f(path.points), regularizers.strain_sq_exact(f, path.points)
  return f(path.points), regularizers.strain_sq_hutchinson(f, path.points, key, num_probes)


def divergence(field, path, key, num_probes):
  """(tr J)², by which the density changes along a trajectory."""
  f = lambda a: field(a, path.times)
  if num_probes == 0:
    return f(path.points), regularizers.divergence_exact(f, path.points) ** 2
  return f(path.points), regularizers.divergence_sq_hutchinson(f, path.points, key, num_probes)


def divergence_match(field, path, key, num_probes):
  """(tr J - tr J*)² against the conditional field's, weighted by (1 - t)² against its pole."""
  f = lambda a: field(a, path.times)
  target = paths.conditional_divergence(path.times, path.points.shape[-1])
  if num_probes == 0:
    errors = (regularizers.divergence_exact(f, path.points) - target) ** 2
  else:
    errors = regularizers.divergence_sq_hutchinson(f, path.points, key, num_probes, target)
  return f(path.points), (1.0 - path.times[:, 0]) ** 2 * errors


def material(field, path, key, num_probes):
  """‖∂_t u + (u·∇)u‖², zero where trajectories are straight and of constant speed."""
  del key, num_probes  # exact
  acceleration = regularizers.material_derivative(field, path.points, path.times)
  return field(path.points, path.times), jnp.sum(acceleration**2, axis=-1)


def continuity(field, path, key, num_probes):
  """The continuity equation's residual in score form, times (1 - t)² against its double pole."""
  del key, num_probes  # exact
  residual = regularizers.continuity_residual_score_form(field, path.points, path.times)
  weighted = (1.0 - path.times) ** 2 * residual
  return field(path.points, path.times), jnp.sum(weighted**2, axis=-1)


def no_penalty(field, path, key, num_probes):
  """Nothing, at no cost: what remains is flow Q-learning to the last bit."""
  del key, num_probes
  return field(path.points, path.times), None


FORMS = {
  form.__name__: form
  for form in (jacobian, strain, divergence, divergence_match, material, continuity)
}
REDUCTIONS = {'mean': lambda penalty, dim: penalty / dim, 'sum': lambda penalty, dim: penalty}
TIME_LAWS = {
  'uniform': lambda key, shape, time: timesteps.sample_uniform(key, shape),
  'beta': lambda key, shape, time: timesteps.sample_beta(key, shape, time.a, time.b),
}
TIME_LOG_PROBS = {
  'uniform': lambda times, time: jnp.zeros_like(times),
  'beta': lambda times, time: timesteps.beta_log_prob(times, time.a, time.b),
}
MAX_IMPORTANCE_WEIGHT = 10.0


def flow_loss_of(config: ml_collections.ConfigDict):
  """Builds the regularised loss L_BC + λ L_PDE of the behaviour flow from `config.agent`."""
  sample_times = TIME_LAWS[config.time.law]
  log_prob = TIME_LOG_PROBS[config.time.law]
  penalise = FORMS[config.pde.form] if config.pde.weight else no_penalty
  reduce = REDUCTIONS[config.pde.reduction]

  def flow_loss(flow, params, batch, key):
    noise_key, time_key, probe_key = jax.random.split(key, 3)  # as in `bc_flow.flow_loss`
    actions, observations = batch['actions'], batch['observations']
    times = sample_times(time_key, (actions.shape[0], 1), config.time)
    path = bc_flow.interpolate(actions, times, noise_key)
    field = lambda a, t: flow(params, observations, a, t)
    velocities, penalties = penalise(field, path, probe_key, config.pde.num_probes)
    weights = None
    if config.time.importance_weight:
      log_p = log_prob(times, config.time)[:, 0]
      weights = timesteps.importance_weights(log_p, MAX_IMPORTANCE_WEIGHT)
    matching = losses.flow_matching_loss(velocities, path.velocities, weights)
    if penalties is None:
      return matching, {'flow_loss': matching}
    penalty = jnp.mean(reduce(penalties, actions.shape[-1]) * (1.0 if weights is None else weights))
    loss = matching + config.pde.weight * penalty
    return loss, {'flow_loss': matching, 'pde_penalty': penalty}

  return flow_loss


def make(config: ml_collections.ConfigDict, spec: agent.Spec) -> agent.Method:
  """Flow Q-learning over the regularised behaviour flow."""
  return fql.make(config, spec, flow_loss_of(config))
