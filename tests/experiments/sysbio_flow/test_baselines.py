"""Tests of the learnt baselines: what each is by definition, and that each learns."""

import functools
import types

import chex
import distrax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl.testing import absltest, parameterized
from scipy import stats

from experiments.sysbio_flow.methods import (
  csdi,
  deepar,
  dlinear,
  latent_ode,
  learner,
  nbeats,
  patchtst,
)
from lib.diffusion import sde as sdes
from tests.experiments.sysbio_flow import toys

MAKE = {
  'dlinear': dlinear.make,
  'patchtst': patchtst.make,
  'nbeats': nbeats.make,
  'deepar': deepar.make,
  'latent_ode': latent_ode.make,
  'csdi': csdi.make,
}
LINEAR = {'space': 'linear'}
OPTIONS = {
  'dlinear': LINEAR | {'kernel': 5},
  'patchtst': LINEAR
  | {
    'patch': 4,
    'stride': 2,
    'width': 8,
    'layers': 1,
    'heads': 2,
    'rank': 4,
  },
  'nbeats': LINEAR
  | {
    'stacks': nbeats.STACKS,
    'blocks': 1,
    'size': 3,
    'width': 16,
    'layers': 1,
  },
  'deepar': {'width': 12, 'noise': 0.02, 'limit': 25.0},
  'latent_ode': {'latent': 4, 'width': 12, 'floor': 0.01, 'steps': 6},
  'csdi': {
    'schedule': 'cosine',
    'width': 32,
    'layers': 1,
    'head_layers': 1,
    'draws': 2,
    'gamma': 1.0,
    'sampler': 'dpm',
    'steps': 4,
    'limit': 25.0,
  },
}
QUANTILES = ('dlinear', 'patchtst', 'nbeats')
ALL = tuple(MAKE)
CONTEXT, HORIZON = 8, 6
PROBLEM = learner.Problem(CONTEXT, HORIZON, toys.waves(12, CONTEXT, HORIZON))
BATCH = {'context': jnp.asarray(PROBLEM.train.context), 'future': jnp.asarray(PROBLEM.train.future)}


STEPS, COUNT = 100, 20
KEY = jax.random.key(0)
# What runs for a moment is not worth optimising.
jit = functools.partial(
  jax.jit,
  compiler_options={
    'xla_backend_optimization_level': 0,
    'xla_llvm_disable_expensive_passes': True,
  },
)


@functools.cache
def network(name, **changes):
  return MAKE[name](PROBLEM, types.SimpleNamespace(**{**OPTIONS[name], **changes}))


def random_like(shapes, scale=0.3):
  """Parameters at random, some of which start at zero."""
  rng = np.random.default_rng(0)
  return jax.tree.map(lambda x: jnp.asarray(scale * rng.normal(size=x.shape), x.dtype), shapes)


@functools.cache
def random(name, scale=0.3):
  return random_like(jax.eval_shape(network(name).init, KEY), scale)


def zeros(name):
  return jax.tree.map(jnp.zeros_like, random(name))


@functools.cache
def trainer(name):
  """`batch -> params, losses (2, STEPS)`, of seeds side by side."""
  optimizer, own = optax.adam(2e-2), network(name)

  def train(params, batch, key):
    def step(state, key):
      params, opt_state = state
      loss, gradient = jax.value_and_grad(own.loss)(params, batch, key)
      updates, opt_state = optimizer.update(gradient, opt_state)
      return (optax.apply_updates(params, updates), opt_state), loss

    keys = jax.random.split(key, STEPS)
    (params, _), losses = jax.lax.scan(step, (params, optimizer.init(params)), keys)
    return params, losses

  run = jit(jax.vmap(train, in_axes=(0, None, 0)))
  start = jax.tree.map(lambda *x: jnp.stack(x), random(name, 0.2), random(name, 0.1))
  return lambda batch: run(start, batch, jax.random.split(KEY, 2))


@functools.cache
def forecaster(name, **changes):
  own = network(name, **changes)
  return jit(lambda params, context, key: own.forecast(params, context, key, COUNT))


def forecast(name, params, context=BATCH['context'], key=KEY, **changes):
  """Samples (COUNT, B, H) as numpy."""
  return np.asarray(forecaster(name, **changes)(params, context, key))


