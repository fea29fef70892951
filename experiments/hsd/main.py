"""Trains and compares neural operators on meshes: `--config=configs/hsd/quick.py`."""

from experiments.hsd import train
from lib.train import app

if __name__ == '__main__':
  app.run(prepare=train.prepare, train=train.train)
