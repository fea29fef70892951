r"""Speed of diffusion models: training, likelihood, neighbours of samples; PyTorch's U-Net beside.

  python -m experiments.bench.main --config=configs/bench/diffusion.py
  pip install torch && python -m experiments.bench.main --config=configs/bench/diffusion.py \
    --config.torch=True --workdir=runs/bench/diffusion-torch

The digits come with scikit-learn (experiments/renyi_diffusion/requirements.txt). With PyTorch it
took 4 min 17 s on 2 cores of an AMD EPYC that other jobs kept busy, so that the intervals are wide.

- Perceptron: 0.86 [0.80, 0.93] of the rate of a large matrix product; an update of Rényi training
  takes 1.00 [0.85, 1.16] times the time of one of maximum likelihood.
- U-Net: 0.37 [0.32, 0.43] of that rate, and 1.14 [0.99, 1.29] times PyTorch's time, whose threads
  suffer more from other jobs. In CPU seconds on one core, where they do not count, it is 1.7 times
  (2.6 s and 1.5 s an update; the perceptrons' ratio is 1.00). The convolutions and products alone,
  at their shapes, take half of ours.
- Likelihood of 1,000 digits with one probe: 226 evaluations of the field, 11 s.
- Neighbours of 10,000 points among 10,000, 64 features: 8 s and 52 MB.
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