class AllTest(parameterized.TestCase):
  @parameterized.parameters(*ALL)
  def test_learns_where_the_context_tells_the_future(self, name):
    params, losses = trainer(name)(BATCH)
    start, end = losses[:, :10].mean(axis=1), losses[:, -10:].mean(axis=1)
    self.assertTrue((end < np.maximum(0.7 * start, start - 0.4)).all(), (start, end))
    error = lambda params: abs(np.median(forecast(name, params), axis=0) - BATCH['future']).mean()
    for seed in range(2):
      own = jax.tree.map(lambda x, seed=seed: x[seed], params)
      self.assertLess(error(own), 0.7 * error(zeros(name)))

  @parameterized.parameters(*ALL)
  def test_training_stays_finite_on_what_is_large_and_what_is_flat(self, name):
    rows = np.arange(len(BATCH['context']))[:, None] % 2
    chex.assert_tree_all_finite(
      trainer(name)({k: 25 * rows * jnp.sign(x) for k, x in BATCH.items()})
    )

  @parameterized.parameters(*ALL)
  def test_samples_are_of_the_key_and_of_their_series(self, name):
    params, context = random(name), BATCH['context']
    one, other = (forecast(name, params, key=jax.random.key(i)) for i in (0, 1))
    chex.assert_shape(one, (COUNT, len(context), HORIZON))
    chex.assert_tree_all_finite(one)
    np.testing.assert_array_equal(one, forecast(name, params))
    self.assertGreater(abs(one - other).max(axis=(1, 2)).min(), 0)
    self.assertGreater(one.std(axis=0).max(axis=1).min(), 0)
    changed = forecast(name, params, context.at[3].add(1.0))
    kept = np.arange(len(context)) != 3
    np.testing.assert_allclose(changed[:, kept], one[:, kept], rtol=1e-3, atol=1e-3)
    self.assertGreater(abs(changed[:, 3] - one[:, 3]).max(), 1e-2)


class QuantilesTest(parameterized.TestCase):
  @parameterized.parameters(*QUANTILES)
  def test_never_cross(self, name):
    samples = forecast(name, random(name, 1.0), 25 * BATCH['context'])
    # Each sample has one level throughout, so that in a series samples keep their order.
    order = np.argsort(samples.mean(axis=2, keepdims=True), axis=0)
    gaps = np.diff(np.take_along_axis(samples, order, axis=0), axis=0)
    self.assertGreaterEqual(gaps.min(), -1e-5 * abs(samples).max())
    self.assertGreater(gaps.max(), 0.1)

  @parameterized.parameters(*QUANTILES)
  def test_of_no_parameters_are_level_around_the_last_observation(self, name):
    samples = forecast(name, zeros(name))
    gaps = samples - BATCH['context'][:, -1:]
    np.testing.assert_allclose(gaps, np.broadcast_to(gaps[..., :1], gaps.shape), atol=1e-5)
    np.testing.assert_allclose((gaps > 0).mean(), 0.5, atol=2.5 * gaps[..., 0].size ** -0.5)


