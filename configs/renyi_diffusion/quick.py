"""The sweep of α on a ring of eight Gaussians, with a network too small for it.

  python -m experiments.renyi_diffusion.main --config=configs/renyi_diffusion/quick.py

On 2 cores of an AMD EPYC 5 min 34 s. From alpha 0.8 over 1 to 1.3 the precision of samples is 0.88,
0.83 and 0.63, and the 99th percentile of the negative log-likelihood 6.2, 4.6 and 3.8 nats; the
rare modes have 0.050, 0.087 and 0.151 of the samples.
"""

import ml_collections

ALPHAS = {'0_5': 0.5, '0_8': 0.8, '1_1': 1.1, '1_3': 1.3, '1_6': 1.6}  # a name has no dots


def get_config() -> ml_collections.ConfigDict:
  """Objective A with tilts in nats, as a base for the others."""
  config = ml_collections.ConfigDict()
  config.seed = 0
  config.num_seeds = 8
  config.vmapped = True  # all seeds at once; False one by one, for convolutions on a CPU
  config.cpu_devices = 1
  config.eval_only = False
  config.methods = ('likelihood', *(f'renyi_{name}' for name in ALPHAS), 'noisy_1', 'noisy_1_3')
  # NAME: a method with other numbers; only objective, network and optimizer may differ.
  config.variants = {
    **{
      f'renyi_{name}': {'method': 'renyi', 'objective': {'alpha': alpha}}
      for name, alpha in ALPHAS.items()
    },
    # The control: uniform times make the bounds so noisy that the tilt picks times, not data.
    **{
      f'noisy_{name}': {
        'method': 'renyi',
        'objective': {'alpha': alpha, 'times': 'uniform', 'num_times': 8},
      }
      for name, alpha in {'1': 1.0, '1_3': 1.3}.items()
    },
  }
  config.claims = (  # (method, baseline, metric, least gain)
    ('renyi_0_8', 'likelihood', 'precision', 0.04),
    ('renyi_0_8', 'likelihood', 'nll', -0.05),
    ('renyi_0_8', 'renyi_1_3', 'precision', 0.1),
    ('likelihood', 'renyi_1_1', 'precision', 0.0),
    ('renyi_1_1', 'renyi_1_3', 'precision', 0.0),
    ('likelihood', 'renyi_0_8', 'rare_nll', 0.0),
    ('renyi_1_1', 'likelihood', 'rare_nll', 0.0),
    ('renyi_1_3', 'renyi_1_1', 'rare_nll', 0.0),
    ('likelihood', 'renyi_0_8', 'q99_nll', 0.0),
    ('renyi_1_1', 'likelihood', 'q99_nll', 0.0),
    ('renyi_1_3', 'renyi_1_1', 'q99_nll', 0.0),
    ('renyi_1_3', 'noisy_1_3', 'nll', 0.5),
  )

  config.data = ml_collections.ConfigDict()
  config.data.source = 'ring'  # ring (synthetic), digits, mnist, cifar10, imagenet32, folder
  config.data.path = ''  # of the last three
  config.data.test = 2000  # held-out points or images; digits and published sets have their own
  config.data.pool = 1  # side of the squares of pixels that are averaged
  config.data.imbalance = 1.0  # weight of the first class over that of the last, geometric
  config.data.crop = 0  # of a folder's images, centred, before they are resized; 0: the whole
  config.data.size = 64  # of a folder's images

  config.sde = {'kind': 'vp', 'vp': {'beta_min': 0.1, 'beta_max': 20.0}}
  config.start = 1e-5  # where training, sampling and likelihoods begin

  config.steps = 3000
  config.batch_size = 256
  config.chunk_steps = 250
  config.checkpoint_every = 1000

  config.network = ml_collections.ConfigDict()
  config.network.kind = 'mlp'  # mlp, energy (its gradient), unet
  config.network.prediction = 'noise'  # or velocity: the rest after a linear guess
  config.network.hidden = (32, 32)
  config.network.time_frequencies = 4
  config.network.clock = 'linear'  # how t enters; or log_snr
  config.network.channels = 32  # from here on of the unet
  config.network.multipliers = (1, 2)
  config.network.blocks = 1
  config.network.attention = (7,)
  config.network.dropout = 0.0
  config.network.dtype = 'float32'

  config.optimizer = ml_collections.ConfigDict()
  config.optimizer.learning_rate = 3e-3
  config.optimizer.schedule = 'cosine'  # to zero; or constant
  config.optimizer.warmup_fraction = 0.0
  config.optimizer.beta1 = 0.9
  config.optimizer.eps = 1e-8
  config.optimizer.clip = 0.0  # of the gradient's norm; 0: none
  config.optimizer.ema = 0.0  # decay of the averaged parameters; 0: the last ones

  config.objective = ml_collections.ConfigDict()
  config.objective.num_times = 16  # K, of each datum
  config.objective.times = 'importance'  # or uniform, shared; for likelihood, renyi, excess
  config.objective.base = 'likelihood'  # what the weights multiply; or variance
  config.objective.alpha = 1.0
  config.objective.scale = 'nats'  # of the tilt: nats, dimension, fraction
  config.objective.fraction = 0.5  # effective sample of scale 'fraction'
  config.objective.max_weight = 1e30
  config.objective.mix = 0.0  # share of uniform weights
  config.objective.warmup_fraction = 0.0  # of the tilt
  config.objective.normalizer_decay = 0.0  # of a moving normaliser; 0: the batch's own
  config.objective.reference = 'teacher'  # of excess, ratio_proxy, ratio_potential
  config.objective.gamma = 5.0  # min_snr
  config.objective.truncation_exponent = 1.0  # soft_truncation
  config.objective.simple_weight = 0.01  # mixed
  config.objective.path_steps = 16  # variational
  config.objective.num_paths = 2
  config.objective.discriminator = {  # ratio_discriminator
    'hidden': (64, 64, 64),
    'learning_rate': 3e-3,
    'time_frequencies': 6,
    'clock': 'log_snr',  # as network.clock; with t itself it tells nothing apart
    'sampler_steps': 50,  # fewer, and the ratio is to the sampler's law, not to the model's
  }

  config.eval = ml_collections.ConfigDict()
  config.eval.seed = 0
  config.eval.samples = 2000  # drawn; saved in WORKDIR/METHOD/samples.npz
  config.eval.compared = 2000  # of them, in neighbours and Fréchet distance
  config.eval.neighbors = 5
  config.eval.sampler = 'ode'  # ode, dpm, heun, ancestral, predictor_corrector
  config.eval.sampler_steps = 100  # of all but ode
  config.eval.rtol = 1e-4
  config.eval.atol = 1e-4
  config.eval.probes = 0  # Hutchinson's, of the divergence; 0: exact
  config.eval.dequantizations = 1  # of each test image
  config.eval.bound_times = 32  # of each test image, in the bound
  config.eval.classifier_seed = 0
  config.eval.classifier_steps = 1500
  config.gaussian_fit = True  # draw the figure of single Gaussians
  return config
