r"""PQL and its baselines at the paper's scale, on any task of OGBench or D4RL.

  python -m experiments.pql.main --config=configs/pql/ogbench.py
  python -m experiments.pql.main \
    --config=configs/pql/ogbench.py:cube-double-play-singletask-task2-v0
  python -m experiments.pql.main \
    --config=configs/pql/ogbench.py:antmaze-large-navigate-singletask-v0 \
    --config.data.path=antmaze-large-navigate-v0.npz
  python -m experiments.pql.main --config=configs/pql/ogbench.py:pen-human-v1 \
    --config.data.path=pen-human-v1.hdf5

The cubes (single and double), scene, puzzle-3x3 and pointmaze are generated; the other data sets
come from a file. One million updates of 512×4 networks and 8 seeds want an accelerator; nothing
here was run at this scale yet. The numbers of an environment are those of the FQL paper (Park, Li
and Levine, 2025, Table 5, and the commands of its code), ReBRAC's where that paper gives them.
"""

import ml_collections

# By the beginning of the environment's name, the first that fits: what differs from the defaults
# below. Rewards and lengths differ from one to the next, and α with them.
ENVIRONMENTS = {
  'antmaze-large-navigate': {
    'alpha': 10.0,
    'q_aggregation': 'min',
    'rebrac': {'actor_penalty': 0.003, 'critic_penalty': 0.01},
  },
  'antmaze-giant-navigate': {
    'alpha': 10.0,
    'q_aggregation': 'min',
    'discount': 0.995,
    'rebrac': {'actor_penalty': 0.003, 'critic_penalty': 0.01},
  },
  'humanoidmaze': {
    'alpha': 30.0,
    'discount': 0.995,
    'rebrac': {'actor_penalty': 0.01, 'critic_penalty': 0.01},
    'iql': {'inverse_temperature': 10.0},
  },
  'antsoccer': {'alpha': 10.0, 'discount': 0.995},
  'cube': {'alpha': 300.0},
  'scene': {'alpha': 300.0},
  'puzzle': {'alpha': 1000.0},
  'pointmaze': {'alpha': 0.3, 'normalize_q': True, 'discount': 0.995},  # not the paper's
  'antmaze-umaze': {'alpha': 10.0},  # D4RL from here on
  'antmaze-medium': {'alpha': 10.0},
  'antmaze-large': {'alpha': 3.0},
  'pen-expert': {'alpha': 3e3, 'q_aggregation': 'min'},
  'pen': {'alpha': 1e4, 'q_aggregation': 'min'},
  'door': {'alpha': 3e4, 'q_aggregation': 'min'},
  'hammer-cloned': {'alpha': 1e4, 'q_aggregation': 'min'},
  'hammer': {'alpha': 3e4, 'q_aggregation': 'min'},
  'relocate-human': {'alpha': 1e4, 'q_aggregation': 'min'},
  'relocate': {'alpha': 3e4, 'q_aggregation': 'min'},
}
GENERATED = ('cube-single', 'cube-double', 'scene', 'puzzle-3x3', 'pointmaze')


