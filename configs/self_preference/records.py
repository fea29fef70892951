r"""All tables from votes of any judges, which lie in a file.

  python -m experiments.self_preference.main --config=configs/self_preference/records.py \\
    --config.path=VOTES.jsonl

A line is one game; lib/io/vote_records.py lists its fields.
"""

import ml_collections

from configs.self_preference import quick


def get_config() -> ml_collections.ConfigDict:
  """The file."""
  config = quick.get_config()
  config.parts = ('records',)
  config.path = ''
  return config
