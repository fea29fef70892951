"""From a config to text at the terminal. Nothing is written to disk but compiled programs."""

import pathlib
import sys
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import ml_collections
from absl import flags
from ml_collections import config_flags

from lib.io import models
from lib.lm import generate, sampling, score, text
from lib.train import console

CACHE = pathlib.Path('~/.cache/icml2026-jax')  # of compiled programs


def main(argv: Sequence[str]) -> int:
  """Runs one task of TASKS; returns 0, or 2 after one line about bad input."""
  if jax.config.jax_compilation_cache_dir is None:  # a second start compiles nothing
    jax.config.update('jax_compilation_cache_dir', str(CACHE.expanduser()))
  try:
    config = read_config(argv)
    check(config)
    if config.prompt_file:
      config.prompt = pathlib.Path(config.prompt_file).read_text('utf-8')
    stacked = config.task == 'log_prob'  # compiles faster; the others decode, which runs faster
    model = models.load(
      config.model, models.DTYPES[config.dtype], stacked=stacked, int8=config.int8
    )
    TASKS[config.task](config, model)
  except (ValueError, OSError) as error:
    console.say('error: ' + ' '.join(str(error).split()))
    return 2
  except KeyboardInterrupt:
    print()
    return 130
  return 0


def read_config(argv: Sequence[str]) -> ml_collections.ConfigDict:
  """Reads `--config=FILE` and `--config.field=value`; a ValueError names what is bad."""
  values = flags.FlagValues()
  config_flags.DEFINE_config_file('config', None, '', flag_values=values, sys_argv=list(argv))
  paths = [arg.removeprefix('--config=') for arg in argv if arg.startswith('--config=')]
  if not paths or not pathlib.Path(paths[0].partition(':')[0]).is_file():
    raise ValueError(f'no config file {paths[0]}' if paths else 'give --config=FILE')
  try:
    rest = values(list(argv))[1:]
  except Exception as error:  # a config is code, and may fail in any way
    raise ValueError(str(error)) from error
  if rest:
    raise ValueError(f'unknown argument {rest[0]!r}')
  return values.config


def check(config: ml_collections.ConfigDict) -> None:
  """Raises a ValueError that names the first bad field."""
  for name, choices in (('task', TASKS), ('dtype', models.DTYPES)):
    if config[name] not in choices:
      raise ValueError(f'config.{name} must be one of {", ".join(choices)}, got {config[name]!r}')
  for name in ('max_tokens', 'num_samples'):
    if config[name] <= 0:
      raise ValueError(f'config.{name} must be positive, got {config[name]}')
  sampling.check(settings(config))


def settings(config: ml_collections.ConfigDict) -> sampling.Sampling:
  """The config's way to draw tokens."""
  return sampling.Sampling(**config.sampling.to_dict())


def chat(config: ml_collections.ConfigDict, model: models.Model) -> None:
  """Answers `config.prompt`; without one, holds a conversation until the input ends."""
  messages = [{'role': 'system', 'content': config.system}] if config.system else []
  if config.prompt:
    _answer(config, model, [*messages, {'role': 'user', 'content': config.prompt}])
    return
  while line := _ask():
    messages.append({'role': 'user', 'content': line})
    messages.append({'role': 'assistant', 'content': _answer(config, model, messages)})


def complete(config: ml_collections.ConfigDict, model: models.Model) -> None:
  """Goes on where `config.prompt` ends."""
  print(config.prompt, end='', flush=True)
  _stream(config, model, model.tokenizer.encode(config.prompt), seed=config.seed)


def log_prob(config: ml_collections.ConfigDict, model: models.Model) -> None:
  """Prints the log-probability of each token of `config.prompt`, of a file only their mean."""
  tokens = model.tokenizer.encode(config.prompt)
  text.check_prompt(model.arch, tokens, 0, 'config.prompt')
  if len(tokens) < 2:
    raise ValueError('config.prompt needs at least two tokens to score')
  padded, positions = generate.pad_left([tokens], generate.bucket(len(tokens)))
  _, terms = _score(
    model.arch, model.params, jnp.asarray(padded), jnp.asarray(positions), positions > 0
  )
  for token, value in zip(tokens[1:], terms[0, 1 - len(tokens) :].tolist(), strict=True):
    if not config.prompt_file:
      print(f'{value:9.4f}  {model.tokenizer.decode([token])!r}')
  mean = float(terms.sum()) / (len(tokens) - 1)
  print(f'{mean:9.4f}  mean of {len(tokens) - 1} tokens; perplexity {jnp.exp(-mean):.4g}')


_score = jax.jit(score.sequence_log_probs, static_argnums=0)
TASKS = {'chat': chat, 'complete': complete, 'log_prob': log_prob}


def _ask() -> str:
  try:
    return input('> ' if sys.stdin.isatty() else '').strip()
  except EOFError:
    return ''


def _answer(config, model: models.Model, messages: list[dict[str, str]]) -> str:
  seed = config.seed + len(messages) // 2
  return _stream(config, model, model.tokenizer.encode_chat(messages), seed)


def _stream(config, model: models.Model, prompt: list[int], seed: int) -> str:
  """Prints a completion as it grows; several samples one after another, once they are there."""
  shown = ''

  def show(_, __, so_far: str) -> None:
    nonlocal shown
    whole = so_far.removesuffix('\N{REPLACEMENT CHARACTER}')  # half of a character, so far
    print(whole[len(shown) :], end='', flush=True)
    shown = whole

  (samples,) = text.complete(
    model.arch,
    model.params,
    [prompt],
    model.tokenizer.decode,
    max_tokens=config.max_tokens,
    settings=settings(config),
    num_samples=config.num_samples,
    stop_tokens=model.tokenizer.eos,
    stop_strings=config.stop_strings,
    seed=seed,
    show=show if config.num_samples == 1 else None,
  )
  if config.num_samples > 1:
    print('\n---\n'.join(sample.text for sample in samples), end='')
  print()
  return samples[0].text
