"""Scores of trained models: likelihood on held-out data, and samples beside them.

A score is a dict of arrays (S,): parameters carry a leading axis of S seeds.
"""

import functools
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from experiments.renyi_diffusion import classifier, data, methods, networks
from experiments.renyi_diffusion.data import Data
from lib.diffusion import likelihood, samplers, sde
from lib.flow import regularizers
from lib.io import fields
from lib.stats import distances, neighbors
from lib.train import console, signals

NEAR_STDS = 3.0  # within which a sample counts as near a mode of the ring
SAMPLE_BLOCK = 1000  # samples at once, so that memory stays flat
BOUND_BLOCK = 50  # images at once
Scores = dict[str, np.ndarray]

# Whole: op by op they would be compiled in dozens of pieces.
_prdc = jax.jit(neighbors.prdc, static_argnums=2)
_frechet_distance = jax.jit(distances.frechet_distance)
_histogram_kl = jax.jit(distances.histogram_kl)


def check(config: ml_collections.ConfigDict, dataset: Data) -> None:
  """Raises a ValueError if too few images would be compared for so many neighbours."""
  if dataset.known is not None:
    count, neighbors = len(_by_shares(dataset, config.eval.compared)), config.eval.neighbors
    what = f'below the {count} images that the classes leave to compare'
    fields.require('eval.neighbors', neighbors, neighbors < count, what)


def prepare_features(
  config: ml_collections.ConfigDict, dataset: Data
) -> classifier.Classifier | None:
  """Trains the classifier whose features compare images; None for points and unknown classes."""
  if dataset.known is None:
    return None
  pixels, labels = data.scaled(dataset, dataset.known.pixels), dataset.known.labels
  model = classifier.train(
    pixels, labels, jax.random.key(config.eval.classifier_seed), config.eval.classifier_steps
  )
  right = classifier.accuracy(model, data.scaled(dataset, dataset.test), dataset.labels)
  console.say(f'classifier: accuracy {right:.3f} on the test images')
  return model


def score(
  config: ml_collections.ConfigDict,
  dataset: Data,
  network: networks.Network,
  params: Any,
  model: classifier.Classifier | None,
) -> tuple[Scores, np.ndarray]:
  """Scores the networks of all seeds, one after another.

  Args:
    config: of the run.
    dataset: the data.
    network: as trained.
    params: averaged parameters, with a leading axis of seeds.
    model: gives features of images; None for points.

  Returns:
    Scores, one number a seed; and samples (S, N, D).
  """
  process = methods.process(config)
  log_p, bound, samples = (
    make(config, dataset, network, process) for make in (_likelihoods, _bound, _sampler)
  )
  keys = jax.random.split(jax.random.key(config.eval.seed), 3)
  found, drawn = [], []
  for seed in range(len(jax.tree.leaves(params)[0])):
    one = jax.tree.map(lambda x, seed=seed: x[seed], params)
    key = jax.vmap(jax.random.fold_in, (0, None))(keys, seed)
    own = _test_scores(dataset, log_p(one, key[0]).mean(axis=0))
    signals.check()
    if dataset.levels:
      own |= _test_scores(dataset, -bound(one, key[2]), 'bound_bpd')
    blocks = [samples(one, k) for k in jax.random.split(key[1], _blocks(config))]
    drawn.append(np.concatenate(blocks)[: config.eval.samples])
    signals.check()
    own |= _sample_scores(config, dataset, drawn[-1], model)
    found.append(own)
  return {name: np.array([scores[name] for scores in found]) for name in found[0]}, np.stack(drawn)


def divergence(num_probes: int, key: chex.PRNGKey) -> Callable[..., chex.Array]:
  """The divergence of a field by Hutchinson's probes; exact for none of them."""
  if num_probes == 0:
    return regularizers.divergence_exact
  return functools.partial(regularizers.divergence_hutchinson, key=key, num_probes=num_probes)


