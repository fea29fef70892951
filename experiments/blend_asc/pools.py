"""Pools of answers: many samples of a language model for each question, drawn once and kept."""

import functools
import hashlib
import pathlib
import re
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np

from lib.io import files, json_objects, models, questions
from lib.lm import generate, sampling, score, text
from lib.voting import answers

PREFIX = 'The answer is '  # how an answer begins, so that a number comes next; none below zero
_KEPT = re.compile('(-?[0-9]+)?')  # an answer in the file
_SMALLEST = 64  # tokens to which shorter prompts are padded, so that few programs are compiled


class Draw(NamedTuple):
  """How a pool is drawn.

  Attributes:
    samples: of each question.
    temperature: of the samples.
    max_tokens: that each sample may have; three are enough for the numbers below a thousand.
    seed: of the samples.
    prefix: how each answer begins.
  """

  samples: int = 256
  temperature: float = 1.0
  max_tokens: int = 3
  seed: int = 0
  prefix: str = PREFIX


def halves(
  items: Sequence[questions.Question],
) -> tuple[list[questions.Question], list[questions.Question]]:
  """Deals the questions of each task out in turn: for validation, and for the test."""
  dealt: tuple[list[questions.Question], list[questions.Question]] = ([], [])
  seen: dict[str, int] = {}
  for item in items:
    seen[item.task] = seen.get(item.task, -1) + 1
    dealt[seen[item.task] % 2].append(item)
  return dealt


def draw_pool(
  model: models.Model,
  items: Sequence[questions.Question],
  draw: Draw,
  directory: pathlib.Path | None = None,
  show: Callable[[int, int], object] | None = None,
) -> list[list[str]]:
  """Asks a model each question many times.

  What a question gets depends on its id and prompt, the model and `draw` alone: not on the other
  questions, nor on where an earlier run was stopped. Fewer samples are the first of more.

  Args:
    model: layers in a tuple make it faster on a CPU.
    items: the questions, with different ids.
    draw: how.
    directory: where answers are kept, in one file for all that decides them; a run that was
      stopped goes on there. None keeps nothing.
    show: called as `show(done, all)` after each question; what it raises ends the run, and what
      was drawn is kept.

  Returns:
    By question, the first integer of each answer, '' where there is none; what `max_tokens` cuts
    counts as it stands. `lib.voting.answers.encode` counts such texts.

  Raises:
    ValueError: if a number is out of its range, ids are not different, a prompt does not fit the
      model, or the file that was kept is malformed, which names it.
  """
  prompts = check(model, items, draw)
  settings = sampling.Sampling(temperature=draw.temperature)
  path, rows = None, []
  if directory is not None:
    path = directory / f'answers-{_digest(model, items, prompts, draw)}.json'
    rows = _resume(path, len(items), draw.samples)
  stop = np.array(sorted(model.tokenizer.eos), np.int32)
  for i in range(len(rows), len(items)):
    key = jax.random.fold_in(jax.random.key(draw.seed), zlib.crc32(items[i].id.encode()))
    tokens, positions = generate.pad_left([prompts[i]], generate.bucket(len(prompts[i]), _SMALLEST))
    found, counts = jax.device_get(
      _samples(
        model.arch, model.params, tokens, positions, key, stop, settings, draw.samples,
        draw.max_tokens,
      )
    )  # fmt: skip
    rows.append(_answers(model, found, counts))
    if path is not None:
      write(path, rows)
    if show:
      show(i + 1, len(items))
  return rows


def check(model: models.Model, items: Sequence[questions.Question], draw: Draw) -> list[list[int]]:
  """Returns the tokens of every prompt, or raises a ValueError that `draw_pool` would."""
  for name in ('samples', 'max_tokens'):
    if getattr(draw, name) <= 0:
      raise ValueError(f'{name} must be positive, got {getattr(draw, name)}.')
  sampling.check(sampling.Sampling(temperature=draw.temperature))
  if len({item.id for item in items}) < len(items):
    raise ValueError('Two questions have one id.')
  prompts = [prompt(model, item, draw.prefix) for item in items]
  for item, tokens in zip(items, prompts, strict=True):
    text.check_prompt(model.arch, tokens, draw.max_tokens, item.id)
  return prompts


def prompt(model: models.Model, item: questions.Question, prefix: str) -> list[int]:
  """The tokens of a question, and of how its answer begins."""
  messages = [{'role': 'user', 'content': item.prompt}]
  return model.tokenizer.encode_chat(messages) + model.tokenizer.encode(prefix)


def write(path: pathlib.Path, rows: Sequence[Sequence[str]]) -> None:
  """Keeps answers, a text for each question."""
  files.write_json(path, {'answers': [','.join(row) for row in rows]})


