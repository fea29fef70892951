"""Traced. Samplers of a diffusion's reverse process, from noise at T to data.

Each takes points x (B, D) at the first of its times, usually a `prior` at T, and a network that is
`noise(x, t)` or `score(x, t)` (`lib.diffusion.sde` turns one into the other). Those on a grid take
its falling times (K + 1,) from `time_grid` or `log_snr_grid`. Near the data it is the log SNR whose
steps must be small, so that the second sort needs far fewer of them.
"""

import chex
import diffrax
import jax
import jax.numpy as jnp
import lineax

from lib.diffusion import sde as sdes
from lib.diffusion import times as laws
from lib.flow import integrate


def prior(sde: sdes.SDE, key: chex.PRNGKey, shape: tuple[int, ...]) -> chex.Array:
  """Samples N(0, prior_std² I), of `shape`: where the reverse process starts."""
  return sde.prior_std * jax.random.normal(key, shape)


def time_grid(sde: sdes.SDE, start: float, num: int) -> chex.Array:
  """Times that fall from T to `start` in `num` equal steps, (num + 1,).

  Raises:
    ValueError: unless 0 < start < T and num > 0.
  """
  return laws.uniform_times(sde, _falling(num), start)


def log_snr_grid(sde: sdes.SDE, start: float, num: int) -> chex.Array:
  """Times that fall from T to `start` in `num` equal steps of the log SNR, (num + 1,).

  Raises:
    ValueError: unless 0 < start < T and num > 0.
  """
  return laws.importance_times(sde, _falling(num), start)


def ancestral(
  noise: sdes.Field, sde: sdes.SDE, x: chex.Array, key: chex.PRNGKey, times: chex.Array
) -> chex.Array:
  """Samples each x_s from q(x_s | x_t, x̂_0(x_t)), the forward process's posterior.

  With α = m_t/m_s and v = σ_t² - α² σ_s² the law of x_t given x_s is N(α x_s, v I), hence

    x_s ~ N((α σ_s² x_t + m_s v x̂_0)/σ_t², σ_s² v/σ_t² I),

  where v/σ_t² = 1 - SNR_t/SNR_s. The last step returns the mean. Ho et al. (2020),
  arXiv:2006.11239, for any linear drift: Kingma et al. (2021), arXiv:2107.00630, appendix A.

  Args:
    noise: network that predicts the noise.
    sde: the diffusion.
    x: points (B, D) at times[0].
    key: typed PRNG key.
    times: falling times (K + 1,).

  Returns:
    Points (B, D) at times[-1].
  """
  _check_grid(x, times)

  def step(x: chex.Array, inputs) -> tuple[chex.Array, None]:
    key, t, s, amount = inputs
    share = -jnp.expm1(sde.log_snr(t) - sde.log_snr(s))
    # The mean above, with x̂_0 = (x_t - σ_t ε̂)/m_t.
    mean = (x - share * sde.std(t) * noise(x, _column(x, t))) * sde.mean(s) / sde.mean(t)
    std = amount * sde.std(s) * jnp.sqrt(share)
    return mean + std * jax.random.normal(key, x.shape, x.dtype), None

  return jax.lax.scan(step, x, _noisy_steps(x, key, times))[0]


