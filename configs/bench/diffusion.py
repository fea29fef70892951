r"""Speed of diffusion models: training, likelihood, neighbours of samples; PyTorch's U-Net beside.

  python -m experiments.bench.main --config=configs/bench/diffusion.py
  pip install torch && python -m experiments.bench.main --config=configs/bench/diffusion.py \
    --config.torch=True --workdir=runs/bench/diffusion-torch

The digits come with scikit-learn (experiments/renyi_diffusion/requirements.txt). With PyTorch it
took 2 min 34 s on 2 quiet cores of an AMD EPYC, in 3 rounds.

- Perceptron: 0.74 [0.11, 1.37] of the rate of a large matrix product; an update of Rényi training
  takes 1.01 [0.91, 1.11] times the time of one of maximum likelihood.
- U-Net: 0.29 [0.10, 0.48] of that rate, and 2.20 [2.03, 2.36] times PyTorch's time. Its
  convolutions and products alone, at their shapes, take half of it, what is elementwise the rest.
- Likelihood of 1,000 digits with one probe: 155 evaluations of the field, 5.5 s.
- Neighbours of 10,000 points among 10,000, 64 features: 4.1 s and 52 MB.
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
