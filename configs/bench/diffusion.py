r"""Speed of diffusion models: training, likelihood, neighbours of samples; PyTorch's U-Net beside.

  python -m experiments.bench.main --config=configs/bench/diffusion.py
  pip install torch && python -m experiments.bench.main --config=configs/bench/diffusion.py \
    --config.torch=True --workdir=runs/bench/diffusion-torch

The digits come with scikit-learn (experiments/renyi_diffusion/requirements.txt).
"""

import ml_collections

from configs.bench import quick


def get_config() -> ml_collections.ConfigDict:
  """Perceptron 512x3 at batch 64, 8 times a datum; U-Net of 0.75M parameters at 28x28, batch 64."""
  config = quick.get_config()
  config.cases = (
    'diffusion_mlp_likelihood', 'diffusion_mlp_renyi', 'diffusion_unet', 'digits_likelihood',
    'neighbors',
  )  # fmt: skip
  config.ratios = (('diffusion_mlp_renyi', 'diffusion_mlp_likelihood'),)
  config.rounds = 3
  return config
