"""Host. Tokenisers with their chat templates, from GGUF metadata or Hugging Face's JSON files."""

import copy
import dataclasses
import operator
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tokenizers

from lib.io import byte_pairs, chat_template, gguf, json_objects

_MAX_BYTES = 2**26  # of tokenizer.json
_CONFIGS = ('tokenizer_config.json', 'generation_config.json')


@dataclasses.dataclass(frozen=True, eq=False)
class Tokenizer:
  """A tokeniser; a text that it encodes gives no control tokens.

  Attributes:
    source: the file or directory that it came from.
    vocab_size: one more than the largest id.
    control: ids of the control tokens, such as '<|im_start|>', by their text.
    names: texts of tokens by the names that templates have for them, such as 'bos_token'.
    bos: id of the token that begins a text, or None.
    eos: ids of the tokens that end an answer.
    template: the chat template, or None.
    plain: the tokeniser that takes control tokens in a text for text.
    marked: the one that recognises them.
    guarded: ids that no plain text may give: control tokens but for the one of unknown words.
    lost: bytes that the vocabulary cannot write and would drop.
  """

  source: pathlib.Path
  vocab_size: int
  control: dict[str, int]
  names: dict[str, str]
  bos: int | None
  eos: frozenset[int]
  template: str | None
  plain: tokenizers.Tokenizer = dataclasses.field(repr=False)
  marked: tokenizers.Tokenizer = dataclasses.field(repr=False)
  guarded: frozenset[int] = dataclasses.field(repr=False)
  lost: frozenset[int] = dataclasses.field(repr=False)

  def encode(self, text: str) -> list[int]:
    """Returns the ids of a text, without tokens that begin or end it.

    Raises:
      ValueError: if the text holds a lone surrogate, or a character that the vocabulary has no
        bytes for.
    """
    byte_pairs.check_text(text, self.lost)
    ids = self.plain.encode(text, add_special_tokens=False).ids
    if not self.guarded.isdisjoint(ids):
      raise ValueError(f'{self.source}: plain text gives control tokens; the vocabulary is unsafe.')
    return ids

  def decode(self, ids: Iterable[int], skip_control: bool = True) -> str:
    """Returns the text of ids; bytes that are not UTF-8 give U+FFFD.

    Args:
      ids: any of the vocabulary.
      skip_control: leave control tokens out.

    Raises:
      ValueError: naming an id that the vocabulary has not.
    """
    ids = [operator.index(i) for i in ids]
    for i in ids:
      if not 0 <= i < self.vocab_size or self.plain.id_to_token(i) is None:
        raise ValueError(f'{self.source}: there is no token {i}.')
    return self.plain.decode(ids, skip_special_tokens=skip_control)

  def stream(self, ids: Iterable[int], skip_control: bool = True) -> Iterator[str]:
    """Yields the text of ids as they come; the parts together are what `decode` returns.

    What ends within a character waits for the rest of it. Where a vocabulary has tokens for single
    bytes besides others, as Llama 2's, and they are not UTF-8, the number of U+FFFD can differ.

    Args:
      ids: any of the vocabulary, one after another.
      skip_control: leave control tokens out.

    Raises:
      ValueError: as `decode` does.
    """
    shown: list[int] = []  # what was yielded last: some decoders look at what stands before
    waiting: list[int] = []
    for i in ids:
      if skip_control and i in self.control.values():
        continue
      waiting.append(i)
      text = self.decode(shown + waiting, skip_control)
      new = text[len(self.decode(shown, skip_control)) :]
      if new and not new.endswith('\N{REPLACEMENT CHARACTER}'):
        yield new
        shown, waiting = waiting, []
    if waiting:
      text = self.decode(shown + waiting, skip_control)
      yield text[len(self.decode(shown, skip_control)) :]

  def encode_chat(
    self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
  ) -> list[int]:
    """Returns the ids of a conversation, as the chat template writes it.

    Its control tokens come from the template alone. To that end the template sees contents with
    other characters in the place of those that control tokens are made of: it can trim or measure
    a content, but not search in it.

    Args:
      messages: each a 'role' and a 'content'.
      add_generation_prompt: end with what begins an answer.

    Raises:
      ValueError: naming the source: there is no template, it is malformed, refuses the messages or
        does too much, or a message is malformed or, as in `encode`, no text of this vocabulary.
    """
    if self.template is None:
      raise ValueError(f'{self.source}: has no chat template.')
    try:
      disguised, reveal = chat_template.render_disguised(
        self.template, messages, add_generation_prompt, ''.join(self.control), self.names
      )
    except ValueError as error:
      raise ValueError(f'{self.source}: chat template: {error}') from error
    text = disguised.translate(reveal)
    byte_pairs.check_text(text, self.lost)
    places = self._find_control(disguised)
    if self._find_control(text) == places:  # no content holds what looks like a control token
      return self.marked.encode(text, add_special_tokens=False).ids
    ids, end = [], 0
    for start, stop, i in places:
      ids += [*self.encode(text[end:start]), i]
      end = stop
    return ids + self.encode(text[end:])

  def _find_control(self, text: str) -> list[tuple[int, int, int]]:
    """Returns where control tokens begin and end in a text, and their ids."""
    encoding = self.marked.encode(text, add_special_tokens=False)
    places = []
    for i, (start, stop) in zip(encoding.ids, encoding.offsets, strict=True):
      if i in self.control.values():
        if text[start:stop].strip() == self.plain.id_to_token(i):
          places.append((start, stop, i))
        elif i in self.guarded:
          raise ValueError(f'{self.source}: {text[start:stop]!r} gives control token {i}.')
    return places


