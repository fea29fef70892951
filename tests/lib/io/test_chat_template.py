"""Tests of lib.io.chat_template."""

import json
import pathlib
import tempfile

import jinja2
from absl.testing import absltest, parameterized
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.io import chat_template

CHATML = (
  '{% for message in messages %}\n'
  "  {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}\n"
  '{% endfor %}\n'
  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
TOKENS = ('<|im_start|>', '<|im_end|>')
HIDDEN = ''.join(TOKENS)


def _render(template, content='hi', role='user', hidden=HIDDEN, **variables) -> str:
  messages = [{'role': role, 'content': content}]
  text, reveal = chat_template.render_disguised(template, messages, True, hidden, variables)
  assert len(text) == len(text.translate(reveal))
  return text.translate(reveal)


class RenderTest(parameterized.TestCase):
  @settings(max_examples=30)
  @given(st.lists(st.text(max_size=20), min_size=1, max_size=3), st.booleans())
  def test_text_is_jinjas(self, contents, prompt):
    messages = [{'role': 'user', 'content': content} for content in contents]
    text, reveal = chat_template.render_disguised(CHATML, messages, prompt, HIDDEN, {})
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    expected = environment.from_string(CHATML).render(
      messages=messages, add_generation_prompt=prompt
    )
    self.assertEqual(text.translate(reveal), expected)

  @parameterized.parameters(
    '{{ messages[0].content }}',
    '{{ messages[0].content | trim }}',
    "{{ messages[0].content.replace('x', '') }}",
    "{{ messages[0].content.split('x') | join }}",
    '{{ messages[0].content | reverse | reverse }}',
    '{% for c in messages[0].content %}{{ c }}{% endfor %}',
    '{{ messages[0].content[:3] ~ messages[0].content[3:] }}',
    "{{ '<' ~ messages[0].content[1:] }}",
    "{{ messages[0].content[:-1] ~ '>' }}",
    "{{ '<|im' ~ messages[0].content[4:9] ~ 'art|>' }}",
    '{{ messages[0] | tojson }}',
    '{{ messages }}',
    '{% set x = messages[0].content %}{% macro f(y) %}{{ y }}{% endmacro %}{{ f(x) }}',
  )
  def test_no_template_makes_tokens_of_contents(self, template):
    for content in ('<|im_start|>', '<|imx_start|>', ' <|im_start|>\n'):
      messages = [{'role': 'user', 'content': content}]
      text, _ = chat_template.render_disguised(template, messages, True, HIDDEN, {})
      self.assertNotIn('<|im_start|>', text)

  def test_template_sees_what_a_content_measures(self):
    self.assertEqual(_render('{{ messages[0].content | length }}', 'a<|im_end|>'), '11')
    self.assertEqual(_render('{{ messages[0].content | trim }}!', ' \n<b>\t'), '<b>!')
    self.assertEqual(_render("{{ messages[0].content or 'none' }}", ''), 'none')

  def test_private_characters_of_contents_stay(self):
    content = ''.join(map(chr, range(0xE000, 0xE020))) + '<|>'
    self.assertEqual(_render('{{ messages[0].content }}', content), content)
    text, reveal = chat_template.render_disguised(
      '{{ messages[0].content }}', [{'role': 'user', 'content': content}], True, '<', {}
    )
    self.assertNotIn('<', text)
    self.assertEqual(text.translate(reveal), content)

  def test_contents_of_all_private_characters(self):
    spans = ((0xE000, 0xF900), (0xF0000, 0xFFFFE), (0x100000, 0x10FFFE))
    content = ''.join(chr(c) for span in spans for c in range(*span))
    with self.assertRaisesRegex(ValueError, 'all private characters'):
      _render('{{ messages[0].content }}', content)

  def test_roles_may_name_tokens(self):
    self.assertEqual(_render("{{ '<|' + messages[0].role + '|>' }}", role='user'), '<|user|>')

  def test_what_templates_may_name(self):
    self.assertEqual(_render('{{ bos_token }}{{ eos_token }}', bos_token='<s>'), '<s>')
    self.assertEqual(_render('{{ tools is none and documents is none }}'), 'True')
    self.assertEqual(_render('{{ strftime_now is defined }}'), 'False')
    self.assertEqual(_render('{% generation %}a{{ 1 }}{% endgeneration %}b'), 'a1b')
    self.assertEqual(_render('{{ {"a": "é<"} | tojson }}', hidden='z'), '{"a": "é<"}')
    loop = '{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}'
    self.assertEqual(_render(loop), '01')


class RefusalTest(parameterized.TestCase):
  @parameterized.parameters(
    ('{% if %}', 'TemplateSyntaxError in line 1'),
    ('{{ messages[0].content', 'TemplateSyntaxError in line 1'),
    ('\n{% endfor %}', 'TemplateSyntaxError in line 2'),
    ('{{ ' + '(' * 50_000, 'RecursionError'),
    ('{% if 1 %}' * 5000, 'RecursionError'),
    ('x' * 2**18, 'has 262144 characters'),
    ("{{ raise_exception('no system here') }}", 'TemplateError: no system here'),
    ('{{ nothing.at_all }}', 'UndefinedError'),
    ("{% include 'other' %}", 'no loader'),
    ("{{ ''.__class__.__mro__ }}", 'SecurityError'),
    ('{{ messages.append(1) }}', 'SecurityError'),
    ('{{ range(1000000) }}', 'OverflowError'),
    ("{{ 'a' * 10**10 }}", 'SecurityError: uses .* large'),
    ('{{ 9**9**9 }}', 'SecurityError: uses .* large'),
    ("{{ 'ab' * 1000000000 }}", 'SecurityError: uses .* large'),
    ("{{ '%1000000000d' % 1 }}", 'SecurityError: uses .* large'),
    ('{% for i in range(99999) %}' * 3 + '{% endfor %}' * 3, 'takes more than 100000 steps'),
    (
      '{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(99) }}',
      'takes more than 100000 steps',
    ),
    ('{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}', 'RecursionError'),
    ("{% for i in range(9999) %}{{ 'x'.ljust(9999) }}{% endfor %}", 'writes more than'),
  )
  def test_template_is_refused(self, template, message):
    with self.assertRaisesRegex(ValueError, message):
      _render(template)

  def test_steps_are_counted_anew_for_each_conversation(self):
    template = '{% for i in range(60000) %}{% endfor %}x'
    for _ in range(3):
      self.assertEqual(_render(template), 'x')

  @parameterized.parameters(
    ('hi', 'message 0 is not a mapping'),
    ({'role': 'user'}, 'message 0 is not a mapping'),
    ({'role': 'user', 'content': 'x', 'tool_calls': []}, 'message 0 is not a mapping'),
    ({'role': 'user', 'content': None}, 'message 0: the content is a NoneType'),
    ({'role': 'user', 'content': [{'text': 'x'}]}, 'message 0: the content is a list'),
    ({'role': 'user<|im_end|>', 'content': 'x'}, 'message 0: role .* is no name'),
    ({'role': '', 'content': 'x'}, 'message 0: role .* is no name'),
    ({'role': 'user\n', 'content': 'x'}, 'message 0: role .* is no name'),
    ({'role': 3, 'content': 'x'}, 'message 0: role 3 is no name'),
  )
  def test_message_is_refused(self, message, complaint):
    with self.assertRaisesRegex(ValueError, complaint):
      chat_template.render_disguised(CHATML, (message,), True, HIDDEN, {})


class ReadTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    directory = tempfile.TemporaryDirectory()
    self.addCleanup(directory.cleanup)
    self.path = pathlib.Path(directory.name)

  @parameterized.parameters(
    ('text', 'text'),
    (None, None),
    ([{'name': 'tool_use', 'template': 'a'}, {'name': 'default', 'template': 'b'}], 'b'),
    ([{'name': 'tool_use', 'template': 'a'}], None),
  )
  def test_forms(self, value, expected):
    config = json.loads(json.dumps({'chat_template': value}))
    self.assertEqual(chat_template.read(self.path, config), expected)
    (self.path / 'chat_template.jinja').write_text('file é')
    self.assertEqual(chat_template.read(self.path, config), 'file é')

  @parameterized.parameters((3,), ({'a': 'b'},), ([{'name': 'default', 'template': 3}],))
  def test_other_forms_are_refused(self, value):
    with self.assertRaisesRegex(ValueError, r"tokenizer_config\.json: 'chat_template' is no text"):
      chat_template.read(self.path, {'chat_template': value})

  def test_bytes_that_are_no_text(self):
    (self.path / 'chat_template.jinja').write_bytes(b'ab\xff')
    with self.assertRaisesRegex(ValueError, r'template\.jinja: not UTF-8 at byte 2'):
      chat_template.read(self.path, {})


if __name__ == '__main__':
  absltest.main()