def predictor_corrector(
  score: sdes.Field,
  sde: sdes.SDE,
  x: chex.Array,
  key: chex.PRNGKey,
  times: chex.Array,
  num_corrector_steps: int = 1,
  signal_to_noise: float = 0.16,
) -> chex.Array:
  """Reverse-diffusion steps, with steps of Langevin dynamics at each time before them.

  With α = m_t/m_s and v = σ_t² - α² σ_s², of the forward step x_t = α x_s + √v z, they are

    corrector  x ← x + ε s(x, t) + √(2 ε) z,  ε = 2 α² (r ‖z‖/‖s‖)²,
    predictor  x_s = (2 - α) x_t + v s(x_t, t) + √v z,

  the norms being means over the batch; the last step adds no noise. Song et al. (2021),
  arXiv:2011.13456, appendices E and G: both of their discretisations, VE's with α = 1 and VP's with
  α² = 1 - β_i, are this one. As in their code the corrector comes first.

  Args:
    score: the score.
    sde: the diffusion.
    x: points (B, D) at times[0].
    key: typed PRNG key.
    times: falling times (K + 1,).
    num_corrector_steps: Langevin steps at each time, >= 0.
    signal_to_noise: r, > 0.

  Returns:
    Points (B, D) at times[-1].

  Raises:
    ValueError: if a number is out of its range.
  """
  _check_grid(x, times)
  if num_corrector_steps < 0 or not signal_to_noise > 0:
    raise ValueError(
      'A corrector needs num_corrector_steps >= 0 and signal_to_noise > 0, got '
      f'{num_corrector_steps=}, {signal_to_noise=}.'
    )

  def step(x: chex.Array, inputs) -> tuple[chex.Array, None]:
    key, t, s, amount = inputs
    key, correctors = jax.random.split(key)
    now = _column(x, t)
    alpha = sde.mean(t) / sde.mean(s)

    def correct(x: chex.Array, key: chex.PRNGKey) -> tuple[chex.Array, None]:
      slope, z = score(x, now), jax.random.normal(key, x.shape, x.dtype)
      ratio = _mean_norm(z) / _mean_norm(slope)
      size = 2.0 * (alpha * signal_to_noise * ratio) ** 2
      return x + size * slope + jnp.sqrt(2.0 * size) * z, None

    if num_corrector_steps:
      x, _ = jax.lax.scan(correct, x, jax.random.split(correctors, num_corrector_steps))
    variance = -jnp.expm1(sde.log_snr(t) - sde.log_snr(s)) * sde.std(t) ** 2
    mean = (2.0 - alpha) * x + variance * score(x, now)
    return mean + amount * jnp.sqrt(variance) * jax.random.normal(key, x.shape, x.dtype), None

  return jax.lax.scan(step, x, _noisy_steps(x, key, times))[0]


def reverse_sde(
  score: sdes.Field,
  sde: sdes.SDE,
  x: chex.Array,
  key: chex.PRNGKey,
  num_steps: int,
  start: float,
  solver: diffrax.AbstractSolver | None = None,
) -> chex.Array:
  """Integrates dx = (a x - g² s) dt + g dw̄ backwards from T to `start`, in equal steps of time.

  Anderson (1982); Song et al. (2021), arXiv:2011.13456, equation 6. The noise does not depend on x,
  so that Itô's and Stratonovich's solvers agree. Solvers that look at the end of a step, such as
  diffrax.Heun, are unstable where g²/σ² times the step is large, which it is at `start` unless the
  steps are shorter than it.

  Args:
    score: the score.
    sde: the diffusion.
    x: points (B, D) at T.
    key: typed PRNG key.
    num_steps: > 0.
    start: the last time, in (0, T).
    solver: diffrax solver of SDEs, Euler by default.

  Returns:
    Points (B, D) at `start`.

  Raises:
    ValueError: if a number is out of its range.
  """
  # Clock -t rather than T - t, which would round small times.
  clock = -time_grid(sde, start, num_steps).astype(x.dtype)

  def drift(minus_t, x, _):
    t = _column(x, -minus_t)
    return sde.diffusion_sq(t) * score(x, t) - sde.rate(t) * x

  def diffusion(minus_t, x, _):
    return lineax.DiagonalLinearOperator(
      jnp.broadcast_to(jnp.sqrt(sde.diffusion_sq(_column(x, -minus_t))), x.shape)
    )

  path = diffrax.VirtualBrownianTree(
    clock[0],
    clock[-1],
    tol=0.5 * (sde.horizon - start) / num_steps,
    shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
    key=key,
  )
  solution = diffrax.diffeqsolve(
    diffrax.MultiTerm(diffrax.ODETerm(drift), diffrax.ControlTerm(diffusion, path)),
    solver or diffrax.Euler(),
    t0=clock[0],
    t1=clock[-1],
    dt0=None,
    y0=x,
    stepsize_controller=diffrax.StepTo(clock),
    max_steps=num_steps,
  )
  return solution.ys[0]


def probability_flow(
  score: sdes.Field,
  sde: sdes.SDE,
  x: chex.Array,
  start: float,
  rtol: float = 1e-5,
  atol: float = 1e-5,
  solver: diffrax.AbstractSolver | None = None,
) -> chex.Array:
  """Integrates the probability flow from T to `start` with an adaptive solver.

  Song et al. (2021), arXiv:2011.13456, section 4.3.

  Args:
    score: the score.
    sde: the diffusion.
    x: points (B, D) at T.
    start: the last time, in (0, T).
    rtol: relative tolerance of a step.
    atol: absolute tolerance of a step.
    solver: diffrax solver, Tsit5 by default.

  Returns:
    Points (B, D) at `start`.

  Raises:
    ValueError: unless 0 < start < T.
  """
  laws.check_start(sde, start)
  velocity = sdes.probability_flow(sde, score)
  return integrate.flow_map(velocity, x, rtol, atol, solver, t0=sde.horizon, t1=start)


