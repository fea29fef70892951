"""Connect four by self-play without search.

python -m experiments.klent.main --config=configs/klent/quick.py
"""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
  """KLENT with the α and β of `tune.py`, as a base for the others."""
  config = ml_collections.ConfigDict()
  config.game = 'connect_four'
  config.seed = 0
  config.num_seeds = 3
  config.cpu_devices = 1
  config.eval_only = False
  config.methods = ('klent',)
  config.evaluations = 4_000_000  # steps of the simulator, those of searches included, a seed
  config.scores = 4  # examinations along the way
  config.chunks_per_score = (
    5  # compiled calls between two of them, after each of which all is saved
  )
  # NAME: a method with other numbers; only play, network, optimizer and agent may differ.
  config.variants = ml_collections.ConfigDict()
  config.claims = ()  # (method, baseline, metric, least gain)
  config.at_least = (
    ('klent', 'score_random', 0.85),
    ('klent', 'score_mctx_32', 0.6),
    ('klent', 'score_mcts_32', 0.6),
  )
  # Counters of Animal Shogi and Gardner chess as 0 or 1, which is what the authors' packing makes.
  config.binary_observations = False

  config.play = ml_collections.ConfigDict()
  config.play.games = 256  # at once
  config.play.moves = 128  # of each in an iteration
  config.play.carry = True  # games go on in the next iteration; else it starts new ones

  config.network = ml_collections.ConfigDict()
  config.network.kind = 'mlp'  # or resnet
  config.network.hidden = (256, 256)
  config.network.channels = 128  # of resnet
  config.network.blocks = 6

  config.optimizer = ml_collections.ConfigDict()
  config.optimizer.learning_rate = 1e-3  # Adam
  config.optimizer.clip = 0.0  # of the gradient's norm; 0: none
  config.optimizer.batch_size = 1024

  config.agent = ml_collections.ConfigDict()
  # The paper has α = 0.03 and β = 0.1, for iterations 64 times as long.
  config.agent.alpha = 0.2  # klent: entropy
  config.agent.beta = 0.3  # divergence
  config.agent.lambda_ = 0.8824969  # exp(-1/8), the paper's
  # Unfinished games have targets by the value where they stand, in klent and in what is called
  # alphazero; else their moves are dropped, which are the early ones where games go on.
  config.agent.bootstrap = True
  config.agent.simulations = 16  # of a move, for what is called alphazero
  config.agent.rescale_values = True  # gumbel_alphazero: between the worst and the best move
  config.agent.dirichlet_fraction = 0.25  # alphazero, regularized_alphazero
  config.agent.dirichlet_alpha = 0.3
  config.agent.search_weight = 1.25  # c of regularized_alphazero
  config.agent.gae_lambda = 0.95  # ppo
  config.agent.clip = 0.2
  config.agent.epochs = 3
  config.agent.value_weight = 0.5
  config.agent.entropy_bonus = 0.01
  config.agent.replay = 200_000  # dqn: transitions
  config.agent.replay_ratio = 1  # samples of updates for each move
  config.agent.first_epsilon = 1.0
  config.agent.last_epsilon = 0.05
  config.agent.exploration_fraction = 0.3  # of the budget, until the last epsilon
  config.agent.target_rate = 0.01

  config.eval = ml_collections.ConfigDict()
  config.eval.seed = 0
  config.eval.opponents = {
    'random': 1024,
    'mctx_32': 1024,
    'mcts_32': 1024,
  }  # and games of each seed
  # Path of pgx's own network, converted; the player's name is pgx. None: there is no such player.
  config.eval.pgx_model = ml_collections.config_dict.placeholder(str)
  config.eval.simulations = 0  # of a search by the agent; 0: it plays its best preference

  config.tournament = ml_collections.ConfigDict()
  config.tournament.games = 0  # of each pair and seed; 0: none
  config.tournament.opening_moves = 2  # at random
  config.tournament.known = ('random', 'one_ply', 'mcts_32', 'mcts_128')  # the first has Elo 0
  return config
