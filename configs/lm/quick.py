r"""One question to SmolLM2-135M-Instruct.

python -m experiments.lm.main --config=configs/lm/quick.py
"""

import ml_collections

from configs.lm import chat


def get_config() -> ml_collections.ConfigDict:
  """`chat.py` with a prompt."""
  config = chat.get_config()
  config.prompt = 'What is the capital of France?'
  return config