def read(path: pathlib.Path) -> list[list[str]]:
  """Reads what `write` keeps.

  Raises:
    OSError: if the file cannot be opened.
    ValueError: naming the file, if it is not one of these.
  """
  rows = json_objects.read_object(path).get('answers')
  if isinstance(rows, list) and all(isinstance(row, str) for row in rows):
    split = [row.split(',') for row in rows]
    if all(_KEPT.fullmatch(answer) for row in split for answer in row):
      return split
  raise ValueError(f'{path}: holds no pool of answers.')


def digit_distributions(
  model: models.Model,
  items: Sequence[questions.Question],
  prefix: str = PREFIX,
  batch_size: int = 16,
) -> tuple[np.ndarray, np.ndarray]:
  """The exact distribution of the first digit, at temperature 1, without a sample.

  Where answers have one digit, it is the distribution of the answer.

  Args:
    model: whose tokeniser has a token for each digit.
    items: the questions.
    prefix: what comes before the digit, the space included.
    batch_size: prompts that the model reads at once.

  Returns:
    Distributions over the ten digits (Q, 10), and the probability that a digit comes (Q,), both
    float64.

  Raises:
    ValueError: if a digit is no single token, or a prompt does not fit the model.
  """
  spellings = [model.tokenizer.encode(str(digit)) for digit in range(10)]
  if any(len(tokens) != 1 for tokens in spellings):
    raise ValueError('The tokeniser has no token for each digit.')
  prompts = [prompt(model, item, prefix) for item in items]
  for item, tokens in zip(items, prompts, strict=True):
    text.check_prompt(model.arch, tokens, 1, item.id)
  rows = np.empty((len(items), 10))
  length = generate.bucket(max(map(len, prompts), default=1))  # one shape, one program
  for first in range(0, len(items), batch_size):
    batch = prompts[first : first + batch_size]
    padded = batch + batch[:1] * (batch_size - len(batch))
    tokens, positions = generate.pad_left(padded, length)
    found = _digits(model.arch, model.params, tokens, positions, np.array(spellings, np.int32))
    rows[first : first + batch_size] = np.asarray(found)[: len(batch)]
  probabilities = np.exp(rows)
  mass = probabilities.sum(axis=1)
  return probabilities / mass[:, None], mass


@functools.partial(jax.jit, static_argnames=('arch', 'settings', 'samples', 'max_tokens'))
def _samples(arch, params, tokens, positions, key, stop, settings, samples, max_tokens):
  """Reads one prompt and draws its samples: tokens (S, N), and how many are a row's own (S,)."""
  prefilled = generate.prefill(arch, params, tokens, positions, max_tokens)
  state = generate.begin(prefilled, key[None], samples, max_tokens)
  state = generate.decode(arch, params, state, settings, stop, max_tokens - 1)
  # The last token of each row, after which the model has nothing to read.
  keys = jax.vmap(lambda key: jax.random.fold_in(key, state.step))(state.keys)
  last = jax.vmap(lambda key, row: sampling.sample(key, row, settings))(keys, state.logits)
  found = jax.lax.dynamic_update_slice(state.tokens, last[:, None], (0, state.step))
  return found, state.counts + ~state.done


@functools.partial(jax.jit, static_argnames=('arch',))
def _digits(arch, params, tokens, positions, spellings):
  log_probs = score.next_token_log_probs(arch, params, tokens, positions)
  return score.label_log_probs(log_probs, spellings)


def _answers(model: models.Model, tokens: np.ndarray, counts: np.ndarray) -> list[str]:
  own = (row[:count] for row, count in zip(tokens.tolist(), counts.tolist(), strict=True))
  return [answers.first_integer(model.tokenizer.decode(row)) or '' for row in own]


def _digest(model, items, prompts, draw: Draw) -> str:
  """A name for all that decides a pool."""
  digest = hashlib.blake2b(repr((model.arch, draw)).encode(), digest_size=8)
  for leaf in jax.tree.leaves(model.params):
    digest.update(f'{leaf.dtype}{leaf.shape}'.encode())
    digest.update(np.ascontiguousarray(leaf).view(np.uint8))
  for item, tokens in zip(items, prompts, strict=True):
    digest.update(repr((item.id, tokens)).encode())
  return digest.hexdigest()


def _resume(path: pathlib.Path, count: int, samples: int) -> list[list[str]]:
  """The answers that an earlier run kept."""
  rows = read(path) if path.is_file() else []
  if len(rows) > count or any(len(row) != samples for row in rows):
    raise ValueError(f'{path}: its answers are to other questions; remove it.')
  return rows