class DLinearTest(parameterized.TestCase):
  def test_is_affine_where_nothing_is_squashed_and_only_there(self):
    module = dlinear.Network(HORIZON, 5)
    params = random('dlinear')
    a, b = (np.random.default_rng(i).uniform(-1, 1, (4, CONTEXT)) for i in (0, 1))
    f = lambda x: module.apply(params, jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(f(a + b) + f(0 * a), f(a) + f(b), atol=1e-4)
    self.assertGreater(abs(f(20 * a) + f(0 * a) - 2 * f(10 * a)).max(), 0.1)

  @parameterized.parameters(1, 3, 5, 8)
  def test_the_average_is_a_convolution_of_what_is_padded_by_its_ends(self, kernel):
    x = np.random.default_rng(0).normal(size=CONTEXT)
    ends = (kernel - 1) // 2, kernel - 1 - (kernel - 1) // 2
    expected = np.convolve(np.pad(x, ends, mode='edge'), np.ones(kernel) / kernel, mode='valid')
    found = x @ dlinear.moving_average(CONTEXT, kernel)
    np.testing.assert_allclose(found, expected, atol=1e-6)


class PatchTSTTest(parameterized.TestCase):
  @parameterized.parameters((4, 2), (4, 3), (8, 1), (5, 5))
  def test_patches_end_with_the_context(self, patch, stride):
    context = np.arange(2 * CONTEXT).reshape(2, CONTEXT)
    windows = np.lib.stride_tricks.sliding_window_view(context, patch, axis=1)
    expected = windows[:, ::-1][:, ::stride][:, ::-1]
    np.testing.assert_array_equal(patchtst.patches(jnp.asarray(context), patch, stride), expected)

  def test_attention_has_no_order_but_by_positions(self):
    x = jax.random.normal(jax.random.key(0), (2, 5, 8))
    block = patchtst.Block(2)
    params = random_like(jax.eval_shape(block.init, KEY, x))
    apply = jit(block.apply)
    order = np.array([3, 0, 4, 1, 2])
    found = apply(params, x[:, order])
    np.testing.assert_allclose(found, apply(params, x)[:, order], atol=1e-4)
    self.assertGreater(abs(found - apply(params, x)).max(), 0.1)


class NBeatsTest(parameterized.TestCase):
  SIZES = types.MappingProxyType({'size': 3, 'width': 8, 'layers': 1})

  def raw(self, *stacks):
    """Forecasts (B, H, Q), and the parameters."""
    module = nbeats.Network(HORIZON, stacks, 1, **self.SIZES)
    params = random_like(jax.eval_shape(module.init, KEY, BATCH['context']))
    return np.asarray(jit(module.apply)(params, BATCH['context'])), params

  def test_trends_are_polynomials(self):
    found, _ = self.raw('trend')
    scale = abs(found).max()
    np.testing.assert_allclose(np.diff(found, 3, axis=1), 0, atol=1e-5 * scale)
    self.assertGreater(abs(np.diff(found, 2, axis=1)).max(), 1e-3 * scale)

  def test_seasons_turn_whole_times_in_a_horizon(self):
    horizon, size = 16, 3
    functions = nbeats.basis('seasonal', size, CONTEXT, horizon)[:, CONTEXT:]
    power = abs(np.fft.rfft(functions, axis=1)) > 1e-4
    turns = np.array([0, *range(1, size + 1), *range(1, size + 1)])
    np.testing.assert_array_equal(power, turns[:, None] == np.arange(horizon // 2 + 1))

  def test_a_basis_goes_on_from_the_context_into_the_horizon(self):
    for stack in ('trend', 'seasonal'):
      one, longer = (nbeats.basis(stack, 3, length, HORIZON) for length in (4, CONTEXT))
      np.testing.assert_allclose(one, longer[:, CONTEXT - 4 :], atol=1e-6)
      np.testing.assert_allclose(one[0], 1)
      # Time is zero at the last observation, from which forecasts begin.
      np.testing.assert_allclose(one[1, 3], 0, atol=1e-6)

  def test_a_later_block_reads_what_is_left(self):
    found, params = self.raw('trend', 'generic')
    rest, total = BATCH['context'], 0.0
    for i, stack in enumerate(('trend', 'generic')):
      own = {'params': params['params'][f'Block_{i}']}
      backcast, theta, beyond = nbeats.Block(HORIZON, stack, **self.SIZES).apply(own, rest)
      rest, total = rest - backcast, total + np.swapaxes(theta @ beyond, 1, 2)
    np.testing.assert_allclose(found, total, atol=1e-4)


@functools.cache
def reader():
  return jit(deepar.Network(OPTIONS['deepar']['width']).apply)


class DeepARTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.series = jnp.concatenate([BATCH['context'], BATCH['future']], axis=1)

  def laws(self, series, state=None):
    return reader()(random('deepar'), series, state)

  def test_the_loss_is_the_likelihood_of_student(self):
    noise = OPTIONS['deepar']['noise'] * jax.random.normal(KEY, self.series.shape)
    series = self.series + noise
    _, law = self.laws(series)
    law = [x[:, :-1] for x in law]
    expected = -stats.t.logpdf(series[:, 1:], *law).mean()
    found = jit(network('deepar').loss)(random('deepar'), BATCH, KEY)
    np.testing.assert_allclose(found, expected, rtol=1e-4)

  def test_no_law_knows_what_comes_after(self):
    cut = 9
    _, one = self.laws(self.series)
    _, other = self.laws(self.series.at[:, cut:].add(1.0))
    for x, y in zip(one, other, strict=True):
      np.testing.assert_array_equal(x[:, :cut], y[:, :cut])
      self.assertGreater(abs(x[:, cut:] - y[:, cut:]).max(), 1e-3)

  @parameterized.parameters(1, 5)
  def test_goes_on_from_a_state_as_without_a_pause(self, cut):
    _, whole = self.laws(self.series)
    state, _ = self.laws(self.series[:, :cut])
    _, rest = self.laws(self.series[:, cut:], state)
    chex.assert_trees_all_close(rest, jax.tree.map(lambda x: x[:, cut:], whole), atol=1e-5)

  def test_points_are_drawn_from_the_laws_of_those_drawn_before(self):
    """By the transform of each point under its law, uniform without regard of the others."""
    drawn = forecast('deepar', random('deepar'))
    context = jnp.tile(BATCH['context'], (COUNT, 1))
    noise = OPTIONS['deepar']['noise'] * jax.random.normal(jax.random.split(KEY)[0], context.shape)
    flat = drawn.reshape(-1, HORIZON)
    _, law = self.laws(jnp.concatenate([context + noise, flat], axis=1))
    law = [np.asarray(x)[:, CONTEXT - 1 : -1] for x in law]
    ranks = stats.t.cdf(flat, *law)
    for i in range(HORIZON):
      self.assertGreater(stats.kstest(ranks[:, i], 'uniform').pvalue, 1e-3)
    np.testing.assert_allclose(np.corrcoef(ranks.T), np.eye(HORIZON), atol=5 * len(flat) ** -0.5)

  @parameterized.parameters(2.0, 5.0, 100.0)
  def test_draws_are_of_student(self, df):
    law = deepar.Law(*(jnp.full(20_000, x) for x in (df, 1.0, 2.0)))
    found = np.asarray(law.draw(jax.random.key(0)))
    self.assertGreater(stats.kstest(found, stats.t(df, 1.0, 2.0).cdf).pvalue, 1e-3)


class LatentODETest(parameterized.TestCase):
  def test_paths_turn_at_their_speed_and_without_a_field_stand_still(self):
    """The field (-w y, w x, 0) at (x, y, w)."""
    steps, times = 20, jnp.linspace(0.0, 2.0, 7)
    start = jnp.asarray([[1.0, 0.0, 1.0], [1.0, 0.0, -2.0], [0.7, -2.0, 0.0]])
    turn = lambda z: z[:, 2:] * jnp.stack([-z[:, 1], z[:, 0], 0 * z[:, 0]], axis=-1)
    path = jit(lambda z: latent_ode.solve(turn, z, times, steps))(start)
    np.testing.assert_array_equal(path[:, 2], jnp.broadcast_to(start[2], path[:, 2].shape))
    for row, speed in enumerate((1.0, -2.0)):
      exact = jnp.stack([jnp.cos(speed * times), jnp.sin(speed * times)], axis=-1)
      error = abs(path[:, row, :2] - exact).max()
      self.assertLess(error, 2 * abs(speed) ** 3 * (2 / steps) ** 2 / 3)

  def test_without_field_and_reading_the_loss_is_normal(self):
    """All points are N(last, s²) and z is N(m, v²), both by the biases alone."""
    params = zeros('latent_ode')
    series = np.concatenate([BATCH['context'], BATCH['future']], axis=1)
    std, begin = OPTIONS['latent_ode']['floor'] + np.log(2), np.log1p(np.exp(-1))
    likelihood = stats.norm.logpdf(series, series[:, CONTEXT - 1 : CONTEXT], std).mean()
    divergence = distrax.Normal(0.0, begin).kl_divergence(distrax.Normal(0.0, 1.0))
    expected = OPTIONS['latent_ode']['latent'] * divergence / series.shape[1] - likelihood
    found = jit(network('latent_ode').loss)(params, BATCH, KEY)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    samples = forecast('latent_ode', params)
    z = (samples - BATCH['context'][:, -1:]) / std
    self.assertGreater(stats.kstest(np.asarray(z).ravel(), 'norm').pvalue, 1e-3)


class CSDITest(parameterized.TestCase):
  def test_the_quadratic_schedule_is_the_chain_of_many_steps(self):
    sde = csdi.quadratic()
    # CSDI's chain of 50 steps, each a hundred times as short.
    survival = np.cumprod(1 - np.linspace(1e-4**0.5, 0.5**0.5, 5000) ** 2 / 100)
    found = sde.mean(np.array([0.25, 0.5, 0.75, 1.0])) ** 2
    np.testing.assert_allclose(found, survival[[1249, 2499, 3749, 4999]], rtol=2e-2)

  def test_the_quadratic_schedule_preserves_variance_and_inverts(self):
    sde, t = csdi.quadratic(), jnp.linspace(1e-3, 1.0, 50)
    compute = lambda t: (sde.mean(t), sde.std(t), sde.log_snr(t), sde.time(sde.log_snr(t)))
    (mean, std, log_snr, time), slope = jit(lambda t: jax.jvp(compute, (t,), (jnp.ones_like(t),)))(
      t
    )
    np.testing.assert_allclose(mean**2 + std**2, 1, atol=1e-5)
    np.testing.assert_allclose(log_snr, 2 * np.log(mean / std), atol=1e-2)
    np.testing.assert_allclose(time, t, atol=1e-3)
    np.testing.assert_allclose(sde.rate(t), slope[0] / mean, rtol=1e-3)
    np.testing.assert_allclose(sde.diffusion_sq(t), -2 * sde.rate(t), rtol=1e-5)

  @parameterized.parameters(*csdi.SCHEDULES)
  def test_points_of_the_forward_process_have_its_mean_and_variance(self, name):
    sde, t = csdi.SCHEDULES[name](), jnp.asarray([[0.1, 0.5, 0.9]])
    rng, shape = np.random.default_rng(0), (20_000, 3)
    x0, eps = (rng.normal(m, s, shape).astype(np.float32) for m, s in ((2.0, 0.5), (0.0, 1.0)))
    x, mean, std = jit(lambda t: (sdes.perturb(sde, x0, eps, t), sde.mean(t), sde.std(t)))(t)
    variance = 0.25 * mean[0] ** 2 + std[0] ** 2
    error = (variance / len(x0)) ** 0.5
    self.assertLess((abs(x.mean(axis=0) - 2 * mean[0]) / error).max(), 5)
    self.assertLess((abs(x.var(axis=0) / variance - 1)).max(), 5 * (2 / len(x0)) ** 0.5)

  @parameterized.parameters(('cosine', 'dpm'), ('quadratic', 'ancestral'))
  def test_without_parameters_it_takes_all_futures_for_the_last_observation(
    self, schedule, sampler
  ):
    samples = forecast('csdi', zeros('csdi'), schedule=schedule, sampler=sampler)
    last = jnp.broadcast_to(BATCH['context'][:, -1:], samples.shape[1:])
    np.testing.assert_allclose(samples, np.broadcast_to(last, samples.shape), atol=0.2)

  def test_without_parameters_its_loss_is_the_mean_square_at_the_weights_of_times(self):
    """x̂_0 = 0, so that errors of the noise are SNR ‖x_0‖², whose weights are min(SNR, γ)/SNR."""
    params, sde = zeros('csdi'), csdi.SCHEDULES['cosine']()
    batch = jax.tree.map(lambda x: jnp.tile(x, (40, 1)), BATCH)
    found = jit(network('csdi').loss)(params, batch, KEY)
    x0 = jnp.arcsinh(BATCH['future']) - jnp.arcsinh(BATCH['context'][:, -1:])
    t = jnp.linspace(1e-3, sde.horizon, 2001)
    expected = jnp.minimum(jnp.exp(sde.log_snr(t)), OPTIONS['csdi']['gamma']).mean()
    np.testing.assert_allclose(found, expected * jnp.mean(x0**2), rtol=0.05)


class LimitTest(parameterized.TestCase):
  @parameterized.parameters('deepar', 'csdi')
  def test_samples_stay_in_their_limit(self, name):
    self.assertEqual(float(abs(forecast(name, random(name), limit=0.5)).max()), 0.5)


if __name__ == '__main__':
  absltest.main()
