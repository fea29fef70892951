r"""A conversation with SmolLM2-135M-Instruct, which a package brings.

  python -m experiments.lm.main --config=configs/lm/chat.py
  python -m experiments.lm.main --config=configs/lm/chat.py \
    --config.prompt="What is the capital of France?"
  python -m experiments.lm.main --config=configs/lm/chat.py --config.model=path/to/model.gguf
"""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
  """`model` is a GGUF file or a Hugging Face directory."""
  config = ml_collections.ConfigDict()
  config.task = 'chat'  # chat | complete | log_prob
  config.model = 'smollm2-135m-instruct'
  config.dtype = 'float32'  # float32 | bfloat16
  config.int8 = False  # matrices in eight bits
  config.prompt = ''
  config.prompt_file = ''  # a text file, instead
  config.system = ''
  config.max_tokens = 256
  config.num_samples = 1
  config.stop_strings = ()
  config.seed = 0
  config.sampling = ml_collections.ConfigDict()
  config.sampling.temperature = 0.0
  config.sampling.top_k = 0
  config.sampling.top_p = 1.0
  config.sampling.min_p = 0.0
  return config
