r"""Text that goes on where the prompt ends.

python -m experiments.lm.main --config=configs/lm/complete.py --config.prompt="Once upon a time"
"""

import ml_collections

from configs.lm import chat


def get_config() -> ml_collections.ConfigDict:
  """No chat template, and some chance."""
  config = chat.get_config()
  config.task = 'complete'
  config.max_tokens = 64
  config.sampling.temperature = 0.7
  config.sampling.top_p = 0.95
  return config
