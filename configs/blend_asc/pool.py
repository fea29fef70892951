r"""Every policy on the answers of any language model, from a file.

  python -m experiments.blend_asc.main --config=configs/blend_asc/pool.py \\
    --config.source.pool.path=ANSWERS.jsonl --config.source.pool.normalise=math_answer

The file has one answer a line or row, or a list of them: the fields question, answer and, where it
is known, gold; JSONL or Parquet. Answers are drawn from it with replacement, so it should hold four
times as many of each question as the largest mean budget.
"""

import ml_collections

from configs.blend_asc import quick


def get_config() -> ml_collections.ConfigDict:
  """The policies of quick.py."""
  config = quick.get_config()
  config.sources = ('pool',)
  # Answers of any language model; normalise is one of lib.voting.answers.
  config.source.pool = {'kind': 'pool', 'path': '', 'normalise': 'math_answer'}
  return config