def from_gguf(file: gguf.File) -> Tokenizer:
  """Makes the tokeniser that a GGUF file describes, as `byte_pairs.from_metadata` can.

  Raises:
    ValueError: naming the file, and the key that is missing, malformed or of a kind not read.
  """
  try:
    plain = byte_pairs.from_metadata(file.metadata)
    tokens: list[str] = file.metadata['tokenizer.ggml.tokens']
    ids = {}
    for name in ('bos', 'eos', 'eot', 'eom'):
      key = f'tokenizer.ggml.{name}_token_id'
      if key in file.metadata:
        ids[name] = byte_pairs.get(file.metadata, key, int)
        if not 0 <= ids[name] < len(tokens):
          raise ValueError(f'key {key!r}: there is no token {ids[name]}.')
    template = byte_pairs.get(file.metadata, 'tokenizer.chat_template', str, '')
  except ValueError as error:
    raise ValueError(f'{file.path}: {error}') from error
  names = {f'{name}_token': tokens[ids[name]] for name in ('bos', 'eos') if name in ids}
  ends = (i for name, i in ids.items() if name != 'bos')
  return _make(file.path, plain, names, ends, template or None)


def from_directory(path: str | os.PathLike) -> Tokenizer:
  """Makes the tokeniser of a model's directory in Hugging Face's layout.

  It is in tokenizer.json; which tokens have a name is in tokenizer_config.json, the chat template
  there or in chat_template.jinja, and more ends of answers in generation_config.json.

  Raises:
    OSError: if tokenizer.json cannot be opened.
    ValueError: naming the file that is malformed.
  """
  path = pathlib.Path(path)
  with open(path / 'tokenizer.json', 'rb') as stream:
    raw = stream.read(_MAX_BYTES + 1)
  if len(raw) > _MAX_BYTES:
    raise ValueError(f'{stream.name}: is larger than {_MAX_BYTES} bytes.')
  try:
    plain = tokenizers.Tokenizer.from_str(raw.decode())
  except (KeyboardInterrupt, SystemExit):
    raise
  except BaseException as error:  # the library's panics are no Exceptions
    raise ValueError(f'{stream.name}: not a tokeniser: {error}.') from error
  plain.no_truncation()
  plain.no_padding()
  config, generation = (_read_optional(path / name) for name in _CONFIGS)
  names = {}
  for name in ('bos_token', 'eos_token', 'unk_token', 'pad_token'):
    value = config.get(name)
    text = value.get('content') if isinstance(value, dict) else value
    if text is not None:
      if not isinstance(text, str) or plain.token_to_id(text) is None:
        raise ValueError(f'{path / _CONFIGS[0]}: {name} {text!r} is no token.')
      names[name] = text
  ends = generation.get('eos_token_id', [])
  ends = ends if isinstance(ends, list) else [ends]
  for i in ends:
    if type(i) is not int or not 0 <= i < 2**32 or plain.id_to_token(i) is None:
      raise ValueError(f'{path / _CONFIGS[1]}: eos_token_id {i!r} is no token.')
  if 'eos_token' in names:
    ends = [*ends, plain.token_to_id(names['eos_token'])]
  return _make(path, plain, names, ends, chat_template.read(path, config))


def _make(
  source: pathlib.Path,
  plain: tokenizers.Tokenizer,
  names: dict[str, str],
  ends: Iterable[int],
  template: str | None,
) -> Tokenizer:
  control = {t.content: i for i, t in plain.get_added_tokens_decoder().items() if t.special}
  marked = copy.deepcopy(plain)
  plain.encode_special_tokens = True
  unknown = {getattr(plain.model, 'unk_token', None)} - {
    *map(names.get, ('bos_token', 'eos_token'))
  }
  return Tokenizer(
    source=source,
    vocab_size=1 + max(plain.get_vocab().values(), default=-1),
    control=control,
    names=names,
    bos=plain.token_to_id(names['bos_token']) if 'bos_token' in names else None,
    eos=frozenset(ends),
    template=template,
    plain=plain,
    marked=marked,
    guarded=frozenset(i for token, i in control.items() if token not in unknown),
    lost=byte_pairs.lost_bytes(plain),
  )


def _read_optional(path: pathlib.Path) -> dict[str, Any]:
  return json_objects.read_object(path) if path.is_file() else {}
