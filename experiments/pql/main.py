"""Trains and compares PQL and its baselines: `--config=configs/pql/quick.py`."""

from experiments.pql import train
from lib.train import app

if __name__ == '__main__':
  app.run(prepare=train.prepare, train=train.train)
