"""Trains and compares Rényi diffusion models: `--config=configs/renyi_diffusion/quick.py`."""

from experiments.renyi_diffusion import train
from lib.train import app

if __name__ == '__main__':
  app.run(prepare=train.prepare, train=train.train)
