"""Manifest, then suppress: how much less likely a bad answer becomes for one more direction."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from scipy import special

from experiments.agency import beliefs
from lib.io import models
from lib.pooling import pools, profiles, programs, shattering
from lib.stats import intervals, tables

CONTROLS = 20  # random directions
_reduction = jax.jit(shattering.max_reduction)
_gains = jax.jit(jax.vmap(shattering.shatter_gain, in_axes=(None, None, 0, None, None)))


class Case(NamedTuple):
  """A question with the answer that is bad, over the outcomes that are likeliest.

  Attributes:
    question: for the report.
    logp: beliefs (n, K).
    event: booleans (K,), the bad answers.
  """

  question: str
  logp: np.ndarray
  event: np.ndarray


def cases(config: ml_collections.ConfigDict, model: models.Model, workdir) -> list[Case]:
  """Reads what the personas believe about each of `config.events`."""
  systems = config.personas.values()
  found = []
  for question, bad in config.events:
    prompts = [beliefs.prompt(model, system, question) for system in systems]
    key = beliefs.dependence(config, question=question)
    path = workdir / 'events.npz'
    logp = beliefs.kept_next_tokens(path, key, model, prompts, len(prompts))
    first = {model.tokenizer.encode(spelling)[0] for spelling in bad}
    chosen = np.argsort(-np.exp(logp).mean(axis=0), kind='stable')[: config.event_outcomes]
    chosen = np.union1d(chosen, sorted(first))
    event = np.isin(chosen, sorted(first))
    found.append(Case(question, special.log_softmax(logp[:, chosen], axis=-1), event))
  return found


def measure(
  case: Case, base: list[int], extra: int, kappas: tuple[float, ...], rng: np.random.Generator
) -> dict[str, float]:
  """Compares edits along the base's profiles with edits along one profile more.

  Args:
    case: the question.
    base: members whose profiles span S_0.
    extra: the member whose profile w joins them.
    kappas: divergences KL(P'‖P), in nats.
    rng: of the controls, random directions instead of w: isotropic in <·,·>_P, and independent
      over outcomes, which weighs likely ones more.

  Returns:
    By name: P(A) under the pool; the ratio of first-order reductions; those of random directions;
    and for each κ the reductions that were predicted and reached, with and without w.
  """
  members = len(case.logp)
  pool = np.asarray(pools.log_pool(jnp.asarray(case.logp), jnp.full(members, 1.0 / members)))
  logp = jnp.asarray(pool)
  v = profiles.centre(jnp.asarray(case.logp), logp)
  g = profiles.event_score(jnp.asarray(case.event), logp)
  draws = rng.standard_normal((CONTROLS, len(pool)))
  before = v[jnp.asarray(base)]
  directions = {
    'base': before,
    'extra': jnp.concatenate([before, v[extra][None]]),
  }
  sizes = {k: float(_reduction(logp, d, g, 1.0)) for k, d in directions.items()}
  found = {
    'bad_probability': float(np.exp(pool[case.event]).sum()),
    'first_order_ratio': sizes['extra'] / sizes['base'],
  }
  for name, scale in (('random', np.exp(-0.5 * pool)), ('random_logits', np.ones_like(pool))):
    gains = _gains(logp, before, jnp.asarray(draws * scale), g, 1.0)
    found[f'{name}_ratio'] = 1 + float(gains.mean()) / sizes['base']
  for kappa in kappas:
    for name in ('base', 'extra'):
      edit = programs.min_event(pool, np.asarray(directions[name]), case.event, kappa)
      found[f'{name}_reached_{kappa:g}'] = found['bad_probability'] - edit.probability
      found[f'{name}_predicted_{kappa:g}'] = float(np.sqrt(2 * kappa)) * sizes[name]
    found[f'reached_ratio_{kappa:g}'] = (
      found[f'extra_reached_{kappa:g}'] / found[f'base_reached_{kappa:g}']
    )
    found[f'prediction_error_{kappa:g}'] = max(
      abs(found[f'{name}_predicted_{kappa:g}'] / found[f'{name}_reached_{kappa:g}'] - 1)
      for name in ('base', 'extra')
    )
  return found


def rows(measured: list[dict[str, float]]) -> list[tables.Row]:
  """The mean of each number over questions, with intervals."""
  return [
    tables.row(
      'manifest, then suppress',
      name,
      intervals.mean_interval([one[name] for one in measured]),
      n=len(measured),
      seeds=1,
    )
    for name in measured[0]
  ]
