"""Full scale: DDPM++ on the published sets of images, read from a path.

  python -m experiments.renyi_diffusion.main --config=configs/renyi_diffusion/images.py:cifar10 \
    --config.data.path=DIRECTORY

`cifar10` wants the published batches (binary or python) or their .tar.gz, `imagenet32` the down-
sampled ImageNet's npz files, `celeba64` the folder of aligned faces. The sizes are those of Soft
Truncation's configs (Kim et al., 2022, arXiv:2106.05527); it wants some accelerators for days, and
has not been run here.
"""

import ml_collections

from configs.renyi_diffusion import digits

SETS = {
  'cifar10': {'source': 'cifar10', 'dropout': 0.1},
  'imagenet32': {'source': 'imagenet32', 'dropout': 0.0},
  'celeba64': {'source': 'folder', 'dropout': 0.1},
}


def get_config(name: str = 'cifar10') -> ml_collections.ConfigDict:
  """One seed of the sweep at the scale of the predecessors."""
  if name not in SETS:
    raise ValueError(f'no set {name!r}: {", ".join(SETS)}')
  config = digits.get_config()
  config.num_seeds = 1
  config.claims = ()
  config.data.source = SETS[name]['source']
  config.data.imbalance = 1.0
  config.data.test = 10_000
  config.data.crop = 140 if name == 'celeba64' else 0
  config.data.size = 64
  config.start = 5e-5 if name == 'imagenet32' else 1e-5
  config.steps = 500_000
  config.batch_size = 128
  config.chunk_steps = 100
  config.checkpoint_every = 10_000
  config.network.kind = 'unet'
  config.network.prediction = 'noise'
  config.network.channels = 128
  config.network.multipliers = (1, 2, 2, 2)
  config.network.blocks = 4
  config.network.attention = (16,)
  config.network.dropout = SETS[name]['dropout']
  config.network.dtype = 'bfloat16'
  config.optimizer.learning_rate = 2e-4
  config.optimizer.schedule = 'constant'
  config.optimizer.warmup_fraction = 0.01  # 5,000 updates
  config.optimizer.ema = 0.9999
  config.objective.num_times = 4  # with one, the tilt would weigh times rather than images
  config.eval.samples = 50_000
  config.eval.compared = 10_000
  config.eval.sampler = 'predictor_corrector'
  config.eval.sampler_steps = 1000
  config.eval.probes = 1
  config.eval.rtol = 1e-5
  config.eval.atol = 1e-5
  config.eval.dequantizations = 5
  return config
