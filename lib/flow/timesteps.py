"""Traced. Laws of the times at which flow matching looks at the path."""

import chex
import jax
import jax.numpy as jnp

EPS = 1e-5  # distance kept from both ends, where scores diverge


def sample_uniform(key: chex.PRNGKey, shape: tuple[int, ...]) -> chex.Array:
  """Samples t ~ U[0, 1), of `shape`."""
  return jax.random.uniform(key, shape)


def sample_beta(
  key: chex.PRNGKey,
  shape: tuple[int, ...],
  a: float,
  b: float,
  eps: float = EPS,
) -> chex.Array:
  """Samples t ~ Beta(a, b), clipped to [eps, 1 - eps].

  Args:
    key: typed PRNG key.
    shape: shape of the returned times.
    a: first concentration, > 0; a < b favours the noise end t = 0.
    b: second concentration, > 0.
    eps: distance kept from both ends, where scores diverge.

  Returns:
    Times in [eps, 1 - eps], of `shape`.

  Raises:
    ValueError: if a concentration is not positive.
  """
  _check_positive(a=a, b=b)
  return jnp.clip(jax.random.beta(key, a, b, shape), eps, 1.0 - eps)


def beta_log_prob(t: chex.Array, a: float, b: float) -> chex.Array:
  """The log-density of Beta(a, b) at times t in (0, 1), of the shape of t.

  Raises:
    ValueError: if a concentration is not positive.
  """
  _check_positive(a=a, b=b)
  return jax.scipy.stats.beta.logpdf(t, a, b)


def sample_logit_normal(
  key: chex.PRNGKey,
  shape: tuple[int, ...],
  mean: float = 0.0,
  std: float = 1.0,
  eps: float = EPS,
) -> chex.Array:
  """Samples t = sigmoid(z) with z ~ N(mean, std²), clipped to [eps, 1 - eps].

  Esser et al. (2024), arXiv:2403.03206.

  Args:
    key: typed PRNG key.
    shape: shape of the returned times.
    mean: of z; negative favours the noise end t = 0.
    std: of z, > 0.
    eps: distance kept from both ends.

  Returns:
    Times in [eps, 1 - eps], of `shape`.

  Raises:
    ValueError: if the standard deviation is not positive.
  """
  _check_positive(std=std)
  return jnp.clip(jax.nn.sigmoid(mean + std * jax.random.normal(key, shape)), eps, 1.0 - eps)


def logit_normal_log_prob(t: chex.Array, mean: float = 0.0, std: float = 1.0) -> chex.Array:
  """The log-density of `sample_logit_normal`'s law at times t in (0, 1), of the shape of t.

  Raises:
    ValueError: if the standard deviation is not positive.
  """
  _check_positive(std=std)
  logit = jnp.log(t) - jnp.log1p(-t)
  return jax.scipy.stats.norm.logpdf(logit, mean, std) - jnp.log(t) - jnp.log1p(-t)


def importance_weights(log_prob: chex.Array, max_weight: float) -> chex.Array:
  """The weights min(1 / p(t), max_weight), by which times from p stand for uniform ones.

  Args:
    log_prob: log p(t), of any shape.
    max_weight: > 0; the clip biases towards p where p is small.

  Returns:
    Weights, of the same shape, without a gradient.

  Raises:
    ValueError: if the largest weight is not positive.
  """
  _check_positive(max_weight=max_weight)
  return jax.lax.stop_gradient(jnp.exp(jnp.minimum(-log_prob, jnp.log(max_weight))))


def _check_positive(**numbers: float) -> None:
  for name, number in numbers.items():
    if not number > 0:
      raise ValueError(f'{name} must be positive, got {number}.')
