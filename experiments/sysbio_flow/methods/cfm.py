"""Conditional flow matching from a source of one's choice to the future of a series.

A network reads the context once, and says a guess of the future and a code. A second one says, at a
point of a path (1 - u) x_0 + u y, where the path ends, less the guess; the velocity is what leads
there, (end - x) / (1 - u), which in the mean over paths is the velocity of flow matching (Lipman et
al., 2023). Samples start from the source:

  gaussian    x_0 ~ N(0, I)
  structured  a mixture over regimes, extrapolations of closed form with noise that is correlated as
              the regime's
  gp          the posterior of a Gaussian process, TSFlow (Kollovieh et al., 2025, arXiv:2410.03024)
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.sysbio_flow import networks
from experiments.sysbio_flow.methods import learner, sources
from lib.flow import integrate, losses, paths, priors

SOURCES = ('gaussian', 'structured', 'gp')
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


def make(problem: learner.Problem, options: Any) -> learner.Network:
  """Of config.cfm.

  Fields: `source` of SOURCES; `feature`, whether the network sees what the regimes foretell;
  `space` of `networks.SPACES`, in which flows are; `s0` and `s1` of `priors.lead_scale`;
  `regimes`, `held_out`, `regime_std` and `limit` of `sources.mixture`; `width`, `layers` of what
  reads the context and `head_layers` of the rest; `draws` of source and time for each series of a
  batch; Euler `steps`.
  """
  encoder = Encoder(options.width, options.layers, problem.horizon)
  endpoint = networks.Field(options.width, options.head_layers, problem.horizon)
  begin = source(problem, options)
  forward, back = networks.SPACES[options.space]

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

    def velocity(x, time):
      end = guess + endpoint.apply(params['endpoint'], x, time, code)
      return (end - x) / jnp.maximum(1.0 - time, _LEAST)

    return velocity

  def loss(params, batch, key):
    key_time, key_draw = jax.random.split(key)
    starts = begin(batch['context'])
    velocity = field(params, batch['context'], starts.features)
    x0 = jax.vmap(starts.draw)(jax.random.split(key_draw, options.draws))
    x1 = forward(batch['future'])
    time = jax.random.uniform(key_time, (*x0.shape[:-1], 1))
    x, truth = paths.linear_path(x0, jnp.broadcast_to(x1, x0.shape), time)
    weights = jnp.maximum(1.0 - time[..., 0], _LEAST) ** 2  # of an error of the end
    return losses.flow_matching_loss(velocity(x, time), truth, weights)

  def forecast(params, context, key, num_samples):
    starts = begin(context)
    velocity = field(params, context, starts.features)
    flow = lambda key: back(integrate.euler(velocity, starts.draw(key), options.steps))
    return jax.lax.map(flow, jax.random.split(key, num_samples))

  return learner.Network(init, loss, forecast)


def source(problem: learner.Problem, options: Any) -> Callable[[chex.Array], Source]:
  """`contexts (B, L_c) -> Source`."""
  forward, _ = networks.SPACES[options.space]
  mixture = sources.mixture(problem, options)
  process = sources.gaussian_process(problem)

  def begin(context):
    draw = lambda key: jax.random.normal(key, (len(context), problem.horizon))
    features = jnp.zeros((len(context), 0))
    if options.source == 'gp':
      mean, root = process(context)
      draw, features = lambda key: priors.gaussian_source(key, forward(mean), 1.0, root), mean
    if options.source == 'structured' or options.feature:
      mixed = mixture(context)
      features = mixed.features
    if options.source == 'structured':

      def draw(key):  # the noise is of the same size in either space
        found = mixed.draw(key, sources.lead_scale(problem, options, context))
        return forward(found.mean) + found.x0 - found.mean

    return Source(draw, features if options.feature else features[:, :0])

  return begin
