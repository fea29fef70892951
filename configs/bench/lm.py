r"""Speed of SmolLM2-135M, as shares of the roofline, and transformers beside it.

  python -m experiments.bench.main --config=configs/bench/lm.py
  pip install torch transformers && python -m experiments.bench.main --config=configs/bench/lm.py \
    --config.transformers=True --workdir=runs/bench/lm-transformers
  python -m experiments.bench.main --config=configs/bench/lm.py --config.lm.dtype=bfloat16 \
    --workdir=runs/bench/lm-bfloat16
"""

import ml_collections

from configs.bench import quick


def get_config() -> ml_collections.ConfigDict:
  """A prompt of 1,024 tokens; one stream; 32 streams."""
  config = quick.get_config()
  config.cases = ('lm_prefill', 'lm_decode_1', 'lm_decode_32')
  config.ratios = ()
  config.rounds = 5
  return config
