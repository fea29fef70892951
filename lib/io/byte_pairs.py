"""Host. Tokenisers that merge bytes in pairs, as GPT-2's, from GGUF metadata."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

_PREFIX = 'tokenizer.ggml'
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
  r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
  r'|\s*[\r\n]+|\s+(?!\S)|\s+'
)
# What splits a text before its bytes are merged, by GGUF's name. Each expression splits what the
# one before it left.
_SPLITS = {
  'smollm': (r'\p{N}', _GPT2),
  'gpt-2': (_GPT2,),
  'default': (r'[\p{P}\$\+<=>\^~\|]+', _GPT2, r'\p{N}+', '[0-9][0-9][0-9]'),
  'llama-bpe': (_LLAMA3,),
  'qwen2': (_LLAMA3.replace('{1,3}', ''),),
}
_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4  # of the types of tokens, which are 1 to 6
_PLAIN_BYTES = (*range(33, 127), *range(161, 173), *range(174, 256))  # written as themselves


def from_metadata(metadata: Mapping[str, Any]) -> tokenizers.Tokenizer:
  """Makes the tokeniser that a GGUF file describes.

  Qwen's normal form of Unicode (NFC), which no file mentions, comes with the split 'qwen2'; and
  that words of the vocabulary are not merged, with 'llama-bpe'.

  Args:
    metadata: of the file: `tokenizer.ggml.model` 'gpt2', `pre` (one of 'smollm', 'gpt-2',
      'default', 'llama-bpe', 'qwen2'), `tokens`, `token_type` and `merges`.

  Raises:
    ValueError: naming the key that is missing, malformed or of a kind that is not read.
  """
  model, split = get(metadata, f'{_PREFIX}.model', str), get(metadata, f'{_PREFIX}.pre', str)
  if model != 'gpt2':
    raise ValueError(f"key '{_PREFIX}.model': {model!r} is not read, only 'gpt2'.")
  if split not in _SPLITS:
    raise ValueError(f"key '{_PREFIX}.pre': {split!r} is not read, only {', '.join(_SPLITS)}.")
  tokens, merges = (_get_texts(metadata, f'{_PREFIX}.{name}') for name in ('tokens', 'merges'))
  types = get(metadata, f'{_PREFIX}.token_type', np.ndarray)
  vocab = {token: i for i, token in enumerate(tokens)}
  if len(vocab) < len(tokens):
    i = next(i for i, token in enumerate(tokens) if vocab[token] != i)
    raise ValueError(f"key '{_PREFIX}.tokens': token {i}, {tokens[i]!r}, is repeated.")
  if types.shape != (len(tokens),) or not np.isin(types, range(1, 7)).all():
    raise ValueError(f"key '{_PREFIX}.token_type': not a type, 1 to 6, for each of the tokens.")
  pairs = []
  for i, merge in enumerate(merges):
    left, _, right = merge.partition(' ')
    if not vocab.keys() >= {left, right, left + right}:  # the library would crash
      raise ValueError(f"key '{_PREFIX}.merges': merge {i}, {merge!r}, is not of tokens.")
    pairs.append((left, right))
  made = tokenizers.Tokenizer(models.BPE(vocab, pairs, ignore_merges=split == 'llama-bpe'))
  parts = [pre_tokenizers.Split(tokenizers.Regex(s), 'isolated') for s in _SPLITS[split]]
  to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
  made.pre_tokenizer = pre_tokenizers.Sequence([*parts, to_bytes])
  made.decoder = decoders.ByteLevel()
  if split == 'qwen2':
    made.normalizer = normalizers.NFC()
  for special in (True, False):
    kinds = (_UNKNOWN, _CONTROL) if special else (_USER_DEFINED,)
    made.add_tokens([
      tokenizers.AddedToken(tokens[i], normalized=False, special=special)
      for i in np.flatnonzero(np.isin(types, kinds))
    ])  # fmt: skip
  return made


def lost_bytes(tokenizer: tokenizers.Tokenizer) -> frozenset[int]:
  """Returns the bytes that a tokeniser silently drops: those that it should write, and cannot."""
  if not isinstance(tokenizer.decoder, decoders.ByteLevel) or tokenizer.model.unk_token:
    return frozenset()
  others = [i for i in range(256) if i not in _PLAIN_BYTES]
  texts = {i: chr(i) for i in _PLAIN_BYTES} | {i: chr(256 + n) for n, i in enumerate(others)}
  return frozenset(i for i, text in texts.items() if tokenizer.token_to_id(text) is None)


def check_text(text: str, lost: frozenset[int]) -> None:
  """Refuses what a tokeniser would not give back.

  Args:
    text: what to encode.
    lost: from `lost_bytes`.

  Raises:
    ValueError: naming the first lone surrogate, or character that takes a lost byte.
  """
  if not isinstance(text, str):
    raise ValueError(f'a {type(text).__name__} is no text.')
  try:
    if lost.isdisjoint(text.encode()):
      return
  except UnicodeEncodeError as error:
    raise ValueError(f'character {error.start} of the text is a lone surrogate.') from error
  place = next(i for i, c in enumerate(text) if not lost.isdisjoint(c.encode()))
  raise ValueError(f'the vocabulary has no bytes for character {place}, {text[place]!r}.')


def get(metadata: Mapping[str, Any], key: str, kind: type, default: Any = None) -> Any:
  """Returns a value that must be of a type.

  Raises:
    ValueError: if it is of another, or missing and there is no default.
  """
  value = metadata.get(key, default)
  if value is None:
    raise ValueError(f'key {key!r} is missing.')
  if type(value) is not kind:
    raise ValueError(f'key {key!r} is a {type(value).__name__}, expected {kind.__name__}.')
  return value


def _get_texts(metadata: Mapping[str, Any], key: str) -> list[str]:
  texts = get(metadata, key, list)
  for i, text in enumerate(texts):
    if type(text) is not str:
      raise ValueError(f'key {key!r}: value {i} is a {type(text).__name__}, expected str.')
  return texts