def heun(score: sdes.Field, sde: sdes.SDE, x: chex.Array, times: chex.Array) -> chex.Array:
  """Integrates the probability flow with Heun's steps, of second order, in the noise level.

  With y = x/m and ν = σ/m any linear drift's flow is dy/dν = ε̂ = -σ s. Karras et al. (2022),
  arXiv:2206.00364, algorithm 1, without its last step to ν = 0.

  Args:
    score: the score.
    sde: the diffusion.
    x: points (B, D) at times[0].
    times: falling times (K + 1,).

  Returns:
    Points (B, D) at times[-1].
  """
  _check_grid(x, times)
  noise = sdes.noise_of_score(sde, score)

  def step(y: chex.Array, inputs) -> tuple[chex.Array, None]:
    t, s = inputs
    slope = lambda y, t: noise(sde.mean(t) * y, _column(y, t))
    change = sde.std(s) / sde.mean(s) - sde.std(t) / sde.mean(t)
    first = slope(y, t)
    return y + 0.5 * change * (first + slope(y + change * first, s)), None

  y, _ = jax.lax.scan(step, x / sde.mean(times[0]), _steps(x, times))
  return sde.mean(times[-1]) * y


def dpm_solver(noise: sdes.Field, sde: sdes.SDE, x: chex.Array, times: chex.Array) -> chex.Array:
  """DPM-Solver++(2M): the probability flow, with the linear part of each step done exactly.

  With half the log SNR, growing by h_i in step i, and the prediction of the data x̂_0 where the step
  begins,

    x_i = σ_i/σ_{i-1} x_{i-1} + m_i (1 - e^{-h_i}) D_i,
    D_i = x̂_0 + (h_i / 2 h_{i-1}) (x̂_0 - x̂_0 of the step before).

  The first and the last step have D = x̂_0, DDIM's step. Lu et al. (2022), arXiv:2211.01095,
  algorithm 2; one call of the network a step.

  Args:
    noise: network that predicts the noise.
    sde: the diffusion.
    x: points (B, D) at times[0].
    times: falling times (K + 1,).

  Returns:
    Points (B, D) at times[-1].
  """
  _check_grid(x, times)
  data = sdes.data_of_noise(sde, noise)
  growth = 0.5 * jnp.diff(sde.log_snr(times).astype(x.dtype))
  ratios = 0.5 * growth[1:] / growth[:-1]
  ratios = jnp.concatenate([jnp.zeros(1, x.dtype), ratios]).at[-1].set(0.0)

  def step(carry, inputs):
    x, before = carry
    t, s, growth, ratio = inputs
    now = data(x, _column(x, t))
    target = now + ratio * (now - before)
    x = sde.std(s) / sde.std(t) * x - sde.mean(s) * jnp.expm1(-growth) * target
    return (x, now), None

  # At the first step the ratio is 0, whatever stands for the data before it.
  (x, _), _ = jax.lax.scan(step, (x, x), (*_steps(x, times), growth, ratios))
  return x


def _falling(num: int) -> chex.Array:
  if num <= 0:
    raise ValueError(f'A grid needs at least one step, got {num=}.')
  return jnp.linspace(1.0, 0.0, num + 1)


def _check_grid(x: chex.Array, times: chex.Array) -> None:
  chex.assert_rank([x, times], [2, 1])
  if times.shape[0] < 2:
    raise ValueError(f'A grid needs at least two times, got {times.shape[0]}.')


def _steps(x: chex.Array, times: chex.Array) -> tuple[chex.Array, chex.Array]:
  """The times before and after each step."""
  times = times.astype(x.dtype)
  return times[:-1], times[1:]


def _noisy_steps(x: chex.Array, key: chex.PRNGKey, times: chex.Array):
  """A key for each step, its times, and how much of its noise it keeps: none in the last."""
  num = times.shape[0] - 1
  amounts = jnp.ones(num, x.dtype).at[-1].set(0.0)
  return jax.random.split(key, num), *_steps(x, times), amounts


def _column(x: chex.Array, t: chex.Numeric) -> chex.Array:
  return jnp.full((*x.shape[:-1], 1), t, x.dtype)


def _mean_norm(x: chex.Array) -> chex.Array:
  return jnp.mean(jnp.linalg.norm(x, axis=-1))
