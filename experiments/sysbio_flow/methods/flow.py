"""Conditional flow matching from a source of one's choice to the future of a series.

A network reads the context once, and says a guess of the future and a code. A second one says, at a
point of a path (1 - u) x_0 + u y, where the path ends, less the guess; the velocity is what leads
there, (end - x) / (1 - u), which in the mean over paths is the velocity of flow matching (Lipman et
al., 2023). Samples start from the source:

  gaussian    x_0 ~ N(0, I)
  structured  a mixture over regimes, extrapolations of closed form with noise that is correlated as
              the regime's
  learnt      the guess with that noise; the guess is also fitted by itself, to medians. As CGFM
              (arXiv:2507.07192), but for the regimes
  gp          the posterior of a Gaussian process, TSFlow (Kollovieh et al., 2025, arXiv:2410.03024)
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from experiments.sysbio_flow import networks
from experiments.sysbio_flow.methods import learner
from lib.flow import integrate, losses, paths, priors, regimes
from lib.nn import embeddings

SOURCES = ('gaussian', 'structured', 'gp', 'learnt')
REGIMES = ('posterior', 'chosen', 'none', 'wrong')
SPACES = ('linear', 'asinh')
_LEAST = 0.02  # time that a path is taken to have left, where it has less


class Source(NamedTuple):
  """Where the flows of contexts begin.

  Attributes:
    draw: `key -> x_0 (B, H)`, in the space of the flow.
    features: (B, F), what the network is told of it.
  """

  draw: Callable[[chex.PRNGKey], chex.Array]
  features: chex.Array


class Encoder(nn.Module):
  """What a context (B, L_c) and features (B, F) say of the future: a code (B, width), a guess."""

  width: int
  layers: int
  horizon: int

  @nn.compact
  def __call__(self, context, features):
    residual = networks.Residual(self.width, self.layers, self.width + self.horizon)
    found = residual(networks.differences(context), features)
    return found[:, : self.width], found[:, self.width :]


class Endpoint(nn.Module):
  """Where paths end (B, H), as seen at points (B, H) and times (B, 1), less the guess."""

  width: int
  layers: int
  horizon: int

  @nn.compact
  def __call__(self, x, time, code):
    inputs = [x, code, embeddings.fourier(time[..., 0], 4)]
    residual = networks.Residual(self.width, self.layers, self.horizon)
    return residual(*inputs)


def make(problem: learner.Problem, options: Any) -> learner.Network:
  """Of config.flow.

  Fields: `source` of SOURCES; `feature`, whether the network sees what the regimes foretell;
  `regimes` of REGIMES, how a regime is drawn; `space` of SPACES, in which flows are; `s0` and `s1`
  of `priors.lead_scale`; `held_out`, `regime_std` and `limit` of `prior`; `guess_weight` of the
  guess's own loss; `width`, `layers` of what reads the context and `head_layers` of the rest;
  `draws` of source and time for each series of a batch; Euler `steps`.
  """
  encoder = Encoder(options.width, options.layers, problem.horizon)
  endpoint = Endpoint(options.width, options.head_layers, problem.horizon)
  begin = source(problem, options)
  forward, back = transform(options)

  def init(key):
    keys = jax.random.split(key)
    context, code = jnp.zeros((1, problem.context)), jnp.zeros((1, options.width))
    x, time = jnp.zeros((1, problem.horizon)), jnp.zeros((1, 1))
    return {
      'encoder': encoder.init(keys[0], context, begin(context).features),
      'endpoint': endpoint.init(keys[1], x, time, code),
    }

  def field(params, context, features):
    """The velocity `(x (..., B, H), time (..., B, 1)) -> (..., B, H)`."""
    code, guess = encoder.apply(params['encoder'], context, features)
    guess = guess + forward(context[:, -1:])
    center = jax.lax.stop_gradient(guess) if options.source == 'learnt' else 0.0

    def velocity(x, time):
      codes = jnp.broadcast_to(code, (*x.shape[:-1], options.width))
      end = guess + endpoint.apply(params['endpoint'], x, time, codes)
      return (end - x) / jnp.maximum(1.0 - time, _LEAST)

    return velocity, guess, center

  def loss(params, batch, key):
    key_time, key_draw = jax.random.split(key)
    starts = begin(batch['context'])
    velocity, guess, center = field(params, batch['context'], starts.features)
    x0 = center + jax.vmap(starts.draw)(jax.random.split(key_draw, options.draws))
    x1 = jnp.broadcast_to(forward(batch['future']), x0.shape)
    time = jax.random.uniform(key_time, (*x0.shape[:-1], 1))
    x, truth = paths.linear_path(x0, x1, time)
    found = velocity(x, time)
    weights = jnp.maximum(1.0 - time[..., 0], _LEAST) ** 2  # of an error of the end
    loss = losses.flow_matching_loss(found, truth, weights)
    if options.source == 'learnt':
      loss = loss + options.guess_weight * jnp.mean(abs(guess - x1[0]))
    return loss

  def forecast(params, context, key, num_samples):
    starts = begin(context)
    velocity, _, center = field(params, context, starts.features)
    flow = lambda key: back(integrate.euler(velocity, center + starts.draw(key), options.steps))
    return jax.lax.map(flow, jax.random.split(key, num_samples))

  return learner.Network(init, loss, forecast)


def transform(options: Any) -> tuple[Callable, Callable]:
  """From series to the space of the flow, and back."""
  return (jnp.arcsinh, jnp.sinh) if options.space == 'asinh' else (lambda x: x,) * 2


def source(problem: learner.Problem, options: Any) -> Callable[[chex.Array], Source]:
  """`contexts (B, L_c) -> Source`."""
  forward, _ = transform(options)
  mixture, gaussian = prior(problem, options), gp(problem)

  def begin(context):
    draw = lambda key: jax.random.normal(key, (len(context), problem.horizon))
    features = jnp.zeros((len(context), 0))
    if options.source == 'gp':
      mean, root = gaussian(context)
      draw, features = lambda key: priors.gaussian_source(key, forward(mean), 1.0, root), mean
    if options.source in ('structured', 'learnt') or options.feature:
      means, weights, sample = mixture(context)
      mean = jnp.einsum('br,brh->bh', weights, means)
      features = jnp.concatenate([networks.squash(mean), weights], axis=-1)
    if options.source in ('structured', 'learnt'):

      def draw(key):  # the noise is of the same size in either space
        found = sample(key)
        center = forward(found.mean) if options.source == 'structured' else 0.0
        return center + found.x0 - found.mean

    return Source(draw, features if options.feature else features[:, :0])

  return begin


def prior(problem: learner.Problem, options: Any) -> Callable:
  """`contexts (B, L_c) -> means (B, R, H), weights (B, R), (key -> Draw)` of the regimes' mixture.

  Regimes are weighed by how well fits to the first points of the context foretell the last ones. In
  place of an extrapolation that runs away the steady one stands.
  """
  families = regimes.bases(problem.context, problem.horizon)
  early = problem.context - options.held_out
  earlier = regimes.bases(early, options.held_out)

  def tested(context):
    """Mean squared errors (B, R) at the last points of fits to those before."""
    found = regimes.fit(context[:, :early], earlier, options.limit, blend=0.0)
    errors = jnp.mean((found.means - context[:, None, early:]) ** 2, axis=-1)
    return jnp.where(jnp.isfinite(found.errors), errors, jnp.inf)

  scale = jnp.asarray(priors.lead_scale(problem.context, problem.horizon, options.s0, options.s1))

  def mixture(context):
    fits = regimes.fit(context, families, options.limit)
    known = jnp.isfinite(fits.errors)[..., None]
    fits = fits._replace(means=jnp.where(known, fits.means, fits.means[:, :1]))
    weights = _weights(fits.errors, tested(context), options)
    own = jnp.broadcast_to(scale.astype(context.dtype), (len(context), problem.horizon))
    sample = lambda key: priors.structured_source(key, fits, weights, own, families)
    return fits.means, weights, sample

  return mixture


def gp(problem: learner.Problem) -> Callable[[chex.Array], tuple[chex.Array, chex.Array]]:
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
