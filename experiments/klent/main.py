"""KLENT: self-play with a reverse KL and an entropy bonus, and the games in which it converges."""

from experiments.klent import train
from lib.train import app

if __name__ == '__main__':
  app.run(prepare=train.prepare, train=train.train)
