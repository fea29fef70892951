"""What each persona believes comes next: a language model under system prompts of its own."""

import hashlib
import json
import pathlib
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from scipy import special

from lib.io import files, models, npz
from lib.lm import generate, sampling, score, text, transformer

_next = jax.jit(score.next_token_log_probs, static_argnums=0)


def prompt(model: models.Model, system: str, question: str, prefix: str = '') -> list[int]:
  """The tokens of a question to a persona, and of how its answer begins."""
  messages = [{'role': 'system', 'content': system}, {'role': 'user', 'content': question}]
  return model.tokenizer.encode_chat(messages) + model.tokenizer.encode(prefix)


def next_tokens(model: models.Model, prompts: Sequence[list[int]], batch_size: int) -> np.ndarray:
  """The log-probabilities of the token after each prompt, float64 (P, V), normalised."""
  for i, tokens in enumerate(prompts):
    text.check_prompt(model.arch, tokens, 1, f'prompt {i}')
  rows = np.empty((len(prompts), model.arch.vocabulary), np.float32)
  order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
  for first in range(0, len(order), batch_size):
    batch = order[first : first + batch_size]
    padded = batch + batch[:1] * (batch_size - len(batch))  # one shape, one program
    length = generate.bucket(max(len(prompts[i]) for i in batch))
    tokens, positions = generate.pad_left([prompts[i] for i in padded], length)
    rows[batch] = _next(model.arch, model.params, tokens, positions)[: len(batch)]
  return special.log_softmax(rows.astype(np.float64), axis=-1)


def continuations(
  model: models.Model, prompts: Sequence[list[int]], answers: np.ndarray
) -> np.ndarray:
  """The log-probability of each of some answers after each prompt, which is read once.

  Args:
    model: the model.
    prompts: P token lists.
    answers: tokens (K, T).

  Returns:
    float64 (P, K).
  """
  rows = [_continuations(model.arch, model.params, *_one(tokens), answers) for tokens in prompts]
  return np.asarray(rows, np.float64)


def _one(tokens: list[int]) -> tuple[np.ndarray, np.ndarray]:
  return generate.pad_left([tokens], generate.bucket(len(tokens)))


def _read(arch, params, tokens, positions, answers):
  count, length = answers.shape
  prefilled = generate.prefill(arch, params, tokens, positions, length)
  state = generate.begin(prefilled, jax.random.split(jax.random.key(0), 1), count, length)
  places = state.lengths[:, None] + jnp.arange(length)
  out = transformer.forward(arch, params, answers, positions=places, cache=state.cache)
  first = sampling.log_probs(state.logits, answers[:, 0])
  rest = score.token_log_probs(arch, params, out.hidden[:, :-1], answers[:, 1:])
  return first + rest.sum(axis=-1)


_continuations = jax.jit(_read, static_argnums=0)


def cached(path: pathlib.Path, key: dict, compute: Callable[[], np.ndarray]) -> np.ndarray:
  """Reads an array from the workdir, or computes and keeps it; `key` is what it depends on."""
  digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
  file = path.with_name(f'{path.stem}-{digest}.npz')
  if file.is_file():
    return npz.load_npz(file)['array']
  array = compute()
  with files.replacing(file) as stream:
    np.savez(stream, array=array)
  return array


def dependence(config: ml_collections.ConfigDict, **others) -> dict:
  """What beliefs depend on: the model, the personas, and what else is given."""
  own = {'model': config.model, 'dtype': config.dtype, 'personas': config.personas.to_dict()}
  return {**own, **others}


def kept_next_tokens(
  path: pathlib.Path, key: dict, model: models.Model, prompts: list[list[int]], batch_size: int
) -> np.ndarray:
  """`next_tokens`, kept in the workdir as float32 and normalised again."""
  compute = lambda: next_tokens(model, prompts, batch_size).astype(np.float32)
  return special.log_softmax(cached(path, key, compute).astype(np.float64), axis=-1)


def of_contexts(
  config: ml_collections.ConfigDict, model: models.Model, workdir: pathlib.Path
) -> np.ndarray:
  """The next-token beliefs of all personas in all contexts, float64 (C, n, V)."""
  contexts = [(question, prefix) for question in config.questions for prefix in config.prefixes]
  prompts = [
    prompt(model, system, *context) for context in contexts for system in config.personas.values()
  ]
  key = dependence(config, contexts=contexts)
  rows = kept_next_tokens(workdir / 'beliefs.npz', key, model, prompts, config.batch_size)
  return rows.reshape(len(contexts), len(config.personas), -1)
