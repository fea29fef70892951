"""Compares allocations of samples to questions: `--config=configs/blend_asc/quick.py`."""

from experiments.blend_asc import study
from lib.train import app

if __name__ == '__main__':
  app.run(prepare=study.prepare, train=study.run)
