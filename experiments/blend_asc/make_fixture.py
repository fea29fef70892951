"""Makes the pool of the tests again: `python -m experiments.blend_asc.make_fixture`, one minute."""

import json
import pathlib

from experiments.blend_asc import pools
from lib.io import files, models, questions

PATH = pathlib.Path('tests/experiments/blend_asc/fixtures/smollm2_pool.json')
COUNTS = {'sums1': 4, 'sums2': 4, 'products': 4, 'left': 6, 'chain_sum': 3, 'leg_counting': 3}
DRAW = pools.Draw(samples=64, max_tokens=4)


def main() -> None:
  """Asks SmolLM2-135M-Instruct, and writes questions, answers and distributions of first digits."""
  model = models.load(stacked=False)
  items = questions.make(COUNTS, seed=0)
  digits, mass = pools.digit_distributions(model, items)
  rows = pools.draw_pool(model, items, DRAW)
  lines = lambda values: '[\n' + ',\n'.join(json.dumps(value) for value in values) + '\n]'
  parts = {
    'model': json.dumps(models.SMOLLM2),
    'draw': json.dumps(DRAW._asdict()),
    'questions': lines(items),
    'answers': lines([','.join(row) for row in rows]),
    'digits': lines(digits.round(6).tolist()),
    'mass': json.dumps(mass.round(6).tolist()),
  }
  with files.replacing(PATH) as stream:
    body = ',\n'.join(f'"{name}": {text}' for name, text in parts.items())
    stream.write(f'{{\n{body}\n}}\n'.encode())


if __name__ == '__main__':
  main()
