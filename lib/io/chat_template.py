"""Host. Chat templates: programs of strangers, run in a sandbox with little to spend."""

import functools
import itertools
import json
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jinja2
import jinja2.ext
from jinja2 import nodes, sandbox

_MAX_SOURCE = 2**17  # characters of a template
_MAX_STEPS = 100_000  # turns of loops and calls of macros
_MAX_OUTPUT = 2**24  # characters of a conversation
_STEPS = ' steps'  # no name that a template could write
_PRIVATE = ((0xE000, 0xF900), (0xF0000, 0xFFFFE), (0x100000, 0x10FFFE))  # characters of no meaning


def read(path: pathlib.Path, config: Mapping[str, Any]) -> str | None:
  """Returns the chat template of a model's directory, or None.

  Args:
    path: the directory; its chat_template.jinja comes first.
    config: tokenizer_config.json, whose 'chat_template' is a text or names several.

  Raises:
    ValueError: naming the file that holds no such thing.
  """
  file = path / 'chat_template.jinja'
  template: Any = config.get('chat_template')
  if file.is_file():
    with open(file, 'rb') as stream:
      raw = stream.read(4 * _MAX_SOURCE)
    try:
      return raw.decode()
    except UnicodeDecodeError as error:
      raise ValueError(f'{file}: not UTF-8 at byte {error.start}.') from error
  if isinstance(template, list):
    named = [t for t in template if isinstance(t, dict) and t.get('name') == 'default']
    template = named[0].get('template') if named else None
  if not isinstance(template, str | None):
    raise ValueError(f"{path / 'tokenizer_config.json'}: 'chat_template' is no text.")
  return template


def render_disguised(
  template: str,
  messages: Sequence[Mapping[str, str]],
  add_generation_prompt: bool,
  hidden: str,
  variables: Mapping[str, str],
) -> tuple[str, dict[int, int]]:
  """Writes a conversation by a chat template, as Hugging Face does, with contents in disguise.

  In the contents each hidden character, but for white space, gives way to one of Unicode's
  private characters that occurs nowhere else. So whatever the template does with the contents,
  hidden characters in the result are its own.

  Args:
    template: the Jinja source.
    messages: each a 'role', of letters, digits, '_' and '-', and a 'content'.
    add_generation_prompt: end with what begins an answer.
    hidden: the characters to hide.
    variables: what else the template may name, such as 'bos_token'.

  Returns:
    The conversation, and for `str.translate` what takes off its disguise, character by character.

  Raises:
    ValueError: if a message is none, or the template is malformed, refuses the messages, or loops,
      multiplies or writes too much. What it holds in memory is limited by that alone.
  """
  contents = [_check_message(i, message) for i, message in enumerate(messages)]
  used = {*template, *hidden, *itertools.chain(*contents, *variables.values())}
  private = (c for span in _PRIVATE for c in range(*span) if chr(c) not in used)
  mask = dict(zip((ord(c) for c in sorted(set(hidden)) if not c.isspace()), private, strict=False))
  if len(mask) < sum(not c.isspace() for c in set(hidden)):
    raise ValueError('the messages use all private characters of Unicode.')
  arguments = {
    'messages': [
      {'role': message['role'], 'content': content.translate(mask)}
      for message, content in zip(messages, contents, strict=True)
    ],
    'add_generation_prompt': add_generation_prompt,
    'tools': None,
    'documents': None,
    _STEPS: iter(range(_MAX_STEPS)),
    **variables,
  }
  parts, size = [], 0
  try:
    for part in _compile(template).generate(arguments):
      parts.append(part)
      size += len(part)
      if size > _MAX_OUTPUT:
        raise sandbox.SecurityError(f'writes more than {_MAX_OUTPUT} characters')
  except Exception as error:  # a template can fail in any way
    line = getattr(error, 'lineno', None)
    place = '' if line is None else f' in line {line}'
    raise ValueError(f'{type(error).__name__}{place}: {error}.') from error
  return ''.join(parts), {private: c for c, private in mask.items()}


def _check_message(i: int, message: Mapping[str, str]) -> str:
  if not isinstance(message, Mapping) or set(message) != {'role', 'content'}:
    raise ValueError(f"message {i} is not a mapping of 'role' and 'content'.")
  role, content = message['role'], message['content']
  if not isinstance(role, str) or not re.fullmatch(r'[\w-]+', role):
    raise ValueError(f'message {i}: role {role!r} is no name.')
  if not isinstance(content, str):
    raise ValueError(f'message {i}: the content is a {type(content).__name__} and no text.')
  return content


class _Generation(jinja2.ext.Extension):
  """The block with which templates mark what a model is trained on; it stands for its inside."""

  tags = {'generation'}  # noqa: RUF012

  def parse(self, parser: Any) -> list[nodes.Node]:
    next(parser.stream)
    return parser.parse_statements(('name:endgeneration',), drop_needle=True)


class _Sandbox(sandbox.ImmutableSandboxedEnvironment):
  """Neither long texts out of short ones nor long numbers, and so many steps."""

  intercepted_binops = frozenset(['*', '%', '**'])

  def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
    if operator == '**' or not all(isinstance(x, int | float) for x in (left, right)):
      raise sandbox.SecurityError(f'uses {operator} to make something large')
    return super().call_binop(context, operator, left, right)

  @jinja2.pass_context
  def step(self, context: Any) -> None:
    steps: Iterator[int] = context.parent[_STEPS]
    if next(steps, None) is None:
      raise sandbox.SecurityError(f'takes more than {_MAX_STEPS} steps')


def _raise_exception(message: str) -> None:
  raise jinja2.TemplateError(message)


def _to_json(value: Any, **options: Any) -> str:
  return json.dumps(value, **({'ensure_ascii': False} | options))  # nothing escaped for HTML


@functools.lru_cache(maxsize=16)
def _compile(template: str) -> jinja2.Template:
  if len(template) > _MAX_SOURCE:
    raise ValueError(f'has {len(template)} characters, more than {_MAX_SOURCE}')
  extensions = [jinja2.ext.loopcontrols, _Generation]
  environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
  environment.globals['raise_exception'] = _raise_exception
  environment.filters['tojson'] = _to_json
  tree = environment.parse(template)
  loops: list[nodes.For | nodes.Macro | nodes.CallBlock] = [
    *tree.find_all(nodes.For), *tree.find_all(nodes.Macro), *tree.find_all(nodes.CallBlock)
  ]  # fmt: skip
  for node in loops:
    step = nodes.Call(nodes.EnvironmentAttribute('step'), [], [], None, None)
    node.body.insert(0, nodes.ExprStmt(step).set_lineno(node.lineno))
  return environment.from_string(tree)