def get_config(env: str = 'cube-single-play-singletask-task1-v0') -> ml_collections.ConfigDict:
  """The setting of one environment; with the default one, what the other configs change."""
  config = ml_collections.ConfigDict()
  config.seed = 0
  config.num_seeds = 8
  config.cpu_devices = 1  # virtual devices to split a CPU into; seeds train side by side on them
  config.eval_only = False
  config.methods = ('bc_flow', 'iql', 'ifql', 'fawac', 'fbrac', 'rebrac', 'fql', 'pql')
  # Further names for `methods`, each a method with changes of `agent`: the ablation.
  config.variants = ml_collections.ConfigDict()
  config.variants.pql_uniform = {'method': 'pql', 'time': {'law': 'uniform'}}
  config.variants.fql_beta = {'method': 'pql', 'pde': {'weight': 0.0}}
  # (method, baseline, metric, least gain): what the report tests, paired by seed.
  config.claims = (('pql', 'bc_flow', 'success', 0.2), ('pql', 'fql', 'success', 0.0))

  config.data = ml_collections.ConfigDict()
  config.data.source = 'generate'  # generate | npz | d4rl | synthetic
  config.data.env = env
  config.data.path = ''  # of the npz or hdf5 file
  config.data.dir = 'data/ogbench'  # where generated sets are kept
  config.data.episodes = 1000
  config.data.seed = 0
  config.data.workers = 0  # processes that generate and evaluate; 0: one for each core

  config.steps = 1_000_000
  config.batch_size = 256
  config.chunk_steps = 5_000  # updates in one compiled call
  config.checkpoint_every = 50_000
  config.eval_every = 100_000
  config.eval_episodes = 50
  config.eval_envs = 16  # environments that step side by side

  config.eval_from = 0  # updates before the first score
  config.score_last = 3  # success is the mean of the last so many scores

  config.online = ml_collections.ConfigDict()  # fine-tuning with the environment, after `steps`
  config.online.steps = 0  # further updates
  config.online.chunk_steps = 200  # updates in one compiled call, before which ...
  config.online.episodes = 1  # ... each seed plays this many episodes
  config.online.capacity = 100_000  # steps that each seed keeps beside the data set
  config.online.balanced = False  # half of a batch from each; otherwise uniform from both together
  config.online.eval_every = 10_000

  agent = ml_collections.ConfigDict()
  agent.hidden_dims = (512, 512, 512, 512)
  agent.critic_layer_norm = True
  agent.num_critics = 2
  agent.q_aggregation = 'mean'  # mean | min
  agent.normalize_q = False
  agent.learning_rate = 3e-4
  agent.discount = 0.99
  agent.polyak_step = 0.005
  agent.alpha = 300.0  # weight of the distillation loss
  agent.flow_steps = 10
  agent.iql = ml_collections.ConfigDict()
  agent.iql.expectile = 0.9
  agent.iql.inverse_temperature = 1.0
  agent.ifql = ml_collections.ConfigDict()
  agent.ifql.num_samples = 32  # of which the critics choose one
  agent.fawac = ml_collections.ConfigDict()
  agent.fawac.inverse_temperature = 1.0
  agent.fbrac = ml_collections.ConfigDict()
  agent.fbrac.alpha = 100.0  # weight of flow matching
  agent.rebrac = ml_collections.ConfigDict()
  agent.rebrac.actor_penalty = 1.0
  agent.rebrac.critic_penalty = 0.0
  agent.rebrac.policy_noise = 0.2  # on the target's action
  agent.rebrac.noise_clip = 0.5
  agent.rebrac.actor_every = 2
  agent.time = ml_collections.ConfigDict()
  agent.time.law = 'beta'  # uniform | beta
  agent.time.a = 2.0
  agent.time.b = 2.0
  agent.time.importance_weight = False  # weigh by 1/p(t): Beta as a proposal, the objective uniform
  agent.pde = ml_collections.ConfigDict()
  agent.pde.weight = 1e-2  # λ
  # jacobian | strain | divergence | divergence_match | material | continuity
  agent.pde.form = 'jacobian'
  agent.pde.num_probes = 1  # 0: exact
  agent.pde.reduction = 'mean'  # over action dimensions: mean | sum
  config.agent = agent

  known = [changes for prefix, changes in ENVIRONMENTS.items() if env.startswith(prefix)]
  if not known:
    raise ValueError(f'no setting for {env!r}; there are those of {", ".join(ENVIRONMENTS)}')
  agent.update(known[0])
  if 'singletask' not in env:
    config.data.source = 'd4rl'
    config.steps = 500_000
    config.score_last = 1
  elif not env.startswith(GENERATED):
    config.data.source = 'npz'
  return config
