"""Sanity checks of self-preference: `--config=configs/self_preference/quick.py`."""

from experiments.self_preference import study
from lib.train import app

if __name__ == '__main__':
  app.run(prepare=study.prepare, train=study.run)
