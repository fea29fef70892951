r"""What the model thinks of a text, token by token.

  python -m experiments.lm.main --config=configs/lm/log_prob.py \
    --config.prompt="The capital of France is Paris."
  python -m experiments.lm.main --config=configs/lm/log_prob.py --config.prompt_file=LICENSE
"""

import ml_collections

from configs.lm import chat


def get_config() -> ml_collections.ConfigDict:
  """Nothing is generated."""
  config = chat.get_config()
  config.task = 'log_prob'
  return config
