"""What flows may start from: mixtures over the regimes of contexts, and a Gaussian process."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from experiments.sysbio_flow import networks
from experiments.sysbio_flow.methods import learner
from lib.flow import priors, regimes

REGIMES = ('posterior', 'chosen', 'none', 'wrong')


class Mixture(NamedTuple):
  """What the regimes foretell of contexts.

  Attributes:
    means: (B, R, H), extrapolations.
    weights: (B, R), probabilities.
    draw: `(key, scale (B, H)) -> priors.Draw`, see `priors.structured_source`.
  """

  means: chex.Array
  weights: chex.Array
  draw: Callable[[chex.PRNGKey, chex.Array], priors.Draw]

  @property
  def features(self) -> chex.Array:
    """(B, H + R), what a network is told."""
    mean = jnp.einsum('br,brh->bh', self.weights, self.means)
    return jnp.concatenate([networks.squash(mean), self.weights], axis=-1)


def mixture(problem: learner.Problem, options: Any) -> Callable[[chex.Array], Mixture]:
  """`contexts (B, L_c) -> Mixture`; of a config's section with `regimes` of REGIMES.

  Regimes are weighed by how well fits to the first points of the context foretell the last
  `held_out` ones, where a true one misses `regime_std`. In place of an extrapolation beyond
  `limit` the steady one stands.
  """
  families = regimes.bases(problem.context, problem.horizon)
  early = problem.context - options.held_out
  earlier = regimes.bases(early, options.held_out)

  def tested(context):
    """Mean squared errors (B, R) at the last points of fits to those before."""
    found = regimes.fit(context[:, :early], earlier, options.limit, blend=0.0)
    errors = jnp.mean((found.means - context[:, None, early:]) ** 2, axis=-1)
    return jnp.where(jnp.isfinite(found.errors), errors, jnp.inf)

  def of(context):
    fits = regimes.fit(context, families, options.limit)
    known = jnp.isfinite(fits.errors)[..., None]
    fits = fits._replace(means=jnp.where(known, fits.means, fits.means[:, :1]))
    weights = _weights(fits.errors, tested(context), options)
    draw = lambda key, scale: priors.structured_source(key, fits, weights, scale, families)
    return Mixture(fits.means, weights, draw)

  return of


def lead_scale(problem: learner.Problem, options: Any, like: chex.Array) -> chex.Array:
  """Deviations (B, H) of the config's `s0` and `s1`, for contexts (B, L_c)."""
  scale = priors.lead_scale(problem.context, problem.horizon, options.s0, options.s1)
  return jnp.broadcast_to(jnp.asarray(scale, like.dtype), (len(like), problem.horizon))


def gaussian_process(
  problem: learner.Problem,
) -> Callable[[chex.Array], tuple[chex.Array, chex.Array]]:
  """`contexts (B, L_c) -> means (B, H), root (H, H)` with a kernel exp(-|s - t|), as TSFlow."""
  kernel = functools.partial(priors.ornstein_uhlenbeck, rate=1.0)
  times = jnp.arange(problem.context + problem.horizon) / problem.context * jnp.pi
  inside, beyond = times[: problem.context], times[problem.context :]
  return lambda context: priors.gp_posterior(context, kernel, inside, beyond, noise=1e-2)


def _weights(errors: chex.Array, tested: chex.Array, options: Any) -> chex.Array:
  """Probabilities (B, R) of the regimes, by errors of their fits and on points held out."""
  count = errors.shape[-1]
  steady = jax.nn.one_hot(0, count)
  if options.regimes == 'none':
    return jnp.broadcast_to(steady, errors.shape)
  known = jnp.isfinite(errors) & jnp.isfinite(tested)
  none = ~known.any(axis=-1, keepdims=True)
  tested = jnp.where(none, 1e9 * (1.0 - steady), jnp.where(known, tested, jnp.inf))
  if options.regimes == 'chosen':
    return jax.nn.one_hot(jnp.argmin(tested, axis=-1), count)
  weights = regimes.posterior(tested, np.zeros(count), options.held_out, options.regime_std)
  if options.regimes == 'wrong':  # any but the likeliest
    weights = known * (1.0 - jax.nn.one_hot(jnp.argmax(weights, axis=-1), count))
    lost = weights.sum(axis=-1, keepdims=True) == 0  # there is no other
    weights = jnp.where(lost, steady, weights)
    weights = weights / weights.sum(axis=-1, keepdims=True)
  return weights