def _blocks(config: ml_collections.ConfigDict) -> int:
  return -(-config.eval.samples // SAMPLE_BLOCK)


def _likelihoods(config, dataset: Data, network: networks.Network, process: sde.SDE):
  """Returns `log_p(params, key) -> (repeats, N)` of the test set, in nats."""

  @jax.jit
  def block(params, x, key):
    score = sde.score_of_noise(process, lambda y, t: network.noise(params, y, t))
    trace = divergence(config.eval.probes, key)
    return likelihood.log_likelihood(
      score, process, x, config.start, trace, config.eval.rtol, config.eval.atol
    )[0]

  def log_p(params, key):
    repeats = config.eval.dequantizations if dataset.levels else 1
    found = []
    for own in jax.random.split(key, repeats):
      noise_key, probe_key = jax.random.split(own)
      x = jnp.asarray(dataset.test)
      if dataset.levels:
        x = data.dequantized(dataset, x, noise_key)
      found.append(np.asarray(block(params, x, probe_key)))
    return np.stack(found)

  return log_p


def _bound(config, dataset: Data, network: networks.Network, process: sde.SDE):
  """Returns `bound(params, key) -> (N,)` of -log p of the test images, in nats."""

  @jax.jit
  def block(params, x, key):
    noise = lambda y, t: network.noise(params, y, t)
    num_times = config.eval.bound_times

    def one(datum):
      x, key = datum
      return likelihood.nelbo(noise, process, x[None], key, config.start, num_times)[0]

    return jax.lax.map(one, (x, jax.random.split(key, len(x))), batch_size=BOUND_BLOCK)

  def bound(params, key):
    noise_key, time_key = jax.random.split(key)
    x = data.dequantized(dataset, jnp.asarray(dataset.test), noise_key)
    return np.asarray(block(params, x, time_key))

  return bound


def _sampler(config, dataset: Data, network: networks.Network, process: sde.SDE):
  """Returns `samples(params, key) -> (SAMPLE_BLOCK, D)`, by the sampler that the config names."""
  dim = int(np.prod(dataset.shape))
  size = min(SAMPLE_BLOCK, config.eval.samples)

  @jax.jit
  def samples(params, key):
    prior_key, path_key = jax.random.split(key)
    noise = lambda y, t: network.noise(params, y, t)
    x = samplers.prior(process, prior_key, (size, dim))
    return SAMPLERS[config.eval.sampler](config, process, noise, x, path_key)

  return samples


def _ode(config, process, noise, x, key):
  score = sde.score_of_noise(process, noise)
  return samplers.probability_flow(
    score, process, x, config.start, config.eval.rtol, config.eval.atol
  )


def _dpm(config, process, noise, x, key):
  grid = samplers.log_snr_grid(process, config.start, config.eval.sampler_steps)
  return samplers.dpm_solver(noise, process, x, grid)


def _heun(config, process, noise, x, key):
  grid = samplers.log_snr_grid(process, config.start, config.eval.sampler_steps)
  return samplers.heun(sde.score_of_noise(process, noise), process, x, grid)


def _ancestral(config, process, noise, x, key):
  grid = samplers.log_snr_grid(process, config.start, config.eval.sampler_steps)
  return samplers.ancestral(noise, process, x, key, grid)


def _predictor_corrector(config, process, noise, x, key):
  grid = samplers.time_grid(process, config.start, config.eval.sampler_steps)
  return samplers.predictor_corrector(sde.score_of_noise(process, noise), process, x, key, grid)


SAMPLERS = {
  'ode': _ode,
  'dpm': _dpm,
  'heun': _heun,
  'ancestral': _ancestral,
  'predictor_corrector': _predictor_corrector,
}


def _test_scores(dataset: Data, log_p: np.ndarray, name: str = 'bpd') -> Scores:
  """Likelihoods (N,) in nats as the report's numbers, weighted as the training data are."""
  if not dataset.levels:
    return {
      'nll': -log_p.mean(),
      'rare_nll': -log_p[np.isin(dataset.labels, dataset.rare)].mean(),
      'q99_nll': -np.quantile(log_p, 0.01),
    }
  dim = int(np.prod(dataset.shape))
  values = np.asarray(likelihood.bits_per_dim(log_p, dim, dataset.levels))
  if dataset.shares is None or dataset.labels is None:
    return {name: values.mean()}
  there = [k for k in range(len(dataset.shares)) if (dataset.labels == k).any()]
  by_class = {k: values[dataset.labels == k].mean() for k in there}
  whole = np.average(list(by_class.values()), weights=dataset.shares[there])
  scores = {name: whole, **{f'{name}_class_{k}': value for k, value in by_class.items()}}
  if found := [by_class[k] for k in dataset.rare if k in by_class]:
    scores[f'rare_{name}'] = np.mean(found)
  return scores


def _sample_scores(config, dataset: Data, samples: np.ndarray, model) -> Scores:
  """Samples (N, D) beside as many held-out points, or training images with the classes' shares."""
  count = config.eval.compared
  if not dataset.levels:
    real, fake = dataset.test[:count], samples[:count]
    gaps = np.linalg.norm(samples[:, None] - data.ring_centres(), axis=-1)
    scores = {
      'near': (gaps.min(axis=1) < NEAR_STDS * data.RING_STD).mean(),
      'rare_mass': np.isin(gaps.argmin(axis=1), dataset.rare).mean(),
    }
  elif model is not None:
    images = np.clip(samples, -1.0, 1.0).reshape(-1, *dataset.shape)
    real = np.asarray(model.features(data.scaled(dataset, _by_shares(dataset, count))))
    fake = np.asarray(model.features(images[: len(real)]))
    told = np.asarray(model.logits(images)).argmax(axis=-1)
    found_shares = distances.class_shares(told, len(dataset.shares))
    scores = {
      'fd_cnn': float(_frechet_distance(real, fake)),
      'class_kl': float(_histogram_kl(found_shares, jnp.asarray(dataset.shares))),
      'rare_mass': np.isin(told, dataset.rare).mean(),
    }
  else:
    return {}
  found = _prdc(jnp.asarray(real), jnp.asarray(fake), config.eval.neighbors)
  return {name: float(value) for name, value in found._asdict().items()} | scores


def _by_shares(dataset: Data, count: int) -> np.ndarray:
  """Training images with the classes' shares, at most `count`, none of them twice.

  An image that came twice would be its own nearest neighbour.
  """
  pixels, labels = dataset.known
  have = np.bincount(labels, minlength=len(dataset.shares))
  count = min(count, int((have / dataset.shares).min()))
  wanted = np.floor(count * dataset.shares + 1e-9).astype(int)
  rows = [np.flatnonzero(labels == k)[:n] for k, n in enumerate(wanted)]
  return pixels[np.concatenate(rows)]
