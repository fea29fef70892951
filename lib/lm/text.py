"""Host. Prompts in, completions out: buckets of lengths, streaming, stop strings."""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lib.lm import generate, sampling, transformer

Decode = Callable[[list[int]], str]
_prefill = jax.jit(generate.prefill, static_argnames=('arch', 'room'))
_begin = jax.jit(generate.begin, static_argnames=('num_samples', 'max_tokens'))
_decode = jax.jit(generate.decode, static_argnames=('arch', 'settings'), donate_argnames=('state',))


class Completion(NamedTuple):
  """One sample of one prompt.

  Attributes:
    text: without the stop token, and up to the stop string.
    tokens: generated, the stop token included.
    log_probs: of the tokens, under the model at temperature 1.
    stopped: whether a stop token or string came, rather than the end of the budget.
  """

  text: str
  tokens: list[int]
  log_probs: list[float]
  stopped: bool


def complete(
  arch: transformer.Architecture,
  params: transformer.Params,
  prompts: Sequence[Sequence[int]],
  decode: Decode,
  *,
  max_tokens: int,
  settings: sampling.Sampling = sampling.GREEDY,
  num_samples: int = 1,
  stop_tokens: Collection[int] = (),
  stop_strings: Collection[str] = (),
  seed: int = 0,
  batch_size: int = 32,
  show: Callable[[int, int, str], object] | None = None,
  show_every: int = 4,
) -> list[list[Completion]]:
  """Completes prompts.

  What a prompt gets depends on the seed and its place in `prompts` alone, not on the others.

  Args:
    arch: of the model.
    params: of the model.
    prompts: token lists.
    decode: `decode(tokens) -> text`.
    max_tokens: to generate for each, > 0.
    settings: how tokens are drawn.
    num_samples: of each prompt, > 0.
    stop_tokens: tokens that end a completion.
    stop_strings: texts that end it.
    seed: of the samples.
    batch_size: rows that are generated at once.
    show: called as `show(prompt, sample, text)` with the text so far, whenever there is more.
    show_every: tokens between two looks at the text, for `show` and for stop strings.

  Returns:
    A list of completions for each prompt.

  Raises:
    ValueError: if a number is out of its range, or a prompt is empty, has tokens that the model
      does not know, or leaves no room in the model's context.
  """
  sampling.check(settings)
  for name, value in (('max_tokens', max_tokens), ('num_samples', num_samples)):
    if value <= 0:
      raise ValueError(f'{name} must be positive, got {value}')
  for i, prompt in enumerate(prompts):
    check_prompt(arch, prompt, max_tokens, f'prompt {i}')
  if '' in stop_strings:
    raise ValueError('a stop string is empty')
  result: list[list[Completion]] = [[] for _ in prompts]
  look = show_every if show or stop_strings else max_tokens
  for group in _groups([len(prompt) for prompt in prompts], max(1, batch_size // num_samples)):
    length = generate.bucket(max(len(prompts[i]) for i in group))
    room = generate.bucket(max_tokens)
    padded = group + group[:1] * (generate.bucket(len(group), 1) - len(group))
    tokens, positions = generate.pad_left([list(prompts[i]) for i in padded], length)
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(seed), i))(jnp.asarray(padded))
    prefilled = _prefill(arch, params, tokens, positions, room)
    state = _begin(prefilled, keys, num_samples=num_samples, max_tokens=room)
    idle = np.arange(len(padded) * num_samples) >= len(group) * num_samples
    stopped = np.zeros(len(idle), bool)
    texts = [''] * len(idle)
    while True:
      budget = min(look, max_tokens - int(state.step))
      state = state._replace(done=jnp.asarray(idle | stopped | np.asarray(state.done)))
      state = _decode(
        arch, params, state, settings, jnp.asarray(sorted(stop_tokens), jnp.int32), budget
      )
      done, counts = np.asarray(state.done) & ~idle, np.asarray(state.counts)
      generated = np.asarray(state.tokens)
      for row in np.flatnonzero(~idle & ~stopped).tolist():
        own = generated[row, : counts[row]].tolist()
        texts[row], cut = _cut(decode(_without_stop(own, stop_tokens)), stop_strings)
        stopped[row] = cut or done[row]
        if show:
          show(group[row // num_samples], row % num_samples, texts[row])
      if stopped[~idle].all() or int(state.step) >= max_tokens:
        break
    log_probs = np.asarray(state.log_probs)
    for row in np.flatnonzero(~idle).tolist():
      own = generated[row, : counts[row]].tolist()
      result[group[row // num_samples]].append(
        Completion(texts[row], own, log_probs[row, : counts[row]].tolist(), bool(stopped[row]))
      )
  return result


def check_prompt(
  arch: transformer.Architecture, prompt: Sequence[int], room: int, name: str
) -> None:
  """Raises a ValueError if a prompt is empty, unknown to the model, or too long for it."""
  if not prompt:
    raise ValueError(f'{name} is empty')
  if not 0 <= min(prompt) <= max(prompt) < arch.vocabulary:
    bad = next(token for token in prompt if not 0 <= token < arch.vocabulary)
    raise ValueError(f'{name} has token {bad}; the model knows 0 to {arch.vocabulary - 1}')
  if len(prompt) + room > arch.context:
    raise ValueError(
      f'{name} has {len(prompt)} tokens, which with {room} more exceed the context, {arch.context}'
    )


def _groups(lengths: list[int], size: int) -> list[list[int]]:
  """Divides prompts into batches of like length."""
  order = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
  groups: list[list[int]] = []
  for i in order:
    same = groups and generate.bucket(lengths[groups[-1][0]]) == generate.bucket(lengths[i])
    if same and len(groups[-1]) < size:
      groups[-1].append(i)
    else:
      groups.append([i])
  return groups


def _without_stop(tokens: list[int], stop_tokens: Collection[int]) -> list[int]:
  return tokens[:-1] if tokens and tokens[-1] in stop_tokens else tokens


def _cut(text: str, stop_strings: Collection[str]) -> tuple[str, bool]:
  ends = [at for string in stop_strings if (at := text.find(string)) >= 0]
  return (text[: min(ends)], True) if ends else (text, False)
